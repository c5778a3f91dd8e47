"""Look at runs: `runs`, `show`, `check`, `compare`, `note`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evidence import layout
from schemas import formats
from schemas.formats import NOTHING, format_value, join_lines, quantity, visible
from schemas.problems import Problem, ProblemError, problem_of
from trainproof.cli.options import RUNS, AsJson
from trainproof.output import align, print_json, print_table

if TYPE_CHECKING:
    from evidence.compare.gate import GateLine
    from evidence.compare.scores import Comparison, Pair, ScoreDifference
    from evidence.compare.smoke import SmokeCheck
    from evidence.grade import RunReport
    from evidence.imports.run import ImportedRun
    from evidence.index.summary import RunSummary
    from evidence.report import JudgedRecord
    from evidence.run import Figures, Run

MAX_FACTS = 60
"""Facts of another tool's run that are shown; JSON has all."""

MAX_FLIPS = 10
"""Items of each kind that are shown; JSON has all."""

VALUE_WIDTH = 40
"""Characters of a setting that are shown."""


def runs(
    folder: Annotated[Path | None, typer.Argument(help="Folder of runs. Default: submission_runs.")] = None,
    root: Annotated[Path | None, typer.Option(help="The same, as other commands name it.")] = None,
    archived: Annotated[bool, typer.Option("--archived", help="List archived runs too; --json always does.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the runs of a folder, newest first."""
    if folder is not None and root is not None:
        what = "The folder of runs was given twice."
        raise typer.BadParameter(what, param_hint="--root")
    from evidence.index.index import index_folder

    summaries = index_folder(folder or root or RUNS)
    if as_json:
        print_json(runs_json(summaries))
        return
    shown = [summary for summary in summaries if archived or not summary.archived]
    if sys.stdout.isatty():
        print_table(runs_table(shown), right=_NUMBERS)
        sys.stdout.write(_remarks(shown))
    else:
        sys.stdout.write(runs_text(shown))
    if hidden := len(summaries) - len(shown):
        sys.stdout.write(f"{quantity(hidden, 'archived run')} not listed; --archived lists them too.\n")


_NUMBERS = {"steps", "tokens", "loss", "duration"}
"""Columns that are aligned to the right."""


def runs_table(summaries: Sequence[RunSummary]) -> list[list[str]]:
    """Return the list of runs as text: a header and one row for each run."""
    heads = ["run", "grade", "mode", "status", "model", "device", "steps", "tokens", "loss", "exact match", "duration"]
    return [[*heads, "started"], *(_cells(summary) for summary in summaries)]


def _cells(summary: RunSummary) -> list[str]:
    score = NOTHING
    if summary.score is not None and summary.score_low is not None and summary.score_high is not None:
        score = f"{summary.score:.3f} ({summary.score_low:.3f}–{summary.score_high:.3f})"
    names = (summary.mode, summary.status, summary.model, summary.device)
    return [
        summary.path.name,
        summary.grade,
        *(name or NOTHING for name in names),
        _steps(summary.steps_done, summary.steps_planned),
        formats.count(summary.tokens_seen),
        NOTHING if summary.last_loss is None else f"{summary.last_loss:.4f}",
        score,
        formats.duration(summary.duration_seconds),
        summary.started_at[:19].replace("T", " ") if summary.started_at else NOTHING,
    ]


def _steps(done: int | None, planned: int | None) -> str:
    if done is None:
        return NOTHING
    return f"{done:,}" if planned in (None, done) else f"{done:,} of {planned:,}"


def _remarks(summaries: Sequence[RunSummary]) -> str:
    """Format who verified each run, and its worst problem."""
    lines = []
    for summary in summaries:
        if summary.coverage:
            lines.append(f"{summary.path.name}: {summary.coverage}. {summary.reasons[0]}")
        if problem := summary.first_problem:
            more = f" ({summary.problem_count - 1} more)" if summary.problem_count > 1 else ""
            lines.append(f"{summary.path.name}: {problem.severity} {problem.code}: {problem.what}{more}")
    return join_lines(["", *lines] if lines else [])


def runs_text(summaries: Sequence[RunSummary]) -> str:
    """Format the list of runs as aligned text."""
    return align(runs_table(summaries), indent=0, right=_NUMBERS) + _remarks(summaries)


def runs_json(summaries: Sequence[RunSummary]) -> list[dict[str, Any]]:
    """Return each summary with the names of its fields."""
    from schemas.render import render_json

    return [
        asdict(summary)
        | {
            "path": str(summary.path),
            "first_problem": render_json([summary.first_problem])[0] if summary.first_problem else None,
        }
        for summary in summaries
    ]


def show(run: Annotated[Path, typer.Argument(help="Run folder.")], as_json: AsJson = False) -> None:
    """Show the figures, the grade and the problems of a run."""
    from evidence.run import read_existing_run

    read = read_existing_run(run)
    if as_json:
        print_json(run_json(read))
    else:
        sys.stdout.write(run_text(read))


def run_text(run: Run) -> str:
    """Format a run: identity, figures, grade and problems."""
    from evidence.proof.timestamps import describe_timestamps
    from evidence.proof.verification import grade_run
    from evidence.report import build_record, headlines
    from evidence.rules.plausibility import score_caveats
    from evidence.scores.recompute import describe_format_losses, describe_run_gain

    report = grade_run(run)
    record = build_record(run, report.findings)
    if record.sources is not None:
        rows = [*_tool_identity(run, record.sources), *_tool_figures(record.figures)]
        return _describe(run, rows, report, [], _tool_facts(record.sources))
    summary = record.facts.eval_summary
    rows = [*_identity(run), *((line.name, line.as_text()) for line in headlines(record))]
    gain = describe_run_gain(summary)
    rows += [("gain", gain)] if gain else []
    rows += [("score", text) for _, text in score_caveats(summary)]
    rows += [("form", text) for text in describe_format_losses(summary, record.facts.log)]
    rows += planned_rows(run)
    rows += [("withheld", reason) for reason in record.withheld]
    return _describe(run, rows, report, describe_timestamps(run.folder, run.manifest), [])


def _describe(
    run: Run, rows: Sequence[tuple[str, str]], report: RunReport, times: Sequence[str], further: Sequence[str]
) -> str:
    from schemas.render import render_text

    grade = [("grade", report.grade.describe()), *(("", reason) for reason in report.grade.reasons)]
    all_rows = [*rows, *grade, *(("time", sentence) for sentence in times)]
    return join_lines([run.folder]) + align(all_rows) + join_lines(further) + render_text(report.findings)


def run_json(run: Run) -> dict[str, Any]:
    """Return what `run_text` shows as JSON values."""
    from evidence.proof.timestamps import describe_timestamps
    from evidence.proof.verification import grade_run
    from evidence.report import build_record, headlines
    from evidence.rules.plausibility import score_caveats
    from evidence.scores.recompute import describe_format_losses, describe_run_gain
    from schemas.render import render_json

    report = grade_run(run)
    record = build_record(run, report.findings)
    if record.sources is not None:
        return _tool_json(record, record.sources, report)
    summary = record.facts.eval_summary
    return {
        "path": str(run.folder),
        **report.grade.document(),
        **{name.replace(" ", "_"): None if value == NOTHING else value for name, value in _identity(run)},
        "headlines": [asdict(line) for line in headlines(record)],
        "gain_of_form": describe_run_gain(summary),
        "form": describe_format_losses(summary, record.facts.log),
        "score_caveats": [text for _, text in score_caveats(summary)],
        "withheld": list(record.withheld),
        "stamps": describe_timestamps(run.folder, run.manifest),
        "findings": render_json(report.findings),
    }


def _identity(run: Run) -> list[tuple[str, str]]:
    """Return the identity of a run, also from an invalid manifest."""
    from schemas.reading import get_str

    def text(*path: str) -> str:
        return get_str(run.raw(layout.MANIFEST), *path) or NOTHING

    return [
        ("run id", text("run_id")),
        ("mode", text("mode")),
        ("status", run.status or NOTHING),
        ("model", text("model", "name")),
        ("dataset", text("dataset", "name")),
        ("device", text("devices", "kind")),
        ("commit", text("code", "commit")),
        ("started at", text("started_at")),
    ]


def planned_rows(run: Run) -> list[tuple[str, str]]:
    """Return planned and observed memory and step time; empty if either is unknown.

    Example: `memory planned    560.0 MiB within 30%; observed 582.0 MiB, process above baseline, in train`.
    """
    from evidence.effective import peak_memory, planned_memory
    from schemas.reading import get_number

    rows = []
    peak = peak_memory(run.manifest)
    memory = planned_memory(run.plan, peak.scope) if peak else None
    if peak is not None and memory is not None:
        within = "" if memory.error_fraction is None else f" ± {memory.error_fraction:.0%}"
        part = "" if peak.part is None else f", in {peak.part}"
        rows.append(("memory planned", f"{formats.size(memory.bytes)}{within}; observed {peak.as_text()}{part}"))
    low, high = (get_number(run.plan, "time", "step_seconds", end) for end in ("low", "high"))
    seconds = get_number(run.manifest, "result", "train_seconds")
    steps = get_number(run.manifest, "training", "steps_done")
    if low is not None and high is not None and seconds is not None and steps:
        planned = f"{formats.duration(low)} to {formats.duration(high)}"
        rows.append(("step planned", f"{planned}; observed {formats.duration(seconds / steps)}"))
    return rows


def _tool_identity(run: Run, view: ImportedRun) -> list[tuple[str, str]]:
    tools = ", ".join(view.tools) or NOTHING
    if not run.is_import:
        return [("read from", tools)]
    names = (("run id", "run_id"), ("imported from", "source"), ("imported at", "imported_at"))
    return [*((name, str((run.imported or {}).get(key, NOTHING))) for name, key in names), ("read from", tools)]


def _tool_figures(figures: Figures) -> list[tuple[str, str]]:
    """Return the figures of another tool's run; a dash for what is unknown or contradictory."""
    loss = NOTHING if figures.last_loss is None else f"{figures.last_loss:.4f}"
    if figures.last_loss is None and len(figures.losses):
        loss = f"not finite; the last finite one is {figures.losses[-1]:.4f}"
    names = ("model", "dataset", "device", "commit", "status", "started_at")
    return [
        *((name.replace("_", " "), getattr(figures, name) or NOTHING) for name in names),
        ("optimizer steps", _steps(figures.steps_done, figures.steps_planned)),
        ("last loss", loss),
        ("mean loss", NOTHING if figures.mean_loss is None else f"{figures.mean_loss:.4f}"),
        ("training time", formats.duration(figures.train_seconds)),
    ]


def _tool_facts(view: ImportedRun) -> list[str]:
    """Format the facts and scores of another tool's files with their sources, and the numbers of rows."""
    from evidence.imports.run import Fact, loss_series

    scores = [
        Fact(name=f"score {score.name}", value=score.value, source=score.source, how=score.how, note=score.note)
        for score in view.scores
    ]
    facts = [*view.facts, *scores]
    series = [
        f"  {quantity(len(rows), 'row')} with a loss in {file}" + (f", stage {stage}" if stage > 1 else "")
        for (file, stage), rows in loss_series(view.metrics).items()
    ]
    if not facts:
        return series
    shown = facts[:MAX_FACTS]
    width = max(len(fact.name) for fact in shown)
    lines = [f"  {fact.name.ljust(width)}  {format_value(fact.value)}  ({fact.how}: {fact.source})" for fact in shown]
    more = [f"  {len(facts) - MAX_FACTS} more"] if len(facts) > MAX_FACTS else []
    return ["facts in its files:", *lines, *more, *series]


def _tool_json(record: JudgedRecord, view: ImportedRun, report: RunReport) -> dict[str, Any]:
    from evidence.imports.run import loss_series
    from schemas.render import render_json

    return {
        "path": str(record.facts.folder),
        **report.grade.document(),
        "imported": record.facts.is_import,
        "tools": {name: list(files) for name, files in view.tools.items()},
        "templates": view.templates,
        "figures": asdict(record.figures) | {"losses": record.figures.losses.tolist(), "peak_memory_bytes": None},
        "facts": [asdict(fact) for fact in view.facts],
        "scores": [asdict(score) for score in view.scores],
        "series": [
            {"file": file, "stage": stage, "rows": len(rows), "last_loss": rows[-1].values["loss"]}
            for (file, stage), rows in loss_series(view.metrics).items()
        ],
        "predictions": len(view.predictions),
        "findings": render_json(report.findings),
    }


def check(
    paths: Annotated[list[Path], typer.Argument(help="Run folders, folders of runs, or single documents.")],
    as_json: AsJson = False,
    github: Annotated[bool, typer.Option("--github", help="Print annotations for GitHub Actions.")] = False,
    sarif: Annotated[bool, typer.Option("--sarif", help="Print SARIF 2.1.0.")] = False,
) -> None:
    """Check and grade runs. Exit code 1: there are errors."""
    from evidence.index.index import check_paths
    from evidence.report import report_as

    report = check_paths(paths)
    forms = {"json": as_json, "github": github, "sarif": sarif}
    sys.stdout.write(report_as(report, [name for name, is_requested in forms.items() if is_requested]))
    raise typer.Exit(0 if report.ok else 1)


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; the first is compared with each of the others.")],
    require: Annotated[
        list[str] | None, typer.Option(help='Requirement on every run, such as "exact_match>=0.4".')
    ] = None,
    baseline: Annotated[Path | None, typer.Option(help="Run that the others are compared with.")] = None,
    no_worse_than: Annotated[
        float | None, typer.Option(help="Accepted loss of exact match against the baseline, such as 0.02.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write runs or bundles as one HTML page instead.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare settings, figures and scores of runs.

    Paired tests show whether scores differ. Exit code 1: scores cannot be compared, or a requirement is not met.
    """
    if html is not None:
        from evidence.bundle.page import write_report

        write_report(runs, html)
        sys.stdout.write(f"Written: {html}, {formats.size(html.stat().st_size)}.\n")
        return
    result = compare_folders(runs, require=require or (), baseline=baseline, no_worse_than=no_worse_than)
    if as_json:
        print_json(comparison_json(result))
    else:
        sys.stdout.write(result_text(result))
    raise typer.Exit(0 if result.ok else 1)


@dataclass(frozen=True, kw_only=True)
class CompareResult:
    """A comparison (None for a single run), and whether each requirement is met."""

    comparison: Comparison | None
    lines: tuple[GateLine, ...]

    @property
    def ok(self) -> bool:
        """Whether all scores can be compared and every requirement is met."""
        pairs = self.comparison.pairs if self.comparison else ()
        return all(line.met for line in self.lines) and all(pair.score for pair in pairs)


def compare_folders(
    folders: Sequence[Path],
    *,
    require: Sequence[str] = (),
    baseline: Path | None = None,
    no_worse_than: float | None = None,
) -> CompareResult:
    """Compare runs and check requirements.

    Args:
        folders: The runs; a single one needs a baseline or a requirement.
        require: Requirements on each of them, such as `exact_match>=0.4`.
        baseline: Run that they are compared with.
        no_worse_than: Accepted loss of exact match against the baseline.

    Raises:
        ProblemError: A run does not exist, there are too few, or a requirement is not valid (exit code 2).
    """
    from evidence.compare.gate import check_baseline, check_requirements, parse_requirements, validate_margin
    from evidence.compare.scores import compare_runs

    requirements = parse_requirements(require)
    margin = validate_margin(no_worse_than, baseline=baseline is not None)
    found = read_runs([*([baseline] if baseline else []), *folders], at_least=1 if requirements else 2)
    comparison = compare_runs(found) if len(found) > 1 else None
    names = comparison.names if comparison else [run.folder.resolve().name for run in found]
    count = len(folders)
    lines = [*check_requirements(names[-count:], found[-count:], requirements)]
    if comparison and margin is not None:
        lines += check_baseline(comparison, margin)
    return CompareResult(comparison=comparison, lines=tuple(lines))


def read_runs(folders: Sequence[Path], *, at_least: int) -> list[Run]:
    """Read run folders.

    Raises:
        ProblemError: A folder does not exist, or there are too few (exit code 2).
    """
    from evidence.run import read_run

    problems = [_no_folder(folder) for folder in folders if not folder.is_dir()]
    if len(folders) < at_least:
        what = f"A comparison needs at least 2 runs; {len(folders)} was given."
        problems.append(problem_of("TP093", file="", what=what, why=None))
    if problems:
        raise ProblemError(problems, exit_code=2)
    return [read_run(folder) for folder in folders]


def _no_folder(folder: Path) -> Problem:
    what = "This is not a folder." if folder.exists() else "This does not exist."
    fix = "Pass the path of a run folder; `trainproof runs` lists them."
    return problem_of("TP091", file=str(folder), what=what, next=fix, why=None)


def comparison_json(result: CompareResult) -> dict[str, Any]:
    """Return a comparison as JSON values, with the field names of its dataclasses and every item."""
    value: dict[str, Any] = {}
    if result.comparison:
        value = asdict(result.comparison)
        for written, pair in zip(value["pairs"], result.comparison.pairs, strict=True):
            if pair.score:
                written["score"]["table"]["items"] = pair.score.table.items
    return value | ({"gate": [asdict(line) for line in result.lines]} if result.lines else {})


def result_text(result: CompareResult) -> str:
    """Format a comparison and its requirements: `met      a: last_loss <= 1.5. last_loss is 1.2.`."""
    text = comparison_text(result.comparison) + ("\n" if result.lines else "") if result.comparison else ""
    return text + join_lines(
        f"{'met' if line.met else 'NOT MET':<7}  {line.run}: {line.required}. {line.what}" for line in result.lines
    )


def comparison_text(comparison: Comparison) -> str:
    """Format a comparison: settings, figures, scores, and what a smoke run shows."""
    parts = [_settings_text(comparison), _figures_text(comparison), *map(_pair_text, comparison.pairs)]
    return "\n".join(parts + ([_smoke_text(comparison.smoke)] if comparison.smoke else []))


def _settings_text(comparison: Comparison) -> str:
    diff = comparison.settings_diff()
    others = f"{len(diff.equal):,} are equal"
    if diff.unheld:
        others += f", {len(diff.unheld):,} are missing in some runs"
    if not diff.differing:
        return f"Settings: {f'none differ; {others}' if diff.unheld else f'all {others}'}.\n"
    rows = [("setting", "source", *comparison.names)]
    rows += [(setting.name, setting.source, *map(_shorten, setting.values)) for setting in diff.differing]
    return f"Settings that differ ({len(diff.differing):,}; {others})\n{align(rows)}"


def _shorten(value: object) -> str:
    """Format a value as JSON, shortened to `VALUE_WIDTH`."""
    text = visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return text if len(text) <= VALUE_WIDTH else text[: VALUE_WIDTH - 1] + "…"


def _figures_text(comparison: Comparison) -> str:
    rows = [
        ("figure", *comparison.names),
        ("grade", *(grade.words for grade in comparison.grades)),
        ("status", *(status or NOTHING for status in comparison.statuses)),
    ]
    figures = zip(*comparison.headlines, strict=True)
    rows += [(values[0].name, *(value.as_text() for value in values)) for values in figures]
    withheld = zip(comparison.names, comparison.withheld, strict=True)
    return f"Figures\n{align(rows)}" + join_lines(f"  {name}: {text}" for name, texts in withheld for text in texts)


def _pair_text(pair: Pair) -> str:
    if pair.score is None:
        head = f"Scores of {pair.first} and {pair.second} cannot be compared:"
        return join_lines([head, *(f"  {reason}" for reason in pair.refused)])
    sentence, lines = difference_sentence(pair, pair.score), _score_lines(pair, pair.score)
    return join_lines([sentence, *(f"  {line}" for line in lines)])


def difference_sentence(pair: Pair, score: ScoreDifference) -> str:
    """Format a difference with its interval and its test."""

    def p(value: float) -> str:
        return "< 0.0001" if value < 0.0001 else f"= {value:.4f}"

    adjusted = "" if score.adjusted_p_value == score.p_value else f", {p(score.adjusted_p_value)} after Holm"
    verdict = "significant" if score.adjusted_p_value <= 0.05 else "not significant"
    groups = f" in {score.clusters:,} groups" if score.clusters is not None else ""
    return (
        f"Exact match of {pair.second} minus {pair.first}: {score.difference:+.3f} "
        f"(95 % interval {score.low:+.3f} to {score.high:+.3f}, {score.table.items:,} items{groups}); "
        f"{score.test} p {p(score.p_value)}{adjusted}: {verdict} at the 5 % level."
    )


def _score_lines(pair: Pair, score: ScoreDifference) -> Iterator[str]:
    table, tokens = score.table, score.output_tokens
    if score.gain_of_form is not None:
        yield f"But {score.gain_of_form}."
    yield (
        f"Both right {table.both:,}, only {pair.first} {table.only_first:,}, only {pair.second} "
        f"{table.only_second:,}, neither {table.neither:,}."
    )
    if score.first_errors or score.second_errors:
        counts = f"{score.first_errors:,} of {pair.first}, {score.second_errors:,} of {pair.second}"
        yield f"Without an output, which counts as wrong: {counts}."
    if score.detectable_difference is None:
        yield "So few items cannot show any difference."
    else:
        yield f"A true difference of {score.detectable_difference:.3f} is detected in 80 % of cases with so many items."
    if tokens is not None and tokens.low is not None and tokens.high is not None:
        interval = f"95 % interval {tokens.low:+.1f} to {tokens.high:+.1f}, {tokens.method}, {tokens.n:,} items"
        yield f"Output tokens per item: {tokens.mean:+.1f} ({interval})."
    for kind in ("broken", "fixed"):
        flips = [flip for flip in score.flips if flip.kind == kind]
        for flip in flips[:MAX_FLIPS]:
            answers = f"{flip.first_answer!r} → {flip.second_answer!r}"
            yield f"{kind} {flip.id}: {_shorten(flip.prompt)} expected {flip.expected!r}, {answers}"
        if len(flips) > MAX_FLIPS:
            yield f"and {len(flips) - MAX_FLIPS:,} more {kind}; `--json` lists them."


def _smoke_text(check: SmokeCheck) -> str:
    marks = {True: "yes", False: "no", None: "unknown"}
    rows = [(answer.question, marks[answer.same]) for answer in check.answers]
    proved = ["  It shows:", *(f"    {sentence}" for sentence in check.proved)]
    unproved = ["  It does not show:", *(f"    {sentence}" for sentence in check.not_proved)]
    head = join_lines([f"Smoke run {check.smoke} of {check.full}"])
    return head + (align(rows) if rows else "") + join_lines([*proved, *unproved])


def note(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    tag: Annotated[list[str] | None, typer.Option(help="Add a tag of one word; may be repeated.")] = None,
    untag: Annotated[list[str] | None, typer.Option(help="Remove a tag.")] = None,
    text: Annotated[str | None, typer.Option(help='Set the note; "" removes it.')] = None,
    archive: Annotated[
        bool | None, typer.Option("--archive/--restore", help="Hide the runs in lists, or show them again.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tag, annotate, archive or restore runs. Without options, show their notes; grades do not depend on them."""
    from datetime import UTC, datetime

    from evidence.notes import NotesEdit, change_notes

    change = NotesEdit(add=tuple(tag or ()), remove=tuple(untag or ()), note=text, archive=archive)
    changed = list(zip(runs, change_notes(runs, change, datetime.now(UTC)), strict=True))
    if as_json:
        print_json([{"path": str(folder), **asdict(notes)} for folder, notes in changed])
        return
    for folder, notes in changed:
        first, *rest = notes.note.splitlines() or [NOTHING]
        rows = [("tags", ", ".join(notes.tags) or NOTHING), ("note", first), *(("", line) for line in rest)]
        sys.stdout.write(join_lines([folder]) + align([*rows, ("archived", notes.archived_at or "no")]))
