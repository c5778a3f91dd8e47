"""Tasks of the package reasoning-gym as rows: `reasoning-gym:leg_counting?size=500&seed=1&max_animals=5`.

The package draws the entries of a task from a seed and scores answers to them; the reward `reasoning_gym` calls it.
"""

from __future__ import annotations

import difflib
import importlib
import json
from dataclasses import asdict
from importlib.metadata import version
from typing import Any
from urllib.parse import parse_qsl

from evidence.hashes import sha256_lines
from evidence.rewards import GYM_PACKAGE, REASONING_GYM
from schemas.catalog import GYM
from schemas.problems import ProblemError, problem_of

DISTRIBUTION = "reasoning-gym"
DEFAULTS = {"size": 500, "seed": 0}


def gym_tasks(name: str) -> dict[str, Any]:
    """Draw the tasks that the name of a dataset describes.

    Returns:
        `rows`; `sha256` over the entries as lines of JSON; and `generator`, as the manifest records it.

    Raises:
        ProblemError: Exit code 2; the package is not installed, the task is unknown, or its settings are invalid.
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
        what = f"reasoning-gym has no task {task!r}."
        raise ProblemError([problem_of("TP919", file=name, what=what, next=hint)], exit_code=2)
    options = DEFAULTS | {key: _parse_option(text) for key, text in parse_qsl(query, keep_blank_values=True)}
    try:
        dataset = importlib.import_module(GYM_PACKAGE).create_dataset(task, **options)
        entries = [dataset[number] for number in range(len(dataset))]
    except (TypeError, ValueError, AssertionError, LookupError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        what = f"reasoning-gym refuses the settings of {task}: {reason.rstrip('.')}."
        raise ProblemError([problem_of("TP919", file=name, what=what)], exit_code=2) from error
    return {
        "rows": tuple(_to_row(task, entry) for entry in entries),
        "sha256": sha256_lines(json.dumps(entry, default=str, sort_keys=True) for entry in entries),
        "generator": {
            "package": DISTRIBUTION,
            "version": version(DISTRIBUTION),
            "task": task,
            "configuration": json.loads(json.dumps(asdict(dataset.config), default=str)),
        },
    }


def _to_row(task: str, entry: dict[str, Any]) -> dict[str, Any]:
    answer = entry.get("answer")
    known = {"final_answer": answer} if isinstance(answer, str) and answer else {}
    return {"prompt": entry["question"], "task": {"kind": REASONING_GYM, "name": task, "entry": entry}, **known}


def _parse_option(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
