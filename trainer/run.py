"""The story of a run: read → compile → plan → build → train → evaluate → seal.

What is read, compiled and planned takes no weight and writes nothing. From `claim` on there is a folder, and whatever
happens, the recorder leaves in it what was measured and how it ended. Each step writes down its own part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from evidence import layout
from schemas.formats import quantity
from schemas.problems import ProblemError, collect_problems
from schemas.render import as_dicts, as_sentence
from trainer.config.load import config_text
from trainer.config.tree import Config
from trainer.data.batches import global_batch_size
from trainer.data.conversations import rendered_at
from trainer.evaluation.evaluate import Evaluator, ModelAnswers, build_evaluator, build_held_out
from trainer.inputs import read_inputs
from trainer.loop.chain import describe_saved_artifacts, save_trained_params, select_kept_states
from trainer.loop.checkpoints import Checkpoints, check_disk_space, restore, restored_state
from trainer.loop.headroom import record_headroom
from trainer.loop.loop import Loop, Outcome, train, with_trace
from trainer.loop.record import record_program
from trainer.loop.rollouts import Rollouts, build_rollouts
from trainer.loop.session import SessionLimit, StopRequest, closing_seconds
from trainer.loop.state import initial_state, state_shapes
from trainer.loop.task import Task, without_reference
from trainer.model.decoder import params_sha256
from trainer.model.stacks import Params
from trainer.objectives.data import Data, record_data
from trainer.objectives.settings import find_contradictions
from trainer.planning.duration import ideal_seconds
from trainer.planning.plan import compiled_plan, record_plan
from trainer.recorder.environment import level_of
from trainer.recorder.failure import FAILED, INTERRUPTED
from trainer.recorder.manifest import first_manifest
from trainer.recorder.memory import MemoryWatch
from trainer.recorder.progress import Watch
from trainer.recorder.recorder import Recorder, claim, now, refuse_folder
from trainer.recorder.sensors import DataWait, observe
from trainer.recorder.stamping import refuse_authority, stamp_end, stamp_start
from trainer.resume import manifest_of, parent_of, record_parent, refuse_other_rows, weights_of
from trainer.runtime import Devices, choose_devices, init_runtime, target_from

EXIT_CODES = {"succeeded": 0, "failed": FAILED, "interrupted": INTERRUPTED}


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """A request."""

    config: Config
    folder: Path
    """The run's folder, new or empty; its name is the run's id."""
    command: list[str]
    """The command line, one argument each."""
    forced: bool = False
    """Start even if the plan states that it does not fit."""
    resume: Path | None = None
    """Folder of a run whose newest checkpoint this one continues from."""
    profile_steps: int | None = None
    """How many steps are traced. None: none."""
    session: SessionLimit | None = None
    """By when all must be done, with a bundle. None: there is no such time."""


def run(request: RunRequest, watch: Watch) -> int:
    """Carry out a run and return its exit code: 0 good, 4 failed, 5 interrupted and resumable.

    Raises:
        ProblemError: exit code 2 or 3 before anything was spent; for a run sealed as failed or cancelled 4 or 5, or 2
            where the model's weights turned out to be of no use.
    """
    config, resume = request.config, request.resume
    stop = StopRequest(max_minutes=config.limits.max_minutes, session=request.session)
    read = read_all(request, watch)
    devices, memory, data = read.devices, read.memory, read.data
    task, programs, plan = compiled_plan(
        read.task, data, devices, forced=request.forced, resumed=bool(resume), say=watch.say
    )
    read = replace(read, task=task, rollouts=build_rollouts(task, data))
    check_disk_space(request.folder, task)
    # The state is alone in a list, from which the loop takes it: anyone who held it besides would keep its memory.
    begun = None if resume is None else restored_state(resume, task, to_train=True, say=watch.say)
    if begun is not None and resume is not None and (step := int(begun[0][0].step)) != read.first_step:
        read = replace(read, parent=parent_of(resume, config, step=step))
    programs = programs.observed_by(memory)
    with stop, claim_folder(request.folder, watch) as recorder:
        wait = record_start(recorder, request, devices=devices, data=data, parent=read.parent)
        record_plan(recorder, plan, request.session, steps=config.limits.steps - read.first_step)
        stamp_start(recorder, config.recording.time_authority)
        states, frozen = begun or initial_state(task, programs.beginning)
        of_model = without_reference(frozen)
        origin = weights_of(resume) or task.model.origin
        record_program(recorder, programs.steps, states[0], of_model, task, data, weights=origin, forced=request.forced)
        recorder.update("result", compiled_before=programs.compiled_before)
        record_headroom(read.rollouts, data.source.examples, states[0], of_model, recorder, memory)
        evaluator = build_evaluator(task, data, recorder, stop, watch, on_start=partial(memory.begins, "decode"))
        baseline = evaluator.evaluate_untrained(states[0], of_model, recorder) if evaluator else None
        hashed = frozen_sha256(task, frozen, recorder)
        checkpoints = Checkpoints(recorder.folder, keep=config.checkpoint.keep, frozen_sha256=hashed)
        loop = Loop(
            task=task,
            step=with_trace(programs.steps, recorder, steps=request.profile_steps),
            frozen=frozen,
            source=data.source,
            recorder=recorder,
            checkpoints=checkpoints,
            stop=stop,
            memory=memory,
            wait=wait,
            progress=lambda done, total, loss: watch.done("step", done, total, f"loss {loss:.4f}"),
            rollouts=read.rollouts,
            held_out=build_held_out(task, data),
            kept=select_kept_states(task, recorder.folder, first=read.first_step),
            asynchronous=devices.platform != "cpu",
            ideal_seconds=ideal_seconds(task, target_from(devices)),
        )
        stop.closing_seconds = closing_seconds(plan, evaluation_seconds=None if baseline is None else baseline.seconds)
        outcome = train(loop, states, recorder, checkpoints)
        if evaluator:
            outcome = evaluate(evaluator, outcome, of_model, baseline, recorder)
        if outcome.status != "failed":
            with memory.during("save"):
                save_trained_params(recorder.folder, outcome.state.trained, task)
        recorder.update("result", observed_memory=memory.document())
        message, code = None if outcome.status == "succeeded" else outcome.because, EXIT_CODES[outcome.status]
        recorder.seal(outcome.status, exit_code=code, error=outcome.error, message=message)
    say_end(request, outcome, read, watch)
    return code


def say_end(request: RunRequest, outcome: Outcome, read: RunInputs, watch: Watch) -> None:
    """Request a time stamp of the sealed run, and show what it saves for judges and its folder."""
    stamped = stamp_end(request.folder, request.config.recording.time_authority)
    saved = ""
    if outcome.status != "failed":
        saved = describe_saved_artifacts(read.task, first=read.first_step)
    for line in filter(None, (stamped, saved, f"run folder: {request.folder}")):
        watch.say(line)


def frozen_sha256(task: Task, frozen: Params, recorder: Recorder) -> str | None:
    """Return the hash of what is frozen, or None if nothing is; the manifest has it, but for that of a reference."""
    stated: str | None = recorder.manifest["model"].get("frozen_sha256")
    return params_sha256(frozen) if task.reference else stated


@dataclass(frozen=True, kw_only=True)
class RunInputs:
    """Everything that is read before anything is spent."""

    parent: dict[str, Any] | None
    devices: Devices
    memory: MemoryWatch
    """From before rows and model were read."""
    task: Task
    data: Data
    rollouts: Rollouts | None
    """Draws completions of prompts. None: rows are learned as they stand."""

    @property
    def first_step(self) -> int:
        """The step from which the run begins."""
        return self.parent["step"] if self.parent else 0


def read_all(request: RunRequest, watch: Watch) -> RunInputs:
    """Return what a run works with, and report what is odd about it while it can be mended.

    Raises:
        ProblemError: exit code 2 or 3; it cannot be run so. Settings that do not go together are reported first.
    """
    config, problems = request.config, find_contradictions(request.config)
    with collect_problems(problems):
        refuse_folder(request.folder)
    with collect_problems(problems):
        refuse_authority(config.recording.time_authority)
    if problems:
        raise ProblemError(problems, exit_code=2)
    parent = parent_of(request.resume, config)
    init_runtime(config)
    devices = choose_devices(config.mesh.device, config.mesh.devices)
    memory = MemoryWatch(devices.list)
    before = None if request.resume is None else manifest_of(request.resume)
    at = now() if before is None else rendered_at(before)
    task, data = read_inputs(config, devices, with_weights=request.resume is None, rendered_at=at)
    if data.refused and request.resume is None:
        raise ProblemError(data.refused, exit_code=2)
    for problem in (*data.seen, *data.warnings):
        watch.say(f"{problem.code}: {as_sentence(problem)}")
    if parent is not None and request.resume is not None and parent["step"] >= config.limits.steps:
        step = int(restore(request.resume, state_shapes(task), lambda _: None).step)
        parent = parent_of(request.resume, config, step=step)
    refuse_other_rows(request.resume, data.document(), batch_size=global_batch_size(config, devices=len(devices.list)))
    return RunInputs(
        parent=parent, devices=devices, memory=memory, task=task, data=data, rollouts=build_rollouts(task, data)
    )


_CHECKED_ROWS = 3
"""Rows that a check shows as the model sees them."""


def check(request: RunRequest, watch: Watch) -> dict[str, Any]:
    """Read configuration, model and data as a run does, spend nothing, and return what was read and what is odd.

    Raises:
        ProblemError: as `read_all`.
    """
    read = read_all(request, watch)
    check_disk_space(request.folder, read.task)
    data = read.data
    asked = "" if data.items is None else f", {quantity(len(data.items.prompts), 'evaluation item')}"
    watch.say(f"It can begin: {quantity(len(data.rows), 'training row')}{asked}. Whether it fits: `trainproof plan`.")
    return {
        "can_begin": True,
        "training_rows": len(data.rows),
        "evaluation_items": None if data.items is None else len(data.items.prompts),
        "findings": as_dicts((*data.seen, *data.warnings)),
        "model": read.task.model.document(),
        "dataset": data.document(),
        "first_examples": data.first_examples(_CHECKED_ROWS, run_id=request.folder.name),
    }


def claim_folder(folder: Path, watch: Watch) -> Recorder:
    """Return the recorder of a folder that is made for it."""
    claim(folder)
    return Recorder(folder, say=watch.say)


def record_start(
    recorder: Recorder, request: RunRequest, *, devices: Devices, data: Data, parent: dict[str, Any] | None
) -> DataWait:
    """Write down everything that is known before anything is built, and begin to watch the machine.

    Returns:
        What the loop counts its waiting in.
    """
    config = request.config
    manifest = first_manifest(
        run_id=recorder.run_id,
        command=request.command,
        config=config,
        devices=devices.document(),
        dataset=data.document(),
        parent=parent,
    )
    recorder.start(manifest)
    recorder.text(layout.CONFIG, config_text(config))
    said = f"run {recorder.run_id}: {config.model.name}, {config.mode}"
    recorder.log("info", "run_started", said, run_id=recorder.run_id)
    if request.resume is not None:
        record_parent(recorder, request.resume, config)
    devices.record(recorder)
    level = level_of(config.precision.cpu_isa)
    if devices.platform == "cpu" and level.why:
        said = f"programs are compiled for {level.name} instructions and not {config.precision.cpu_isa}: {level.why}"
        recorder.log("warning", "compiled_natively", said)
    record_data(recorder, data, examples=config.recording.first_examples)
    return observe(recorder, config.recording.system_every_seconds, devices.list)


def evaluate(
    evaluator: Evaluator, outcome: Outcome, frozen: Params, baseline: ModelAnswers | None, recorder: Recorder
) -> Outcome:
    """Put the evaluation set to the trained model if there is time; without all of it the run is interrupted."""
    if outcome.status == "failed":
        return outcome
    stop = evaluator.stop
    stop.closing_seconds = 0.0 if baseline is None else baseline.seconds
    reason = stop.reason()  # one that would not be complete when the session ends does not begin
    stop.closing_seconds = 0.0
    if not reason and evaluator.evaluate(outcome.state, frozen, baseline, recorder):
        return outcome
    because = f"{reason or stop.reason() or outcome.because}, before the evaluation was complete"
    if outcome.status == "succeeded":
        left = f"{because}; it is made by: trainproof train --resume {recorder.folder}"
        recorder.log("warning", "evaluation_left", left)
    return replace(outcome, status="interrupted", because=because)
