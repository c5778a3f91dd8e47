"""A regression gate: whether runs reach the requirements, and are not worse than a baseline.

A figure is taken as computed again from the rows of the run, never as stated; a run that contradicts itself, or holds
no measurement, meets no requirement.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from evidence.compare.comparison import Comparison, Pair
from evidence.proof.verification import standing_of
from evidence.records.facts import Document, facts_of
from evidence.records.ours import Run
from evidence.scores.recompute import result_of, scores_of
from schemas.problems import Problem, ProblemError, problem_of

SCORES = ("exact_match", "format_compliance")
"""Metrics of eval_summary.json."""
COMPUTED = ("first_loss", "last_loss", "mean_loss", "best_loss", "best_step", "tokens_seen")
"""Fields of the manifest's result that follow from metrics.jsonl."""
STATED = ("train_seconds", "compile_seconds", "peak_memory_bytes")
"""Fields of it that nothing else in the run states."""
FIGURES = (*SCORES, *COMPUTED, *STATED)
"""What can be required."""
SIGNS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "==": operator.eq}
WORTHLESS = frozenset({"contradictory", "template", "not a run"})
"""Grades of which no figure counts."""

_FORM = re.compile(r"\s*([A-Za-z_]+)\s*(>=|<=|==|>|<)\s*(\S+)\s*")
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
_PERCENT = re.compile(r"(.*[<>=]\s*)(\d+(?:\.\d*)?)\s*%\s*")
_NEXT = 'Write figure, sign and number, as in --require "exact_match>=0.4" or --require "last_loss<=1.5".'

_Figure = tuple[float, str]
"""A value, and of how many items it is."""


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """One requirement on every run."""

    figure: str
    """One of `FIGURES`."""
    sign: str
    """One of `SIGNS`."""
    bound: float
    """The number on the right."""

    def __str__(self) -> str:
        """Return it as one writes it: `exact_match >= 0.4`."""
        return f"{self.figure} {self.sign} {self.bound:g}"


@dataclass(frozen=True, kw_only=True)
class GateLine:
    """The verdict on one run and one requirement."""

    run: str
    """Name of the run."""
    required: str
    """The requirement, in words."""
    met: bool
    """Whether the run reaches it."""
    what: str
    """What was found, as a sentence."""


def requirements_of(expressions: Iterable[str]) -> tuple[Requirement, ...]:
    """Return what `--require` requests.

    Raises:
        ProblemError: Exit code 2: an expression has another form, or names no figure. All of them are reported.
    """
    found = [_requirement(expression) for expression in expressions]
    if problems := [each for each in found if isinstance(each, Problem)]:
        raise ProblemError(problems, exit_code=2)
    return tuple(each for each in found if isinstance(each, Requirement))


def requirement_lines(names: Sequence[str], runs: Sequence[Run], asked: Sequence[Requirement]) -> Iterator[GateLine]:
    """Yield the verdict on every run and requirement, in their order."""
    for name, run in zip(names, runs, strict=True):
        grade = standing_of(run).grade.name if asked else ""
        figures = _figures(run) if asked and grade not in WORTHLESS else {}
        for requirement in asked:
            yield _line(name, grade, requirement, figures.get(requirement.figure))


def baseline_lines(comparison: Comparison, margin: float) -> Iterator[GateLine]:
    """Yield for each run but the first whether its exact match is not worse than the first one's by a margin.

    It holds if the lower end of the paired 95 % interval of the difference lies above −margin: then a run that is worse
    by the margin would show this with probability 0.025 at most. A difference that is not known well enough fails.
    """
    for pair in comparison.pairs:
        required = f"exact_match no worse than {pair.first} by {margin:g}"
        yield GateLine(run=pair.second, required=required, met=_holds(pair, margin), what=_why(pair, margin))


def margin_of(value: float | None, *, baseline: bool) -> float | None:
    """Return the margin of `--no-worse-than`.

    Raises:
        ProblemError: Exit code 2: it is not a fraction, or comes without a baseline, or a baseline comes without it.
    """
    if value is None:
        then = "Say how much worse is bearable: --no-worse-than 0.02."
        problems = [_problem("`--baseline` needs `--no-worse-than`.", then)] if baseline else []
    elif not baseline:
        problems = [_problem("`--no-worse-than` needs `--baseline`.", "Name the run to compare with: --baseline RUN.")]
    elif not 0 <= value < 1:
        problems = [_problem(f"`--no-worse-than {value:g}` is no fraction from 0 to 1.", _percent(value))]
    else:
        problems = []
    if problems:
        raise ProblemError(problems, exit_code=2)
    return value


def _percent(value: float) -> str:
    return f"If {value:g} is a percentage, write {value / 100:g}." if 1 <= value <= 100 else "Write one, such as 0.02."


def _holds(pair: Pair, margin: float) -> bool:
    return pair.score is not None and pair.score.low > -margin


def _why(pair: Pair, margin: float) -> str:
    if pair.score is None:
        return f"Their scores cannot be compared. {' '.join(pair.refused)}"
    score = pair.score
    reach = "above" if _holds(pair, margin) else "reaching"
    return (
        f"The difference is {score.difference:+.3f}, its 95 % interval {score.low:+.3f} to {score.high:+.3f}, "
        f"{reach} {-margin:+g}."
    )


def _requirement(expression: str) -> Requirement | Problem:
    match = _FORM.fullmatch(expression)
    if match is None or not _NUMBER.fullmatch(match[3]):
        percent = _PERCENT.fullmatch(expression)
        then = f'Write the fraction: "{percent[1]}{float(percent[2]) / 100:g}".' if percent else _NEXT
        return _problem(f"`{expression}` is no requirement.", then)
    if match[1] not in FIGURES:
        near = get_close_matches(match[1], FIGURES, n=1)
        hint = f"Did you mean {near[0]}? " if near else ""
        return _problem(f"`{match[1]}` is no figure of a run.", f"{hint}There are: {', '.join(FIGURES)}.")
    bound = float(match[3])
    if match[1] in SCORES and not 0 <= bound <= 1:
        return _problem(f"`{expression}`: {match[1]} is a fraction from 0 to 1.", _percent(bound))
    return Requirement(figure=match[1], sign=match[2], bound=bound)


def _figures(run: Run) -> dict[str, _Figure]:
    """Return every figure of a run that was measured, and of how many items it is."""
    facts = facts_of(run)
    scores = scores_of(facts.predictions)["metrics"] if facts.predictions and facts.eval_summary else {}
    stated = facts.manifest["result"] if facts.manifest else {}
    result = {name: stated.get(name) for name in STATED} | result_of(facts.metrics or [])
    return {name: (metric["value"], _counts(metric)) for name, metric in scores.items()} | {
        name: (value, "") for name, value in result.items() if value is not None
    }


def _counts(metric: Document) -> str:
    """Return what a score is of: ` (n = 30, 28 with an output, 2 without)`."""
    return f" (n = {metric['n']:,}, {metric['n_scored']:,} with an output, {metric['n_errors']:,} without)"


def _line(name: str, grade: str, requirement: Requirement, figure: _Figure | None) -> GateLine:
    if grade in WORTHLESS:
        met, what = False, f"The run is graded {grade}, so no figure of it counts."
    elif figure is None:
        met, what = False, f"{requirement.figure} was not measured."
    else:
        met = bool(SIGNS[requirement.sign](figure[0], requirement.bound))
        what = f"{requirement.figure} is {figure[0]:.6g}{figure[1]}."
    return GateLine(run=name, required=str(requirement), met=met, what=what)


def _problem(what: str, then: str) -> Problem:
    return problem_of("TP094", file="", what=what, why=None, next=then)
