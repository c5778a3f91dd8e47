"""One run in one line of a list: the few figures that tell runs apart, from whatever of a folder can be read.

A figure that cannot be traced is left out (`evidence.judge.traced`). Which runs there are is for `evidence.index.runs`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from evidence.judge.grade import GradeName
from evidence.judge.report import RunReport
from evidence.judge.traced import traced
from evidence.records.by_name import Scalar, figures_of, settings_of
from evidence.records.facts import facts_of
from evidence.records.ours import Run
from evidence.rules.foreign import figures as foreign_figures
from schemas.problems.problem import Problem
from schemas.reading.columns import Array, column
from schemas.reading.times import seconds_between

_LARGEST = 1e300
"""Numbers beyond it come from a document that is not valid, and do not fit every place where they are shown."""

MOST_POINTS = 40
"""Points of a summary's loss curve."""


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One line of a list of runs. None in any field: the run does not state it in a readable form.

    Attributes:
        path: The folder.
        run_id: The manifest's run id, else the folder's name.
        grade: The run's grade.
        reasons: Why.
        mode: smoke or full.
        status: The status in effect: a killed run is `interrupted`.
        model: Name of the model.
        method: How it was adapted.
        device: Kind of the devices, with their number where there are several.
        steps_done: Optimizer steps completed; while the run is under way, the step of its last row.
        steps_planned: Optimizer steps asked for.
        tokens_seen: Tokens processed, padding included.
        last_loss: Loss of the last row; None where that is not finite.
        loss_points: At most `MOST_POINTS` losses in order, the extremes of equal parts of the run.
        score: Exact match, 0 to 1; None where it cannot be traced to sound predictions.
        score_low: Lower end of its 95 % interval.
        score_high: Upper end.
        baseline_score: Exact match of the untrained model.
        duration_seconds: From start to end; without an end, to the last row.
        started_at: As the manifest states it.
        problem_count: Findings that are errors or warnings.
        first_problem: The worst of them.
        tags: What notes.json gives the run, as far as it is valid; so for the next two.
        note: What somebody wrote about the run.
        archived: Whether somebody archived it.
        settings: Every setting of config.yaml by dotted name (`evidence.records.by_name`).
        figures: Every measured figure by name, traced as the score is.
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
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)


def summary_of(run: Run, report: RunReport) -> RunSummary:
    """Return the summary of a run from whatever of it can be read."""
    if (view := run.foreign()) is not None:
        return with_report(_with_notes(_of_foreign(run, foreign_figures.figures_of(view), report), run), report)
    shown = traced(facts_of(run), report.findings)
    manifest, evaluation = run.manifest or {}, shown.eval_summary
    rows = run.metrics().values
    losses = column(rows, "loss")
    measured = losses[np.isfinite(losses)]
    started, steps_done = _text(manifest, "started_at"), _whole(manifest, "training", "steps_done")
    ended = _text(manifest, "finished_at") or (rows[-1]["time"] if rows else None)
    if manifest.get("status") == "running" and rows:
        steps_done = rows[-1]["step"]
    interval = ("metrics", "exact_match", "interval")
    summary = RunSummary(
        path=run.path,
        run_id=_text(manifest, "run_id") or run.path.name,
        grade=report.grade.name,
        reasons=report.grade.reasons,
        mode=_text(manifest, "mode"),
        status=run.status,
        model=_text(manifest, "model", "name") or _text(run.config, "model", "name"),
        method=_text(manifest, "training", "method") or _text(run.config, "method", "kind"),
        device=_device(manifest),
        steps_done=steps_done,
        steps_planned=_whole(manifest, "training", "steps_planned") or _whole(run.config, "limits", "steps"),
        tokens_seen=rows[-1]["tokens_seen"] if rows else _whole(manifest, "result", "tokens_seen"),
        last_loss=float(losses[-1]) if len(losses) and np.isfinite(losses[-1]) else None,
        loss_points=_points(measured),
        score=_number(evaluation, "metrics", "exact_match", "value"),
        score_low=_number(evaluation, *interval, "low"),
        score_high=_number(evaluation, *interval, "high"),
        baseline_score=_number(evaluation, "baseline", "metrics", "exact_match", "value"),
        duration_seconds=seconds_between(started, ended) if started and ended else None,
        started_at=started,
        settings=settings_of(shown),
        figures=figures_of(shown),
    )
    return with_report(_with_notes(summary, run), report)


def _of_foreign(run: Run, figures: foreign_figures.Figures, report: RunReport) -> RunSummary:
    """Return the summary of a run that another tool carried out; a score is not computed again, so none is shown."""
    return RunSummary(
        path=run.path,
        run_id=_text(run.imported, "run_id") or run.path.name,
        grade=report.grade.name,
        reasons=report.grade.reasons,
        status=figures.status,
        model=figures.model,
        method=figures.method,
        device=figures.device,
        steps_done=figures.steps_done,
        steps_planned=figures.steps_planned,
        tokens_seen=figures.tokens_seen,
        last_loss=figures.last_loss,
        loss_points=_points(np.array(figures.losses, dtype=np.float64)),
        duration_seconds=figures.train_seconds,
        started_at=figures.started_at,
    )


def _with_notes(summary: RunSummary, run: Run) -> RunSummary:
    notes = run.notes
    return replace(summary, tags=notes.tags, note=notes.note or None, archived=notes.archived_at is not None)


def with_report(summary: RunSummary, report: RunReport) -> RunSummary:
    """Return the summary with the grade and the problems of a report."""
    bad = [problem for problem in report.findings if problem.severity != "note"]
    return replace(
        summary,
        grade=report.grade.name,
        reasons=report.grade.reasons,
        problem_count=len(bad),
        first_problem=bad[0] if bad else None,
    )


def _points(losses: Array) -> tuple[float, ...]:
    """Return at most `MOST_POINTS` losses: the smallest and the largest of each of equal parts, in their order."""
    if len(losses) <= MOST_POINTS:
        return tuple(losses.tolist())
    edges = np.linspace(0, len(losses), MOST_POINTS // 2 + 1).astype(np.int64).tolist()
    kept: list[int] = []
    for start, end in itertools.pairwise(edges):
        some = losses[start:end]
        kept += sorted((start + int(some.argmin()), start + int(some.argmax())))
    return tuple(losses[kept].tolist())


def _device(manifest: dict[str, Any]) -> str | None:
    kind, count = _text(manifest, "devices", "kind"), _whole(manifest, "devices", "count")
    return f"{count} × {kind}" if kind and count and count > 1 else kind


def _at(document: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _text(document: Any, *keys: str) -> str | None:
    value = _at(document, keys)
    return value if isinstance(value, str) else None


def _whole(document: Any, *keys: str) -> int | None:
    value = _at(document, keys)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(document: Any, *keys: str) -> float | None:
    value = _at(document, keys)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < _LARGEST else None
