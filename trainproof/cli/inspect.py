"""Look at runs: `runs`, `show`, `check`, `compare`, `note`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from evidence import layout
from evidence.bundle.page import write_report
from evidence.compare.gate import GateLine, check_baseline, check_requirements, parse_requirements, validate_margin
from evidence.compare.scores import Comparison, Pair, ScoreDifference, compare_runs
from evidence.compare.smoke import SmokeCheck
from evidence.effective import peak_memory, planned_memory, typical
from evidence.imports.run import ImportedRun, loss_series
from evidence.index.index import check_paths, index_folder
from evidence.index.summary import RunSummary
from evidence.notes import NotesEdit, change_notes
from evidence.proof.timestamps import describe_timestamps
from evidence.proof.verification import grade_run
from evidence.report import JudgedRecord, build_record, headlines, report_as
from evidence.rules.plausibility import score_caveats
from evidence.run import Figures, Run, read_existing_run
from evidence.scores.recompute import describe_format_losses, describe_run_gain
from evidence.writing import as_json_text
from schemas import formats
from schemas.formats import NOTHING, format_value, join_lines, quantity, visible
from schemas.problems import ProblemError, problem_of
from schemas.reading import column, get_number, get_str
from schemas.render import render_json, render_text
from trainproof.cli.options import RUNS, AsJson
from trainproof.output import align

MAX_FACTS = 60
"""Facts of another tool's run that are shown; JSON has all."""

MAX_FLIPS = 10
"""Items of each kind that are shown; JSON has all."""

VALUE_WIDTH = 40
"""Characters of a setting that are shown."""

Rows = list[tuple[str, str]]
"""Names and values."""


def runs(
    folder: Annotated[Path | None, typer.Argument(help="Folder of runs. Default: submission_runs.")] = None,
    root: Annotated[Path | None, typer.Option(help="Folder of runs.", hidden=True)] = None,
    archived: Annotated[bool, typer.Option("--archived", help="List archived runs too; --json always does.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the runs of a folder, newest first."""
    if folder is not None and root is not None:
        what = "The folder of runs was given twice."
        raise typer.BadParameter(what, param_hint="--root")
    summaries = index_folder(folder or root or RUNS)
    shown = [summary for summary in summaries if archived or not summary.archived]
    text = runs_text(shown)
    if hidden := len(summaries) - len(shown):
        text += f"{quantity(hidden, 'archived run')} not listed; --archived lists them too.\n"
    sys.stdout.write(as_json_text(runs_json(summaries)) if as_json else text)


def runs_text(summaries: Sequence[RunSummary]) -> str:
    """Format the list of runs as a table, and below it who verified each run, and its worst problem."""
    heads = ("run", "grade", "mode", "status", "model", "device", "steps", "tokens", "loss", "exact match")
    table = align([(*heads, "duration", "started"), *map(_cells, summaries)], indent=0, right={6, 7, 8, 10})
    lines = []
    for summary in summaries:
        if summary.coverage:
            lines.append(f"{summary.path.name}: {summary.coverage}. {summary.reasons[0]}")
        if problem := summary.first_problem:
            more = f" ({summary.problem_count - 1} more)" if summary.problem_count > 1 else ""
            lines.append(f"{summary.path.name}: {problem.severity} {problem.code}: {problem.what}{more}")
    return table + join_lines(["", *lines] if lines else [])


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
        _loss(summary.last_loss),
        score,
        formats.duration(summary.duration_seconds),
        summary.started_at[:19].replace("T", " ") if summary.started_at else NOTHING,
    ]


def _steps(done: int | None, planned: int | None) -> str:
    if done is None:
        return NOTHING
    return f"{done:,}" if planned in (None, done) else f"{done:,} of {planned:,}"


def _loss(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.4f}"


def runs_json(summaries: Sequence[RunSummary]) -> list[dict[str, Any]]:
    """Return each summary with the names of its fields."""
    firsts = (render_json([summary.first_problem])[0] if summary.first_problem else None for summary in summaries)
    return [
        asdict(summary) | {"path": str(summary.path), "first_problem": first}
        for summary, first in zip(summaries, firsts, strict=True)
    ]


def show(run: Annotated[Path, typer.Argument(help="Run folder.")], as_json: AsJson = False) -> None:
    """Show the figures, the grade and the problems of a run."""
    read = read_existing_run(run)
    sys.stdout.write(as_json_text(run_json(read)) if as_json else run_text(read))


def run_text(run: Run) -> str:
    """Format a run: identity, figures, grade and problems."""
    report = grade_run(run)
    record = build_record(run, report.findings)
    rows = _own_rows(run, record) if record.sources is None else _tool_rows(run, record.sources, record.figures)
    rows += [("grade", report.grade.describe()), *(("", reason) for reason in report.grade.reasons)]
    rows += [("time", sentence) for sentence in describe_timestamps(run.folder, run.manifest)]
    facts = "" if record.sources is None else _tool_facts(record.sources)
    return join_lines([run.folder]) + align(rows) + facts + render_text(report.findings)


def _own_rows(run: Run, record: JudgedRecord) -> Rows:
    summary = record.facts.eval_summary
    gain = describe_run_gain(summary)
    return [
        *((name.replace("_", " "), value or NOTHING) for name, value in _identity(run).items()),
        *((line.name, line.as_text()) for line in headlines(record)),
        *([("gain", gain)] if gain else []),
        *(("score", text) for _, text in score_caveats(summary)),
        *(("form", text) for text in describe_format_losses(summary, record.facts.log)),
        *_planned_rows(run),
        *(("withheld", reason) for reason in record.withheld),
    ]


def _identity(run: Run) -> dict[str, str | None]:
    """Return the identity of a run, also from an invalid manifest."""
    manifest = run.raw(layout.MANIFEST)
    return {
        "run_id": get_str(manifest, "run_id"),
        "mode": get_str(manifest, "mode"),
        "status": run.status,
        "model": get_str(manifest, "model", "name"),
        "dataset": get_str(manifest, "dataset", "name"),
        "device": get_str(manifest, "devices", "kind"),
        "commit": get_str(manifest, "code", "commit"),
        "started_at": get_str(manifest, "started_at"),
    }


def _planned_rows(run: Run) -> Iterator[tuple[str, str]]:
    """Yield planned and observed memory and step time, as far as both are known."""
    peak = peak_memory(run.manifest)
    if peak is not None and (memory := planned_memory(run.plan, peak.scope)) is not None:
        within = "" if memory.error_fraction is None else f" ± {memory.error_fraction:.0%}"
        part = "" if peak.part is None else f", in {peak.part}"
        yield "memory planned", f"{formats.size(memory.bytes)}{within}; observed {peak.as_text()}{part}"
    low, high = (get_number(run.plan, "time", "step_seconds", end) for end in ("low", "high"))
    seconds = typical(column(run.metrics or [], "step_seconds"))
    if low is not None and high is not None and seconds is not None:
        yield "step planned", f"{formats.duration_range(low, high)}; observed {formats.duration(seconds)}"


def _tool_rows(run: Run, view: ImportedRun, figures: Figures) -> Rows:
    """Return identity and figures of another tool's run; a dash for what is unknown or contradictory."""
    imported = run.imported or {}
    origin = {"run id": "run_id", "imported from": "source", "imported at": "imported_at"} if run.is_import else {}
    loss = _loss(figures.last_loss)
    if figures.last_loss is None and len(figures.losses):
        loss = f"not finite; the last finite one is {figures.losses[-1]:.4f}"
    names = ("model", "dataset", "device", "commit", "status", "started_at")
    return [
        *((name, str(imported.get(key, NOTHING))) for name, key in origin.items()),
        ("read from", ", ".join(view.tools) or NOTHING),
        *((name.replace("_", " "), getattr(figures, name) or NOTHING) for name in names),
        ("optimizer steps", _steps(figures.steps_done, figures.steps_planned)),
        ("last loss", loss),
        ("mean loss", _loss(figures.mean_loss)),
        ("training time", formats.duration(figures.train_seconds)),
    ]


def _tool_facts(view: ImportedRun) -> str:
    """Format the facts and scores of another tool's files with their sources, and the numbers of rows."""
    named = [(fact.name, fact) for fact in view.facts]
    named += [(f"score {score.name}", score) for score in view.scores]
    rows = [(name, f"{format_value(each.value)}  ({each.how}: {each.source})") for name, each in named[:MAX_FACTS]]
    lines = [f"  {len(named) - MAX_FACTS} more"] if len(named) > MAX_FACTS else []
    for (file, stage), losses in loss_series(view.metrics).items():
        where = f"{file}, stage {stage}" if stage > 1 else file
        lines.append(f"  {quantity(len(losses), 'row')} with a loss in {where}")
    return (f"facts in its files:\n{align(rows)}" if rows else "") + join_lines(lines)


def run_json(run: Run) -> dict[str, Any]:
    """Return what `run_text` shows as JSON values."""
    report = grade_run(run)
    record = build_record(run, report.findings)
    shown = _own_json(run, record) if record.sources is None else _tool_json(run, record.sources, record.figures)
    findings = render_json(report.findings)
    return {"path": str(run.folder), **report.grade.document(), **shown, "findings": findings}


def _own_json(run: Run, record: JudgedRecord) -> dict[str, Any]:
    summary = record.facts.eval_summary
    return {
        **_identity(run),
        "headlines": [asdict(line) for line in headlines(record)],
        "gain_of_form": describe_run_gain(summary),
        "form": describe_format_losses(summary, record.facts.log),
        "score_caveats": [text for _, text in score_caveats(summary)],
        "withheld": list(record.withheld),
        "stamps": describe_timestamps(run.folder, run.manifest),
    }


def _tool_json(run: Run, view: ImportedRun, figures: Figures) -> dict[str, Any]:
    return {
        "imported": run.is_import,
        "tools": {name: list(files) for name, files in view.tools.items()},
        "templates": view.templates,
        "figures": asdict(figures) | {"losses": figures.losses.tolist(), "peak_memory_bytes": None},
        "facts": [asdict(fact) for fact in view.facts],
        "scores": [asdict(score) for score in view.scores],
        "series": [
            {"file": file, "stage": stage, "rows": len(rows), "last_loss": rows[-1].values["loss"]}
            for (file, stage), rows in loss_series(view.metrics).items()
        ],
        "predictions": len(view.predictions),
    }


def check(
    paths: Annotated[list[Path], typer.Argument(help="Run folders, folders of runs, or single documents.")],
    as_json: AsJson = False,
    github: Annotated[bool, typer.Option("--github", help="Print annotations for GitHub Actions.")] = False,
    sarif: Annotated[bool, typer.Option("--sarif", help="Print SARIF 2.1.0.")] = False,
) -> None:
    """Check and grade runs. Exit code 1: there are errors."""
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
        write_report(runs, html)
        sys.stdout.write(f"Written: {html}, {formats.size(html.stat().st_size)}.\n")
        return
    comparison, lines = compare_folders(runs, require=require or (), baseline=baseline, no_worse_than=no_worse_than)
    document = comparison_json(comparison, lines)
    sys.stdout.write(as_json_text(document) if as_json else result_text(comparison, lines))
    pairs = comparison.pairs if comparison else ()
    raise typer.Exit(0 if all(line.met for line in lines) and all(pair.score for pair in pairs) else 1)


def compare_folders(
    folders: Sequence[Path],
    *,
    require: Sequence[str] = (),
    baseline: Path | None = None,
    no_worse_than: float | None = None,
) -> tuple[Comparison | None, list[GateLine]]:
    """Return the comparison of runs, or None for a single one, and whether each run meets each requirement.

    Raises:
        ProblemError: A run does not exist, there are too few, or a requirement is not valid (exit code 2).
    """
    requirements = parse_requirements(require)
    margin = validate_margin(no_worse_than, baseline=baseline is not None)
    found = [read_existing_run(folder) for folder in ([baseline, *folders] if baseline else folders)]
    if len(found) == 1 and not requirements:
        what = "A comparison needs at least 2 runs; 1 was given."
        raise ProblemError([problem_of("TP093", file="", what=what, why=None)], exit_code=2)
    comparison = compare_runs(found) if len(found) > 1 else None
    names = comparison.names if comparison else [run.folder.resolve().name for run in found]
    count = len(folders)
    lines = [*check_requirements(names[-count:], found[-count:], requirements)]
    if comparison and margin is not None:
        lines += check_baseline(comparison, margin)
    return comparison, lines


def comparison_json(comparison: Comparison | None, lines: Sequence[GateLine]) -> dict[str, Any]:
    """Return a comparison as JSON values, with the field names of its dataclasses and every item."""
    value: dict[str, Any] = {}
    if comparison:
        value = asdict(comparison)
        for written, pair in zip(value["pairs"], comparison.pairs, strict=True):
            if pair.score:
                written["score"]["table"]["items"] = pair.score.table.items
    return value | ({"gate": [asdict(line) for line in lines]} if lines else {})


def result_text(comparison: Comparison | None, lines: Sequence[GateLine]) -> str:
    """Format a comparison and its requirements: `met      a: last_loss <= 1.5. last_loss is 1.2.`."""
    text = comparison_text(comparison) + ("\n" if lines else "") if comparison else ""
    return text + join_lines(
        f"{'met' if line.met else 'NOT MET':<7}  {line.run}: {line.required}. {line.what}" for line in lines
    )


def comparison_text(comparison: Comparison) -> str:
    """Format a comparison: settings, figures, scores, and what a smoke run shows."""
    parts = [_settings_text(comparison), _figures_text(comparison), *map(_pair_text, comparison.pairs)]
    return "\n".join(parts + ([_smoke_text(comparison.smoke)] if comparison.smoke else []))


def _settings_text(comparison: Comparison) -> str:
    diff = comparison.settings_diff()
    others = f"{len(diff.equal):,} equal" + (f", {len(diff.unheld):,} not in every run" if diff.unheld else "")
    rows = [("kind", "setting", *comparison.names)]
    rows += [(setting.kind, setting.name, *map(_shorten, setting.values)) for setting in diff.by_kind()]
    return f"Settings that differ ({len(diff.differing):,}; {others})\n" + (align(rows) if diff.differing else "")


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
        lines = [f"Scores of {pair.first} and {pair.second} cannot be compared:", *pair.refused]
    else:
        lines = [*_score_lines(pair, pair.score)]
    return join_lines([lines[0], *(f"  {line}" for line in lines[1:])])


def _score_lines(pair: Pair, score: ScoreDifference) -> Iterator[str]:
    """Yield the difference with its interval and its test, the counts, and the items whose answers changed."""

    def p(value: float) -> str:
        return "< 0.0001" if value < 0.0001 else f"= {value:.4f}"

    adjusted = "" if score.adjusted_p_value == score.p_value else f", {p(score.adjusted_p_value)} after Holm"
    groups = f" in {score.clusters:,} groups" if score.clusters is not None else ""
    yield (
        f"Exact match of {pair.second} minus {pair.first}: {score.difference:+.3f} "
        f"(95 % interval {score.low:+.3f} to {score.high:+.3f}, {score.table.items:,} items{groups}); "
        f"{score.test} p {p(score.p_value)}{adjusted}: "
        f"{'significant' if score.adjusted_p_value <= 0.05 else 'not significant'} at the 5 % level."
    )
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
    lines = ["  It shows:", *(f"    {sentence}" for sentence in check.proved)]
    lines += ["  It does not show:", *(f"    {sentence}" for sentence in check.not_proved)]
    head = join_lines([f"Smoke run {check.smoke} of {check.full}"])
    return head + (align(rows) if rows else "") + join_lines(lines)


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
    change = NotesEdit(add=tuple(tag or ()), remove=tuple(untag or ()), note=text, archive=archive)
    documents: list[dict[str, Any]] = []
    printed = ""
    for folder, notes in zip(runs, change_notes(runs, change, datetime.now(UTC)), strict=True):
        documents.append({"path": str(folder), **asdict(notes)})
        first, *rest = notes.note.splitlines() or [NOTHING]
        rows = [("tags", ", ".join(notes.tags) or NOTHING), ("note", first), *(("", line) for line in rest)]
        printed += join_lines([folder]) + align([*rows, ("archived", notes.archived_at or "no")])
    sys.stdout.write(as_json_text(documents) if as_json else printed)
