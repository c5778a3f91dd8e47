"""What playing needs of each device: the planner's sums for answering, without what only training keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from evidence.run import layout
from schemas.problems.problem import ProblemError
from trainer.data.prompts import Asked
from trainer.planning.devices import REFUSED, Devices
from trainer.planning.estimate.part import Part, error_of, total_bytes
from trainer.planning.estimate.programs import decode_parts
from trainer.planning.estimate.workload import workload_of
from trainer.planning.program_memory import parts_document, verdict
from trainer.planning.words import does_not_fit
from trainer.play.entrant import Entrant

ONLY_TRAINING = ("opt_state", "reference")
FEWER = "Leave --untrained or --beside out, so that fewer models lie side by side."
SMALLER = "Play where there is more memory."


def memory_plan(asked: Sequence[tuple[Entrant, Asked]], devices: Devices) -> dict[str, Any]:
    """Return what lies on each device while these models answer side by side, as `plan.json` states it of memory."""
    parts = tuple(part for entrant, one in asked for part in parts_of(entrant, one, devices))
    need, available = total_bytes(parts), devices.memory_bytes
    error = error_of(parts, available)
    return {
        "target": {"name": devices.kind, "memory_source": devices.memory_source},
        "method": "closed_form",
        "verdict": verdict(need, available, error),
        "need_bytes": need,
        "available_bytes": available,
        "error_fraction": error,
        "parts": parts_document(parts),
        "changes": [],
    }


def parts_of(entrant: Entrant, asked: Asked, devices: Devices) -> tuple[Part, ...]:
    """Return what one model needs to be loaded and to answer; a checkpoint is read with the optimizer's state."""
    left_out = ONLY_TRAINING[1:] if entrant.where == f"{layout.CHECKPOINTS}/" else ONLY_TRAINING
    parts = decode_parts(workload_of(entrant.task, platform=devices.platform), asked)
    return tuple(
        replace(part, because=f"{entrant.name}: {part.because.removeprefix('evaluation: ')}")
        for part in parts
        if part.name not in left_out
    )


def refuse_without_room(plan: dict[str, Any], entrants: Sequence[Entrant]) -> None:
    """Refuse to play what the plan states has no room.

    Raises:
        ProblemError: exit code 3, naming the largest parts.
    """
    if plan["verdict"] != "does_not_fit":
        return
    names = " and ".join(entrant.name for entrant in entrants)
    refused = does_not_fit(plan, model=entrants[0].task.config.model.name, can_force=False, who=f"Playing {names}")
    raise ProblemError([replace(refused, next=FEWER if len(entrants) > 1 else SMALLER)], exit_code=REFUSED)
