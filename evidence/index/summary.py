"""Summarize a run in one line of a list, from whatever of its folder can be read.

Figures that cannot be traced to rows are left out, as in `evidence.report`.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from evidence import layout
from evidence.effective import Scalar, scalar_settings
from evidence.grade import GradeName, RunReport
from evidence.report import DocumentState, build_record, count_errors, list_documents
from evidence.run import Run
from schemas.catalog import number_names
from schemas.problems import Problem
from schemas.reading import Array, get_number, get_str

MOST_POINTS = 40
"""Largest number of points in the loss curve of a summary."""

_FROM_FIGURES = (
    "mode",
    "status",
    "model",
    "method",
    "device",
    "steps_done",
    "steps_planned",
    "tokens_seen",
    "last_loss",
    "duration_seconds",
    "started_at",
)


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One line of a list of runs. A field is None if the run does not contain a readable value.

    Attributes:
        path: The run folder.
        run_id: The manifest's run id, or the name of the folder.
        grade: The run's grade.
        reasons: Reasons for the grade.
        mode: smoke or full.
        status: The status; `interrupted` for a run that was killed.
        model: Name of the model.
        method: How it was adapted.
        device: Kind and number of the devices.
        steps_done: Optimizer steps completed; of a running run, the step of the last row.
        steps_planned: Optimizer steps requested.
        tokens_seen: Training tokens, without padding if the rows record it.
        last_loss: Loss of the last row, or None if it is not finite.
        loss_points: At most `MOST_POINTS` losses in order, the extremes of equal parts of the run.
        score: Exact match, 0 to 1, or None if it cannot be traced to valid predictions.
        score_low: Lower end of its 95 % interval.
        score_high: Upper end of its 95 % interval.
        baseline_score: Exact match of the untrained model.
        duration_seconds: Time from start to end, or to the last row.
        started_at: Start time of the manifest.
        problem_count: Number of errors and warnings.
        first_problem: The worst of them.
        tags: Tags in notes.json.
        note: Note in notes.json.
        archived: Whether a user archived the run.
        parent: Id of the run that this run continues.
        settings: Every scalar setting of config.yaml by dotted name.
        figures: Every traceable figure by name, see `collect_figures`.
        withheld: Sentences that say which figures are not shown and why.
        coverage: How much of the run was reproduced by someone the reader trusts; empty if nothing was.
        documents: State of manifest, eval summary and logs.
    """

    path: Path
    run_id: str
    grade: GradeName
    reasons: tuple[str, ...]
    mode: str | None = None
    status: str | None = None
    model: str | None = None
    method: str | None = None
    device: str | None = None
    steps_done: int | None = None
    steps_planned: int | None = None
    tokens_seen: int | None = None
    last_loss: float | None = None
    loss_points: tuple[float, ...] = ()
    score: float | None = None
    score_low: float | None = None
    score_high: float | None = None
    baseline_score: float | None = None
    duration_seconds: float | None = None
    started_at: str | None = None
    problem_count: int = 0
    first_problem: Problem | None = None
    tags: tuple[str, ...] = ()
    note: str | None = None
    archived: bool = False
    parent: str | None = None
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    withheld: tuple[str, ...] = ()
    coverage: str = ""
    documents: tuple[DocumentState, ...] = ()


def summarize(run: Run, report: RunReport) -> RunSummary:
    """Summarize a run."""
    record = build_record(run, report.findings)
    figures, evaluation = record.figures, record.facts.eval_summary
    copied: dict[str, Any] = {name: getattr(figures, name) for name in _FROM_FIGURES}
    summary = RunSummary(
        path=run.folder,
        run_id=figures.run_id or run.folder.name,
        grade=report.grade.name,
        reasons=report.grade.reasons,
        loss_points=_thin(figures.losses),
        score=get_number(evaluation, "metrics", "exact_match", "value"),
        score_low=get_number(evaluation, "metrics", "exact_match", "interval", "low"),
        score_high=get_number(evaluation, "metrics", "exact_match", "interval", "high"),
        baseline_score=get_number(evaluation, "baseline", "metrics", "exact_match", "value"),
        parent=get_str(run.raw(layout.MANIFEST), "parent", "run_id"),
        withheld=record.withheld,
        tags=run.notes.tags,
        note=run.notes.note or None,
        archived=run.notes.archived_at is not None,
        settings=scalar_settings(record.facts),
        figures=collect_figures(record.facts),
        documents=list_documents(run, run.foreign(), report.findings),
        **copied,
    )
    return with_report(summary, report)


def with_report(summary: RunSummary, report: RunReport) -> RunSummary:
    """Return the summary with the grade and the problems of a report."""
    bad = [problem for problem in report.findings if problem.severity != "note"]
    return replace(
        summary,
        grade=report.grade.name,
        reasons=report.grade.reasons,
        coverage=report.grade.coverage,
        problem_count=len(bad),
        first_problem=bad[0] if bad else None,
        documents=count_errors(summary.documents, summary.path, bad),
    )


def collect_figures(run: Run) -> dict[str, float]:
    """Return the measured figures of a run by name, so that each can be a column, a filter or an axis.

    `last.loss` is a field of the last metric row, `result.mean_loss` one of the manifest's result, `score.exact_match`
    a metric of eval_summary.json, and `baseline.exact_match` that of the untrained model.
    """
    found: dict[str, Any] = {}
    if run.metrics:
        found |= {f"last.{name}": run.metrics[-1].get(name) for name in number_names()}
    if run.manifest is not None:
        found |= {f"result.{name}": value for name, value in run.manifest["result"].items()}
    if run.eval_summary is not None:
        for prefix, scores in (("score", run.eval_summary), ("baseline", run.eval_summary["baseline"] or {})):
            found |= {f"{prefix}.{name}": metric["value"] for name, metric in scores.get("metrics", {}).items()}
    return {
        sys.intern(name): float(value)
        for name, value in found.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


def _thin(losses: Array) -> tuple[float, ...]:
    """Return at most `MOST_POINTS` losses in order: the smallest and the largest of each of equal parts."""
    if len(losses) <= MOST_POINTS:
        return tuple(losses.tolist())
    edges = np.linspace(0, len(losses), MOST_POINTS // 2 + 1).astype(np.int64).tolist()
    kept: list[int] = []
    for start, end in itertools.pairwise(edges):
        part = losses[start:end]
        kept += sorted((start + int(part.argmin()), start + int(part.argmax())))
    return tuple(losses[kept].tolist())
