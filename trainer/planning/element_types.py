"""Which element types a device multiplies in hardware; a run in another one is refused before anything is spent."""

from __future__ import annotations

from collections.abc import Collection

from evidence.rules.spending.device import TYPE_ABSENT
from schemas.problems.problem import ProblemError
from schemas.problems.rule import problem_of
from schemas.problems.words import listed
from trainer.config.tree import Config, ElementType
from trainer.planning.devices import REFUSED, Devices

BFLOAT16_CAPABILITY = 8.0
"""CUDA's compute capability from which on there is bfloat16: A100 (8.0), L4 (8.9) have it, T4 (7.5), P100 (6.0) not."""

ALL_TYPES = ("float32", "bfloat16", "float16")


def element_types_of(devices: Devices) -> tuple[str, ...] | None:
    """Return the element types of products that devices have, None where nothing is known against any.

    A CPU computes every type in float32, at no loss against float32 itself.
    """
    if devices.platform != "gpu" or not hasattr(devices.list[0], "compute_capability"):
        return None
    return element_types_at(float(devices.list[0].compute_capability))


def element_types_at(capability: float) -> tuple[str, ...]:
    """Return the element types of products at a compute capability: of a T4, 7.5, float32 and float16."""
    return ("float32", "float16", *(("bfloat16",) if capability >= BFLOAT16_CAPABILITY else ()))


def refuse_absent_types(config: Config, *, kind: str, element_types: Collection[str] | None) -> None:
    """Refuse a run in an element type that a device does not have.

    Args:
        config: the run.
        kind: what the device is called.
        element_types: those of products that it has in hardware. None: nothing is refused.

    Raises:
        ProblemError: exit code 3, naming each setting and what to set instead.
    """
    if element_types is None:
        return
    declared = {"params": config.precision.params, "compute": config.precision.compute}
    problems = [
        problem_of(
            TYPE_ABSENT,
            file=kind,
            pointer=f"/precision/{key}",
            what=f"precision.{key} is {value}, which {kind} does not have.",
            expected=listed(sorted(element_types)),
            next=f"Use --set precision.{key}={instead(key, config, element_types)}.",
        )
        for key, value in declared.items()
        if value not in element_types
    ]
    if problems:
        raise ProblemError(problems, exit_code=REFUSED)


def instead(key: str, config: Config, element_types: Collection[str]) -> ElementType:
    """Return the element type of 16 bits to use, bfloat16 where the device has it; float32 where none can be."""
    if "bfloat16" in element_types:
        return "bfloat16"
    # Parameters that learn need more than float16 has; a frozen model does not.
    fits = key == "compute" or config.method.kind != "full"
    return "float16" if "float16" in element_types and fits else "float32"
