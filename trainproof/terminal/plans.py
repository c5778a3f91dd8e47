"""`trainproof plan`: a plan as one page of text, several targets as a table, sizes as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schemas.problems.formats import size
from trainer.planning.refusal import NAMED_PARTS, in_words

GIB = 2**30
WORDS = {
    "fits": "fits",
    "tight": "tight",
    "does_not_fit": "does not fit",
    "unsupported": "unsupported",
    "unknown": "not known",
}
MARKS = {"fits": "+", "tight": "~", "does_not_fit": "-", "unsupported": "x", "unknown": "?"}


def plan_text(plan: dict[str, Any]) -> str:
    """Return a plan as text: the verdict, programs, parts, time, disk, and what to change."""
    target = plan["target"]
    if plan["verdict"] == "unsupported":
        reasons = "".join(f"  {each['what']} {each['next']}\n" for each in plan["findings"])
        return f"{title_of(target)}: unsupported.\n{reasons}"
    lines = [f"{title_of(target)}: {in_words(plan)}", ""]
    lines += [*program_lines(plan), "", "Largest parts, on each device:"]
    lines += [
        f"  {size(part['bytes']):>12}  {part['name']:<12}  {part['because']}" for part in plan["parts"][:NAMED_PARTS]
    ]
    lines += [*buffer_lines(plan), *time_lines(plan), *change_lines(plan), *finding_lines(plan)]
    if plan.get("max_batch"):
        most = plan["max_batch"]
        lines += ["", f"Largest microbatch: {most['microbatch_size']} × {most['max_length']} tokens on each device."]
    if plan.get("grid"):
        lines += ["", *grid_lines(plan["grid"])]
    return "\n".join(lines) + "\n"


def title_of(target: dict[str, Any]) -> str:
    """Return the machine in a few words."""
    count = f"{target['devices']} × {target['name']}"
    return f"{target['title']} ({count})" if "title" in target and target["title"] != count else count


def program_lines(plan: dict[str, Any]) -> list[str]:
    """Return one line a program: need, verdict, and how it was found."""
    return [
        f"  {each['name']:<7} {size(each['peak_bytes']):>12}  {WORDS[each['verdict']]:<12} {each['because']}"
        for each in plan.get("programs", [])
    ]


def buffer_lines(plan: dict[str, Any]) -> list[str]:
    """Return the largest buffers of the program that decides, where a compiler named them."""
    programs = [program for program in plan.get("programs", []) if program["buffers"]]
    if not programs:
        return []
    largest = max(programs, key=lambda program: program["peak_bytes"])
    lines = ["", f"Largest buffers of {largest['name']} besides its arguments:"]
    lines += [f"  {size(each['bytes']):>12}  {each['shape']}" for each in largest["buffers"][:NAMED_PARTS]]
    return lines


def time_lines(plan: dict[str, Any]) -> list[str]:
    """Return what the run takes of time, session, week and disk."""
    lines = []
    if time := plan.get("time"):
        hours, step = time["hours"], time["step_seconds"]
        lines += ["", f"Time: {between(hours)} hours likely {hours['likely']:.3g}; a step {between(step)} s."]
        lines.append(f"  {time['because']}")
        if time["session_fraction"]:
            share = time["session_fraction"]
            said = f"  {between(share, percent=True)} of a session of {time['session_seconds'] / 3600:g} h"
            if time["week_fraction"]:
                week = time["week_fraction"]
                said += f", {between(week, percent=True)} of a week's {time['week_seconds'] / 3600:g} h"
            at_most = f"; sessions: {' / '.join(map(str, time['sessions']))} (least / likely / most)"
            lines.append(said + at_most)
        if time["real_tokens"] is not None:
            real = f"{time['real_tokens']:,.0f} of {time['tokens']:,} tokens of a step"
            lines.append(f"  {real} are not padding ({time['tokens_source']})")
    if disk := plan.get("disk"):
        have = "" if disk["available_bytes"] is None else f" of {size(disk['available_bytes'])}"
        lines.append(f"Disk: {size(disk['need_bytes'])}{have}: {disk['because']}.")
    return lines


def change_lines(plan: dict[str, Any]) -> list[str]:
    """Return what to change, verified by planning it again; else what would save memory by the sums."""
    if plan.get("advice"):
        lines = ["", "What to change, each planned again for this target:"]
        for each in plan["advice"]:
            settings = " ".join(f"--set {setting}" for setting in each["set"])
            lines.append(f"  {WORDS[each['verdict']]:<12} {size(each['need_bytes']):>12}  {settings}")
            lines.append(f"  {'':<12} {'':>12}  costs: {each['costs']}")
        return lines
    if not plan["changes"]:
        return []
    lines = ["", "What would save memory, each alone:"]
    return lines + [f"  {size(change['saves_bytes']):>12}  --set {change['set']}" for change in plan["changes"]]


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
    some_compiled = any(cell["method"] == "compiler" for cell in table["cells"])
    how = "; * compiled, the others added up" if some_compiled else ""
    lines = [f"Need in GiB by microbatch (across) and length (down): + fits, ~ tight, - does not fit{how}"]
    lines.append(f"{'':>8}" + "".join(f"{count:>10}" for count in table["microbatch_sizes"]))
    for length in table["max_lengths"]:
        row = [cells[length, count] for count in table["microbatch_sizes"]]
        lines.append(f"{length:>8}" + "".join(grid_cell(cell) for cell in row))
    return lines


def grid_cell(cell: dict[str, Any]) -> str:
    """Return one size of the table in ten letters: `   14.43* +`."""
    star = "*" if cell["method"] == "compiler" else " "
    return f"{cell['need_bytes'] / GIB:>7.2f}{star} {MARKS[cell['verdict']]}"


def where_text(rows: Sequence[dict[str, Any]]) -> str:
    """Return one configuration on every target as a table."""
    lines = [f"{'target':<18} {'devices':>7} {'verdict':<12} {'need':>11} {'of':>11} {'hours':>14} {'session':>10}"]
    for row in rows:
        need = "" if row["need_bytes"] is None else size(row["need_bytes"])
        have = "" if row["available_bytes"] is None else size(row["available_bytes"])
        hours = "" if row["hours"] is None else between(row["hours"])
        share = "" if row["session_fraction"] is None else f"{row['session_fraction']['likely']:.0%}"
        lines.append(
            f"{row['target']:<18} {row['devices']:>7} {WORDS[row['verdict']]:<12} "
            f"{need:>11} {have:>11} {hours:>14} {share:>10}"
        )
    return "\n".join(lines) + "\n"


def between(band: dict[str, float], *, percent: bool = False) -> str:
    """Return a band as `0.5–2`."""
    if percent:
        return f"{band['low']:.0%}–{band['high']:.0%}"
    return f"{band['low']:.2g}–{band['high']:.2g}"
