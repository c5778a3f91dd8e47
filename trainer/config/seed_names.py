"""The key names of the project's first YAML files, and what each is called now.

Those files (`training.num_steps`, `model.max_length`, …) are accepted as they stand, so a run can be repeated from
them; what `config.yaml` records is always the present name.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from schemas.problems import Problem

PRESENT_NAMES: dict[str, str] = {
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


def with_present_names(document: dict[str, Any], *, file: str) -> tuple[dict[str, Any], list[Problem]]:
    """Return the document under present names, and a problem for each fact that it states twice and differently.

    Example: `{"training": {"num_steps": 5}}` becomes `{"limits": {"steps": 5}}`.
    """
    result = deepcopy(document)
    problems = []
    for old, new in PRESENT_NAMES.items():
        group, _, key = old.partition(".")
        holder = result.get(group)
        if not isinstance(holder, dict) or key not in holder:
            continue
        value = holder.pop(key)
        stated = value_at(result, new)
        if stated is None:
            set_at(result, new, value)
        elif stated != value:
            problems.append(stated_twice(file, old, value, new, stated))
    if result.get("training") == {}:
        del result["training"]
    return result, problems


def value_at(document: dict[str, Any], path: str) -> Any:
    """Return the value at a dotted path, or None."""
    value: Any = document
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def set_at(document: dict[str, Any], path: str, value: Any) -> None:
    """Set the value at a dotted path, making groups on the way; a group that is no mapping is replaced."""
    *groups, key = path.split(".")
    holder = document
    for group in groups:
        if not isinstance(holder.get(group), dict):
            holder[group] = {}
        holder = holder[group]
    holder[key] = value


def stated_twice(file: str, old: str, value: Any, new: str, stated: Any) -> Problem:
    """Return the problem of one fact stated under two names with two values."""
    return Problem(
        code="TP005",
        severity="error",
        file=file,
        pointer="/" + old.replace(".", "/"),
        what=f"{old} is {value!r}, but {new}, which is the same setting, is {stated!r}.",
        expected="one value",
        next=f"Keep {new} and remove {old}.",
    )
