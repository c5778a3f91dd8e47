"""`trainproof plan`: a plan as one page of text, several targets as a table, sizes as a table."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

from schemas.formats import size
from trainer.planning.words import NAMED_PARTS, in_words

VERDICTS = {
    "fits": "fits",
    "tight": "tight",
    "does_not_fit": "does not fit",
    "unsupported": "unsupported",
    "unknown": "not known",
}

GIB = 2**30
LAST_COLUMN = re.compile(r"\s*(?:\S+(?: \S+)*\s{2,})+")
"""All of a line up to its last column: columns are two spaces apart."""

MARKS = {"fits": "+", "tight": "~", "does_not_fit": "-", "unsupported": "x", "unknown": "?"}


def plan_text(plan: dict[str, Any], *, width: int | None = None) -> str:
    """Return a plan as text: the verdict, programs, parts, time, disk, and what to change.

    Args:
        plan: `plan.json`.
        width: columns of the terminal. None: lines stay whole, as a program that reads them wants it.
    """
    lines = plan_lines(plan)
    if width is not None:
        lines = [piece for line in lines for piece in wrap_line(line, width)]
    if plan.get("grid"):
        lines += ["", *grid_lines(plan["grid"])]
    return "\n".join(lines) + "\n"


def wrap_line(line: str, width: int) -> list[str]:
    """Return a line in pieces of a terminal's width; the later ones begin where its last column does.

    >>> wrap_line("  start   1.0 GiB  estimated: no compiler is here", 41)
    ['  start   1.0 GiB  estimated: no compiler', '                   is here']
    """
    column = LAST_COLUMN.match(line)
    indent = column.end() if column and column.end() <= width // 2 else len(line) - len(line.lstrip()) + 2
    begin = line[:indent] if column and column.end() == indent else ""
    pieces = textwrap.wrap(
        line[len(begin) :],
        width,
        initial_indent=begin,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    )
    return pieces if len(line) > width else [line]


def plan_lines(plan: dict[str, Any]) -> list[str]:
    """Return a plan as lines, however long, without the table of sizes."""
    target = plan["target"]
    if plan["verdict"] == "unsupported":
        reasons = [f"  {each['what']} {each['next']}" for each in plan["findings"]]
        return [f"{title_of(target)}: unsupported.", *reasons]
    lines = [f"{title_of(target)}: {in_words(plan)}", ""]
    lines += [*program_lines(plan), "", "Largest parts, on each device:"]
    lines += [
        f"  {size(part['bytes']):>12}  {part['name']:<16}  {part['because']}" for part in plan["parts"][:NAMED_PARTS]
    ]
    lines += [*buffer_lines(plan), *time_lines(plan), *change_lines(plan), *finding_lines(plan)]
    if "max_batch" in plan:
        lines += ["", f"Largest microbatch: {largest_in_words(plan)}"]
    return lines


def largest_in_words(plan: dict[str, Any]) -> str:
    """Return the largest microbatch that fits, or why it is not known, in words."""
    if (most := plan["max_batch"]) is not None:
        return f"{most['microbatch_size']} × {most['max_length']} tokens on each device."
    unknown = plan["available_bytes"] is None
    return "the device's memory is not known." if unknown else "not even the smallest fits at this length."


def title_of(target: dict[str, Any]) -> str:
    """Return the machine in a few words."""
    count = f"{target['devices']} × {target['name']}"
    title = target.get("title") or count
    return title if title.endswith(count) else f"{title} ({count})"


def program_lines(plan: dict[str, Any]) -> list[str]:
    """Return one line a program: need, verdict, and how it was found, once where that is the same of all."""
    programs = plan.get("programs", [])
    reasons = {each["because"] for each in programs}
    is_one = len(reasons) == 1 and len(programs) > 1
    lines = [
        f"  {each['name']:<7} {size(each['peak_bytes']):>12}  {VERDICTS[each['verdict']]:<12} "
        f"{'' if is_one else each['because']}".rstrip()
        for each in programs
    ]
    return [*lines, f"  All {reasons.pop()}."] if is_one else lines


def buffer_lines(plan: dict[str, Any]) -> list[str]:
    """Return the largest buffers of the program that decides, where a compiler named them."""
    programs = [program for program in plan.get("programs", []) if program["buffers"]]
    if not programs:
        return []
    largest = max(programs, key=lambda program: program["peak_bytes"])
    lines = ["", f"Largest buffers of {largest['name']} besides its arguments:"]
    alike = Counter((each["bytes"], each["shape"]) for each in largest["buffers"])
    for (held, shape), count in list(alike.items())[:NAMED_PARTS]:
        lines.append(f"  {size(held):>12}  {f'{count} × ' if count > 1 else ''}{shape}")
    return lines


def time_lines(plan: dict[str, Any]) -> list[str]:
    """Return what the run takes of time, session, week, disk and the machine's memory."""
    lines = []
    if time := plan.get("time"):
        hours, step = time["hours"], time["step_seconds"]
        lines += ["", f"Time: {between(hours)} hours, likely {hours['likely']:.2g}; a step {between(step)} s."]
        lines.append(f"  {time['because']}")
        if drawn := time.get("rollout"):
            lines.append(f"  {drawn['because']}.")
        if time["session_fraction"]:
            share = time["session_fraction"]
            said = f"  {between(share, percent=True)} of a session of {time['session_seconds'] / 3600:g} h"
            if time["week_fraction"]:
                week = time["week_fraction"]
                said += f", {between(week, percent=True)} of a week's {time['week_seconds'] / 3600:g} h"
            lines.append(f"{said}; {sessions_words(time['sessions'])}")
        if time["real_tokens"] is not None:
            real = f"{time['real_tokens']:,.0f} of {time['tokens']:,} tokens of a step"
            lines.append(f"  {real} are not padding ({time['tokens_source']})")
    if disk := plan.get("disk"):
        have = "" if disk["available_bytes"] is None else f" of {size(disk['available_bytes'])}"
        lines.append(f"Disk: {size(disk['need_bytes'])}{have}: {disk['because']}.")
        if kept := disk.get("kept"):
            lines.append(f"For judges: {kept}.")
    if host := plan.get("host"):
        have = "" if host["available_bytes"] is None else f" of {size(host['available_bytes'])}"
        lines.append(f"Memory of the machine: {size(host['need_bytes'])}{have}: {host['because']}.")
    return lines


def sessions_words(sessions: Sequence[int]) -> str:
    """Return how many sessions it takes, at least and at most.

    >>> [sessions_words(each) for each in ((1, 1, 1), (2, 2, 2), (1, 2, 4))]
    ['one session is enough', '2 sessions', '1 to 4 sessions, likely 2']
    """
    least, likely, most = sessions
    if least == most:
        return "one session is enough" if most == 1 else f"{most} sessions"
    return f"{least} to {most} sessions, likely {likely}"


def change_lines(plan: dict[str, Any]) -> list[str]:
    """Return what to change, each set planned again."""
    if not plan.get("advice"):
        return []
    lines = ["", "What to change, each planned again for this target:"]
    for each in plan["advice"]:
        settings = " ".join(f"--set {setting}" for setting in each["set"])
        lines.append(f"  {VERDICTS[each['verdict']]:<12} {size(each['need_bytes']):>12}  {settings}")
        lines.append(f"  {'':<12} {'':>12}  costs: {each['costs']}")
    return lines


def finding_lines(plan: dict[str, Any]) -> list[str]:
    """Return what else would be spent badly."""
    found = plan.get("findings", [])
    if not found:
        return []
    lines = ["", "Besides memory:"]
    return lines + [f"  {each['severity']} {each['code']}: {each['what']} {each['next']}" for each in found]


def grid_lines(table: dict[str, Any]) -> list[str]:
    """Return sizes as a table: fits +, tight ~, does not fit -, with the need in GiB; a star where it was compiled."""
    cells = {(cell["max_length"], cell["microbatch_size"]): cell for cell in table["cells"]}
    lines = ["Need in GiB by microbatch (across) and length (down):"]
    some_compiled = any(cell["method"] == "compiler" for cell in table["cells"])
    how = "; * compiled, the others estimated" if some_compiled else ""
    lines.append(f"+ fits, ~ tight, - does not fit{how}")
    lines.append(f"{'':>6}" + "".join(f"{count:>8}" for count in table["microbatch_sizes"]))
    for length in table["max_lengths"]:
        row = [cells[length, count] for count in table["microbatch_sizes"]]
        lines.append((f"{length:>6}" + "".join(grid_cell(cell) for cell in row)).rstrip())
    return lines


def grid_cell(cell: dict[str, Any]) -> str:
    """Return one size of the table in eight letters: `  14.4+*`."""
    need = cell["need_bytes"] / GIB
    star = "*" if cell["method"] == "compiler" else " "
    return f"{need:>6.{2 if need < 10 else 1}f}{MARKS[cell['verdict']]}{star}"


def where_text(rows: Sequence[dict[str, Any]]) -> str:
    """Return one configuration on every target as a table."""
    lines = [
        f"{'target':<16} {'×':>2}  {'verdict':<12} {'GiB':>6} {'of':>7} {'hours':>11} {'session':>7} {'tokens':>7}"
    ]
    for row in rows:
        need = "" if row["need_bytes"] is None else f"{row['need_bytes'] / GIB:.2f}"
        have = "" if row["available_bytes"] is None else f"{row['available_bytes'] / GIB:.2f}"
        hours = "" if row["hours"] is None else between(row["hours"])
        share = "" if row["session_fraction"] is None else f"{row['session_fraction']['likely']:.0%}"
        lines.append(
            f"{row['target']:<16} {row['devices']:>2}  {VERDICTS[row['verdict']]:<12} "
            f"{need:>6} {have:>7} {hours:>11} {share:>7} {tokens_of(row['tokens']):>7}".rstrip()
        )
    if len({row["tokens"] for row in rows if row["tokens"]}) > 1:
        lines.append("Hours are of all steps; a machine with more devices (×) learns from more tokens in each.")
    return "\n".join(lines) + "\n"


def tokens_of(count: int | None) -> str:
    """Return a number of tokens in a few letters.

    >>> [tokens_of(count) for count in (None, 800, 52_428_800, 2_100_000_000)]
    ['', '800', '52.4M', '2.1G']
    """
    if count is None:
        return ""
    unit, name = next(
        ((unit, name) for unit, name in ((10**9, "G"), (10**6, "M"), (10**3, "k")) if count >= unit), (1, "")
    )
    return f"{count / unit:.3g}{name}"


def between(band: dict[str, float], *, percent: bool = False) -> str:
    """Return a band as `0.5–2`."""
    if percent:
        return f"{band['low']:.0%}–{band['high']:.0%}"
    return f"{band['low']:.2g}–{band['high']:.2g}"
