"""Reward functions for reinforcement learning, which the trainer and the checker compute.

To add a reward, write a function that takes the scoring and keyword-only options, and add it to `REWARDS`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import math
import operator
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from importlib.util import find_spec
from itertools import chain, pairwise, repeat
from pathlib import Path
from typing import Any, Literal

from evidence.scores.forms import TOLERANCE
from evidence.scores.reading import PatternError, Scoring, compile_pattern, matches_whole
from schemas.formats import format_value, join_words
from schemas.problems import Problem, ProblemError, problem_of, truncate_problems

Row = Mapping[str, Any]
Scale = Literal["group", "batch", "none"]

COUNTDOWN = "countdown"
REASONING_GYM = GYM_PACKAGE = "reasoning_gym"
MAX_BARE_ANSWER_CHARS = 200  # a single line up to this length is a gold answer as a whole if none can be extracted
MAX_EXPRESSION_CHARS = 200
MAX_LENGTH = 1_000_000
MAX_OWN_REWARD = 1e6
ADVANTAGE_EPSILON = 1e-4  # added to the standard deviation in the denominator of advantages, as in TRL
LOGGED_ROLLOUTS = 20  # about as many are logged of a run; runs with fewer than twice as many log every roll-out


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """Input of a reward function: a completion without its end token, cut off unless `finished`, and its row."""

    prompt: str
    text: str
    row: Row
    finished: bool


@dataclass(frozen=True, kw_only=True)
class Reward:
    """A reward function with its weight.

    `compute` is a pure function from an attempt to a number from `low` to `high`; a gold answer gets `high`. `missing`
    describes what a row lacks ("lacks a …"). The checker only recomputes rewards that are `is_ours`.
    """

    compute: Callable[[Attempt], float]
    name: str = ""
    weight: float = 1.0
    missing: Callable[[Row], str | None] = lambda _row: None
    low: float = 0.0
    high: float = 1.0
    is_ours: bool = True

    def score(self, attempt: Attempt) -> float:
        """Compute the reward of an attempt; raise ProblemError without a finite number in the range of the reward."""
        try:
            value = self.compute(attempt)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a user's function may raise anything, even SystemExit
            reason = f"raises {type(error).__name__}: {error}".removesuffix(": ")
            raise ProblemError([self._problem(reason, attempt, traceback.extract_tb(error.__traceback__))]) from error
        number = _to_finite_float(value)
        if number is None or not self.low <= number <= self.high:
            reason = "is not a finite number" if number is None else f"is outside {self.low:g} to {self.high:g}"
            problem = self._problem(f"returns {value!r:.60}, which {reason}", attempt)
            kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
            raise ProblemError([replace(problem, what=f"{problem.what} The type is {kind}.")])
        return number

    def _problem(self, reason: str, attempt: Attempt, frames: Sequence[traceback.FrameSummary] = ()) -> Problem:
        """Describe an error, with the last line of the user's own file among the frames after `score`."""
        file = frames[1].filename if len(frames) > 1 else ""
        line = next((frame.lineno for frame in reversed(frames[1:]) if frame.filename == file), None)
        what = f"The reward {self.name} {reason}, for the prompt {format_value(attempt.prompt)} and the completion "
        return problem_of("TP906", file=file, line=line, what=f"{what}{format_value(attempt.text)}.")


def _to_finite_float(value: Any) -> float | None:
    """Convert a number of any library, or return None for text, NaN, infinity and other objects."""
    if isinstance(value, str | bytes | bytearray) or getattr(value, "shape", ()) != ():
        return None
    try:
        number = float(value)
    except Exception:  # noqa: BLE001 - `__float__` of a library may raise anything
        return None
    return number if math.isfinite(number) else None


def gold_answers(row: Row, scoring: Scoring) -> tuple[str, ...]:
    """Return the gold answers of a dataset row: `final_answer`, or the answer in the target completion.

    A completion of one short line without an extractable answer is an answer as a whole.

    >>> gold_answers({"prompt": "2+2?", "completion": "4"}, Scoring()), gold_answers({"prompt": "Hi"}, Scoring())
    (('4',), ())
    """
    if "final_answer" in row:
        return (str(row["final_answer"]),)
    if "messages" not in row and "completion" not in row:
        return ()
    target = str(row["messages"][-1]["content"] if "messages" in row else row["completion"])
    answer, bare = scoring.read(target), target.strip()
    if answer is None and bare and "\n" not in bare and len(bare) <= MAX_BARE_ANSWER_CHARS:
        answer = bare
    return () if answer is None else (answer,)


class OptionError(Exception):
    """Raised for an invalid option `key` (or options) of a reward, with the end of a sentence about it."""

    def __init__(self, reason: str, key: str | None = None) -> None:
        super().__init__(reason)
        self.key = key


def _require_range(key: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        reason = f"is {value:,}, but must be from {low:,} to {high:,}"
        raise OptionError(reason, key)


def _missing_gold(scoring: Scoring) -> Callable[[Row], str | None]:
    """Return the function that describes which gold answer a row lacks."""

    def missing(row: Row) -> str | None:
        answers = gold_answers(row, scoring)
        if not answers:
            return f"lacks a gold answer: a final_answer, or a completion with an answer read as {scoring.describe()}"
        is_number = any(map(scoring.can_compare, answers))
        return None if is_number else f"has the gold answer {format_value(answers[0])}, which is not a number"

    return missing


def exact(scoring: Scoring) -> Reward:
    """Reward 1 for a right answer, extracted and compared as in the evaluation."""

    def compute(attempt: Attempt) -> float:
        return float(scoring.is_right(scoring.read(attempt.text), gold_answers(attempt.row, scoring)))

    return Reward(compute=compute, missing=_missing_gold(scoring))


def numeric(scoring: Scoring, *, tolerance: float = TOLERANCE) -> Reward:
    """Reward 1 for a number within a tolerance relative to the gold answer.

    The sign counts, and only 0 is near 0. With a tolerance of 0.05, 97 and 104 are near 100, and −100 is not.
    """
    _require_range("tolerance", tolerance, 0, 1)

    def compute(attempt: Attempt) -> float:
        answer, golds = scoring.read(attempt.text), gold_answers(attempt.row, scoring)
        return float(answer is not None and any(scoring.is_near(answer, gold, tolerance, least=0) for gold in golds))

    return Reward(compute=compute, missing=_missing_gold(replace(scoring, compare="numeric")))


def form(scoring: Scoring, *, tags: tuple[str, ...] | None = None, regex: str | None = None) -> Reward:
    r"""Reward 1 for a finished text that matches a pattern, or that is one block of each tag in order.

    For the tags `think` and `answer` that is `<think>a</think>\n<answer>4</answer>`. By default the tags are
    `reasoning` and `answer`, if the evaluation reads tags.
    """
    if regex is not None:
        try:
            compile_pattern(regex)
        except PatternError as error:
            reason = f"is {format_value(regex)}: {error}"
            raise OptionError(reason, "regex") from error
        return Reward(compute=lambda attempt: float(attempt.finished and matches_whole(regex, attempt.text)))
    if scoring.answer != "tags" and tags is None:
        reason = f"needs regex or tags, because answers are read as {scoring.describe()}"
        raise OptionError(reason)
    tags = tags or ("reasoning", "answer")
    joints = [f"</{one}>\n<{other}>" for one, other in pairwise(tags)]
    marks = [mark for tag in tags for mark in (f"<{tag}>", f"</{tag}>")]

    def compute(attempt: Attempt) -> float:
        text = attempt.text
        is_exact = text.startswith(marks[0]) and text.endswith(marks[-1]) and all(joint in text for joint in joints)
        return float(attempt.finished and is_exact and all(text.count(mark) == 1 for mark in marks))

    return Reward(compute=compute)


def length(_scoring: Scoring, *, most: int, least: int = 0, margin: int = 0) -> Reward:
    """Reward 1 for a length from `least` to `most` characters, decreasing to 0 below and over `margin` above.

    With 10 to 100 characters and a margin of 50, 5 and 125 characters get 0.5. A completion that was cut off gets 0.
    """
    for key, value, lowest in (("least", least, 0), ("margin", margin, 0), ("most", most, max(1, least))):
        _require_range(key, value, lowest, MAX_LENGTH)

    def compute(attempt: Attempt) -> float:
        characters = len(attempt.text)
        if not attempt.finished:
            return 0.0
        if characters <= most:
            return 1.0 if characters >= least else characters / least
        return max(0.0, 1.0 - (characters - most) / margin) if margin else 0.0

    return Reward(compute=compute)


def countdown(scoring: Scoring) -> Reward:
    """Reward 1 for an expression that computes the row's target from its numbers with + - * /, each used at most once.

    Fractions are exact, and the answer must be the expression alone. For the task
    `{"kind": "countdown", "numbers": [3, 7, 2], "target": 13}` of a row, `3 * 2 + 7` gets 1.
    """

    def missing(row: Row) -> str | None:
        match row.get("task"):
            case {"kind": "countdown", "numbers": [_, *_] as numbers, "target": target} if all(
                type(value) is int and value >= 0 for value in (*numbers, target)
            ):
                return None
        return f"lacks a task of the kind {COUNTDOWN} with numbers and a target, all integers from 0"

    def compute(attempt: Attempt) -> float:
        task, answer = attempt.row["task"], (scoring.read(attempt.text) or "").strip()
        if len(answer) > MAX_EXPRESSION_CHARS or not re.fullmatch(r"[0-9+\-*/() ]+", answer):
            return 0.0
        try:
            tree = ast.parse(answer, mode="eval").body
            value = _evaluate(tree)
        except (SyntaxError, ValueError, ZeroDivisionError):
            return 0.0
        used = Counter(node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
        return float(value == task["target"] and not used - Counter(task["numbers"]))

    return Reward(compute=compute, missing=missing)


_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def _evaluate(node: ast.expr) -> Fraction:
    """Evaluate an expression of integers and binary + - * /, or raise ValueError for any other."""
    match node:
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            value: Fraction = _OPERATORS[type(op)](_evaluate(left), _evaluate(right))
            return value
        case ast.Constant(value=int(number)):
            return Fraction(number)
    message = f"not an arithmetic expression: {ast.dump(node)}"
    raise ValueError(message)


def reasoning_gym(scoring: Scoring) -> Reward:
    """Reward the score of the package reasoning-gym, whose scorers may execute the answer, for one of its tasks."""

    def missing(row: Row) -> str | None:
        match row.get("task"):
            case {"kind": "reasoning_gym", "name": str(), "entry": dict()}:
                return None
        return f"lacks a task of the kind {REASONING_GYM}"

    def compute(attempt: Attempt) -> float:
        task, answer = attempt.row["task"], scoring.read(attempt.text)
        return 0.0 if answer is None else float(gym_scorer(task["name"])(answer=answer, entry=task["entry"]))

    return Reward(compute=compute, missing=missing, is_ours=False)


@cache
def gym_scorer(task: str) -> Callable[..., Any]:
    """Return the scoring function of a reasoning-gym task."""
    found: Callable[..., Any] = importlib.import_module(GYM_PACKAGE).get_score_answer_fn(task)
    return found


def user_function(_scoring: Scoring, *, low: float = 0.0, high: float = 1.0) -> Reward:
    """Reward the return value of a user's function, from `low` to `high`."""
    _require_range("low", low, -MAX_OWN_REWARD, MAX_OWN_REWARD)
    _require_range("high", high, low, MAX_OWN_REWARD)
    if high == low:
        reason = f"is {high:g}, but low is {low:g}"
        raise OptionError(reason, "high")

    def fail(_attempt: Attempt) -> float:
        message = "the function was not imported"
        raise RuntimeError(message)

    return Reward(compute=fail, low=low, high=high, is_ours=False)


_NO_REWARD = Reward(compute=lambda _attempt: 0.0)

REWARDS: dict[str, Callable[..., Reward]] = {
    "exact": exact,
    "numeric": numeric,
    "format": form,
    "length": length,
    COUNTDOWN: countdown,
    REASONING_GYM: reasoning_gym,
}
"""Reward functions by name. Any other name is `module:function`."""


def build_rewards(
    settings: Sequence[Mapping[str, Any] | str], scoring: Scoring, *, file: str, execute: bool = True
) -> tuple[Reward, ...]:
    """Build the rewards of a configuration from terms with name, weight (default 1) and options, or from names.

    `file` is the configuration, for messages. Unless `execute`, no third-party code is imported, and only rewards that
    are `is_ours` can be computed. Every invalid name, weight, option and function is a problem with exit code 2.
    """
    problems: list[Problem] = []
    rewards: list[Reward] = []
    for number, given in enumerate(settings):
        item: Mapping[str, Any] = {"name": given} if isinstance(given, str) else given
        name, weight = str(item["name"]), _to_finite_float(item.get("weight", 1))

        def report(code: str, what: str, place: str = "", expected: str | None = None, number: int = number) -> None:
            pointer = f"/objective/rewards/{number}{place}"
            problems.append(problem_of(code, file=file, pointer=pointer, what=what, expected=expected))

        if any(reward.name == name for reward in rewards):
            report("TP902", f"The reward {name} is listed twice.")
        if weight is None:
            report("TP902", f"The weight of {name} is {format_value(item['weight'])}, not a finite number.")
        reward = _build(name, item.get("options") or {}, scoring, report, execute=execute)
        rewards.append(replace(reward, name=name, weight=1.0 if weight is None else weight))
    if not any(reward.weight > 0 for reward in rewards):
        what = "No reward has a weight above 0." if rewards else "The list of rewards is empty."
        problems.append(problem_of("TP902", file=file, pointer="/objective/rewards", what=what))
    if problems:
        raise ProblemError(problems, exit_code=2)
    return tuple(rewards)


def _build(
    name: str, options: Mapping[str, Any], scoring: Scoring, report: Callable[..., None], *, execute: bool
) -> Reward:
    """Build one reward, which is unusable if there are problems."""
    function = REWARDS.get(name, user_function if ":" in name else None)
    if function is None:
        report("TP901", f"Unknown reward {name}.", "/name", f"{join_words(REWARDS)}, or module:function")
        return _NO_REWARD
    errors: list[OptionError] = []
    reward = _bind(function, options, scoring, errors)
    for error in errors:
        subject = f"{error.key} of the reward {name}" if error.key else f"The reward {name}"
        report("TP903", f"{subject} {error}.", f"/options/{error.key}" if error.key else "/options")
    if errors:
        return _NO_REWARD
    if execute and function is user_function:
        try:
            reward = replace(reward, compute=_import_function(name))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a user's module may raise anything, SystemExit too
            report("TP904", f"The reward {name} cannot be called: {type(error).__name__}: {error}.", "/name")
    if execute and function is reasoning_gym and find_spec(GYM_PACKAGE) is None:
        report("TP907", f"The reward {name} needs the package reasoning-gym, which is not installed.")
    return reward


def _bind(
    function: Callable[..., Reward], options: Mapping[str, Any], scoring: Scoring, errors: list[OptionError]
) -> Reward:
    """Call a reward function with options from a configuration, checked against its signature; add what is wrong."""
    known = inspect.signature(partial(function, scoring)).parameters
    if unknown := [key for key in options if key not in known]:
        takes = f"takes {join_words(list(known), 'and')}" if known else "takes no options"
        reason = f"does not know {join_words(map(format_value, unknown), 'and')}; it {takes}"
        errors.append(OptionError(reason))
    arguments: dict[str, Any] = {}
    for key, parameter in known.items():
        kind, value = parameter.annotation.removesuffix(" | None"), options.get(key)
        if value is None and parameter.default is parameter.empty:
            errors.append(OptionError(f"needs the option {key}"))
        if value is not None and (converted := _convert_option(kind, value)) is None:
            reason = f"is {format_value(value)}, but must be {_OPTION_TYPES[kind]}"
            errors.append(OptionError(reason, key))
        elif value is not None:
            arguments[key] = converted
    try:
        return _NO_REWARD if errors else function(scoring, **arguments)
    except OptionError as error:
        errors.append(error)
        return _NO_REWARD


_OPTION_TYPES = {
    "int": "an integer",
    "float": "a finite number",
    "str": "a text",
    "tuple[str, ...]": "a list of different names",
}
"""Annotations of options, with the expected value in words."""


def _convert_option(kind: str, value: Any) -> Any:
    """Convert a value to one of `_OPTION_TYPES`, or return None if it is invalid."""
    if kind == "str":
        return value if isinstance(value, str) and value else None
    if kind == "tuple[str, ...]":
        names = value.split() if isinstance(value, str) else value
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name for name in names):
            return None
        return tuple(names) if names and len(set(names)) == len(names) else None
    if isinstance(value, bool) or not isinstance(value, int if kind == "int" else int | float):
        return None
    return value if kind == "int" else _to_finite_float(value)


def _import_function(name: str) -> Callable[[Attempt], float]:
    """Import `module:function`, searching the working folder first like `python -m`."""
    module, _, attribute = name.partition(":")
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        function: Callable[[Attempt], float] = getattr(importlib.import_module(module), attribute)
    finally:
        sys.path.remove(folder)
    inspect.signature(function).bind(object())
    return function


def find_unusable_rows(
    rewards: Sequence[Reward], rows: Sequence[Row], *, file: str, lines: Sequence[int] | None = None
) -> list[Problem]:
    """Return the first problems of each reward with rows that lack something; `lines` number the first rows."""

    def problems(reward: Reward) -> Iterator[Problem]:
        for row, line in zip(rows, chain(lines or (), repeat(None)), strict=False):
            if (reason := reward.missing(row)) is not None:
                what = f"A row {reason}; the reward {reward.name} needs it."
                yield problem_of("TP905", file=file, line=line, what=what)

    return [problem for reward in rewards for problem in truncate_problems(problems(reward))]


def score_parts(rewards: Sequence[Reward], attempt: Attempt) -> dict[str, float]:
    """Compute each unweighted reward of an attempt by name. Raises ProblemError if one cannot be computed."""
    return {reward.name: reward.score(attempt) for reward in rewards}


def total_reward(rewards: Sequence[Reward], parts: Mapping[str, float]) -> float:
    """Compute the weighted sum: `{"exact": 1, "format": 0.5}` with weights 1 and 0.2 gives 1.1."""
    return math.fsum(reward.weight * parts[reward.name] for reward in rewards)


def advantages(rewards: Sequence[Sequence[float]], scale: Scale) -> list[list[float]]:
    """Compute the advantages of the groups of a step: each reward less the mean of its group, divided by the scale.

    The scale is 1e-4 plus the sample standard deviation (with n − 1) of the `group` or the whole `batch`, or 1 for
    `none`. A group of equal rewards gets only zeros.

    >>> advantages([[1, 0, 0, 1]], "group")[0][0], advantages([[1, 0], [1, 1]], "none")
    (0.8658754297..., [[0.5, -0.5], [0.0, 0.0]])
    """
    divisors = {"none": 1.0, "batch": _deviation([reward for group in rewards for reward in group]) + ADVANTAGE_EPSILON}
    found = []
    for group in rewards:
        if not group or min(group) == max(group):
            found.append([0.0] * len(group))
            continue
        mean = math.fsum(group) / len(group)
        divisor = _deviation(group) + ADVANTAGE_EPSILON if scale == "group" else divisors[scale]
        found.append([(reward - mean) / divisor for reward in group])
    return found


def _deviation(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


_TERM = re.compile(
    r"\s*(?:(?P<weight>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*\*\s*)?(?P<name>[A-Za-z_][\w.]*(?::\w+)?)"
    r"\s*(?:\((?P<options>[^()]*)\))?\s*(?P<next>\+|$)"
)


def parse_terms(text: str | None, *, file: str) -> list[dict[str, Any]]:
    """Parse the weighted sum in `objective.rewards` into terms; any other text is a problem with exit code 2.

    >>> parse_terms("exact + 0.2*length(most=200)", file="run")
    [{'name': 'exact', 'weight': 1.0, 'options': {}}, {'name': 'length', 'weight': 0.2, 'options': {'most': 200}}]
    """
    found: list[dict[str, Any]] = []
    place, text = 0, text or ""
    while text.strip():
        term = _TERM.match(text, place)
        options = None if term is None else _parse_options(term["options"] or "")
        if term is None or options is None:
            what = f"objective.rewards is {text!r}, which cannot be parsed from {text[place:].strip()[:40]!r} on."
            problem = problem_of("TP909", file=file, pointer="/objective/rewards", what=what)
            raise ProblemError([problem], exit_code=2)
        found.append({"name": term["name"], "weight": float(term["weight"] or 1), "options": options})
        if term["next"] != "+":
            break
        place = term.end()
    return found


def _parse_options(text: str) -> dict[str, Any] | None:
    """Parse `key=value` pairs separated by commas, or return None if they have another form."""
    found: dict[str, Any] = {}
    for pair in text.rstrip().removesuffix(",").split(",") if text.strip() else ():
        key, _, value = (part.strip() for part in pair.partition("="))
        if not re.fullmatch(r"\w+", key) or not value:
            return None
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return found


def logged_rollout_steps(steps: int, updates_per_rollout: int) -> Iterator[int]:
    """Yield the optimizer steps from 1 whose completions are logged: 1, 6, 11, … 96 and 100 of 100."""
    count = -(-steps // updates_per_rollout)
    apart = max(1, count // LOGGED_ROLLOUTS)
    for number in range(0, count, apart):
        yield number * updates_per_rollout + 1
    if (count - 1) % apart:
        yield (count - 1) * updates_per_rollout + 1
