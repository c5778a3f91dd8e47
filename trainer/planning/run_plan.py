"""The plan of a run on the devices that it is on, from the very programs that it will call.

First the sums: what they refuse by a wide margin is not compiled. Then the programs are compiled, from shapes alone,
and the plan is what they say. Nothing has been read or claimed when a run is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from schemas.problems.mistake import first_line
from schemas.problems.problem import ProblemError
from schemas.problems.rule import Rule, problem_of
from trainer.loop.run_programs import RunPrograms, compiled_run
from trainer.loop.task import Task
from trainer.objectives.data import Data
from trainer.planning.ask import FAR_TOO_LARGE
from trainer.planning.calibration import Measured, measured_on, narrowed_answers
from trainer.planning.compiled_answers import compiled_answers, summed_answers
from trainer.planning.devices import REFUSED, Devices
from trainer.planning.duration.operations import operations
from trainer.planning.out_of_memory.read import READERS
from trainer.planning.plan import plan_run, refuse_what_does_not_fit
from trainer.planning.program_answer import ProgramAnswer
from trainer.planning.refusal import DOES_NOT_FIT, advice, does_not_fit
from trainer.planning.spending import spending_of
from trainer.planning.subject import Subject, counted_tokens
from trainer.planning.target_plan import finding
from trainer.planning.this_machine import as_target
from trainer.recorder.failure import FAILED, is_out_of_memory

MAIN_MEMORIES = ("tpu", "gpu")
"""What a plan is about; a core has small memories besides."""

CANNOT_COMPILE = Rule(
    "TP711",
    "Cannot be compiled",
    "The compiler of the device does not accept the run's programs, so nothing can be run.",
    "Report it with the configuration; another element type, or mesh.devices=1, may be accepted.",
)


def compiled_plan(
    task: Task, data: Data, devices: Devices, *, forced: bool, resumed: bool, say: Callable[[str], None]
) -> tuple[RunPrograms, dict[str, Any]]:
    """Return a run's programs, compiled, and the document `plan.json` that follows from them.

    Args:
        task: the run; only shapes of its parameters are looked at.
        data: what it learns from and is asked.
        devices: what it is on.
        forced: whether `--force` was given: then a plan that does not fit is returned too.
        resumed: whether the state comes from a checkpoint.
        say: takes a line about what is done now.

    Raises:
        ProblemError: exit code 3, it does not fit; 4, its programs cannot be compiled.
    """
    summed = summed_answers(task, devices, asked=data.asked)
    available = devices.memory_bytes
    if available is not None and max(answer.peak_bytes for answer in summed) > FAR_TOO_LARGE * available:
        plan = plan_run(task, devices, forced=forced, asked=data.asked, answers=summed)
        refuse_what_does_not_fit(plan, model=task.config.model.name)
    say(f"compiling the programs of the run for {len(devices.list)} × {devices.kind}")
    try:
        programs = compiled_run(task, data.source.lengths_in_use, asked=data.asked, resumed=resumed)
    except jax.errors.JaxRuntimeError as error:
        plan = plan_run(task, devices, forced=forced, asked=data.asked, answers=summed)
        raise refused_by_compiler(error, plan, model=task.config.model.name) from error
    measured = measured_on(devices.platform, [devices.kind])
    answers = narrowed_answers(compiled_answers(summed, programs, task), measured)
    plan = plan_run(task, devices, forced=forced, asked=data.asked, answers=answers)
    plan |= spent(task, data, devices, programs=programs, answers=answers, measured=measured)
    refuse_what_does_not_fit(plan, model=task.config.model.name)
    return programs, plan


def spent(
    task: Task,
    data: Data,
    devices: Devices,
    *,
    programs: RunPrograms,
    answers: list[ProgramAnswer],
    measured: Sequence[Measured],
) -> dict[str, Any]:
    """Return what plan.json says of time, disk and the machine's memory; operations are those of the compiled step."""
    subject = Subject(task=task, asked=data.asked, tokens=counted_tokens(task.config, data))
    found = spending_of(
        subject,
        as_target(devices),
        answers,
        file=task.config.name,
        measured=measured,
        operations=operations(programs.steps.longest.jaxpr),
    )
    said = [finding(each) for each in (*data.seen, *found.findings)]
    return {"time": found.time, "disk": found.disk, "host": found.host, "findings": said}


def refused_by_compiler(error: jax.errors.JaxRuntimeError, plan: dict[str, Any], *, model: str) -> ProblemError:
    """Return why a compiler made no program: it needs more memory than the device has, or another reason.

    Args:
        error: what the compiler said.
        plan: by the sums; its parts and changes are named.
        model: of the run.
    """
    kind = plan["target"]["name"]
    if not is_out_of_memory(error):
        what = f"The compiler for {kind} refused the run: {first_line(error)}"
        return ProblemError([problem_of(CANNOT_COMPILE, file=model, what=what)], exit_code=FAILED)
    said = next((found for reader in READERS if (found := reader(str(error))) is not None), None)
    if said is None or said.memory not in MAIN_MEMORIES or said.need_bytes is None or said.cap_bytes is None:
        what = f"The compiler for {kind} found no room for the run: {first_line(error)}"
        problem = problem_of(DOES_NOT_FIT, file=model, what=what, next=advice(plan["changes"]))
    else:
        stated = plan | {"need_bytes": said.need_bytes, "available_bytes": said.cap_bytes}
        problem = does_not_fit(stated, model=model, can_force=False)
    return ProblemError([problem], exit_code=REFUSED)
