"""The table of targets, and a target by its name or from a user's own file."""

from __future__ import annotations

import difflib
import json
from functools import cache
from importlib.resources import files
from pathlib import Path

from evidence.targets.target import Target, target_from
from schemas.problems.problem import Problem, ProblemError
from schemas.problems.rule import Rule, problem_of
from schemas.validate import read_document

THIS_MACHINE = "this-machine"
"""The name of the machine that plans: its figures are measured on it, not looked up."""

NO_TARGET = Rule(
    "TP750",
    "No such target",
    "The name is neither in the table of targets nor a file.",
    "Name a target of the table, or the YAML file of your own.",
)

OWN_ENDINGS = (".yaml", ".yml", ".json")
MOST_NEAR = 3


@cache
def targets() -> dict[str, Target]:
    """Return the targets of the table by name, in its order."""
    text = (files("evidence") / "targets" / "targets.json").read_text(encoding="utf-8")
    return {document["name"]: target_from(document) for document in json.loads(text)}


def target_names() -> tuple[str, ...]:
    """Return every name that `--on` takes besides a file."""
    return (*targets(), THIS_MACHINE)


def target_of(name: str) -> Target:
    """Return a target of the table, or the one that a user's own file describes.

    Args:
        name: a name of the table, or the path of a YAML file; `this-machine` is for the trainer, which measures it.

    Raises:
        ProblemError: exit code 2; there is no such target, or everything that is wrong with the file.
    """
    if (known := targets().get(name)) is not None:
        return known
    path = Path(name)
    if path.is_file():
        return _from_file(path)
    raise ProblemError([no_target(name)], exit_code=2)


def target_of_kind(device_kind: str, devices: int | None = None) -> Target | None:
    """Return the target of the table whose devices JAX calls so, the one with as many devices where there is one."""
    same = [target for target in targets().values() if device_kind in target.device_kinds]
    exact = [target for target in same if target.devices == devices]
    return next(iter(exact or same), None)


def no_target(name: str) -> Problem:
    """Return the problem of a name that means no target, with the nearest names."""
    near = difflib.get_close_matches(name.lower(), target_names(), n=MOST_NEAR, cutoff=0.4)
    is_file = name.endswith(OWN_ENDINGS)
    return problem_of(
        NO_TARGET,
        file="--on",
        what=f"There is no file {name}." if is_file else f"There is no target {name!r}.",
        why=None,
        expected=f"one of: {', '.join(target_names())}; or the path of a target's YAML file",
        next=f"Did you mean {' or '.join(near)}?" if near and not is_file else None,
    )


def _from_file(path: Path) -> Target:
    """Return the target that a file describes.

    Raises:
        ProblemError: exit code 2; everything that is wrong with it.
    """
    read = read_document(path, "target")
    if read.problems or read.value is None:
        raise ProblemError(read.problems, exit_code=2)
    return target_from(read.value)
