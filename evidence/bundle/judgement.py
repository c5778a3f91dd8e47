"""The grade of runs wherever they lie: the same words for a run folder here and for its copy in a stranger's bundle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evidence.bundle.format.layout import RUNS
from evidence.bundle.format.rules import refusal
from evidence.bundle.secrets.redact import Redaction
from evidence.judge.grade import Grade
from evidence.judge.judgement import RunJudgement, judge, together
from evidence.judge.report import RunReport
from evidence.records.facts import facts_of
from evidence.records.ours import Run, read_run
from evidence.run.layout import ORIGINAL
from schemas.problems import Problem, worst_first

_OTHER_HASH = ("TP201", "TP231")
"""Findings that a masked file must give."""


@dataclass(frozen=True, kw_only=True)
class JudgedRun:
    """A run with its grade and findings; paths in them start at the run folder."""

    folder: Path
    """The run folder."""
    name: str
    """Its name."""
    run: Run
    """What it holds."""
    grade: Grade
    """What it is worth."""
    findings: tuple[Problem, ...]
    """What `trainproof check` finds."""


def judged_together(folders: Sequence[Path], redactions: Sequence[Redaction] = ()) -> list[JudgedRun]:
    """Return the runs by name, checked together so that a run copied under another name is found.

    Args:
        folders: The run folders.
        redactions: Files in them that were masked for a bundle.
    """
    runs = [read_run(folder) for folder in folders]
    judged = [
        JudgedRun(
            folder=run.path,
            name=run.path.resolve().name,
            run=run,
            grade=report.grade,
            findings=tuple(within_run(finding, run.path) for finding in report.findings),
        )
        for run, report in zip(runs, together([_judge(run, redactions) for run in runs]), strict=True)
    ]
    return sorted(judged, key=lambda each: each.name)


def _judge(run: Run, redactions: Sequence[Redaction]) -> RunJudgement:
    """Return the judgement of a run whose redacted files need not have the hash that the run recorded."""
    prefix = f"{RUNS}/{run.path.resolve().name}/"
    masked = {each.path.removeprefix(prefix): each for each in redactions if each.path.startswith(prefix)}
    if not masked:
        return judge(run)
    listed = _recorded_hashes(run)
    excused = {str(run.path / name) for name, each in masked.items() if listed.get(name) == each.sha256}
    judged = judge(run, excused=lambda each: each.code in _OTHER_HASH and each.file in excused)
    grade = judged.report.grade
    if grade.name == "consistent":
        reason = f"Redacted for the bundle, so not as the run wrote it: {', '.join(sorted(masked))}."
        grade = Grade(name="measured", reasons=(reason,))
    remarks = [_redaction_problem(run.path / name, each) for name, each in sorted(masked.items())]
    report = RunReport(path=run.path, grade=grade, findings=worst_first((*judged.report.findings, *remarks)))
    return replace(judged, report=report)


def _recorded_hashes(run: Run) -> dict[str, str]:
    """Return the hashes that a run's manifest, or its import, records."""
    recorded = {each["path"]: each["sha256"] for each in (facts_of(run).manifest or {}).get("artifacts", [])}
    return recorded | {f"{ORIGINAL}/{name}": sha256 for name, sha256 in run.originals.items()}


def _redaction_problem(file: Path, redaction: Redaction) -> Problem:
    places = "1 place was" if redaction.count == 1 else f"{redaction.count:,} places were"
    what = f"{places} masked when the bundle was built; the file of the run has SHA-256 {redaction.sha256}."
    return refusal("TP832", str(file), what)


def within_run(problem: Problem, folder: Path) -> Problem:
    """Return a problem whose file is named from the run folder, not from where that happens to lie."""
    if problem.file == str(folder):
        return replace(problem, file=folder.resolve().name)
    inside = Path(problem.file).is_relative_to(folder)
    return replace(problem, file=Path(problem.file).relative_to(folder).as_posix()) if inside else problem
