"""Many runs at a glance: one `RunSummary` for each folder of a root, read again only where something changed.

The grade of a summary is the grade that `evidence.check` gives: there is no quicker, kinder verdict for lists.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evidence import layout
from evidence.check import Judged, judge, together
from evidence.facts import facts_of
from evidence.grade import GradeName
from evidence.lock import is_alive
from evidence.read import Run, read_run
from evidence.report import RunReport
from evidence.rules.finding import problem_of
from evidence.rules.reading import UNREADABLE_FOLDER
from evidence.times import moment, seconds_between
from evidence.traced import traced
from schemas.problems import Problem, ProblemError

_LARGEST = 1e300
"""Numbers beyond it come from a document that is not valid, and do not fit every place where they are shown."""

MOST_POINTS = 40
"""Points of a summary's loss curve."""

Signature = tuple[Any, ...]


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
        last_loss: Loss of the last row with a loss.
        loss_points: At most `MOST_POINTS` losses in order, the extremes of equal parts of the run.
        score: Exact match, 0 to 1; None where it cannot be traced to sound predictions.
        score_low: Lower end of its 95 % interval.
        score_high: Upper end.
        baseline_score: Exact match of the untrained model.
        duration_seconds: From start to end; without an end, to the last row.
        started_at: As the manifest states it.
        problem_count: Findings that are errors or warnings.
        first_problem: The worst of them.
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


class RunIndex:
    """The runs of one root, kept in memory; safe to share between threads."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        self._known: dict[Path, tuple[Signature, Judged, RunSummary]] = {}
        self._busy = threading.Lock()

    def refresh(self) -> list[RunSummary]:
        """Return a summary of every folder in the root, newest first; only changed folders are read again.

        Folders whose name begins with a dot and files are left out. A root that does not exist has no runs; one that
        cannot be read is listed itself, with its problem.
        """
        with self._busy:
            try:
                folders = sorted(
                    child for child in self.root.iterdir() if child.is_dir() and not child.name.startswith(".")
                )
            except FileNotFoundError:
                folders = []
            except OSError as error:
                return [_unreadable(self.root, error)]
            self._known = {folder: self._read(folder) for folder in folders}
            known = list(self._known.values())
            reports = together([judged for _, judged, _ in known])
            summaries = [_with_report(summary, report) for (_, _, summary), report in zip(known, reports, strict=True)]
            return sorted(summaries, key=_when, reverse=True)

    def _read(self, folder: Path) -> tuple[Signature, Judged, RunSummary]:
        signature = _signature(folder)
        before = self._known.get(folder)
        if before is not None and before[0] == signature:
            return before
        run = read_run(folder)
        judged = judge(run)
        return signature, judged, summary_of(run, judged.report)


def index_runs(root: Path) -> list[RunSummary]:
    """Return a summary of every run of a root, newest first, reading all of them; `RunIndex` remembers."""
    return RunIndex(root).refresh()


def index_folder(root: Path) -> list[RunSummary]:
    """Return what `index_runs` returns, of a folder that somebody named.

    Raises:
        ProblemError: There is no such folder (exit code 2).
    """
    if not Path(root).is_dir():
        raise ProblemError([_no_folder(root)], exit_code=2)
    return index_runs(root)


def summary_of(run: Run, report: RunReport) -> RunSummary:
    """Return the summary of a run from whatever of it can be read."""
    manifest, evaluation = run.manifest or {}, traced(facts_of(run), report.findings).eval_summary
    rows = run.metrics().values
    losses = [float(row["loss"]) for row in rows if row["loss"] is not None]
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
        last_loss=losses[-1] if losses else None,
        loss_points=_points(losses),
        score=_number(evaluation, "metrics", "exact_match", "value"),
        score_low=_number(evaluation, *interval, "low"),
        score_high=_number(evaluation, *interval, "high"),
        baseline_score=_number(evaluation, "baseline", "metrics", "exact_match", "value"),
        duration_seconds=seconds_between(started, ended) if started and ended else None,
        started_at=started,
    )
    return _with_report(summary, report)


def _with_report(summary: RunSummary, report: RunReport) -> RunSummary:
    bad = [problem for problem in report.findings if problem.severity != "note"]
    return replace(
        summary,
        grade=report.grade.name,
        reasons=report.grade.reasons,
        problem_count=len(bad),
        first_problem=bad[0] if bad else None,
    )


def _points(losses: Sequence[float]) -> tuple[float, ...]:
    """Return at most `MOST_POINTS` losses: the smallest and the largest of each of equal parts, in their order."""
    if len(losses) <= MOST_POINTS:
        return tuple(losses)
    parts = MOST_POINTS // 2
    points: list[float] = []
    for part in range(parts):
        some = losses[part * len(losses) // parts : (part + 1) * len(losses) // parts]
        low, high = min(some), max(some)
        points += [low, high] if some.index(low) < some.index(high) else [high, low]
    return tuple(points)


def _device(manifest: dict[str, Any]) -> str | None:
    kind, count = _text(manifest, "devices", "kind"), _whole(manifest, "devices", "count")
    return f"{count} × {kind}" if kind and count and count > 1 else kind


def _signature(folder: Path) -> Signature:
    """Return what changes when a file of the run is written, added or removed, or its process ends."""
    return (is_alive(folder), *_entries(folder, ""))


def _entries(folder: Path, prefix: str) -> list[tuple[str, int, int]]:
    try:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError:
        return [(prefix, -1, -1)]
    found = []
    for entry in entries:
        name = prefix + entry.name
        if entry.is_dir(follow_symlinks=False):
            if name not in layout.WEIGHT_FOLDERS:
                found += _entries(Path(entry.path), f"{name}/")
            continue
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue  # Replaced while it was being looked at; the next look sees the new one.
        found.append((name, status.st_mtime_ns, status.st_size))
    return found


def _unreadable(root: Path, error: OSError) -> RunSummary:
    what = f"The folder cannot be read: {error.strerror or error}."
    problem = problem_of(UNREADABLE_FOLDER, file=str(root), what=what)
    return RunSummary(
        path=root, run_id=root.name, grade="not a run", reasons=(what,), problem_count=1, first_problem=problem
    )


def _no_folder(root: Path) -> Problem:
    return Problem(
        code="TP091",
        severity="error",
        file=str(root),
        what=f"{root} is not a folder of runs: there is no such folder.",
        next="Check the path; `trainproof demo` makes two runs in submission_runs.",
    )


def _when(summary: RunSummary) -> tuple[datetime, str]:
    """Return what lists are sorted by; a run that does not say when it started comes last."""
    at = moment(summary.started_at) if summary.started_at else None
    return at or datetime.min.replace(tzinfo=UTC), summary.run_id


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
