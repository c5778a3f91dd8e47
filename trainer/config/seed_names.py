"""Key names of the project's first YAML files, such as `training.num_steps`, which are still accepted.

`config.yaml` of a run always has the current names.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from schemas.formats import format_value
from schemas.problems import Lines, Problem, pointer_to, problem_of

CURRENT_NAMES: dict[str, str] = {
    "model.max_length": "data.max_length",
    "model.max_seq_length": "data.max_length",
    "training.max_length": "data.max_length",
    "training.max_seq_length": "data.max_length",
    "training.num_steps": "limits.steps",
    "training.per_device_batch_size": "batch.microbatch_size",
    "training.batch_size": "batch.microbatch_size",
    "training.gradient_accumulation_steps": "batch.accumulation_steps",
    "training.optimizer": "optimizer.name",
    "training.learning_rate": "optimizer.learning_rate",
    "training.warmup_steps": "optimizer.warmup_steps",
    "training.weight_decay": "optimizer.weight_decay",
    "training.max_grad_norm": "optimizer.max_grad_norm",
    "training.schedule": "optimizer.schedule",
    "training.lr_scheduler_type": "optimizer.schedule",
    "training.dtype": "precision.compute",
    "training.device": "mesh.device",
    "training.save_every_steps": "checkpoint.save_every_steps",
    "training.seed": "seed",
}


MISSING = object()
"""Returned by `get_path` if there is no value; null is a value."""


def rename_keys(
    document: dict[str, Any], *, file: str, lines: Lines
) -> tuple[dict[str, Any], dict[str, str], list[Problem]]:
    """Return a document with current key names, the original pointers of renamed values, and conflicts.

    `{"training": {"num_steps": 5}}` becomes `{"limits": {"steps": 5}}` with the original pointer
    `/training/num_steps`; another value of `limits.steps` in the same document is a conflict.
    """
    result = deepcopy(document)
    original = {}
    problems = []
    for old, new in CURRENT_NAMES.items():
        group, _, key = old.partition(".")
        holder = result.get(group)
        if not isinstance(holder, dict) or key not in holder:
            continue
        value = holder.pop(key)
        current = get_path(result, new.split("."))
        if current is MISSING:
            set_path(result, new, value)
            original[pointer_to(new.split("."))] = pointer_to(old.split("."))
        elif current != value:
            problems.append(conflict(file, old, value, new, current, lines))
    if result.get("training") == {}:
        del result["training"]
    return result, original, problems


def get_path(document: dict[str, Any], path: Sequence[str]) -> Any:
    """Return the value at a path, or `MISSING`."""
    value: Any = document
    for part in path:
        value = value.get(part, MISSING) if isinstance(value, dict) else MISSING
    return value


def set_path(document: dict[str, Any], path: str, value: Any) -> None:
    """Set the value at a dotted path and create groups; the schema reports groups that are not mappings."""
    *groups, key = path.split(".")
    holder: Any = document
    for group in groups:
        holder = holder.setdefault(group, {})
        if not isinstance(holder, dict):
            return
    holder[key] = value


def conflict(file: str, old: str, value: Any, new: str, stated: Any, lines: Lines) -> Problem:
    """Return the problem of a setting with two values under an old and a current name."""
    pointer = pointer_to(old.split("."))
    return problem_of(
        "TP005",
        file=file,
        line=lines(pointer),
        pointer=pointer,
        what=f"{old} is {format_value(value)}, but {new}, which is the same setting, is {format_value(stated)}.",
        expected="one value",
        next=f"Keep {new} and remove {old}.",
        why=None,
    )
