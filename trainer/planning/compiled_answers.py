"""What the programs of a run need on the devices that it is on: read from what was compiled, and is about to run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trainer.data.prompts import Asked
from trainer.loop.effective import donation
from trainer.loop.program import Compiled
from trainer.loop.run_programs import RunPrograms
from trainer.loop.state import state_shapes
from trainer.loop.task import Task
from trainer.planning.ask import NOT_RUN, Asking, resident_bytes
from trainer.planning.devices import Devices
from trainer.planning.division import divided
from trainer.planning.program_answer import COMPILED_ERROR, ProgramAnswer


def summed_answers(task: Task, devices: Devices, *, asked: Asked | None) -> list[ProgramAnswer]:
    """Return what every program of a run needs by the closed form."""
    asking = Asking(platform=devices.platform, available_bytes=devices.memory_bytes, why_not="nothing was compiled yet")
    return asking.programs(task, asked)


def compiled_answers(summed: list[ProgramAnswer], programs: RunPrograms, task: Task) -> list[ProgramAnswer]:
    """Return the answers as the compiled programs give them; one that was not compiled, or does not say, stays summed.

    Args:
        summed: what the closed form says, whose parts divide a compiled peak.
        programs: of the run, compiled for its devices.
        task: what is trained.
    """
    by_name = programs.by_name
    return [
        compiled_answer(answer, by_name[answer.name], task)
        if answer.name in by_name
        else replace(answer, because=f"added up: {NOT_RUN.get(answer.name, answer.because)}")
        for answer in summed
    ]


def compiled_answer(summed: ProgramAnswer, compiled: tuple[Compiled, ...], task: Task) -> ProgramAnswer:
    """Return what the largest of the programs that share a name needs, with what lies beside it."""
    peaks = [each.peak_bytes for each in compiled]
    known = [peak for peak in peaks if peak is not None]
    if len(known) < len(peaks):
        return replace(summed, because="added up: the device's compiler does not say what a program needs")
    peak = max(known) + resident_bytes(summed.name, summed.parts)
    found = replace(
        summed,
        way="compiler",
        peak_bytes=peak,
        error_fraction=COMPILED_ERROR,
        because="compiled for this device; what was compiled is what runs",
        seconds=round(sum(each.seconds for each in compiled), 2),
        parts=divided(peak, summed.parts),
    )
    return with_state_read(found, compiled[known.index(max(known))], task) if summed.name == "train" else found


def with_state_read(found: ProgramAnswer, step: Compiled, task: Task) -> ProgramAnswer:
    """Return the answer of a train step with what the program itself says of donation."""
    read: dict[str, Any] = donation(step.executable, state_shapes(task))
    if read["aliased_bytes"] is None or not read["state_bytes"]:
        return found
    return replace(found, aliased_fraction=read["aliased_bytes"] / read["state_bytes"])
