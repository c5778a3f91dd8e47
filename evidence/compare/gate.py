"""Check runs against requirements and a baseline, for continuous integration.

Figures are recomputed from the rows of a run. A contradictory or unmeasured run meets no requirement.
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

SCORES = ("exact_match", "format_compliance")  # metrics of eval_summary.json
COMPUTED = ("first_loss", "last_loss", "mean_loss", "best_loss", "best_step", "tokens_seen")  # from metrics.jsonl
STATED = ("train_seconds", "compile_seconds", "peak_memory_bytes")  # as the manifest's result has them
FIGURES = (*SCORES, *COMPUTED, *STATED)
SIGNS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "==": operator.eq}
WORTHLESS = frozenset({"contradictory", "template", "not a run"})  # their figures do not count

_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_REQUIREMENT = re.compile(rf"\s*([A-Za-z_]+)\s*(>=|<=|==|>|<)\s*({_NUMBER})\s*")
_NEXT = 'Use figure, sign and number, as in --require "exact_match>=0.4" or --require "last_loss<=1.5".'


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """Requirement on every run: one of `FIGURES`, one of `SIGNS` and a bound, such as `exact_match >= 0.4`."""

    figure: str
    sign: str
    bound: float

    def __str__(self) -> str:
        return f"{self.figure} {self.sign} {self.bound:g}"


@dataclass(frozen=True, kw_only=True)
class GateLine:
    """Whether one run meets one requirement, with the finding as a sentence."""

    run: str
    required: str
    met: bool
    what: str


def parse_requirements(expressions: Iterable[str]) -> tuple[Requirement, ...]:
    """Parse the expressions of `--require`; raise ProblemError (exit code 2) with all invalid ones."""
    found: list[Requirement] = []
    problems: list[Problem] = []
    for expression in expressions:
        if (match := _REQUIREMENT.fullmatch(expression)) is None:
            advice = "Use a fraction: 0.4 for 40 %." if "%" in expression else _NEXT
            problems.append(_problem(f"Invalid requirement `{expression}`.", advice))
            continue
        figure, sign, bound = match[1], match[2], float(match[3])
        if figure not in FIGURES:
            hint = "".join(f"Did you mean {near}? " for near in get_close_matches(figure, FIGURES, n=1))
            problems.append(_problem(f"Unknown figure `{figure}`.", f"{hint}Choose from {', '.join(FIGURES)}."))
        elif figure in SCORES and not 0 <= bound <= 1:
            problems.append(_problem(f"`{expression}`: {figure} is a fraction from 0 to 1.", _fraction_hint(bound)))
        found.append(Requirement(figure=figure, sign=sign, bound=bound))
    if problems:
        raise ProblemError(problems, exit_code=2)
    return tuple(found)


def validate_margin(value: float | None, *, baseline: bool) -> float | None:
    """Return the margin of `--no-worse-than`; raise ProblemError (exit code 2) if it or its baseline is wrong."""
    if value is None and baseline:
        problem = _problem("`--baseline` needs `--no-worse-than`.", "Pass the accepted loss: --no-worse-than 0.02.")
    elif value is not None and not baseline:
        problem = _problem("`--no-worse-than` needs `--baseline`.", "Pass the run to compare with: --baseline RUN.")
    elif value is not None and not 0 <= value < 1:
        problem = _problem(f"`--no-worse-than {value:g}` is not a fraction from 0 to 1.", _fraction_hint(value))
    else:
        return value
    raise ProblemError([problem], exit_code=2)


def _fraction_hint(value: float) -> str:
    return f"If {value:g} is a percentage, use {value / 100:g}." if 1 <= value <= 100 else "Use a number such as 0.02."


def _problem(what: str, advice: str) -> Problem:
    return problem_of("TP094", file="", what=what, why=None, next=advice)


def check_requirements(
    names: Sequence[str], runs: Sequence[Run], requirements: Sequence[Requirement]
) -> Iterator[GateLine]:
    """Yield the result of every requirement for every run."""
    for name, run in zip(names, runs, strict=True) if requirements else ():
        grade = grade_run(run).grade.name
        figures = _measured_figures(run) if grade not in WORTHLESS else {}
        for requirement in requirements:
            met = False
            if grade in WORTHLESS:
                what = f"The run is graded {grade}, so its figures do not count."
            elif requirement.figure not in figures:
                what = f"{requirement.figure} was not measured."
            else:
                value, items = figures[requirement.figure]
                met = bool(SIGNS[requirement.sign](value, requirement.bound))
                what = f"{requirement.figure} is {value:.6g}{items}."
            yield GateLine(run=name, required=str(requirement), met=met, what=what)


def check_baseline(comparison: Comparison, margin: float) -> Iterator[GateLine]:
    """Yield for each run but the first whether its exact match is worse than the first run's by less than a margin.

    The lower end of the paired 95 % interval must be above −margin. A run that is worse by exactly the margin passes in
    2 to 6 % of cases (for 100 to 1,000 items). With too few items, equal runs fail too.
    """
    for pair in comparison.pairs:
        met, what = False, f"The scores cannot be compared. {' '.join(pair.refused)}"
        if pair.score is not None:
            met = pair.score.low > -margin
            what = (
                f"The difference is {pair.score.difference:+.3f} with the 95 % interval {pair.score.low:+.3f} to "
                f"{pair.score.high:+.3f}, {'above' if met else 'reaching'} {-margin:+g}."
            )
        required = f"exact_match no worse than {pair.first} by {margin:g}"
        yield GateLine(run=pair.second, required=required, met=met, what=what)


def _measured_figures(run: Run) -> dict[str, tuple[float, str]]:
    """Return the measured figures of a run, scores with their number of items as text."""
    stated = run.manifest["result"] if run.manifest else {}
    result = {name: stated.get(name) for name in STATED} | compute_result(run.metrics or [])
    found = {name: (value, "") for name, value in result.items() if value is not None}
    scores = compute_scores(run.predictions)["metrics"] if run.predictions and run.eval_summary else {}
    for name, metric in scores.items():
        items = f"n = {metric['n']:,}, {metric['n_scored']:,} with an output, {metric['n_errors']:,} without"
        found[name] = (metric["value"], f" ({items})")
    return found
