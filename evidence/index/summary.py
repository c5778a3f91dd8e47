"""One run in one line of a list: the few figures that distinguish runs, from whatever of a folder can be read.

A figure that cannot be traced is left out (`evidence.judge.record`). Which runs there are is for `evidence.index.runs`.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from evidence.judge.documents import DocumentState, documents_of, with_errors
from evidence.judge.grade import GradeName
from evidence.judge.record import record_of
from evidence.judge.report import RunReport
from evidence.records.by_name import Scalar, figures_of, settings_of
from evidence.records.facts import facts_of
from evidence.records.ours import Run
from evidence.run import layout
from schemas.problems import Problem, problem_of
from schemas.reading import Array, get_number, get_str

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
        steps_planned: Optimizer steps requested.
        tokens_seen: Tokens learned from; padding left out where the rows state its share.
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
        note: What a user wrote about the run.
        archived: Whether a user archived it.
        parent: Run id of the run that it continues. None also for one that continues none.
        settings: Every setting of config.yaml by dotted name (`evidence.records.by_name`).
        figures: Every measured figure by name, traced as the score is.
        withheld: Which figures are not shown and why, as sentences.
        coverage: How much of the run was repeated by a person whom the reader trusts; empty if nothing was.
        documents: Manifest, eval summary and logs, as `evidence.judge.documents` has them.
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


def summary_of(run: Run, report: RunReport) -> RunSummary:
    """Return the summary of a run from whatever of it can be read."""
    stated = facts_of(run)
    record = record_of(stated, report.findings)
    known, facts, evaluation = record.figures, record.facts, record.facts.eval_summary
    interval = ("metrics", "exact_match", "interval")
    summary = RunSummary(
        path=run.path,
        run_id=known.run_id or run.path.name,
        grade=report.grade.name,
        reasons=report.grade.reasons,
        mode=known.mode,
        status=known.status,
        model=known.model,
        method=known.method,
        device=known.device,
        steps_done=known.steps_done,
        steps_planned=known.steps_planned,
        tokens_seen=known.tokens_seen,
        last_loss=known.last_loss,
        loss_points=_points(known.losses),
        score=get_number(evaluation, "metrics", "exact_match", "value"),
        score_low=get_number(evaluation, *interval, "low"),
        score_high=get_number(evaluation, *interval, "high"),
        baseline_score=get_number(evaluation, "baseline", "metrics", "exact_match", "value"),
        duration_seconds=known.duration_seconds,
        started_at=known.started_at,
        parent=get_str(run.manifest, "parent", "run_id"),
        withheld=record.withheld,
        tags=run.notes.tags,
        note=run.notes.note or None,
        archived=run.notes.archived_at is not None,
        settings=settings_of(facts),
        figures=figures_of(facts),
        documents=documents_of(stated, run.foreign(), report.findings),
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
        documents=with_errors(summary.documents, summary.path, bad),
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


def run_folders(root: Path, *, follow_links: bool) -> list[str]:
    """Return the names of the folders in a root, sorted.

    Raises:
        OSError: The root cannot be read.
    """
    with os.scandir(root) as listing:
        return sorted(
            entry.name
            for entry in listing
            if not layout.is_passed_over(entry.name) and entry.is_dir(follow_symlinks=follow_links)
        )


def unreadable_root(root: Path, error: OSError) -> RunSummary:
    """Return what stands in place of the runs of a root that cannot be read."""
    what = f"The folder cannot be read: {error.strerror or error}."
    problem = problem_of("TP209", file=str(root), what=what)
    return RunSummary(
        path=root, run_id=root.name, grade="not a run", reasons=(what,), problem_count=1, first_problem=problem
    )


def no_root(root: Path) -> Problem:
    """Return the problem of a root that is missing."""
    what = f"{root} is not a folder of runs: there is no such folder."
    then = "Check the path; `trainproof demo` makes two runs in submission_runs."
    return problem_of("TP091", file=str(root), what=what, why=None, next=then)
