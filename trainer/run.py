"""Train a model: read → compile → plan → build → train → evaluate → seal.

Reading, compiling and planning load no weights and write nothing. After `claim` there is a run folder, and the recorder
writes the outcome into it however the run ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from evidence import layout
from schemas.catalog import VERSION
from schemas.formats import quantity
from schemas.problems import ProblemError, collect_problems, problem_of
from schemas.render import render_json, render_sentence
from trainer import distributed
from trainer.config.load import config_text
from trainer.config.tree import Config, to_document
from trainer.data.batches import global_batch_size
from trainer.data.conversations import rendered_at
from trainer.evaluation.answers import Sampler
from trainer.evaluation.evaluate import Evaluator, ModelAnswers, build_held_out, evaluate_run
from trainer.inputs import read_inputs
from trainer.loop.chain import StateWriter, describe_saved_artifacts, save_trained_params, steps_to_keep
from trainer.loop.checkpoints import Checkpoints, check_disk_space, restore, restored_state
from trainer.loop.compilation import record_program, tree_bytes
from trainer.loop.loop import Loop, Outcome, trace_steps, train
from trainer.loop.rollouts import StepCompletions, build_rollouts
from trainer.loop.session import SessionLimit, StopRequest, closing_seconds, read_place
from trainer.loop.state import initial_state, state_shapes
from trainer.loop.task import Task, drop_reference_params
from trainer.model.decoder import params_sha256
from trainer.model.stacks import Params
from trainer.objectives import find_contradictions
from trainer.objectives.data import Data, record_data
from trainer.planning.duration import ideal_seconds
from trainer.planning.plan import compiled_plan, record_plan
from trainer.recorder.code import code_identity
from trainer.recorder.environment import environment, select_level
from trainer.recorder.progress import Watch
from trainer.recorder.recorder import (
    FAILED,
    INTERRUPTED,
    Recorder,
    check_time_authority,
    claim,
    now,
    refuse_folder,
    stamp_end,
    stamp_start,
)
from trainer.recorder.sensors import DataWait, MemoryWatch, observe
from trainer.resume import (
    AUTO,
    UNFIT,
    awaits_evaluation,
    find_runs,
    free_folder,
    own_folder,
    read_manifest,
    read_parent,
    record_parent,
    refuse_other_rows,
)
from trainer.runtime import Devices, choose_devices, init_runtime, target_from, use_compilation_cache

EXIT_CODES = {"succeeded": 0, "failed": FAILED, "interrupted": INTERRUPTED}


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """Arguments of `trainproof train`; the name of the new or empty `folder` is the run's id."""

    config: Config
    folder: Path
    command: list[str]
    forced: bool = False
    """Whether to start even if the plan says that the run does not fit."""
    resume: Path | None = None
    """Folder of the run to resume from its newest checkpoint, or None."""
    profile_steps: int | None = None
    """Number of steps to trace, or None."""
    session: SessionLimit | None = None
    shared_folder: Path | None = None
    """Run folder of process 0, where every process saves its part of the checkpoints; by default `folder`."""


@dataclass(frozen=True, kw_only=True)
class RunInputs:
    """What is loaded before anything is compiled."""

    parent: dict[str, Any] | None
    devices: Devices
    memory: MemoryWatch
    """Started before rows and model were loaded."""
    task: Task
    data: Data

    @property
    def first_step(self) -> int:
        """Step from which the run begins."""
        return self.parent["step"] if self.parent else 0


def run(request: RunRequest, watch: Watch) -> int:
    """Train a model and return the exit code: 0 for success, 4 if it failed, 5 if it was interrupted.

    Raises `ProblemError` with exit code 2 or 3 before the run folder is created. After that it is sealed as failed or
    cancelled with exit code 4 or 5, or 2 if the model's weights cannot be used.
    """
    config, resume = request.config, request.resume
    stop = StopRequest(max_minutes=config.limits.max_minutes, session=request.session)
    inputs = load_inputs(request, watch)
    devices, memory, data = inputs.devices, inputs.memory, inputs.data
    stop.exchange = distributed.exchange
    shared_folder = request.shared_folder or request.folder
    authority = config.recording.time_authority if distributed.is_lead() else None
    task, programs, plan = compiled_plan(
        inputs.task, data, devices, forced=request.forced, resumed=bool(resume), say=watch.say
    )
    inputs, rollouts = replace(inputs, task=task), build_rollouts(task, data)
    check_disk_space(shared_folder, task)
    restored = None if resume is None else restored_state(resume, task, to_train=True, say=watch.say)
    if restored is not None and (step := int(restored[0][0].step)) != inputs.first_step:
        inputs = replace(inputs, parent=read_parent(resume, config, step=step))
    first = inputs.first_step
    claim(request.folder)
    distributed.exchange(None)  # until process 0 has made its folder
    distributed.refuse_differences(output_folder=shared_folder.exists() and shared_folder.stat().st_mtime_ns)
    with stop, Recorder(request.folder, say=watch.say) as recorder:
        wait = record_start(recorder, request, inputs)
        record_plan(recorder, plan, request.session, steps=config.limits.steps - first)
        stamp_start(recorder, authority)
        states, frozen = restored or initial_state(task, programs.initial, partial(memory.begins, "start"))
        of_model = drop_reference_params(frozen)
        before = (None if resume is None else read_manifest(resume)) or {}
        origin = (before.get("model") or {}).get("weights") or task.model.origin
        record_program(recorder, programs.steps, states[0], of_model, task, data, weights=origin, forced=request.forced)
        distributed.refuse_differences(weights=recorder.manifest["model"]["weights_sha256"])
        kept = [name for name, group in programs.by_name.items() if all(program.is_kept for program in group)]
        recorder.update("result", compiled_before=kept)
        evaluator = data.items and Evaluator(
            items=data.items.file,
            sampler=Sampler.for_task(task, data),
            folder=recorder.folder,
            stop=stop,
            watch=watch,
            on_start=partial(memory.begins, "decode"),
        )
        baseline = evaluator.evaluate_untrained(states[0], of_model, recorder) if evaluator else None
        # The manifest has the hash of the frozen parameters, without those of a reference model.
        frozen_sha256 = params_sha256(frozen) if task.reference else recorder.manifest["model"].get("frozen_sha256")
        loop = Loop(
            task=task,
            step=trace_steps(programs.steps, recorder, steps=request.profile_steps),
            frozen=frozen,
            source=data.source,
            stop=stop,
            save=StateWriter(
                task=task,
                recorder=recorder,
                checkpoints=Checkpoints(shared_folder, keep=config.checkpoint.keep, frozen_sha256=frozen_sha256),
                folder=recorder.folder,
                kept_steps=steps_to_keep(config, tree_bytes(state_shapes(task)), first=first),
                memory=memory,
                # Processes run the programs that gather a state in one order.
                asynchronous=devices.platform != "cpu" and distributed.process_count() == 1,
            ),
            evaluate=build_held_out(task, data),
            generate=None if rollouts is None else StepCompletions(rollouts, recorder),
            progress=lambda done, total, loss: watch.done("step", done, total, f"loss {loss:.4f}"),
            ideal_seconds=ideal_seconds(task, target_from(devices)),
            memory=memory,
            wait=wait,
        )
        stop.closing_seconds = closing_seconds(plan, evaluation_seconds=None if baseline is None else baseline.seconds)
        outcome = train(loop, states, recorder)
        if outcome.status != "failed":
            if evaluator:
                outcome = evaluate(evaluator, outcome, of_model, baseline, recorder)
            with memory.during("save"):
                save_trained_params(recorder.folder, outcome.state.trained, task)
        recorder.update("result", observed_memory=memory.document())
        message, code = None if outcome.status == "succeeded" else outcome.because, EXIT_CODES[outcome.status]
        recorder.seal(outcome.status, exit_code=code, error=outcome.error, message=message)
    stamped = stamp_end(request.folder, authority)
    saved = None if outcome.status == "failed" else describe_saved_artifacts(task, first=first)
    for line in filter(None, (stamped, saved, f"run folder: {request.folder}")):
        watch.say(line)
    return code


def load_inputs(request: RunRequest, watch: Watch) -> RunInputs:
    """Load devices, model and data, and print warnings before anything is compiled.

    Raises `ProblemError` with exit code 2 or 3 if the run is not possible; settings that conflict are reported first.
    """
    config, resume, problems = request.config, request.resume, find_contradictions(request.config)
    with collect_problems(problems):
        refuse_folder(request.folder)
    with collect_problems(problems):
        check_time_authority(config.recording.time_authority)
    if problems:
        raise ProblemError(problems, exit_code=2)
    parent = read_parent(resume, config)
    init_runtime(config)
    distributed.refuse_other_count()
    if distributed.process_count() > 1 and config.objective.kind == "grpo":
        problem = problem_of("TP784", file=config.name, pointer="/objective/kind", what="objective.kind is grpo.")
        raise ProblemError([problem], exit_code=2)
    devices = choose_devices(config.mesh.device, config.mesh.devices)
    memory = MemoryWatch(devices.local)
    before = None if resume is None else read_manifest(resume)
    at = distributed.exchange(now())[0] if before is None else rendered_at(before)
    task, data = read_inputs(config, devices, with_weights=resume is None, rendered_at=at)
    if data.refused and resume is None:
        raise ProblemError(data.refused, exit_code=2)
    for problem in (*data.overlap_warnings, *data.warnings):
        watch.say(f"{problem.code}: {render_sentence(problem)}")
    if parent is not None and resume is not None and parent["step"] >= config.limits.steps:
        step = int(restore(resume, state_shapes(task), lambda _: None).step)
        parent = read_parent(resume, config, step=step)
    refuse_other_rows(resume, data.document(), batch_size=global_batch_size(config, devices=len(devices.list)))
    build_rollouts(task, data)  # refuses rewards that the rows do not support
    same = {"configuration": to_document(config), "dataset": data.document()["sha256"], "parent": parent}
    distributed.refuse_differences(**same)
    return RunInputs(parent=parent, devices=devices, memory=memory, task=task, data=data)


def check(request: RunRequest, watch: Watch) -> dict[str, Any]:
    """Load configuration, model and data as a run does, and return the document of `train --check`."""
    inputs = load_inputs(request, watch)
    check_disk_space(request.folder, inputs.task)
    data = inputs.data
    items = None if data.items is None else len(data.items.prompts)
    counts = quantity(len(data.rows), "training row") + (f", {quantity(items, 'evaluation item')}" if items else "")
    watch.say(f"Configuration OK: {counts}. Run `trainproof plan` to check memory.")
    return {
        "can_begin": True,
        "training_rows": len(data.rows),
        "evaluation_items": items,
        "findings": render_json((*data.overlap_warnings, *data.warnings)),
        "model": inputs.task.model.document(),
        "dataset": data.document(),
        "first_examples": data.first_examples(3, run_id=request.folder.name),
    }


def record_start(recorder: Recorder, request: RunRequest, inputs: RunInputs) -> DataWait:
    """Record what is known before anything is built, start the sensors, and return their counter of data waits."""
    config, devices, data = request.config, inputs.devices, inputs.data
    level = select_level(config.precision.cpu_isa) if devices.platform == "cpu" else None
    unmeasured = dict.fromkeys(("train_seconds", "compile_seconds", "peak_memory_bytes", "stopped_because"))
    manifest = {
        "schema_version": VERSION,
        "run_id": recorder.run_id,
        "mode": config.mode,
        "status": "running",
        "started_at": now(),
        "finished_at": None,
        "command": request.command,
        "code": code_identity(),
        "environment": environment(None if level is None else level.name),
        "devices": devices.document(),
        **read_place(),
        "model": None,
        "dataset": data.document(),
        "training": None,
        "result": recorder.result.document() | unmeasured,
        "exit": None,
        "parent": inputs.parent,
        "artifacts": [],
    }
    if config.recording.phase is not None:
        manifest["phase"] = dict(
            zip(("name", "sha256", "parent", "file"), config.recording.phase.split(" ", 3), strict=True)
        )
    recorder.start(manifest)
    recorder.text(layout.CONFIG, config_text(config))
    message = f"{recorder.run_id}: {config.mode} run of {config.model.name}"
    recorder.log("info", "run_started", message, run_id=recorder.run_id)
    if request.resume is not None:
        record_parent(recorder, request.resume, config)
    message = f"{len(devices.list)} × {devices.kind} ({devices.chosen_because})"
    recorder.log("info", "devices_chosen", message, platform=devices.platform, count=len(devices.list))
    if level is not None and level.why:
        message = f"compiling for {level.name} instead of {config.precision.cpu_isa} instructions: {level.why}"
        recorder.log("warning", "compiled_natively", message)
    record_data(recorder, data, examples=config.recording.first_examples)
    return observe(recorder, config.recording.system_every_seconds, devices.local)


def evaluate(
    evaluator: Evaluator, outcome: Outcome, frozen: Params, baseline: ModelAnswers | None, recorder: Recorder
) -> Outcome:
    """Evaluate the trained model if there is time; otherwise the run counts as interrupted."""
    stop = evaluator.stop
    stop.closing_seconds = 0.0 if baseline is None else baseline.seconds
    reason = stop.reason()  # do not start an evaluation that cannot be completed before the session ends
    stop.closing_seconds = 0.0
    if not reason and evaluator.evaluate(outcome.state, frozen, baseline, recorder):
        return outcome
    because = f"{reason or stop.reason() or outcome.because}, before the evaluation was complete"
    if outcome.status == "succeeded":
        message = f"{because}. To complete the evaluation: trainproof train --resume {recorder.folder}"
        recorder.log("warning", "evaluation_left", message)
    return replace(outcome, status="interrupted", because=because)


def run_or_resume(request: RunRequest, watch: Watch) -> int:
    """Train, continue a run, or with `--resume auto` continue the newest run that can be, and return the exit code.

    Raises:
        ProblemError: See `run` and `evaluate_run`. Runs that `--resume auto` cannot continue are skipped
            with a message.
    """
    if request.session is not None:
        for line in use_compilation_cache(request.folder.parent / layout.PROGRAMS):
            watch.say(line)
    with distributed.ending_together(), TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        for candidate in resume_candidates(request, watch):
            folder = candidate.folder if distributed.is_lead() else Path(scratch) / candidate.folder.name
            try:
                return _continue(replace(candidate, folder=folder, shared_folder=candidate.folder), watch)
            except ProblemError as error:
                if request.resume != Path(AUTO) or not {problem.code for problem in error.problems} <= UNFIT:
                    raise
                for problem in error.problems:
                    watch.say(f"not continued: {candidate.resume}: {problem.code}: {render_sentence(problem)}")
        raise AssertionError  # the last candidate starts a new run


def resume_candidates(request: RunRequest, watch: Watch) -> Iterator[RunRequest]:
    """Yield the request, or with `--resume auto` one for each run that may be continued, and then for a new run."""
    if request.resume != Path(AUTO):
        yield request
        return
    request = replace(request, folder=free_folder(request.folder), resume=None)
    folders, skipped = find_runs(request.config, request.folder.parent)
    for line in skipped:
        watch.say(line)
    for folder in folders:
        watch.say(f"--resume auto: continues {folder}")
        yield replace(request, resume=folder)
    watch.say("--resume auto: no run can be continued; starting at step 0")
    yield request


def _continue(request: RunRequest, watch: Watch) -> int:
    """Carry out a request. A run that lacks only its evaluation is evaluated instead."""
    is_alone = distributed.process_count() == 1
    if request.resume is None or not (is_alone and awaits_evaluation(request.resume, request.config)):
        return run(request, watch)
    folder = own_folder(request.resume, request.folder)
    watch.say(f"all {request.config.limits.steps:,} steps of {folder} are done; evaluating it")
    try:
        evaluate_run(folder, None, watch, session=request.session)
    except ProblemError as error:
        if "TP053" not in {problem.code for problem in error.problems}:
            raise
        return run(request, watch)  # trains the last steps again, from the newest complete checkpoint
    watch.say(f"run folder: {folder}")
    return 0
