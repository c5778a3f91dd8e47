"""The verdict on a run: one of seven grades, with the reasons, worst first.

What a folder holds makes it `consistent` at best: everything that would make that untrue is looked for, and whatever is
found is named. `verified` needs a person outside the folder who repeated or witnessed the run: see `evidence.proof`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from evidence.records.facts import Facts
from evidence.records.ours import Run
from evidence.rules import completeness
from evidence.rules.imported import NOT_INTACT
from evidence.run import layout
from foreign.checks.judgement import worth_of
from foreign.readers.view import ForeignRun
from schemas.problems import Problem
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
"""What a grade that an older bundle states is called now: `verified` meant consistent, and no one else had repeated
it."""

CONSISTENT = "Finished; every document is valid, every hash matches, and every result and score follows from its rows."

NEVER_STATED = (
    "It follows schema version 1.0, which has no chain of states, no tokens and fingerprints of answers and no kept "
    "parameters: what these would contradict cannot be found here."
)

UNMEASURED = "No step and no answer was measured."

_CONTRADICTIONS = (
    "TP201",
    "TP212",
    "TP207",
    "TP208",
    "TP211",
)
"""Outside TP3xx: a hash, a size or a role that the manifest states and the file does not have."""

_UNFINISHED = (
    "TP203",
    "TP213",
    "TP503",
    "TP504",
    "TP505",
    "TP508",
    "TP510",
    "TP507",
)
"""What leaves a run partial: something that the run wrote, or was to write, is not there."""

_SHAPES = ("TP206", "TP209", "TP210")
"""Outside TP1xx: a file that cannot be read as what it is to be."""

_MOST_REASONS = 5


@dataclass(frozen=True, kw_only=True)
class Grade:
    """The verdict on a run.

    Attributes:
        name: One of `GRADES`.
        reasons: Why it is this one and not a better one, as sentences; never empty.
        coverage: How much of the run was repeated by a person whom the reader trusts. Empty: nothing was.
    """

    name: GradeName
    reasons: tuple[str, ...]
    coverage: str = ""

    @property
    def words(self) -> str:
        """The grade with its coverage: `verified (score: 100 of 100 answers; training: 20 of 20 steps)`."""
        return f"{self.name} ({self.coverage})" if self.coverage else self.name

    def document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {"grade": self.name, "coverage": self.coverage or None, "reasons": list(self.reasons)}


def grade_of(facts: Facts, findings: Sequence[Problem]) -> Grade:
    """Return the grade of a run of trainproof, from its facts and everything that was found in it."""
    run, errors = facts.run, [problem for problem in findings if problem.severity == "error"]
    if not run.is_run:
        return Grade(name="not a run", reasons=sentences(errors) or ("The folder holds nothing that a run writes.",))
    contradictions = [problem for problem in errors if _contradicts(problem)]
    if contradictions:
        return Grade(name="contradictory", reasons=sentences(contradictions))
    if not _is_measured(run):
        return Grade(name="template", reasons=(UNMEASURED, *_unfinished_reasons(facts), *sentences(errors)))
    if reasons := (*_unfinished_reasons(facts), *sentences(_leaving_partial(facts, errors))):
        return Grade(name="partial", reasons=reasons)
    if reasons := (*sentences(errors), *_unproven(facts)):
        return Grade(name="measured", reasons=reasons)
    return Grade(name="consistent", reasons=(CONSISTENT, *_never_stated(facts)))


def grade_of_foreign(view: ForeignRun, findings: Sequence[Problem]) -> Grade:
    """Return what a folder of another tool, or an import of one, is worth: `measured` at best."""
    changed = [problem for problem in findings if problem.code in NOT_INTACT]
    if changed:
        return Grade(name="contradictory", reasons=sentences(changed))
    if unreadable := [problem for problem in findings if problem.severity == "error" and _is_about_shape(problem.code)]:
        return Grade(name="partial", reasons=sentences(unreadable))
    name, reasons = worth_of(view, findings)
    return Grade(name=name, reasons=reasons)


def _contradicts(problem: Problem) -> bool:
    return problem.code.startswith("TP3") or problem.code in _CONTRADICTIONS


def _is_measured(run: Run) -> bool:
    """Return whether any number in the folder came from a model: a loss, an answer, or a result that states one."""
    if np.isfinite(column(run.metrics().values, "loss")).any():
        return True
    if run.predictions().values or run.baseline_predictions().values:
        return True
    result = (run.manifest or {}).get("result")
    return isinstance(result, dict) and isinstance(result.get("last_loss"), int | float)


def _unfinished_reasons(facts: Facts) -> tuple[str, ...]:
    """Return why the run is not finished, from the status in effect; none where it succeeded or has no manifest."""
    if facts.manifest is None or facts.succeeded:
        return ()
    steps = "before its first step"
    if facts.training is not None:
        # While a run is under way, its rows are ahead of its manifest.
        done = max(facts.training["steps_done"], facts.metrics[-1]["step"] if facts.metrics else 0)
        steps = f"after {done:,} of {facts.training['steps_planned']:,} steps"
    if facts.status == "running":
        return (f"The run is not finished; it is {steps.replace('after', 'at')}.",)
    return (f"The run was {facts.status} {steps}." if facts.status != "failed" else f"The run failed {steps}.",)


def _leaving_partial(facts: Facts, errors: Sequence[Problem]) -> list[Problem]:
    """Return the errors that leave a run partial: something missing, or a required document that cannot be read."""
    if not errors:
        return []
    codes = _UNFINISHED
    required = {str(facts.folder / name) for name in completeness.REQUIRED}
    return [
        problem
        for problem in errors
        if problem.code in codes or (problem.file in required and _is_about_shape(problem.code))
    ]


def _is_about_shape(code: str) -> bool:
    return code.startswith("TP1") or code in _SHAPES


def _unproven(facts: Facts) -> tuple[str, ...]:
    """Return what keeps a finished run without errors from being consistent."""
    if facts.manifest is None:
        return ()
    reasons = []
    code = facts.manifest["code"]
    if code["commit"] is None:
        reasons.append("The commit of the code is not known: neither a git checkout nor an installation states it.")
    elif code["dirty"]:
        edited = f": {', '.join(code['differs'])}" if code.get("differs") else ""
        reasons.append(f"The code differed from the commit {code['commit'][:12]} that it states{edited}.")
    if layout.EVAL_SUMMARY not in facts.files:
        reasons.append("There is no evaluation.")
    elif facts.eval_summary is not None and facts.eval_summary["status"] == "partial":
        reasons.append("The evaluation is not finished.")
    elif facts.eval_summary is not None and facts.eval_summary["metrics"]["exact_match"]["n_scored"] == 0:
        reasons.append(
            f"None of the {facts.eval_summary['eval_set']['items']:,} items of the evaluation has an output."
        )
    return tuple(reasons)


def _never_stated(facts: Facts) -> tuple[str, ...]:
    """Return what a run of the first version of the schemas could not state, and rules can therefore not question."""
    is_first = facts.manifest is not None and facts.manifest["schema_version"] == "1.0"
    return (NEVER_STATED,) if is_first else ()


def sentences(problems: Sequence[Problem]) -> tuple[str, ...]:
    """Return the first problems as sentences with the file's name, and how many are left."""
    said = tuple(f"{_name_of(problem.file)}: {problem.what}" for problem in problems[:_MOST_REASONS])
    left = len(problems) - len(said)
    return (*said, f"{left} more.") if left else said


def _name_of(path: str) -> str:
    """Return the last name of a path, also of one that ends in `.` or `..`."""
    return Path(path).name or Path(path).resolve().name
