"""Plan a run: `plan`, with its text for the terminal."""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from evidence import layout
from evidence.extras import need
from schemas.formats import join_lines, short_count, size
from schemas.problems import ProblemError, problem_of
from trainproof.cli.options import RUNS, AsJson, Settings, using_trainer
from trainproof.output import align, print_json

if TYPE_CHECKING:
    from evidence.targets import Target
    from trainer.config.tree import Config
    from trainer.planning.duration import Calibration
    from trainer.planning.plan import PlanOptions


def plan(
    config: Annotated[Path | None, typer.Option(help="Configuration file.")] = None,
    on: Annotated[
        str | None, typer.Option(help="Machine of the table, or your own YAML file. Default: this machine.")
    ] = None,
    where: Annotated[bool, typer.Option("--where", help="Plan for every machine of the table.")] = False,
    exact: Annotated[bool, typer.Option("--exact", help="Compile every program, even far from the limit.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Use formulas only; compile nothing.")] = False,
    grid: Annotated[bool, typer.Option("--grid", help="Show which microbatch fits at which length.")] = False,
    max_batch: Annotated[bool, typer.Option("--max-batch", help="Search for the largest microbatch.")] = False,
    device: Annotated[str | None, typer.Option(help="auto, cpu, gpu or tpu, of this machine.")] = None,
    settings: Settings = None,
    explain_oom: Annotated[
        str | None,
        typer.Option(help="Explain an out-of-memory error: a file, a run folder, or - for stdin.", metavar="FILE|-"),
    ] = None,
    hours: Annotated[float | None, typer.Option(min=0, help="Planned hours, to compare with the estimate.")] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Compare RUNS with their plans; with --config, use their step times.")
    ] = False,
    runs: Annotated[
        list[Path] | None, typer.Argument(help="With --calibrate: runs or folders of runs. Default: submission_runs.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Estimate memory and time of a run before it starts. Exit code 3: it does not fit."""
    if explain_oom is not None:
        _explain(explain_oom, config=config, settings=settings or (), as_json=as_json)
        return
    measured = (runs or [RUNS]) if calibrate else []
    if calibrate and config is None:
        need("plan", "train")
        used, skipped = calibrate_plans(measured)
        if as_json:
            print_json({"used": [asdict(each) for each in used], "left_out": skipped})
        else:
            sys.stdout.write(calibration_text(used, skipped))
        return
    if config is None or (runs and not calibrate):
        what = f"'{runs[0]}' is for --calibrate." if runs else "Missing option --config."
        message = f"{what} A plan needs --config FILE; --set changes any key: --set model.name=google/gemma-2b."
        raise typer.BadParameter(message)
    if exact and quick:
        message = "--exact compiles every program and --quick none: omit one."
        raise typer.BadParameter(message)
    if where and (single := [name for name, given in (("on", on), ("grid", grid), ("max-batch", max_batch)) if given]):
        message = f"--where plans for every machine, {' and '.join(f'--{name}' for name in single)} for one: omit one."
        raise typer.BadParameter(message)
    with using_trainer("plan", how="early; what a compiler has answered is kept"):
        from trainer.planning.plan import PlanOptions

        options = PlanOptions(exact=exact, quick=quick, max_batch=max_batch, grid=grid, hours_stated=hours)
        if where:
            answer = plan_everywhere(config, options, settings=settings or (), device=device)
        else:
            answer = plan_run(config, options, on=on, device=device, settings=settings or (), calibrate=measured)
    if as_json:
        print_json(answer)
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        sys.stdout.write(where_text(answer["where"]) if where else plan_text(answer, width=width))
    verdicts = {row["verdict"] for row in answer.get("where", [answer])}
    raise typer.Exit(3 if verdicts <= {"does_not_fit", "unsupported"} else 0)


def plan_run(
    config: Path,
    options: PlanOptions | None = None,
    *,
    on: str | None = None,
    device: str | None = None,
    settings: Sequence[str] = (),
    calibrate: Sequence[Path] = (),
) -> dict[str, Any]:
    """Plan a configuration for a target, or for this machine.

    Raises:
        ProblemError: The target is unknown or the configuration cannot be built (exit code 2), or devices are missing
            (exit code 3).
    """
    from evidence.targets import THIS_MACHINE, load_target
    from trainer.config.load import load_config
    from trainer.planning.plan import PlanOptions
    from trainer.planning.subject import resolve_shape, resolve_shape_here
    from trainer.runtime import init_runtime, this_machine

    loaded = load_config(config, flags={"mesh.device": device}, settings=settings)
    if on in (None, THIS_MACHINE):
        init_runtime(loaded)
        loaded = resolve_shape_here(loaded, device_is_stated=device is not None)
        target = this_machine(loaded)
    else:
        target = load_target(on)
        loaded = resolve_shape(loaded, target)
    options = options or PlanOptions()
    if calibrate:
        used, _ = calibrate_plans(calibrate, target)
        options = replace(options, step_ratio=median(each.step_ratio for each in used))
    return _plan(loaded, target, options)


def _plan(config: Config, target: Target, options: PlanOptions) -> dict[str, Any]:
    from trainer.planning.plan import plan_config

    def say(line: str) -> None:
        sys.stderr.write(f"{target.name}: {line}\n")
        sys.stderr.flush()

    return plan_config(config, target, replace(options, say=say))


def plan_everywhere(
    config: Path, options: PlanOptions, *, settings: Sequence[str] = (), device: str | None = None
) -> dict[str, Any]:
    """Plan a configuration for every target of the table."""
    from evidence.hashes import sha256_json
    from evidence.targets import targets
    from schemas.catalog import VERSION
    from trainer.config.load import load_config
    from trainer.config.tree import to_document

    loaded = load_config(config, flags={"mesh.device": device}, settings=settings)
    anywhere = replace(loaded, mesh=replace(loaded.mesh, devices=None))
    plans = [
        (target, _plan(anywhere, target, replace(options, advice=False, grid=False, max_batch=False)))
        for target in targets().values()
    ]
    return {
        "schema_version": VERSION,
        "config_sha256": sha256_json(to_document(loaded)),
        "where": [_where_row(target, plan, loaded.limits.steps) for target, plan in plans],
    }


def _where_row(target: Target, plan: dict[str, Any], steps: int) -> dict[str, Any]:
    programs, time = plan["programs"], plan["time"] or {}
    largest = max(programs, key=lambda each: each["peak_bytes"], default=None)
    return {
        "target": target.name,
        "title": target.title,
        "devices": plan["target"]["devices"],
        "need_bytes": plan["need_bytes"] if programs else None,
        **{name: plan[name] for name in ("verdict", "available_bytes", "error_fraction", "method")},
        "because": largest["because"] if largest else plan["findings"][0]["what"],
        "program": largest["name"] if largest else None,
        "tokens": time["tokens"] * steps if time else None,
        **{name: time.get(name) for name in ("hours", "session_fraction", "week_fraction", "sessions")},
    }


def calibrate_plans(
    runs: Sequence[Path], target: Target | None = None
) -> tuple[list[Calibration], list[dict[str, str]]]:
    """Return the calibrations of measured runs, on a target's kind of device only, and why other runs were skipped.

    Raises:
        ProblemError: No run can be used (exit code 2).
    """
    from trainer.planning.duration import Calibration, calibrate_from_run

    used: list[Calibration] = []
    skipped: list[dict[str, str]] = []
    for folder in run_folders(runs):
        found = calibrate_from_run(folder)
        if isinstance(found, Calibration) and target is not None and found.kind not in target.device_kinds:
            found = f"it ran on {found.device}"
        if isinstance(found, Calibration):
            used.append(found)
        else:
            skipped.append({"run": str(folder), "because": found})
    if not used:
        reasons = "; ".join(f"{each['run']}: {each['because']}" for each in skipped) or "the folder contains no run"
        problem = problem_of("TP747", file=", ".join(map(str, runs)), what=f"No run can be used: {reasons}")
        raise ProblemError([problem], exit_code=2)
    return used, skipped


def run_folders(paths: Sequence[Path]) -> list[Path]:
    """Return the run folders among paths, and those directly in the other folders."""
    found: list[Path] = []
    for folder in paths:
        inside = sorted(path.parent for path in folder.glob(f"*/{layout.MANIFEST}")) if folder.is_dir() else []
        found += [folder] if (folder / layout.MANIFEST).is_file() or not inside else inside
    return list(dict.fromkeys(found))


def calibration_text(used: Sequence[Calibration], skipped: Sequence[dict[str, str]]) -> str:
    """Format the ratios, one line for each run."""
    lines = []
    for each in used:
        memory = "" if each.memory_ratio is None else f", memory {each.memory_ratio:.3g} × the plan"
        lines.append(f"{each.run} on {each.device}: steps took {each.step_ratio:.3g} × the prediction{memory}")
    lines += [f"skipped {each['run']}: {each['because']}" for each in skipped]
    return join_lines([*lines, "Add --config FILE to plan another run with these step times."])


def _explain(source: str, *, config: Path | None, settings: Sequence[str], as_json: bool) -> None:
    """Explain an out-of-memory error; with a configuration, also the changes that help.

    Args:
        source: File with the error, folder of a failed run, or `-` for standard input.
        config: Configuration of the failed run, by default that of the folder.
        settings: Values of `--set`.
        as_json: Whether to print JSON.

    Raises:
        ProblemError: The text contains no out-of-memory error (exit code 1), or a file cannot be used (exit code 2).
    """
    from trainer.planning.out_of_memory import explanation, explanation_text, read_out_of_memory

    failure = read_out_of_memory(_read_error(source), source=source)
    if config is None and (Path(source) / layout.CONFIG).is_file():
        config = Path(source) / layout.CONFIG
    loaded = None
    if config is not None:
        need("plan --config", "train")
        from trainer.config.load import load_config

        loaded = load_config(config, settings=settings)
    answer = explanation(failure, loaded)
    if as_json:
        print_json(answer)
    else:
        sys.stdout.write(explanation_text(answer))


def _read_error(source: str) -> str:
    """Return the end of a text, or the traceback in the log of a run folder."""
    from schemas.reading import get_str

    if source == "-":
        if sys.stdin.isatty():
            sys.stderr.write("Paste the text, then press Ctrl-D.\n")
        return _read_end(sys.stdin.buffer)
    log = Path(source) / layout.LOG
    if not source or (Path(source).is_dir() and not log.is_file()):
        what = f"{source} is a folder without a {layout.LOG}." if source else "No file was given."
        fix = "Pass the file with the text, the folder of a run, or - for standard input."
        problem = problem_of("TP745", file=source or "--explain-oom", what=what, why=None, next=fix)
        raise ProblemError([problem], exit_code=2)
    with (log if log.is_file() else Path(source)).open("rb") as file:
        text = _read_end(file)
    for line in reversed(text.splitlines()):
        with suppress(ValueError):  # not JSON, or a row that a kill has torn
            if traceback := get_str(json.loads(line), "fields", "traceback"):
                return traceback
    return text


def _read_end(file: BinaryIO) -> str:
    """Return the last `MAX_CHARACTERS` bytes of a file or pipe, which may be larger than the memory."""
    from trainer.planning.out_of_memory import MAX_CHARACTERS

    end, count = b"", 0
    while piece := file.read(MAX_CHARACTERS):
        end, count = (end + piece)[-MAX_CHARACTERS:], count + len(piece)
    if count > MAX_CHARACTERS:
        sys.stderr.write(f"Only the last {MAX_CHARACTERS:,} of {count:,} bytes are read.\n")
    return end.decode("utf-8", errors="replace")


VERDICTS = {
    "fits": "fits",
    "tight": "tight",
    "does_not_fit": "does not fit",
    "unsupported": "unsupported",
    "unknown": "not known",
}
MARKS = {"fits": "+", "tight": "~", "does_not_fit": "-", "unsupported": "x", "unknown": "?"}
"""Marks of verdicts in the table of sizes."""

GIB = 2**30

_BEFORE_LAST_COLUMN = re.compile(r"\s*(?:\S+(?: \S+)*\s{2,})+")
"""A line up to its last column; columns are two spaces apart."""


def plan_text(plan: dict[str, Any], *, width: int | None = None) -> str:
    """Format a plan: verdict, programs, largest parts, time, disk, changes and findings.

    Args:
        plan: `plan.json`.
        width: Columns of the terminal, or None to keep lines whole.
    """
    lines = _plan_lines(plan)
    if width is not None:
        lines = [piece for line in lines for piece in wrap_line(line, width)]
    if plan.get("grid"):
        lines += ["", *grid_lines(plan["grid"])]
    return "\n".join(lines) + "\n"


def wrap_line(line: str, width: int) -> list[str]:
    """Wrap a line; the later pieces begin at its last column.

    >>> wrap_line("  start   1.0 GiB  estimated: no compiler is here", 41)
    ['  start   1.0 GiB  estimated: no compiler', '                   is here']
    """
    if len(line) <= width:
        return [line]
    column = _BEFORE_LAST_COLUMN.match(line)
    has_column = column is not None and column.end() <= width // 2
    indent = column.end() if column and has_column else len(line) - len(line.lstrip()) + 2
    start = line[:indent] if has_column else ""
    options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.wrap(line[len(start) :], width, initial_indent=start, subsequent_indent=" " * indent, **options)


def _plan_lines(plan: dict[str, Any]) -> list[str]:
    from trainer.planning.plan import NAMED_PARTS, in_words

    title = target_title(plan["target"])
    if plan["verdict"] == "unsupported":
        return [f"{title}: unsupported.", *(f"  {each['what']} {each['next']}" for each in plan["findings"])]
    lines = [f"{title}: {in_words(plan)}", "", *_program_lines(plan), "", "Largest parts, on each device:"]
    parts = plan["parts"][:NAMED_PARTS]
    lines += [f"  {size(part['bytes']):>12}  {part['name']:<16}  {part['because']}" for part in parts]
    programs = [program for program in plan.get("programs", []) if program["buffers"]]
    if programs:
        largest = max(programs, key=lambda program: program["peak_bytes"])
        lines += ["", f"Largest buffers of {largest['name']}, without its arguments:"]
        counts = Counter((each["bytes"], each["shape"]) for each in largest["buffers"])
        for (count_bytes, shape), count in list(counts.items())[:NAMED_PARTS]:
            lines.append(f"  {size(count_bytes):>12}  {f'{count} × ' if count > 1 else ''}{shape}")
    lines += time_lines(plan)
    if plan.get("advice"):
        lines += ["", "Changes, each planned for this target:"]
    for change in plan.get("advice", []):
        settings = " ".join(f"--set {setting}" for setting in change["set"])
        lines.append(f"  {VERDICTS[change['verdict']]:<12} {size(change['need_bytes']):>12}  {settings}")
        lines.append(f"  {'':<12} {'':>12}  costs: {change['costs']}")
    if findings := plan.get("findings"):
        lines += ["", "Other findings:"]
        lines += [f"  {each['severity']} {each['code']}: {each['what']} {each['next']}" for each in findings]
    if "max_batch" in plan:
        lines += ["", f"Largest microbatch: {max_batch_text(plan)}"]
    return lines


def max_batch_text(plan: dict[str, Any]) -> str:
    """Format the largest microbatch that fits, or why it is not known."""
    if (largest := plan["max_batch"]) is not None:
        return f"{largest['microbatch_size']} × {largest['max_length']} tokens on each device."
    is_unknown = plan["available_bytes"] is None
    return "the device's memory is not known." if is_unknown else "not even the smallest fits at this length."


def target_title(target: dict[str, Any]) -> str:
    """Return the title of a target with its number of devices."""
    count = f"{target['devices']} × {target['name']}"
    title = target.get("title") or count
    return title if title.endswith(count) else f"{title} ({count})"


def _program_lines(plan: dict[str, Any]) -> list[str]:
    """Format need and verdict of each program, and how they were found; only once if that is the same for all."""
    programs = plan.get("programs", [])
    reasons = {each["because"] for each in programs}
    is_same = len(reasons) == 1 and len(programs) > 1
    lines = [
        f"  {each['name']:<7} {size(each['peak_bytes']):>12}  {VERDICTS[each['verdict']]:<12} "
        f"{'' if is_same else each['because']}".rstrip()
        for each in programs
    ]
    return [*lines, f"  All {reasons.pop()}."] if is_same else lines


def time_lines(plan: dict[str, Any]) -> list[str]:
    """Format the need of time, sessions, quota, disk and host memory."""
    lines = []
    if time := plan.get("time"):
        hours, step = time["hours"], time["step_seconds"]
        lines += ["", f"Time: {_band(hours)} hours, likely {hours['likely']:.2g}; a step {_band(step)} s."]
        lines.append(f"  {time['because']}")
        if rollout := time.get("rollout"):
            lines.append(f"  {rollout['because']}.")
        if fraction := time["session_fraction"]:
            text = f"  {_band(fraction, '.0%')} of a session of {time['session_seconds'] / 3600:g} h"
            if week := time["week_fraction"]:
                text += f", {_band(week, '.0%')} of the {time['week_seconds'] / 3600:g} h of a week"
            lines.append(f"{text}; {format_sessions(time['sessions'])}")
        if time["real_tokens"] is not None:
            real = f"{time['real_tokens']:,.0f} of {time['tokens']:,} tokens of a step"
            lines.append(f"  {real} are not padding ({time['tokens_source']})")
    for title, part in (("Disk", plan.get("disk")), ("Memory of the machine", plan.get("host"))):
        if part:
            available = "" if part["available_bytes"] is None else f" of {size(part['available_bytes'])}"
            lines.append(f"{title}: {size(part['need_bytes'])}{available}: {part['because']}.")
            lines += [f"For judges: {part['kept']}."] if part.get("kept") else []
    return lines


def format_sessions(sessions: Sequence[int]) -> str:
    """Format how many sessions a run takes, at least, likely and at most.

    >>> [format_sessions(each) for each in ((1, 1, 1), (2, 2, 2), (1, 2, 4))]
    ['one session is enough', '2 sessions', '1 to 4 sessions, likely 2']
    """
    least, likely, most = sessions
    if least == most:
        return "one session is enough" if most == 1 else f"{most} sessions"
    return f"{least} to {most} sessions, likely {likely}"


def grid_lines(table: dict[str, Any]) -> list[str]:
    """Format the need of each size in GiB with a mark for its verdict, and a star if it was compiled."""
    cells = {(cell["max_length"], cell["microbatch_size"]): cell for cell in table["cells"]}
    how = "; * compiled, others estimated" if any(cell["method"] == "compiler" for cell in table["cells"]) else ""
    lines = ["Need in GiB by microbatch (across) and length (down):", f"+ fits, ~ tight, - does not fit{how}"]
    lines.append(f"{'':>6}" + "".join(f"{count:>8}" for count in table["microbatch_sizes"]))
    for length in table["max_lengths"]:
        row = "".join(_grid_cell(cells[length, count]) for count in table["microbatch_sizes"])
        lines.append(f"{length:>6}{row}".rstrip())
    return lines


def _grid_cell(cell: dict[str, Any]) -> str:
    """Format one size in eight characters: `  14.4+*`."""
    need = cell["need_bytes"] / GIB
    star = "*" if cell["method"] == "compiler" else " "
    return f"{need:>6.{2 if need < 10 else 1}f}{MARKS[cell['verdict']]}{star}"


def where_text(rows: Sequence[dict[str, Any]]) -> str:
    """Format one configuration on every target as a table."""

    def gib(count: int | None) -> str:
        return "" if count is None else f"{count / GIB:.2f}"

    heads = ("target", "×", "verdict", "GiB", "of", "hours", "session", "tokens")
    cells = [
        (
            row["target"],
            str(row["devices"]),
            VERDICTS[row["verdict"]],
            gib(row["need_bytes"]),
            gib(row["available_bytes"]),
            _band(row["hours"]) if row["hours"] else "",
            f"{row['session_fraction']['likely']:.0%}" if row["session_fraction"] else "",
            short_count(row["tokens"]) if row["tokens"] else "",
        )
        for row in rows
    ]
    text = align([heads, *cells], indent=0, right=set(heads) - {"target", "verdict"})
    if len({row["tokens"] for row in rows if row["tokens"]}) > 1:
        text += "Hours are of all steps; a machine with more devices (×) trains on more tokens in each.\n"
    return text


def _band(band: dict[str, float], form: str = ".2g") -> str:
    """Format a range: `0.5–2`."""
    return f"{band['low']:{form}}–{band['high']:{form}}"
