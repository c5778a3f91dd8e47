"""The story of a run: prepare → plan → build → loop → evaluate → seal.

`prepare` reads and checks everything but the weights and spends nothing. From `claim` on there is a folder, and
whatever happens, the recorder leaves in it what was measured and how it ended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evidence.run import layout
from schemas.problems.render import as_sentence
from schemas.problems.words import shown
from trainer.assemble import Assembly, assemble, continued_from
from trainer.config.load import config_text
from trainer.config.tree import Config
from trainer.data.encode import first_examples
from trainer.evaluation.evaluate import FORM, Answered
from trainer.evaluation.evaluator import Exam
from trainer.loop import effective
from trainer.loop.checkpoint import Checkpoints, most_at_once, refuse_no_room
from trainer.loop.optimizer import build_schedule
from trainer.loop.program import batch_size_of
from trainer.loop.stop import StopRequest
from trainer.loop.train import Loop, Outcome
from trainer.planning.plan import in_words, refuse_what_does_not_fit
from trainer.prepare import Prepared, prepare
from trainer.recorder.failure import FAILED, INTERRUPTED
from trainer.recorder.manifest import first_manifest, model_of, training_of
from trainer.recorder.memory import peak_memory_bytes
from trainer.recorder.progress import Watch
from trainer.recorder.recorder import Recorder, claim, refuse_folder
from trainer.resume import changes_of_steps, parent_of, refuse_other_rows

EXIT_CODES = {"succeeded": 0, "failed": FAILED, "interrupted": INTERRUPTED}


@dataclass(frozen=True, kw_only=True)
class Order:
    """What somebody asked for."""

    config: Config
    folder: Path
    """The run's folder, new or empty; its name is the run's id."""
    command: list[str]
    """The command line, one argument each."""
    forced: bool = False
    """Start even if the plan says that it does not fit."""
    resume: Path | None = None
    """Folder of a run whose newest checkpoint this one continues from."""


def run(order: Order, watch: Watch) -> int:
    """Carry out a run and return its exit code: 0 good, 4 failed, 5 interrupted and resumable.

    Raises:
        ProblemError: exit code 2 or 3 before anything was spent; for a run sealed as failed or cancelled 4 or 5, or 2
            where the model's weights turned out to be of no use.
    """
    stop = stop_request(order.config)
    refuse_folder(order.folder)
    parent = parent_of(order.resume, order.config)
    prepared = prepare(order.config, forced=order.forced, continued=order.resume is not None)
    refuse_other_rows(order.resume, prepared.dataset_document(), batch_size=batch_size(prepared))
    refuse_what_does_not_fit(prepared.plan, model=order.config.model.name)
    refuse_no_room(order.folder, state_bytes=state_bytes(prepared), at_once=most_at_once(order.config))
    continued = None if order.resume is None else continued_from(order.resume, prepared)
    with stop, claimed(order.folder, watch) as recorder:
        record_start(recorder, prepared, order, parent)
        assembly = assemble(prepared, continued)
        del continued  # the assembly has its state, and hands it over
        record_what_runs(recorder, prepared, assembly, order)
        exam = exam_of(prepared, assembly, recorder, stop, watch)
        baseline = baseline_of(exam, assembly, recorder) if exam else None
        outcome = train(prepared, assembly, recorder, stop, watch)
        if exam:
            outcome = evaluate(exam, outcome, baseline, recorder)
        recorder.seal(outcome.status, **how_it_ended(outcome))
    watch.say(f"run folder: {order.folder}")
    return EXIT_CODES[outcome.status]


def stop_request(config: Config) -> StopRequest:
    """Return what will listen for reasons to stop early; its clock runs from now on."""
    return StopRequest(max_minutes=config.limits.max_minutes)


def claimed(folder: Path, watch: Watch) -> Recorder:
    """Return the recorder of a folder that is made for it."""
    claim(folder)
    return Recorder(folder, say=watch.say)


def batch_size(prepared: Prepared) -> int:
    """Return the sequences of a step over all devices."""
    return batch_size_of(prepared.config, devices=len(prepared.devices.list))


def state_bytes(prepared: Prepared) -> int:
    """Return what a checkpoint holds: the planned params and opt_state of all devices that share them."""
    shards = len(prepared.devices.list) if prepared.config.mesh.shard_params else 1
    of_one: int = sum(part["bytes"] for part in prepared.plan["parts"] if part["name"] in ("params", "opt_state"))
    return shards * of_one


def record_start(recorder: Recorder, prepared: Prepared, order: Order, parent: dict[str, Any] | None) -> None:
    """Write down everything that is known before anything is built."""
    devices = prepared.devices
    manifest = first_manifest(
        run_id=recorder.run_id,
        command=order.command,
        config=prepared.config,
        devices=devices,
        dataset=prepared.dataset_document(),
        parent=parent,
    )
    recorder.start(manifest)
    recorder.text(layout.CONFIG, config_text(prepared.config))
    recorder.document(layout.PLAN, prepared.plan)
    recorder.document(
        layout.FIRST_EXAMPLES,
        first_examples(prepared.data, prepared.first_rows(), prepared.tokenizer, run_id=recorder.run_id),
    )
    recorder.log(
        "info",
        "run_started",
        f"run {recorder.run_id}: {prepared.config.model.name}, {prepared.config.mode}",
        run_id=recorder.run_id,
    )
    if order.resume is not None and parent is not None:
        record_parent(recorder, parent, changes_of_steps(order.resume, prepared.config, manifest["devices"]))
    recorder.log(
        "info",
        "devices_chosen",
        f"{len(devices.list)} × {devices.kind} ({devices.chosen_because})",
        platform=devices.platform,
        count=len(devices.list),
    )
    form = prepared.form
    recorder.log(
        "info",
        FORM,
        "the model is asked in a conversation" if form.conversation else "the model is asked with plain prompts",
        conversation=form.conversation,
        system=form.system,
    )
    for problem in prepared.warnings:
        recorder.log(
            "warning", "odd_row", f"{problem.code}: {as_sentence(problem)}", code=problem.code, file=problem.file
        )
    level = "warning" if prepared.plan["forced"] and prepared.plan["verdict"] == "does_not_fit" else "info"
    recorder.log(level, "planned", in_words(prepared.plan), need_bytes=prepared.plan["need_bytes"])


def record_parent(recorder: Recorder, parent: dict[str, Any], changes: list[dict[str, Any]]) -> None:
    """Write down what the run goes on from, and what makes its steps others than those before."""
    what = f"goes on from step {parent['step']} of {parent['run_id']}"
    if changes:
        named = "; ".join(f"{each['key']} was {shown(each['before'])}, is {shown(each['after'])}" for each in changes)
        what += f", whose steps were computed otherwise: {named}"
    recorder.log("warning" if changes else "info", "continued", what, parent=parent, changes=changes)


def record_what_runs(recorder: Recorder, prepared: Prepared, assembly: Assembly, order: Order) -> None:
    """Write down the model and the effective settings, read back from what was built."""
    program, state = assembly.program, assembly.state
    model = model_of(
        name=prepared.config.model.name,
        revision=prepared.source.revision,
        family=prepared.source.spec.family,
        weights=assembly.weights,
        params=state.params,
        weights_sha256=assembly.params_sha256,
        compute=effective.compute_dtype(program.jaxpr),
    )
    training = training_of(
        prepared.config, program, state, prepared.devices, parameters=model["parameters"], forced=order.forced
    )
    recorder.set(model=model, training=training)
    recorder.update("result", compile_seconds=program.compile_seconds)
    donated = {True: "state donated", False: "state not donated", None: "donation unknown"}
    recorder.log(
        "info",
        "compiled",
        f"{model['parameters']:,} parameters; {training['optimizer']['name']}, {model['dtypes']['params']} params, "
        f"{model['dtypes']['compute']} compute, {donated[training['donation']['effective']]}; "
        f"compiled in {program.compile_seconds:.1f} s",
        compile_seconds=program.compile_seconds,
        family=model["family"],
        weights_sha256=model["weights_sha256"],
        state_bytes=training["donation"]["state_bytes"],
        aliased_bytes=training["donation"]["aliased_bytes"],
    )


def exam_of(prepared: Prepared, assembly: Assembly, recorder: Recorder, stop: StopRequest, watch: Watch) -> Exam | None:
    """Return the evaluation of this run, None if it has none."""
    if prepared.items is None:
        return None
    return Exam(
        items=prepared.items,
        settings=prepared.config.evaluation,
        form=prepared.form,
        tokenizer=prepared.tokenizer,
        graphdef=assembly.graphdef,
        max_positions=prepared.source.spec.max_positions,
        folder=recorder.folder,
        stop=stop,
        watch=watch,
    )


def baseline_of(exam: Exam, assembly: Assembly, recorder: Recorder) -> Answered | None:
    """Return the untrained model's answers, None where none are asked for or the model is trained already.

    A run that was stopped before its first step is continued with the untrained model, which is asked then.
    """
    step = int(assembly.state.step)
    if step == 0:
        return exam.before(assembly.state)
    if exam.settings.baseline:
        recorder.log(
            "info",
            "baseline_left_out",
            f"the untrained model is not asked: this run begins after step {step}; what it answered stands in the run "
            "that began at step 0, if it was asked there",
            step=step,
        )
    return None


def train(prepared: Prepared, assembly: Assembly, recorder: Recorder, stop: StopRequest, watch: Watch) -> Outcome:
    """Run the loop, save its last state, and record the result."""
    config = prepared.config
    checkpoints = Checkpoints(recorder.folder, keep=config.checkpoint.keep)
    loop = Loop(
        config=config,
        program=assembly.program,
        data=prepared.data,
        devices=prepared.devices,
        schedule=build_schedule(config.optimizer, steps=config.limits.steps),
        recorder=recorder,
        checkpoints=checkpoints,
        stop=stop,
        progress=lambda done, total, loss: watch.done("step", done, total, f"loss {loss:.4f}"),
    )
    outcome = loop.run(assembly.hand_over())
    # A state whose numbers are not finite is of no use to continue from; the checkpoint before it is.
    if outcome.status != "failed":
        loop.save(outcome.state)
    checkpoints.close()
    recorder.update("training", steps_done=int(outcome.state.step))
    peak = peak_memory_bytes(prepared.devices)
    recorder.record_result(train_seconds=outcome.seconds, peak_memory_bytes=peak, stopped_because=outcome.because)
    recorder.log(
        "error" if outcome.status == "failed" else "info",
        "trained",
        f"{int(outcome.state.step)} steps in {outcome.seconds:.1f} s: {outcome.because}",
        train_seconds=outcome.seconds,
        peak_memory_bytes=peak,
    )
    return outcome


def evaluate(exam: Exam, outcome: Outcome, baseline: Answered | None, recorder: Recorder) -> Outcome:
    """Put the evaluation set to the trained model if there is time; without all of it the run is interrupted."""
    if outcome.status == "failed":
        return outcome
    if not exam.stop.reason() and exam.after(outcome.state, baseline, recorder):
        return outcome
    because = exam.stop.reason() or outcome.because
    return replace(outcome, status="interrupted", because=f"{because}, before the evaluation was complete")


def how_it_ended(outcome: Outcome) -> dict[str, Any]:
    """Return exit code, kind of error and message of the outcome."""
    return {
        "exit_code": EXIT_CODES[outcome.status],
        "error": outcome.error,
        "message": None if outcome.status == "succeeded" else outcome.because,
    }
