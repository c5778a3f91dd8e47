"""The plan of a run on the devices that it is on, from the very programs that it will call.

First the sums: what they refuse by a wide margin is not compiled. Then the programs are compiled, from shapes alone,
and the plan is what they say. Nothing has been read or claimed when a run is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax

from evidence import layout
from schemas.problems import ProblemError, first_line, problem_of
from trainer.data.answers import EvalShape
from trainer.loop.compilation import Compiled
from trainer.loop.effective import donation
from trainer.loop.programs import RunPrograms, compiled_run
from trainer.loop.session import SessionLimit
from trainer.loop.state import state_shapes
from trainer.loop.task import Task
from trainer.objectives.data import Data
from trainer.planning.advice import deciding
from trainer.planning.calibration import Measured, measured_on, narrowed_answers
from trainer.planning.changes import savings
from trainer.planning.devices import PROCESS_BYTES, REFUSED, Devices, as_target, element_types_of
from trainer.planning.estimator import FAR_TOO_LARGE, NOT_RUN, Estimator, resident_bytes
from trainer.planning.kept_programs import seal_programs
from trainer.planning.out_of_memory.read import READERS
from trainer.planning.plan import finding, plan_document
from trainer.planning.program_memory import COMPILED_ERROR, ProgramMemory, divided, verdict
from trainer.planning.session_time import CompileTime
from trainer.planning.spending import spending_of
from trainer.planning.step_work import shared_work
from trainer.planning.subject import Subject, counted_tokens
from trainer.planning.words import advice, does_not_fit, in_words
from trainer.recorder.failure import FAILED, is_out_of_memory
from trainer.recorder.recorder import Recorder

MAIN_MEMORIES = ("tpu", "gpu")
"""What a plan is about; a core has small memories besides."""


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
    seal_programs()
    return programs, plan


def spent(
    task: Task,
    data: Data,
    devices: Devices,
    *,
    programs: RunPrograms,
    answers: list[ProgramMemory],
    measured: Sequence[Measured],
) -> dict[str, Any]:
    """Return what plan.json says of time, disk and the machine's memory; its work is that of the compiled step."""
    subject = Subject(task=task, asked=data.asked, tokens=counted_tokens(task.config, data), rows=len(data.rows))
    compiled = [each for some in programs.by_name.values() for each in some]
    found = spending_of(
        subject,
        as_target(devices),
        answers,
        file=task.config.name,
        measured=measured,
        work=shared_work(programs.steps.longest.jaxpr, task),
        compiling=CompileTime(
            seconds=sum(each.seconds for each in compiled),
            programs=len(compiled),
            kept=sum(each.is_kept for each in compiled),
        ),
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
        return ProblemError([problem_of("TP711", file=model, what=what)], exit_code=FAILED)
    said = next((found for reader in READERS if (found := reader(str(error))) is not None), None)
    if said is None or said.memory not in MAIN_MEMORIES or said.need_bytes is None or said.cap_bytes is None:
        what = f"The compiler for {kind} found no room for the run: {first_line(error)}"
        problem = problem_of("TP710", file=model, what=what, next=advice(plan["changes"]))
    else:
        stated = plan | {"need_bytes": said.need_bytes, "available_bytes": said.cap_bytes}
        problem = does_not_fit(stated, model=model, can_force=False)
    return ProblemError([problem], exit_code=REFUSED)


def plan_run(
    task: Task,
    devices: Devices,
    *,
    forced: bool,
    asked: EvalShape | None = None,
    answers: Sequence[ProgramMemory] | None = None,
) -> dict[str, Any]:
    """Return the document `plan.json`.

    Args:
        task: the run; only the shapes of its parameters are looked at, so nothing is spent.
        devices: what it would run on.
        forced: whether `--force` was given.
        asked: what the evaluation asks. None: nothing is evaluated.
        answers: what each of its programs needs. None: by the closed form.
    """
    answers = answers or summed_answers(task, devices, asked=asked)
    machine = {
        "name": devices.kind,
        "platform": devices.platform,
        "devices": len(devices.list),
        "memory_bytes": devices.memory_bytes,
        "memory_source": devices.memory_source,
        "process_bytes": PROCESS_BYTES if devices.platform == "cpu" else None,
    }
    return plan_document(
        task.declared,
        machine,
        answers,
        available_bytes=devices.memory_bytes,
        changes=changes(task, devices, decides=deciding(answers), asked=asked),
        forced=forced,
    )


def changes(task: Task, devices: Devices, *, decides: ProgramMemory, asked: EvalShape | None) -> list[dict[str, Any]]:
    """Return the settings that would make the run smaller, largest saving first.

    Args:
        task: the run.
        devices: what it would run on.
        decides: the program that needs most; what a change saves is summed, and taken from its peak.
        asked: what the evaluation asks.
    """
    found = []
    for setting, summed in savings(
        task, platform=devices.platform, asked=asked, element_types=element_types_of(devices)
    ):
        saved = min(summed, decides.peak_bytes)
        need = decides.peak_bytes - saved
        fits = verdict(need, devices.memory_bytes, decides.error_fraction, decides.way) == "fits"
        found.append({"set": setting, "saves_bytes": saved, "fits": fits})
    return sorted(found, key=lambda change: -change["saves_bytes"])


def refuse_what_does_not_fit(plan: dict[str, Any], *, model: str) -> None:
    """Refuse a run whose plan says that it does not fit, unless it is forced.

    Raises:
        ProblemError: exit code 3, naming the largest parts and what to change.
    """
    if plan["verdict"] == "does_not_fit" and not plan["forced"]:
        raise ProblemError([does_not_fit(plan, model=model)], exit_code=REFUSED)


def record_plan(recorder: Recorder, plan: dict[str, Any], session: SessionLimit | None, *, steps: int) -> None:
    """Write down the plan and how its steps fit into a session, and warn of a run that may run out of memory."""
    recorder.document(layout.PLAN, plan)
    level = "warning" if plan["verdict"] in ("tight", "does_not_fit") else "info"
    recorder.log(level, "planned", in_words(plan), need_bytes=plan["need_bytes"])
    if session is not None:
        said = session.describe(plan, steps=steps)
        recorder.log("info", "session", said, name=session.name, left_seconds=session.left_seconds)


def summed_answers(task: Task, devices: Devices, *, asked: EvalShape | None) -> list[ProgramMemory]:
    """Return what every program of a run needs by the closed form."""
    asking = Estimator(
        platform=devices.platform, available_bytes=devices.memory_bytes, why_not="nothing was compiled yet"
    )
    return asking.programs(task, asked)


def compiled_answers(summed: list[ProgramMemory], programs: RunPrograms, task: Task) -> list[ProgramMemory]:
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


def compiled_answer(summed: ProgramMemory, compiled: tuple[Compiled, ...], task: Task) -> ProgramMemory:
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


def with_state_read(found: ProgramMemory, step: Compiled, task: Task) -> ProgramMemory:
    """Return the answer of a train step with what the program itself says of donation."""
    read: dict[str, Any] = donation(step.executable, state_shapes(task))
    if read["aliased_bytes"] is None or not read["state_bytes"]:
        return found
    return replace(found, aliased_fraction=read["aliased_bytes"] / read["state_bytes"])
