"""Imports and folders of other tools in words: what is known, from where, and what is not."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from evidence.grade import RunReport, check_run
from evidence.imports.importing import ImportResult
from evidence.imports.run import Fact, ImportedRun, loss_series
from evidence.report import JudgedRecord
from evidence.run import Figures, Run, read_run
from schemas import formats
from schemas.formats import NOTHING, format_value, join_lines, quantity
from schemas.render import render_json, render_text

MOST_FACTS = 60
"""Facts that the terminal shows; JSON has all of them."""


def foreign_text(record: JudgedRecord, report: RunReport) -> str:
    """Return a run of another tool as the terminal shows it: figures, grade, every fact with its source, findings."""
    run, view = record.facts, record.sources
    assert view is not None
    rows = [*_identity(run, view), *_figures(record.figures), ("grade", report.grade.name)]
    width = max(len(name) for name, _ in rows)
    lines = [str(run.path), *(f"  {name.ljust(width)}  {value}" for name, value in rows)]
    lines += [f"  {''.ljust(width)}  {reason}" for reason in report.grade.reasons]
    lines += _facts(view)
    return join_lines(lines) + render_text(report.findings)


def foreign_json(record: JudgedRecord, report: RunReport) -> dict[str, Any]:
    """Return what `foreign_text` shows, as values, with every fact, score and series."""
    run, view = record.facts, record.sources
    assert view is not None
    return {
        "path": str(run.path),
        **report.grade.document(),
        "imported": run.is_import,
        "tools": {name: list(files) for name, files in view.tools.items()},
        "templates": view.templates,
        "figures": asdict(record.figures) | {"losses": record.figures.losses.tolist()},
        "facts": [asdict(fact) for fact in view.facts],
        "scores": [asdict(score) for score in view.scores],
        "series": [
            {"file": file, "stage": stage, "rows": len(rows), "last_loss": rows[-1].values["loss"]}
            for (file, stage), rows in loss_series(view.metrics).items()
        ],
        "predictions": len(view.predictions),
        "findings": render_json(report.findings),
    }


def import_text(imported: ImportResult) -> str:
    """Return what an import made, in a few lines, with its findings."""
    report = _report(imported)
    kept = sum(1 for original in imported.document["originals"] if original["kept"])
    lines = [
        f"Imported as {imported.path}: {quantity(kept, 'file')} kept under original/, {_counts(imported.view)}.",
        f"grade: {report.grade.name}",
        *(f"  {reason}" for reason in report.grade.reasons),
    ]
    return join_lines(lines) + render_text((*report.findings, *imported.notes))


def import_json(imported: ImportResult) -> dict[str, Any]:
    """Return what `import_text` shows, as values."""
    report = _report(imported)
    return {
        "path": str(imported.path),
        "run_id": imported.document["run_id"],
        **report.grade.document(),
        "tools": {name: list(files) for name, files in imported.view.tools.items()},
        "originals": len(imported.document["originals"]),
        "facts": len(imported.view.facts),
        "metrics": len(imported.view.metrics),
        "scores": len(imported.view.scores),
        "predictions": len(imported.view.predictions),
        "findings": render_json((*report.findings, *imported.notes)),
    }


def _report(imported: ImportResult) -> RunReport:
    return check_run(read_run(imported.path))


def _counts(view: ImportedRun) -> str:
    parts = (
        quantity(len(view.facts), "fact"),
        quantity(len(view.metrics), "metric row"),
        quantity(len(view.scores), "score"),
        quantity(len(view.predictions), "answer"),
    )
    return ", ".join(parts)


def _identity(run: Run, view: ImportedRun) -> list[tuple[str, str]]:
    tools = ", ".join(view.tools) or NOTHING
    if not run.is_import:
        return [("read from", tools)]
    imported = run.imported or {}
    return [
        ("run id", str(imported.get("run_id", NOTHING))),
        ("imported from", str(imported.get("source", NOTHING))),
        ("imported at", str(imported.get("imported_at", NOTHING))),
        ("read from", tools),
    ]


def _figures(figures: Figures) -> list[tuple[str, str]]:
    """Return the figures as names and texts; what is not known, or contradicted, is a dash."""
    done, planned = figures.steps_done, figures.steps_planned
    steps = NOTHING if done is None else f"{done:,}" + (f" of {planned:,}" if planned not in (None, done) else "")
    return [
        ("model", figures.model or NOTHING),
        ("dataset", figures.dataset or NOTHING),
        ("device", figures.device or NOTHING),
        ("commit", figures.commit or NOTHING),
        ("status", figures.status or NOTHING),
        ("started at", figures.started_at or NOTHING),
        ("optimizer steps", steps),
        ("last loss", _last_loss(figures)),
        ("mean loss", NOTHING if figures.mean_loss is None else f"{figures.mean_loss:.4f}"),
        ("training time", formats.duration(figures.train_seconds)),
    ]


def _last_loss(figures: Figures) -> str:
    if figures.last_loss is not None:
        return f"{figures.last_loss:.4f}"
    return f"not finite; the last that is: {figures.losses[-1]:.4f}" if len(figures.losses) else NOTHING


def _facts(view: ImportedRun) -> list[str]:
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
    width = max(len(fact.name) for fact in facts[:MOST_FACTS])
    lines = [
        f"  {fact.name.ljust(width)}  {format_value(fact.value)}  ({fact.how}: {fact.source})"
        for fact in facts[:MOST_FACTS]
    ]
    more = len(facts) - MOST_FACTS
    return ["what it states:", *lines, *([f"  {more} more"] if more > 0 else []), *series]
