"""The key names of the project's first YAML files, and what each is called now.

Those files (`training.num_steps`, `model.max_length`, …) are accepted as they stand, so a run can be repeated from
them; what `config.yaml` records is always the present name.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from schemas.formats import format_value
from schemas.problems import Lines, Problem, pointer_to, problem_of

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


NOT_STATED = object()
"""What `value_at` gives where nothing stands; null is a value."""


def with_present_names(
    document: dict[str, Any], *, file: str, lines: Lines
) -> tuple[dict[str, Any], dict[str, str], list[Problem]]:
    """Return the document under present names, where each renamed value was written, and facts stated twice.

    Example: `{"training": {"num_steps": 5}}` becomes `{"limits": {"steps": 5}}`, written at `/training/num_steps`; it
    is a problem if `limits.steps` is there too with another value.
    """
    result = deepcopy(document)
    written = {}
    problems = []
    for old, new in PRESENT_NAMES.items():
        group, _, key = old.partition(".")
        holder = result.get(group)
        if not isinstance(holder, dict) or key not in holder:
            continue
        value = holder.pop(key)
        stated = value_at(result, new.split("."))
        if stated is NOT_STATED:
            set_at(result, new, value)
            written[pointer_to(new.split("."))] = pointer_to(old.split("."))
        elif stated != value:
            problems.append(stated_twice(file, old, value, new, stated, lines))
    if result.get("training") == {}:
        del result["training"]
    return result, written, problems


def value_at(document: dict[str, Any], path: Sequence[str]) -> Any:
    """Return the value that the keys of `path` lead to, or `NOT_STATED`."""
    value: Any = document
    for part in path:
        value = value.get(part, NOT_STATED) if isinstance(value, dict) else NOT_STATED
    return value


def set_at(document: dict[str, Any], path: str, value: Any) -> None:
    """Set the value at a dotted path, making groups on the way.

    A group that is not a mapping stays as it is: it is a mistake, which must come before the check of the schema.
    """
    *groups, key = path.split(".")
    holder: Any = document
    for group in groups:
        holder = holder.setdefault(group, {})
        if not isinstance(holder, dict):
            return
    holder[key] = value


def stated_twice(file: str, old: str, value: Any, new: str, stated: Any, lines: Lines) -> Problem:
    """Return the problem of one fact stated under two names with two values."""
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
