"""Tasks of the package reasoning-gym as rows: `reasoning-gym:leg_counting?size=500&seed=1&max_animals=5`.

The package draws the entries of a task from a seed and scores answers to them; the reward `reasoning_gym` calls it.
"""

from __future__ import annotations

import difflib
import importlib
import json
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from typing import Any
from urllib.parse import parse_qsl

from evidence.hashes import sha256_lines
from evidence.rewards import GYM_PACKAGE, REASONING_GYM
from schemas.catalog import GYM
from schemas.problems import ProblemError, problem_of

DISTRIBUTION = "reasoning-gym"


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
    options: dict[str, Any] = {"size": 500, "seed": 0}
    for key, text in parse_qsl(query, keep_blank_values=True):
        options[key] = text
        with suppress(ValueError):
            options[key] = json.loads(text)
    try:
        dataset = importlib.import_module(GYM_PACKAGE).create_dataset(task, **options)
        entries = [dataset[number] for number in range(len(dataset))]
    except (TypeError, ValueError, AssertionError, LookupError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        what = f"reasoning-gym refuses the settings of {task}: {reason.rstrip('.')}."
        raise ProblemError([problem_of("TP919", file=name, what=what)], exit_code=2) from error
    rows = []
    for entry in entries:
        answer = entry.get("answer")
        known_answer = {"final_answer": answer} if isinstance(answer, str) and answer else {}
        asked = {"kind": REASONING_GYM, "name": task, "entry": entry}
        rows.append({"prompt": entry["question"], "task": asked, **known_answer})
    configuration = json.loads(json.dumps(asdict(dataset.config), default=str))
    drawn = {"package": DISTRIBUTION, "version": version(DISTRIBUTION), "task": task, "configuration": configuration}
    sha256 = sha256_lines(json.dumps(entry, default=str, sort_keys=True) for entry in entries)
    return {"rows": tuple(rows), "sha256": sha256, "generator": drawn}
