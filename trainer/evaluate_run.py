"""Answering an evaluation set with the checkpoint of a run that has ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from evidence import layout
from evidence.lock import RunLock
from evidence.scores.reading import Scoring
from evidence.writing import write_error
from schemas.problems import ProblemError
from schemas.render import as_sentence
from trainer.config.tree import Config
from trainer.data.answers import scoring_from, unreadable_items
from trainer.data.chat_template import rendered_at
from trainer.data.prompts import odd_items, prompts_of
from trainer.data.render import form_of
from trainer.data.rows import RowFile, read_eval_set
from trainer.evaluation.evaluable import (
    config_of_run,
    evaluation_stopped,
    no_eval_set,
    refuse_another_set,
    refuse_another_step,
    refuse_second_evaluation,
    refuse_without_checkpoint,
)
from trainer.evaluation.evaluate import ModelAnswers, stated_evaluation, stated_form, stated_scoring, summary_of
from trainer.evaluation.evaluator import Evaluator, in_words
from trainer.evaluation.late_evaluation import (
    add_evaluation,
    beside,
    finish_or_undo,
    manifest_of,
    undone_unless_finished,
)
from trainer.evaluation.sampler import Sampler
from trainer.loop.base import refuse_other_tokenizer
from trainer.loop.mesh import build_mesh
from trainer.loop.restoring import restored_state
from trainer.loop.session_limit import SessionLimit
from trainer.loop.step import TrainState
from trainer.loop.stop import StopRequest
from trainer.loop.task import Task
from trainer.methods.model import model_of
from trainer.model.files.source import resolve
from trainer.model.params import Params
from trainer.objectives import objective_of
from trainer.objectives.data import read_training_rows
from trainer.objectives.items import unanswerable
from trainer.recorder.failure import explain_full_device
from trainer.recorder.progress import Watch
from trainer.runtime import Devices, choose_devices, init_runtime


def evaluate_run(
    folder: Path, eval_set: str | None, watch: Watch, *, session: SessionLimit | None = None
) -> dict[str, Any]:
    """Put an evaluation set to a run, add the answers to its evidence, and return the summary.

    Args:
        folder: a run folder with a checkpoint, not evaluated or only in part: then every item is answered again.
        eval_set: built-in set or JSONL file. None: the one its configuration names.
        watch: shows progress.
        session: by when it must be complete. None: there is no such time.

    Raises:
        ProblemError: exit code 2; the run is evaluated already, names no set, or has no checkpoint of its last step.
            Exit code 5: stopped before every item was answered; 4: the device has no room; 2 also: it could not be
            written. The run is as before then.
    """
    config, name = config_to_evaluate(folder, eval_set)
    refuse_without_checkpoint(folder)
    devices = devices_here(config, watch)
    model = model_of(config, resolve(config.model.name, config.model.revision, with_weights=False))
    refuse_other_tokenizer(manifest := manifest_of(folder), model.source, file=str(folder))
    items, tokenizer = read_eval_set(name), model.source.tokenizer(rendered_at(manifest))
    # Runs of earlier versions do not state it; then the rows say in which form the model was taught to be asked.
    form = stated_form(folder) or form_of(read_training_rows(config)[1], config.data.template)
    scoring, prompts = scoring_for(folder, config, items), prompts_of(items, form, tokenizer)
    problems = unanswerable(config, items, prompts, max_positions=model.source.spec.max_positions)
    if problems := [*problems, *unreadable_items(items, scoring)]:
        raise ProblemError(problems, exit_code=2)
    room = model.source.spec.max_positions - config.evaluation.max_new_tokens
    for problem in odd_items(items, tokenizer, prompts, scoring, max_prompt_tokens=room):
        watch.say(f"{problem.code}: {as_sentence(problem)}")
    task = Task(config=config, model=model, objective=objective_of(config), mesh=build_mesh(devices.list))
    with RunLock(folder), StopRequest(max_minutes=None, session=session) as stop:
        finish_or_undo(folder)  # of a process that was killed
        refuse_second_evaluation(folder)  # one that ended since the first look
        refuse_another_step(folder, config)
        evaluator = Evaluator(
            items=items,
            sampler=Sampler(
                settings=config.evaluation,
                form=form,
                scoring=scoring,
                tokenizer=tokenizer,
                graphdef=model.graphdef,
                max_positions=model.source.spec.max_positions,
                seed=config.seed,
                options=task.compiler_options,
            ),
            folder=folder,
            stop=stop,
            watch=watch,
        )
        summary = append_evaluation(folder, evaluator, task, by=in_number(devices))
    watch.say(in_words(summary, items.name))
    return summary


def scoring_for(folder: Path, config: Config, items: RowFile) -> Scoring:
    """Return how the answers of a run are read: as its log states, as it is set, or as its training rows show."""
    if (stated := stated_scoring(folder)) is not None:
        return stated
    rows = read_training_rows(config)[1] if config.evaluation.answer is None else ()
    return scoring_from(config.evaluation, rows, items.rows)


def append_evaluation(folder: Path, evaluator: Evaluator, task: Task, *, by: str) -> dict[str, Any]:
    """Answer the set with the run's checkpoint, take the answers into the run, and return the summary.

    Raises:
        ProblemError: as `evaluate_run`; nothing of the evaluation is left then.
    """
    try:
        [state], frozen = restored_state(folder, task)
        with undone_unless_finished(folder):
            with explain_full_device(str(folder)):
                summary = evaluate_unsealed(folder, evaluator, state, frozen)
            add_evaluation(folder, summary, by=by)
    except OSError as error:
        raise write_error(error, folder, what="The evaluation") from error
    except KeyboardInterrupt:
        raise ProblemError([evaluation_stopped(folder, "a second signal")], exit_code=5) from None
    return summary


def config_to_evaluate(folder: Path, eval_set: str | None) -> tuple[Config, str]:
    """Return the run's configuration with the set that is to be answered, and the set's name, if it may be."""
    config = config_of_run(folder)
    refuse_second_evaluation(folder)
    name = eval_set or config.evaluation.eval_set
    if name is None:
        raise ProblemError([no_eval_set(folder)], exit_code=2)
    refuse_another_set(name, config, folder)
    return replace(config, evaluation=replace(config.evaluation, eval_set=name)), name


def evaluate_unsealed(folder: Path, evaluator: Evaluator, state: TrainState, frozen: Params) -> dict[str, Any]:
    """Answer the set, every answer written beside the run's files, and return the summary."""
    trained = evaluator.answers(state, frozen, file=beside(folder, layout.PREDICTIONS).name, what="evaluation")
    refuse_a_part(folder, trained, evaluator.stop)
    for problem in evaluator.unread(trained):
        evaluator.watch.say(f"{problem.code}: {as_sentence(problem)}")
    summary = summary_of(trained, None, run_id=folder.resolve().name, items=evaluator.items, sampler=evaluator.sampler)
    summary["predictions"]["path"] = layout.PREDICTIONS
    # The untrained model's answers, which an evaluation that was stopped had whole, are still there.
    stopped = stated_evaluation(folder)
    return summary | {"baseline": stopped.get("baseline") if stopped else None}


def devices_here(config: Config, watch: Watch) -> Devices:
    """Return the devices that a run requested or, where they are not there, those that are, and report it.

    Which devices train is declared, so a run never falls back; what is read from its checkpoint may be on any.
    """
    init_runtime(config)
    try:
        return choose_devices(config.mesh.device, config.mesh.devices)
    except ProblemError as error:
        here = choose_devices("auto", None)
        watch.say(f"{error.problems[0].what} {in_number(here)} is used instead.")
        return here


def in_number(devices: Devices) -> str:
    """Return how many devices of which kind: `8 × cpu`."""
    return f"{len(devices.list)} × {devices.kind}"


def refuse_a_part(folder: Path, answered: ModelAnswers, stop: StopRequest) -> None:
    """Refuse to keep an evaluation that was stopped before every item was answered."""
    if answered.evaluated.complete:
        return
    raise ProblemError([evaluation_stopped(folder, stop.reason())], exit_code=5)
