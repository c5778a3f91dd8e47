"""Tasks of the package reasoning-gym as rows: `reasoning-gym:leg_counting?size=500&seed=1&max_animals=5`.

The package draws the entries of a task from a seed and judges answers to them; the reward of the same name calls it.
"""

from __future__ import annotations

import difflib
import importlib
import json
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any
from urllib.parse import parse_qsl

from evidence.hashes import sha256_lines
from evidence.rewards import GYM_PACKAGE, REASONING_GYM
from schemas.catalog import GYM
from schemas.problems import Problem, ProblemError, problem_of

DISTRIBUTION = "reasoning-gym"
DEFAULTS = {"size": 500, "seed": 0}


@dataclass(frozen=True, kw_only=True)
class GymTasks:
    """Entries of a task as rows, and what made them."""

    rows: tuple[dict[str, Any], ...]
    sha256: str
    """Over the entries as JSON, one a line."""
    generator: dict[str, Any]
    """As the manifest states it."""


def gym_tasks(name: str) -> GymTasks:
    """Return the tasks that a dataset's name means.

    Raises:
        ProblemError: exit code 2; the package is not installed, has no such task, or refuses its settings.
    """
    try:
        known = importlib.import_module(f"{GYM_PACKAGE}.factory").DATASETS
    except ImportError as error:
        what = f"The dataset {name} needs the package reasoning-gym, which cannot be imported: {error}."
        raise ProblemError([problem_of("TP907", file=name, what=what)], exit_code=2) from error
    task, _, query = name.removeprefix(GYM).partition("?")
    if task not in known:
        near = difflib.get_close_matches(task, known, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"It has {len(known)} tasks, such as {min(known)}."
        raise ProblemError([_refusal(name, f"reasoning-gym has no task {task!r}.", hint)], exit_code=2)
    options = DEFAULTS | {key: _value(text) for key, text in parse_qsl(query, keep_blank_values=True)}
    try:
        dataset = importlib.import_module(GYM_PACKAGE).create_dataset(task, **options)
        entries = [dataset[number] for number in range(len(dataset))]
    except (TypeError, ValueError, AssertionError, LookupError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        what = f"reasoning-gym refuses the settings of {task}: {reason.rstrip('.')}."
        raise ProblemError([_refusal(name, what, None)], exit_code=2) from error
    configuration = json.loads(json.dumps(asdict(dataset.config), default=str))
    return GymTasks(
        rows=tuple(_row(task, entry) for entry in entries),
        sha256=sha256_lines(json.dumps(entry, default=str, sort_keys=True) for entry in entries),
        generator={
            "package": DISTRIBUTION,
            "version": version(DISTRIBUTION),
            "task": task,
            "configuration": configuration,
        },
    )


def _row(task: str, entry: dict[str, Any]) -> dict[str, Any]:
    gold = entry.get("answer")
    answer = {"final_answer": gold} if isinstance(gold, str) and gold else {}
    return {"prompt": entry["question"], "task": {"kind": REASONING_GYM, "name": task, "entry": entry}, **answer}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _refusal(name: str, what: str, hint: str | None) -> Problem:
    return problem_of("TP919", file=name, what=what, next=hint)
