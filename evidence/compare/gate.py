"""Check runs against requirements and a baseline, for continuous integration.

Figures are computed again from the rows of a run. A run that contradicts itself or has no measurement meets no
requirement.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from evidence.compare.scores import Comparison
from evidence.proof.verification import grade_run
from evidence.run import Run
from evidence.scores.recompute import compute_result, compute_scores
from schemas.problems import Problem, ProblemError, problem_of

SCORES = ("exact_match", "format_compliance")
"""Metrics of eval_summary.json."""
COMPUTED = ("first_loss", "last_loss", "mean_loss", "best_loss", "best_step", "tokens_seen")
"""Fields of the manifest's result that are computed from metrics.jsonl."""
STATED = ("train_seconds", "compile_seconds", "peak_memory_bytes")
"""Fields of the manifest's result that are taken as stated."""
FIGURES = (*SCORES, *COMPUTED, *STATED)
SIGNS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "==": operator.eq}
WORTHLESS = frozenset({"contradictory", "template", "not a run"})
"""Grades of runs whose figures do not count."""

_REQUIREMENT = re.compile(r"\s*([A-Za-z_]+)\s*(>=|<=|==|>|<)\s*(\S+)\s*")
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
_PERCENT = re.compile(r"(.*[<>=]\s*)(\d+(?:\.\d*)?)\s*%\s*")
_NEXT = 'Use figure, sign and number, as in --require "exact_match>=0.4" or --require "last_loss<=1.5".'


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """Requirement on every run: one of `FIGURES`, one of `SIGNS`, and a number."""

    figure: str
    sign: str
    bound: float

    def __str__(self) -> str:
        """Return the expression, such as `exact_match >= 0.4`."""
        return f"{self.figure} {self.sign} {self.bound:g}"


@dataclass(frozen=True, kw_only=True)
class GateLine:
    """Result of one requirement for one run.

    Attributes:
        run: Name of the run.
        required: The requirement.
        met: Whether the run meets it.
        what: What was found, as a sentence.
    """

    run: str
    required: str
    met: bool
    what: str


def parse_requirements(expressions: Iterable[str]) -> tuple[Requirement, ...]:
    """Parse the expressions of `--require`.

    Raises:
        ProblemError: With exit code 2 and all invalid expressions.
    """
    found = [_parse(expression) for expression in expressions]
    if problems := [each for each in found if isinstance(each, Problem)]:
        raise ProblemError(problems, exit_code=2)
    return tuple(each for each in found if isinstance(each, Requirement))


def _parse(expression: str) -> Requirement | Problem:
    match = _REQUIREMENT.fullmatch(expression)
    if match is None or not _NUMBER.fullmatch(match[3]):
        percent = _PERCENT.fullmatch(expression)
        then = f'Use a fraction: "{percent[1]}{float(percent[2]) / 100:g}".' if percent else _NEXT
        return _problem(f"Invalid requirement `{expression}`.", then)
    if match[1] not in FIGURES:
        near = get_close_matches(match[1], FIGURES, n=1)
        hint = f"Did you mean {near[0]}? " if near else ""
        return _problem(f"Unknown figure `{match[1]}`.", f"{hint}Choose from {', '.join(FIGURES)}.")
    bound = float(match[3])
    if match[1] in SCORES and not 0 <= bound <= 1:
        return _problem(f"`{expression}`: {match[1]} is a fraction from 0 to 1.", _fraction_hint(bound))
    return Requirement(figure=match[1], sign=match[2], bound=bound)


def validate_margin(value: float | None, *, baseline: bool) -> float | None:
    """Return the margin of `--no-worse-than`, checked.

    Raises:
        ProblemError: With exit code 2; it is not a fraction, or is given without a baseline, or is missing with one.
    """
    if value is None:
        if not baseline:
            return None
        problem = _problem("`--baseline` needs `--no-worse-than`.", "Pass the accepted loss: --no-worse-than 0.02.")
    elif not baseline:
        problem = _problem("`--no-worse-than` needs `--baseline`.", "Pass the run to compare with: --baseline RUN.")
    elif not 0 <= value < 1:
        problem = _problem(f"`--no-worse-than {value:g}` is not a fraction from 0 to 1.", _fraction_hint(value))
    else:
        return value
    raise ProblemError([problem], exit_code=2)


def _fraction_hint(value: float) -> str:
    return f"If {value:g} is a percentage, use {value / 100:g}." if 1 <= value <= 100 else "Use a number such as 0.02."


def _problem(what: str, then: str) -> Problem:
    return problem_of("TP094", file="", what=what, why=None, next=then)


def check_requirements(
    names: Sequence[str], runs: Sequence[Run], requirements: Sequence[Requirement]
) -> Iterator[GateLine]:
    """Yield the result of every requirement for every run."""
    for name, run in zip(names, runs, strict=True):
        grade = grade_run(run).grade.name if requirements else ""
        figures = _figures(run) if requirements and grade not in WORTHLESS else {}
        for requirement in requirements:
            met = False
            if grade in WORTHLESS:
                what = f"The run is graded {grade}, so its figures do not count."
            elif requirement.figure not in figures:
                what = f"{requirement.figure} was not measured."
            else:
                value, of = figures[requirement.figure]
                met = bool(SIGNS[requirement.sign](value, requirement.bound))
                what = f"{requirement.figure} is {value:.6g}{of}."
            yield GateLine(run=name, required=str(requirement), met=met, what=what)


def check_baseline(comparison: Comparison, margin: float) -> Iterator[GateLine]:
    """Yield for each run but the first whether its exact match is at most a margin worse than the first one's.

    The lower end of the paired 95 % interval must lie above −margin. A run that is worse by the margin passes
    rarely (in 2 to 6 % of cases, for 100 to 1,000 items), and too few items to tell fail.
    """
    for pair in comparison.pairs:
        met = pair.score is not None and pair.score.low > -margin
        if pair.score is None:
            what = f"The scores cannot be compared. {' '.join(pair.refused)}"
        else:
            what = (
                f"The difference is {pair.score.difference:+.3f} with the 95 % interval {pair.score.low:+.3f} to "
                f"{pair.score.high:+.3f}, {'above' if met else 'reaching'} {-margin:+g}."
            )
        required = f"exact_match no worse than {pair.first} by {margin:g}"
        yield GateLine(run=pair.second, required=required, met=met, what=what)


def _figures(run: Run) -> dict[str, tuple[float, str]]:
    """Return every measured figure of a run, with the number of items behind a score."""
    scores = compute_scores(run.predictions)["metrics"] if run.predictions and run.eval_summary else {}
    stated = run.manifest["result"] if run.manifest else {}
    result = {name: stated.get(name) for name in STATED} | compute_result(run.metrics or [])
    found = {name: (value, "") for name, value in result.items() if value is not None}
    for name, metric in scores.items():
        of = f"n = {metric['n']:,}, {metric['n_scored']:,} with an output, {metric['n_errors']:,} without"
        found[name] = (metric["value"], f" ({of})")
    return found
