"""What can be done with a run that has ended: answer an evaluation set with its checkpoint, or export the model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from evidence.records.ours import read_existing_run
from evidence.run import layout
from evidence.run.lock import RunLock
from evidence.run.write import not_written
from schemas.problems.problem import ProblemError
from schemas.problems.render import as_sentence
from trainer.assemble import restored
from trainer.config.load import load_config
from trainer.config.tree import Config
from trainer.data.encode import end_token_id
from trainer.data.rows import read_eval_set
from trainer.evaluation.evaluable import (
    export_stopped,
    no_eval_set,
    refuse_another_set,
    refuse_another_step,
    refuse_second_evaluation,
    told_to_stop,
)
from trainer.evaluation.evaluate import Answered, prompts_of, stated_evaluation, stated_form, summary_of
from trainer.evaluation.evaluator import Exam, in_words
from trainer.evaluation.late_evaluation import add_evaluation, beside, finish_or_undo
from trainer.loop.checkpoint import latest_step, no_checkpoint
from trainer.loop.step import TrainState
from trainer.loop.stop import StopRequest
from trainer.model.files.export import export, refuse_taken
from trainer.model.files.source import resolve
from trainer.planning.devices import Devices, choose_devices
from trainer.planning.fit import refuse_what_leaves_no_room
from trainer.prepare import odd_items, read_training_rows
from trainer.recorder.failure import memory_told
from trainer.recorder.progress import Watch


def evaluate_run(folder: Path, eval_set: str | None, watch: Watch) -> dict[str, Any]:
    """Put an evaluation set to a run, add the answers to its evidence, and return the summary.

    Args:
        folder: a run folder with a checkpoint, not evaluated or only in part: then every item is asked again.
        eval_set: built-in set or JSONL file. None: the one its configuration names.
        watch: shows progress.

    Raises:
        ProblemError: exit code 2; the run is evaluated already, names no set, or has no checkpoint of its last step.
            Exit code 5: stopped before every item was answered; 4: the device has no room; 2 also: it could not be
            written. The run is as before then.
    """
    config = config_to_evaluate(folder, eval_set)
    refuse_without_checkpoint(folder)
    devices = devices_here(config, watch)
    source = resolve(config.model.name, config.model.revision, with_weights=False)
    assert config.evaluation.eval_set is not None, "config_to_evaluate names a set"
    items = read_eval_set(config.evaluation.eval_set)
    tokenizer = source.tokenizer()
    # Runs of earlier versions do not state it; then the rows say in which form the model was taught to be asked.
    form = stated_form(folder) or read_training_rows(config).form
    refuse_what_leaves_no_room(config, source, items, prompts_of(items, form, tokenizer))
    for problem in odd_items(items, tokenizer):
        watch.say(f"{problem.code}: {as_sentence(problem)}")
    with RunLock(folder), StopRequest(max_minutes=None) as stop:
        finish_or_undo(folder)  # of a process that was killed
        refuse_second_evaluation(folder)  # one that ended since the first look
        refuse_another_step(folder, config)
        try:
            graphdef, state = restored(folder, config, source, devices)
            exam = Exam(
                items=items,
                settings=config.evaluation,
                form=form,
                tokenizer=tokenizer,
                graphdef=graphdef,
                max_positions=source.spec.max_positions,
                folder=folder,
                stop=stop,
                watch=watch,
            )
            try:
                with memory_told(str(folder)):
                    summary = answered(folder, exam, state)
                add_evaluation(folder, summary, by=in_number(devices))
            except BaseException:
                finish_or_undo(folder)
                raise
        except OSError as error:
            raise not_written(error, folder, what="The evaluation") from error
        except KeyboardInterrupt:
            raise ProblemError([told_to_stop(folder, "a second signal")], exit_code=5) from None
    watch.say(in_words(summary, exam.items.name))
    return summary


def config_to_evaluate(folder: Path, eval_set: str | None) -> Config:
    """Return the run's configuration with the set that is to be answered, if it may be."""
    config = config_of_run(folder)
    refuse_second_evaluation(folder)
    name = eval_set or config.evaluation.eval_set
    if name is None:
        raise ProblemError([no_eval_set(folder)], exit_code=2)
    refuse_another_set(name, config, folder)
    return replace(config, evaluation=replace(config.evaluation, eval_set=name))


def answered(folder: Path, exam: Exam, state: TrainState) -> dict[str, Any]:
    """Answer the set, every answer written beside the run's files, and return the summary."""
    trained = exam.put_to(state, beside(folder, layout.PREDICTIONS).name, "evaluation")
    refuse_a_part(folder, trained, exam.stop)
    summary = summary_of(
        trained,
        None,
        run_id=folder.resolve().name,
        items=exam.items,
        settings=exam.settings,
        stop_token_id=exam.stop_token_id,
        prompt_template=exam.prompt_template,
    )
    summary["predictions"]["path"] = layout.PREDICTIONS
    # The untrained model's answers, which an evaluation that was stopped had whole, are still there.
    stopped = stated_evaluation(folder)
    return summary | {"baseline": stopped.get("baseline") if stopped else None}


def export_run(folder: Path, output: Path | None, watch: Watch) -> Path:
    """Write the model of a run as a Hugging Face folder and return that folder; by default `export/` in the run.

    Raises:
        ProblemError: exit code 2; the run has no checkpoint, or something is in the folder. Exit code 5: stopped.
    """
    target = output or folder / layout.EXPORT
    config = config_of_run(folder)
    refuse_without_checkpoint(folder)
    refuse_taken(target)
    source = resolve(config.model.name, config.model.revision, with_weights=False)
    # Parameters are the same wherever they are read, so that a model trained on a TPU is exported on any machine.
    _, state = restored(folder, config, source, choose_devices("auto", None))
    form = stated_form(folder)
    end = end_token_id(source.tokenizer(), form) if form is not None and form.conversation else None
    with StopRequest(max_minutes=None) as stop:
        try:
            export(target, state.params, source, end_token_id=end, go_on=lambda: refuse_to_go_on(target, stop))
        except OSError as error:
            raise not_written(error, target, what="The export") from error
        except KeyboardInterrupt:
            raise ProblemError([export_stopped(target, "a second signal")], exit_code=5) from None
    watch.say(f"exported step {int(state.step)} to {target}")
    return target


def config_of_run(folder: Path) -> Config:
    """Return the configuration that a run recorded."""
    read_existing_run(folder)
    return load_config(folder / layout.CONFIG)


def devices_here(config: Config, watch: Watch) -> Devices:
    """Return the devices that a run asked for or, where they are not there, those that are, and say so.

    Which devices train is declared, so a run never falls back; what is read from its checkpoint may be on any.
    """
    try:
        return choose_devices(config.mesh.device, config.mesh.devices)
    except ProblemError as error:
        here = choose_devices("auto", None)
        watch.say(f"{error.problems[0].what} {in_number(here)} is used instead.")
        return here


def in_number(devices: Devices) -> str:
    """Return how many devices of which kind: `8 × cpu`."""
    return f"{len(devices.list)} × {devices.kind}"


def refuse_without_checkpoint(folder: Path) -> None:
    """Refuse a run whose parameters are not there, before anything is built for them."""
    if latest_step(folder) is None:
        raise ProblemError([no_checkpoint(folder)], exit_code=2)


def refuse_to_go_on(target: Path, stop: StopRequest) -> None:
    """Refuse to write more of an export that was told to stop."""
    if reason := stop.reason():
        raise ProblemError([export_stopped(target, reason)], exit_code=5)


def refuse_a_part(folder: Path, answered: Answered, stop: StopRequest) -> None:
    """Refuse to keep an evaluation that was stopped before every item was answered."""
    if answered.evaluated.complete:
        return
    raise ProblemError([told_to_stop(folder, stop.reason())], exit_code=5)
