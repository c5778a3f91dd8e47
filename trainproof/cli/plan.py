"""Plan a run: `plan`, with its text for the terminal."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evidence import layout
from evidence.extras import need
from evidence.hashes import sha256_json
from evidence.index.index import run_folders
from evidence.targets import THIS_MACHINE, Target, load_target, targets
from evidence.writing import as_json_text
from schemas.catalog import VERSION
from schemas.formats import duration, duration_range, join_lines, short_count, size
from schemas.problems import Problem, ProblemError, problem_of
from schemas.reading import get_str
from trainproof.cli.options import RUNS, AsJson, Phases, Settings, load_phases, using_trainer
from trainproof.output import align

if TYPE_CHECKING:
    from trainer.config.tree import Config
    from trainer.planning.duration import Calibration
    from trainer.planning.plan import PlanOptions

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


def plan(
    config: Annotated[Path | None, typer.Option(help="Configuration file.")] = None,
    phases: Phases = None,
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
    given = locals()
    if explain_oom is not None:
        answer, text = explain_out_of_memory(explain_oom, config=config, settings=settings or ())
        sys.stdout.write(as_json_text(answer) if as_json else text)
        return
    measured = (runs or [RUNS]) if calibrate else []
    if calibrate and config is None:
        need("plan", "train")
        used, skipped = calibrate_plans(measured)
        answer = {"used": [asdict(each) for each in used], "left_out": skipped}
        sys.stdout.write(as_json_text(answer) if as_json else calibration_text(used, skipped))
        return
    if phases is None and (config is None or (runs and not calibrate)):
        what = f"'{runs[0]}' is for --calibrate." if runs else "Missing option --config."
        message = f"{what} A plan needs --config FILE; --set changes any key: --set model.name=google/gemma-2b."
        raise typer.BadParameter(message)
    if exact and quick:
        message = "--exact compiles every program, --quick compiles nothing. Omit one option."
        raise typer.BadParameter(message)
    if where and (single := [name for name, given in (("on", on), ("grid", grid), ("max-batch", max_batch)) if given]):
        message = f"--where plans for every machine, {' and '.join(f'--{name}' for name in single)} for one: omit one."
        raise typer.BadParameter(message)
    with using_trainer("plan", how="early; what a compiler has answered is kept"):
        from trainer.config.load import load_config
        from trainer.planning.plan import PlanOptions

        options = PlanOptions(exact=exact, quick=quick, max_batch=max_batch, grid=grid, hours_stated=hours)
        if phases is not None:
            planned = {}
            for phase in load_phases(phases, given, "on", "exact", "quick", "calibrate", "runs", "as_json")[1]:
                loaded = load_config(phase.config)
                planned[phase.name] = plan_run(loaded, options, on=on, device_is_stated=False, calibrate=measured)
            sys.stdout.write(as_json_text({"phases": planned}) if as_json else phases_text(planned))
            raise typer.Exit(max(3 * (each["verdict"] in {"does_not_fit", "unsupported"}) for each in planned.values()))
        assert config is not None, "refused above"
        loaded = load_config(config, flags={"mesh.device": device}, settings=settings or ())
        if where:
            answer = plan_everywhere(loaded, options)
        else:
            answer = plan_run(loaded, options, on=on, device_is_stated=device is not None, calibrate=measured)
    if as_json:
        sys.stdout.write(as_json_text(answer))
    else:
        sys.stdout.write(where_text(answer["where"]) if where else plan_text(answer))
    verdicts = {row["verdict"] for row in answer.get("where", [answer])}
    raise typer.Exit(3 if verdicts <= {"does_not_fit", "unsupported"} else 0)


def plan_run(
    config: Config, options: PlanOptions, *, on: str | None, device_is_stated: bool, calibrate: Sequence[Path]
) -> dict[str, Any]:
    """Plan a configuration for a target, or for this machine.

    Raises:
        ProblemError: The target is unknown or the configuration cannot be built (exit code 2), or devices are missing
            (exit code 3).
    """
    from trainer.planning.plan import finding
    from trainer.planning.subject import resolve_shape, resolve_shape_here
    from trainer.runtime import init_runtime, this_machine

    if on in (None, THIS_MACHINE):
        init_runtime(config)
        config = resolve_shape_here(config, device_is_stated=device_is_stated)
        target = this_machine(config)
    else:
        target = load_target(on)
        config = resolve_shape(config, target)
    unusable: tuple[Problem, ...] = ()
    if calibrate:
        try:
            used, _ = calibrate_plans(calibrate, target)
            options = replace(options, step_ratio=median(each.step_ratio for each in used))
        except ProblemError as error:
            unusable = error.problems
    document = _plan(config, target, options)
    document["findings"] += [finding(replace(problem, severity="warning")) for problem in unusable]
    return document


def _plan(config: Config, target: Target, options: PlanOptions) -> dict[str, Any]:
    from trainer.planning.plan import plan_config

    options = replace(options, say=lambda line: typer.echo(f"{target.name}: {line}", err=True))
    return plan_config(config, target, options)


def plan_everywhere(config: Config, options: PlanOptions) -> dict[str, Any]:
    """Plan a configuration for every target of the table."""
    from trainer.config.tree import to_document

    anywhere = replace(config, mesh=replace(config.mesh, devices=None))
    options = replace(options, advice=False, grid=False, max_batch=False)
    plans = [(target, _plan(anywhere, target, options)) for target in targets().values()]
    return {
        "schema_version": VERSION,
        "config_sha256": sha256_json(to_document(config)),
        "where": [_where_row(target, plan, config.limits.steps) for target, plan in plans],
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
    paths: Iterable[Path], target: Target | None = None
) -> tuple[list[Calibration], list[dict[str, str]]]:
    """Return the calibrations of measured runs, on a target's kind of device only, and why other runs were skipped.

    Raises:
        ProblemError: No run can be used (exit code 2).
    """
    from trainer.planning.duration import Calibration, calibrate_from_run

    used: list[Calibration] = []
    skipped: list[dict[str, str]] = []
    for folder in dict.fromkeys(folder for path in paths for folder in run_folders(path)):
        found = calibrate_from_run(folder)
        if isinstance(found, Calibration) and target is not None and found.kind not in target.device_kinds:
            found = f"it ran on {found.device}"
        if isinstance(found, Calibration):
            used.append(found)
        else:
            skipped.append({"run": str(folder), "because": found})
    if not used:
        reasons = "; ".join(f"{each['run']}: {each['because']}" for each in skipped)
        problem = problem_of("TP747", file="--calibrate", what=f"No run can be used: {reasons}")
        raise ProblemError([problem], exit_code=2)
    return used, skipped


def calibration_text(used: Sequence[Calibration], skipped: Sequence[dict[str, str]]) -> str:
    """Format the ratios, one line for each run."""
    lines = []
    for each in used:
        memory = "" if each.memory_ratio is None else f", memory {each.memory_ratio:.3g} × the plan"
        lines.append(f"{each.run} on {each.device}: steps took {each.step_ratio:.3g} × the prediction{memory}")
    lines += [f"skipped {each['run']}: {each['because']}" for each in skipped]
    return join_lines([*lines, "Add --config FILE to plan another run with these step times."])


def explain_out_of_memory(source: str, *, config: Path | None, settings: Sequence[str]) -> tuple[dict[str, Any], str]:
    """Explain an out-of-memory error, as JSON values and as text; with a configuration, also the changes that help.

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
    return answer, explanation_text(answer)


def _read_error(source: str) -> str:
    """Return the text of a file or pipe, or the traceback in the log of a run folder."""
    if source == "-":
        if sys.stdin.isatty():
            typer.echo("Paste the text, then press Ctrl-D.", err=True)
        return sys.stdin.buffer.read().decode("utf-8", errors="replace")
    log = Path(source) / layout.LOG
    if not source or (Path(source).is_dir() and not log.is_file()):
        what = f"{source} is a folder without a {layout.LOG}." if source else "No file was given."
        fix = "Pass the file with the text, the folder of a run, or - for standard input."
        problem = problem_of("TP745", file=source or "--explain-oom", what=what, why=None, next=fix)
        raise ProblemError([problem], exit_code=2)
    text = (log if log.is_file() else Path(source)).read_text("utf-8", errors="replace")
    for line in reversed(text.splitlines()):
        with suppress(ValueError):  # not JSON, or a row that a kill has torn
            if traceback := get_str(json.loads(line), "fields", "traceback"):
                return traceback
    return text


def plan_text(plan: dict[str, Any]) -> str:
    """Format a plan (`plan.json`): verdict, programs, largest parts, time, disk, changes and findings."""
    from trainer.planning.plan import in_words

    title = target_title(plan["target"])
    if plan["verdict"] == "unsupported":
        return join_lines(
            [f"{title}: unsupported.", *(f"  {each['what']} {each['next']}" for each in plan["findings"])]
        )
    return "\n".join([f"{title}: {in_words(plan)}\n", *_sections(plan)])


def phases_text(plans: dict[str, dict[str, Any]]) -> str:
    """Format the plan of each phase as a row, and the hours of all together."""
    rows, times = [], [plan["time"] for plan in plans.values() if plan["time"]]
    for name, plan in plans.items():
        hours = f"{_band(plan['time']['hours'])} hours" if plan["time"] else ""
        rows.append((name, f"{size(plan['need_bytes'])} of {size(plan['available_bytes'])}", plan["verdict"], hours))
    total = {end: sum(time["hours"][end] for time in times) for end in ("low", "likely", "high")}
    text = f"All phases: {_band(total)} hours, likely {total['likely']:.2g}"
    if week := (times[0]["week_seconds"] or 0) / 3600 if times else 0:
        text += f", {_band({end: each / week for end, each in total.items()}, '.0%')} of {week:g} h a week"
    return f"{target_title(next(iter(plans.values()))['target'])}:\n{align(rows)}{text}.\n"


def _sections(plan: dict[str, Any]) -> Iterator[str]:
    from trainer.planning.plan import NAMED_PARTS

    programs = plan.get("programs", [])
    if programs:
        reasons = {each["because"] for each in programs}
        is_shared = len(reasons) == 1 and len(programs) > 1
        needs = [[each["name"], size(each["peak_bytes"]), VERDICTS[each["verdict"]]] for each in programs]
        if not is_shared:
            needs = [[*need, each["because"]] for need, each in zip(needs, programs, strict=True)]
        yield align(needs, right={1}) + (join_lines([f"  All {reasons.pop()}."]) if is_shared else "")
    parts = [(size(part["bytes"]), part["name"], part["because"]) for part in plan["parts"][:NAMED_PARTS]]
    yield f"Largest parts, on each device:\n{align(parts, right={0})}"
    if compiled := [program for program in programs if program["buffers"]]:
        largest = max(compiled, key=lambda program: program["peak_bytes"])
        counts = Counter((each["bytes"], each["shape"]) for each in largest["buffers"]).items()
        buffers = [(size(each), f"{count} × {shape}" if count > 1 else shape) for (each, shape), count in counts]
        table = align(buffers[:NAMED_PARTS], right={0})
        yield f"Largest buffers of {largest['name']}, without its arguments:\n{table}"
    yield join_lines(time_lines(plan))
    if advice := plan.get("advice"):
        changes = []
        for change in advice:
            settings = " ".join(f"--set {setting}" for setting in change["set"])
            changes.append((VERDICTS[change["verdict"]], size(change["need_bytes"]), settings))
            changes.append(("", "", f"costs: {change['costs']}"))
        yield f"Changes, each planned for this target:\n{align(changes, right={1})}"
    if findings := plan.get("findings"):
        lines = (f"  {each['severity']} {each['code']}: {each['what']} {each['next']}" for each in findings)
        yield join_lines(["Other findings:", *lines])
    if "max_batch" in plan:
        yield join_lines([f"Largest microbatch: {max_batch_text(plan)}"])
    if plan.get("grid"):
        yield grid_text(plan["grid"])


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


def time_lines(plan: dict[str, Any]) -> list[str]:
    """Format the need of time, sessions, quota, disk and host memory."""
    lines = []
    if time := plan.get("time"):
        hours, step = time["hours"], time["step_seconds"]
        low, likely, high = (3600 * hours[end] for end in ("low", "likely", "high"))
        steps = duration_range(step["low"], step["high"])
        lines.append(f"Time: {duration_range(low, high)}, likely {duration(likely)}; a step takes {steps}.")
        lines.append(f"  {time['because']}")
        if rollout := time.get("rollout"):
            lines.append(f"  {rollout['because']}.")
        if fraction := time["session_fraction"]:
            text = f"  {_band(fraction, '.0%')} of a {time['session_seconds'] / 3600:g}-hour session"
            if week := time["week_fraction"]:
                text += f", {_band(week, '.0%')} of the weekly {time['week_seconds'] / 3600:g}-hour quota"
            lines.append(f"{text}; {format_sessions(time['sessions'])}")
        if time["real_tokens"] is not None:
            tokens = f"{time['real_tokens']:,.0f} tokens, {time['tokens']:,} padded tokens"
            lines.append(f"  A step has {tokens} ({time['tokens_source']})")
    for title, part in (("Disk", plan.get("disk")), ("Memory of the machine", plan.get("host"))):
        if part:
            available = "" if part["available_bytes"] is None else f" of {size(part['available_bytes'])}"
            lines.append(f"{title}: {size(part['need_bytes'])}{available}: {part['because']}.")
            lines += [f"  {part['kept']}"] if part.get("kept") else []
    return lines


def format_sessions(sessions: Sequence[int]) -> str:
    """Format how many sessions a run takes: `1 to 4 sessions, likely 2`."""
    least, likely, most = sessions
    if least == most:
        return "one session is enough" if most == 1 else f"{most} sessions"
    return f"{least} to {most} sessions, likely {likely}"


def grid_text(table: dict[str, Any]) -> str:
    """Format the need of each size in GiB with a mark for its verdict, and a star if it was compiled."""

    def cell(each: dict[str, Any]) -> str:
        need, star = each["need_bytes"] / GIB, "*" if each["method"] == "compiler" else ""
        return f"{star}{need:.{2 if need < 10 else 1}f}{MARKS[each['verdict']]}"

    cells = {(each["max_length"], each["microbatch_size"]): cell(each) for each in table["cells"]}
    sizes = table["microbatch_sizes"]
    rows = [["", *map(str, sizes)]]
    rows += [[str(length), *(cells[length, count] for count in sizes)] for length in table["max_lengths"]]
    explained = "+ fits, ~ tight, - does not fit; * compiled, others estimated"
    heading = f"Need in GiB by microbatch (across) and length (down):\n{explained}\n"
    return heading + align(rows, right=range(len(sizes) + 1))


def where_text(rows: Sequence[dict[str, Any]]) -> str:
    """Format one configuration on every target as a table."""

    def gib(count: int | None) -> str:
        return "" if count is None else f"{count / GIB:.2f}"

    cells = [("target", "×", "verdict", "GiB", "of", "hours", "session", "tokens")]
    cells += [
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
    text = align(cells, indent=0, right={1, 3, 4, 5, 6, 7})
    if len({row["tokens"] for row in rows if row["tokens"]}) > 1:
        text += "Hours and tokens (padded) are of all steps; with more devices (×), a step has more tokens.\n"
    return text


def _band(band: dict[str, float], form: str = ".2g") -> str:
    """Format a range: `0.5–2`."""
    return f"{band['low']:{form}}–{band['high']:{form}}"
