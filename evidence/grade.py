"""Check a run and give it one of seven grades, with the reasons and the scope.

The contents of a folder make a run `consistent` at best. `verified` needs someone outside the folder who reproduced or
witnessed the run: see `evidence.proof`. So two grades of one run may differ, and each states its scope.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from evidence import layout
from evidence.hashes import sha256_file
from evidence.imports.grade import grade_tool_run
from evidence.imports.importing import TAMPERED, import_findings
from evidence.imports.run import ImportedRun
from evidence.rules.across import Fingerprint, compute_fingerprint, find_copies
from evidence.rules.checker import check
from evidence.rules.files import REQUIRED, placeholders
from evidence.run import Run
from schemas.problems import MAX_PER_KIND, Problem, problem_of, worst_first
from schemas.reading import column

GradeName = Literal["verified", "consistent", "measured", "partial", "template", "contradictory", "not a run"]

GRADES: tuple[GradeName, ...] = get_args(GradeName)  # every grade, best first

NEXT_STEPS: Mapping[GradeName, str] = {
    "verified": "",
    "consistent": "Run `trainproof replay`, or ask someone you trust for a signed receipt.",
    "measured": "Supply what the reasons name, or run again with it.",
    "partial": "Finish the run, or restore what is missing.",
    "template": "Train: nothing was measured yet.",
    "contradictory": "Restore the files that the run wrote.",
    "not a run": "Choose a folder that a run wrote.",
}
"""What raises each grade."""

FORMER_NAMES: Mapping[str, GradeName] = {"verified": "consistent"}
"""Present names of grades in older bundles, where `verified` did not require a reproduction."""

FOLDER = "folder"  # scope of a grade that rests on the files of a run alone
CONSISTENT = "Finished; every document is valid, every hash matches, and every result and score follows from its rows."
UNMEASURED = "No step and no answer was measured."
NEVER_STATED = (
    "It uses schema version 1.0, without a chain of states, tokens of answers or saved parameters. Contradictions with "
    "these cannot be found."
)

_CONTRADICTIONS = ("TP3", "TP201", "TP207", "TP208", "TP211", "TP212")
"""Prefixes of codes. TP2xx: a file does not have the hash, size or role that the manifest contains."""

_UNFINISHED = ("TP203", "TP213", "TP503", "TP504", "TP505", "TP507", "TP508", "TP510")
"""Something that the run should have written is missing."""

_UNREADABLE = ("TP1", "TP206", "TP209", "TP210")
"""Prefixes of codes: a file is not readable, or not a valid document of its kind."""


@dataclass(frozen=True, kw_only=True)
class Grade:
    """The grade of a run, with at least one reason why it is not better, as a sentence.

    `scope` is its basis: `FOLDER`, or `with receipts from Ada and you`. `coverage` is how much of the run
    someone the reader trusts has reproduced, or "".
    """

    name: GradeName
    reasons: tuple[str, ...]
    scope: str = FOLDER
    coverage: str = ""

    @property
    def words(self) -> str:
        """The grade with its coverage: `verified (reproduced: 100 of 100 answers, 20 of 20 steps)`."""
        return f"{self.name} ({self.coverage})" if self.coverage else self.name

    def describe(self) -> str:
        """Format the grade with its coverage and scope: `consistent, judged by its files`."""
        return f"{self.words}, {'judged by its files' if self.scope == FOLDER else self.scope}"

    def document(self) -> dict[str, Any]:
        """Return the grade as JSON values."""
        return {
            "grade": self.name,
            "scope": self.scope,
            "coverage": self.coverage or None,
            "reasons": list(self.reasons),
        }


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """Grade of a run folder and its problems, worst first.

    `manifest_sha256` is the hash that proofs of a consistent run refer to, and None for other runs.
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
    """Check a run, without the problems that `ignore` returns True for."""
    view = run.foreign()
    found = _find_problems(run) if view is None else import_findings(run, view)
    findings = worst_first(run.with_line(problem) for problem in found if not ignore(problem))
    grade = _grade(run, findings) if view is None else _grade_foreign(view, findings)
    sha256 = sha256_file(run.folder / layout.MANIFEST) if grade.name == "consistent" else None
    report = RunReport(path=run.folder, grade=grade, findings=findings, manifest_sha256=sha256)
    return RunJudgement(report=report, fingerprint=compute_fingerprint(run, findings))


def check_across_runs(judged: Sequence[RunJudgement]) -> list[RunReport]:
    """Return the reports with the problems between runs added: a run and an edited copy contradict each other."""
    copies = find_copies([judgement.fingerprint for judgement in judged])
    reports = []
    for report in (judgement.report for judgement in judged):
        added, grade = copies.get(report.path), report.grade
        if added is None:
            reports.append(report)
            continue
        if errors := [problem for problem in added if problem.severity == "error"]:
            before = grade.reasons if grade.name == "contradictory" else ()
            grade = Grade(name="contradictory", reasons=(*_sentences(errors), *before))
        reports.append(replace(report, grade=grade, findings=worst_first((*report.findings, *added))))
    return reports


def _find_problems(run: Run) -> Iterator[Problem]:
    if not run.is_run:
        what = f"{run.folder.name or run.folder} holds none of the files that a run writes."
        yield from run.problems or [problem_of("TP501", file=str(run.folder), what=what)]
        return
    yield from (*run.problems, *run.row_problems(), *placeholders(run))
    yield from check(run)


def _grade(run: Run, findings: Sequence[Problem]) -> Grade:
    errors = [problem for problem in findings if problem.severity == "error"]
    if not run.is_run:
        return Grade(name="not a run", reasons=_sentences(errors) or ("The folder contains no file of a run.",))
    if contradictions := [problem for problem in errors if problem.code.startswith(_CONTRADICTIONS)]:
        return Grade(name="contradictory", reasons=_sentences(contradictions))
    if not _is_measured(run):
        return Grade(name="template", reasons=(UNMEASURED, *_unfinished_reasons(run), *_sentences(errors)))
    required = {str(run.folder / name) for name in REQUIRED}
    incomplete = [
        problem
        for problem in errors
        if problem.code in _UNFINISHED or (problem.file in required and problem.code.startswith(_UNREADABLE))
    ]
    if reasons := (*_unfinished_reasons(run), *_sentences(incomplete)):
        return Grade(name="partial", reasons=reasons)
    if reasons := (*_sentences(errors), *_unproven_reasons(run)):
        return Grade(name="measured", reasons=reasons)
    is_first = run.manifest is not None and run.manifest["schema_version"] == "1.0"
    return Grade(name="consistent", reasons=(CONSISTENT, NEVER_STATED) if is_first else (CONSISTENT,))


def _grade_foreign(view: ImportedRun, findings: Sequence[Problem]) -> Grade:
    """Return the grade of an import or of another tool's folder, `measured` at best."""
    if altered := [problem for problem in findings if problem.code in TAMPERED]:
        return Grade(name="contradictory", reasons=_sentences(altered))
    errors = [problem for problem in findings if problem.severity == "error"]
    if unreadable := [problem for problem in errors if problem.code.startswith(_UNREADABLE)]:
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
    """Return why the run is not finished."""
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
        yield "The run was not evaluated."
    elif summary is not None and summary["status"] == "partial":
        yield "The evaluation is not finished."
    elif summary is not None and summary["metrics"]["exact_match"]["n_scored"] == 0:
        yield f"None of the {summary['eval_set']['items']:,} evaluation items has an output."


def _sentences(problems: Sequence[Problem]) -> tuple[str, ...]:
    """Return the first problems as sentences with their file, and the number of further ones."""
    # A path that ends in `.` or `..` has its name only when it is resolved.
    names = [Path(problem.file).name or Path(problem.file).resolve().name for problem in problems[:MAX_PER_KIND]]
    shown = tuple(f"{name}: {problem.what}" for name, problem in zip(names, problems, strict=False))
    left = len(problems) - len(shown)
    return (*shown, f"{left} more.") if left else shown
