"""Check a run and give it one of seven grades, with the reasons.

The contents of a folder make a run `consistent` at best. `verified` needs someone outside the folder who reproduced or
witnessed the run: see `evidence.proof`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from evidence import layout
from evidence.hashes import sha256_file
from evidence.imports.grade import grade_tool_run
from evidence.imports.run import ImportedRun
from evidence.rules.across import Fingerprint, compute_fingerprint, find_copies
from evidence.rules.catalog import check
from evidence.rules.files import REQUIRED, placeholders
from evidence.rules.imported import TAMPERED, import_findings
from evidence.run import Run
from schemas.problems import Problem, problem_of, worst_first
from schemas.reading import column

GradeName = Literal["verified", "consistent", "measured", "partial", "template", "contradictory", "not a run"]

GRADES: tuple[GradeName, ...] = (
    "verified",
    "consistent",
    "measured",
    "partial",
    "template",
    "contradictory",
    "not a run",
)
"""Every grade, best first."""

FORMER_NAMES: Mapping[str, GradeName] = MappingProxyType({"verified": "consistent"})
"""Grades of older bundles by their present name: `verified` did not require a reproduction."""

CONSISTENT = "Finished; every document is valid, every hash matches, and every result and score follows from its rows."

NEVER_STATED = (
    "It uses schema version 1.0, without a chain of states, tokens of answers or saved parameters. Contradictions with "
    "these cannot be found."
)

UNMEASURED = "No step and no answer was measured."

_CONTRADICTIONS = ("TP201", "TP207", "TP208", "TP211", "TP212")
"""Besides TP3xx: a file does not have the hash, size or role that the manifest contains."""

_UNFINISHED = ("TP203", "TP213", "TP503", "TP504", "TP505", "TP507", "TP508", "TP510")
"""Something that the run should have written is missing."""

_UNREADABLE = ("TP206", "TP209", "TP210")
"""Besides TP1xx: a file cannot be read as what it should be."""

_MOST_REASONS = 5


@dataclass(frozen=True, kw_only=True)
class Grade:
    """The verdict on a run.

    Attributes:
        name: One of `GRADES`.
        reasons: Why it is this grade and no better one, as sentences; never empty.
        coverage: How much of the run was reproduced by someone the reader trusts; empty if nothing was.
    """

    name: GradeName
    reasons: tuple[str, ...]
    coverage: str = ""

    @property
    def words(self) -> str:
        """The grade with its coverage: `verified (score: 100 of 100 answers; training: 20 of 20 steps)`."""
        return f"{self.name} ({self.coverage})" if self.coverage else self.name

    def document(self) -> dict[str, Any]:
        """Return the grade as JSON values."""
        return {"grade": self.name, "coverage": self.coverage or None, "reasons": list(self.reasons)}


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """Findings and grade of a run folder.

    Attributes:
        path: The run folder.
        grade: Its grade.
        findings: Its problems, worst first.
        manifest_sha256: Hash of the manifest of a consistent run, to which proofs refer; None for other runs.
    """

    path: Path
    grade: Grade
    findings: tuple[Problem, ...]
    manifest_sha256: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunJudgement:
    """A run's report, and a fingerprint to compare the run with others."""

    report: RunReport
    fingerprint: Fingerprint


def check_run(run: Run) -> RunReport:
    """Return the findings and the grade of a run, without looking at other runs or proofs."""
    return judge(run).report


def find_problems(run: Run) -> list[Problem]:
    """Return every problem of a run, worst first."""
    return list(check_run(run).findings)


def judge(run: Run, *, ignore: Callable[[Problem], bool] = lambda _: False) -> RunJudgement:
    """Check a run.

    Args:
        run: The run.
        ignore: Whether to ignore a problem.
    """
    view = run.foreign()
    found = _find_problems(run) if view is None else import_findings(run, view)
    findings = worst_first(run.with_line(problem) for problem in found if not ignore(problem))
    grade = _grade(run, findings) if view is None else _grade_foreign(view, findings)
    sha256 = sha256_file(run.folder / layout.MANIFEST) if grade.name == "consistent" else None
    report = RunReport(path=run.folder, grade=grade, findings=findings, manifest_sha256=sha256)
    return RunJudgement(report=report, fingerprint=compute_fingerprint(run, findings))


def check_across_runs(judged: Sequence[RunJudgement]) -> list[RunReport]:
    """Return the reports with the problems between runs added: a run and an edited copy contradict each other."""
    added = find_copies([judgement.fingerprint for judgement in judged])
    return [_with_findings(judgement.report, added.get(judgement.report.path, [])) for judgement in judged]


def _with_findings(report: RunReport, added: Sequence[Problem]) -> RunReport:
    if not added:
        return report
    findings = worst_first((*report.findings, *added))
    errors = [problem for problem in added if problem.severity == "error"]
    if not errors:
        return replace(report, findings=findings)
    before = report.grade.reasons if report.grade.name == "contradictory" else ()
    return replace(report, grade=Grade(name="contradictory", reasons=(*_sentences(errors), *before)), findings=findings)


def _find_problems(run: Run) -> Iterator[Problem]:
    if not run.is_run:
        what = f"{run.folder.name or run.folder} holds none of the files that a run writes."
        yield from run.problems or [problem_of("TP501", file=str(run.folder), what=what)]
        return
    yield from (*run.problems, *run.row_problems(), *placeholders(run))
    yield from map(run.with_line_of_row, check(run))


def _grade(run: Run, findings: Sequence[Problem]) -> Grade:
    errors = [problem for problem in findings if problem.severity == "error"]
    if not run.is_run:
        return Grade(name="not a run", reasons=_sentences(errors) or ("The folder contains no file of a run.",))
    contradictions = [
        problem for problem in errors if problem.code.startswith("TP3") or problem.code in _CONTRADICTIONS
    ]
    if contradictions:
        return Grade(name="contradictory", reasons=_sentences(contradictions))
    if not _is_measured(run):
        return Grade(name="template", reasons=(UNMEASURED, *_unfinished_reasons(run), *_sentences(errors)))
    if reasons := (*_unfinished_reasons(run), *_sentences(_leaving_partial(run, errors))):
        return Grade(name="partial", reasons=reasons)
    if reasons := (*_sentences(errors), *_unproven_reasons(run)):
        return Grade(name="measured", reasons=reasons)
    is_first = run.manifest is not None and run.manifest["schema_version"] == "1.0"
    return Grade(name="consistent", reasons=(CONSISTENT, NEVER_STATED) if is_first else (CONSISTENT,))


def _grade_foreign(view: ImportedRun, findings: Sequence[Problem]) -> Grade:
    """Return the grade of an import or of another tool's folder, `measured` at best."""
    if altered := [problem for problem in findings if problem.code in TAMPERED]:
        return Grade(name="contradictory", reasons=_sentences(altered))
    if unreadable := [problem for problem in findings if problem.severity == "error" and _is_unreadable(problem.code)]:
        return Grade(name="partial", reasons=_sentences(unreadable))
    name, reasons = grade_tool_run(view, findings)
    return Grade(name=name, reasons=reasons)


def _is_measured(run: Run) -> bool:
    """Return whether any number in the folder came from a model: a loss, an answer or a result."""
    if np.isfinite(column(run.rows(layout.METRICS).values, "loss")).any():
        return True
    if run.rows(layout.PREDICTIONS).values or run.rows(layout.BASELINE_PREDICTIONS).values:
        return True
    result = run.raw(layout.MANIFEST).get("result")
    return isinstance(result, dict) and isinstance(result.get("last_loss"), int | float)


def _unfinished_reasons(run: Run) -> tuple[str, ...]:
    """Return why the run is not finished; empty if it succeeded or has no manifest."""
    if run.manifest is None or run.succeeded:
        return ()
    steps = "before its first step"
    if run.training is not None:
        # While a run is running, its rows are ahead of its manifest.
        done = max(run.training["steps_done"], run.metrics[-1]["step"] if run.metrics else 0)
        steps = f"after {done:,} of {run.training['steps_planned']:,} steps"
    if run.status == "running":
        return (f"The run is not finished; it is {steps.replace('after', 'at')}.",)
    return (f"The run was {run.status} {steps}." if run.status != "failed" else f"The run failed {steps}.",)


def _leaving_partial(run: Run, errors: Sequence[Problem]) -> list[Problem]:
    """Return the errors that leave a run partial: something is missing, or a required document cannot be read."""
    required = {str(run.folder / name) for name in REQUIRED}
    return [
        problem
        for problem in errors
        if problem.code in _UNFINISHED or (problem.file in required and _is_unreadable(problem.code))
    ]


def _is_unreadable(code: str) -> bool:
    return code.startswith("TP1") or code in _UNREADABLE


def _unproven_reasons(run: Run) -> Iterator[str]:
    """Yield what keeps a finished run without errors from being consistent."""
    if run.manifest is None:
        return
    code, summary = run.manifest["code"], run.eval_summary
    if code["commit"] is None:
        yield "The commit of the code is unknown: neither a git checkout nor the installation records it."
    elif code["dirty"]:
        edited = f": {', '.join(code['differs'])}" if code.get("differs") else ""
        yield f"The code differed from commit {code['commit'][:12]}{edited}."
    if layout.EVAL_SUMMARY not in run.files:
        yield "There is no evaluation."
    elif summary is not None and summary["status"] == "partial":
        yield "The evaluation is not finished."
    elif summary is not None and summary["metrics"]["exact_match"]["n_scored"] == 0:
        yield f"None of the {summary['eval_set']['items']:,} evaluation items has an output."


def _sentences(problems: Sequence[Problem]) -> tuple[str, ...]:
    """Return the first problems as sentences with their file, and the number of further ones."""
    shown = tuple(f"{_file_name(problem.file)}: {problem.what}" for problem in problems[:_MOST_REASONS])
    left = len(problems) - len(shown)
    return (*shown, f"{left} more.") if left else shown


def _file_name(path: str) -> str:
    """Return the name of a file, also for a path that ends in `.` or `..`."""
    return Path(path).name or Path(path).resolve().name
