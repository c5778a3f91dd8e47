"""Summarize a run, valid or not, for one line of a list.

Figures that do not follow from rows are omitted, as in `evidence.report`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evidence import layout
from evidence.effective import Scalar, peak_memory, scalar_settings
from evidence.grade import FOLDER, GradeName, RunReport
from evidence.report import DocumentState, build_record, document_errors, list_documents, thin
from evidence.run import ListedFigures, Run
from schemas.catalog import number_names
from schemas.problems import Problem
from schemas.reading import get_number, get_str, parse_time

MAX_POINTS = 40  # largest number of points in the loss curve of a summary


@dataclass(frozen=True, kw_only=True)
class RunSummary(ListedFigures):
    """One line of a list of runs. A field is None if the value is missing or invalid.

    `ListedFigures`, `evidence.grade.Grade` and `JudgedRecord` describe the attributes that are not listed here.

    Attributes:
        run_id: The manifest's run id, or the name of the folder.
        loss_points: At most `MAX_POINTS` losses in order, the extremes of equal parts of the run.
        score: Exact match, 0 to 1, or None if it cannot be traced to valid predictions.
        problem_count: Number of errors and warnings, of which `first_problem` is the worst.
        parent: Id of the run that this run continues.
        figures: Every traceable figure by name, see `collect_figures`.
    """

    path: Path
    run_id: str
    grade: GradeName = "not a run"
    reasons: tuple[str, ...] = ()
    loss_points: tuple[float, ...] = ()
    score: float | None = None
    score_low: float | None = None
    score_high: float | None = None
    baseline_score: float | None = None
    problem_count: int = 0
    first_problem: Problem | None = None
    tags: tuple[str, ...] = ()
    note: str | None = None
    archived: bool = False
    parent: str | None = None
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    withheld: tuple[str, ...] = ()
    scope: str = FOLDER
    coverage: str = ""
    documents: tuple[DocumentState, ...] = ()

    @property
    def started(self) -> datetime:
        """When the run started, or the earliest time if it is unknown."""
        return parse_time(self.started_at or "") or datetime.min.replace(tzinfo=UTC)


def summarize(run: Run, report: RunReport) -> RunSummary:
    """Summarize a run."""
    record = build_record(run, report.findings)
    metrics, losses = (record.facts.eval_summary or {}).get("metrics"), record.figures.losses
    summary = RunSummary(
        path=run.folder,
        run_id=record.figures.run_id or run.folder.name,
        **{figure.name: getattr(record.figures, figure.name) for figure in fields(ListedFigures)},
        loss_points=tuple(losses[thin(losses, MAX_POINTS)].tolist()),
        score=get_number(metrics, "exact_match", "value"),
        score_low=get_number(metrics, "exact_match", "interval", "low"),
        score_high=get_number(metrics, "exact_match", "interval", "high"),
        baseline_score=get_number(record.facts.eval_summary, "baseline", "metrics", "exact_match", "value"),
        tags=run.notes.tags,
        note=run.notes.note or None,
        archived=run.notes.archived_at is not None,
        parent=get_str(run.raw(layout.MANIFEST), "parent", "run_id"),
        settings=scalar_settings(record.facts),
        figures=collect_figures(record.facts),
        withheld=record.withheld,
        documents=list_documents(run, record.sources, report.findings),
    )
    return apply_report(summary, report)


def apply_report(summary: RunSummary, report: RunReport) -> RunSummary:
    """Return the summary with the grade and the problems of a report."""
    bad = [problem for problem in report.findings if problem.severity != "note"]
    return replace(
        summary,
        grade=report.grade.name,
        reasons=report.grade.reasons,
        scope=report.grade.scope,
        coverage=report.grade.coverage,
        problem_count=len(bad),
        first_problem=bad[0] if bad else None,
        documents=tuple(
            replace(state, errors=len(document_errors(summary.path, state.name, bad))) for state in summary.documents
        ),
    )


def collect_figures(run: Run) -> dict[str, float]:
    """Return the measured figures of a run by name, for columns, filters and axes.

    Names are `last.loss` of the last metric row, `result.mean_loss`, `score.exact_match`, and `baseline.exact_match` of
    the untrained model. Peak memory has its scope in its name, because different scopes must not be compared.
    """
    found: dict[str, Any] = {}
    if run.metrics:
        found |= {f"last.{name}": run.metrics[-1].get(name) for name in number_names()}
    if run.manifest is not None:
        found |= {f"result.{name}": value for name, value in run.manifest["result"].items()}
        del found["result.peak_memory_bytes"]
        if (peak := peak_memory(run.manifest)) is not None:
            found[f"peak_memory_bytes.{peak.scope.replace(' ', '_')}"] = peak.bytes
    if run.eval_summary is not None:
        for prefix, scores in (("score", run.eval_summary), ("baseline", run.eval_summary["baseline"] or {})):
            found |= {f"{prefix}.{name}": metric["value"] for name, metric in scores.get("metrics", {}).items()}
    return {
        sys.intern(name): float(value)
        for name, value in found.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }
