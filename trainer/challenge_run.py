"""Putting questions to the model of a run that its maker has not seen, and some of the old ones again."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evidence import layout
from evidence.proof.receipts import run_sha256
from evidence.scores.intervals import ExactMatch
from evidence.scores.reading import read_scoring
from schemas.problems import Problem, ProblemError, problem_of
from schemas.reading import read_rows
from schemas.validate import read_document
from trainer.config.tree import Config
from trainer.data.answers import unreadable_items
from trainer.data.conversations import rendered_at
from trainer.data.conversations import PromptForm, infer_form
from trainer.evaluate_run import devices_here
from trainer.evaluation.bundled_params import shipped_params, source_of
from trainer.evaluation.challenged import ChallengeAnswers, receipt_groups
from trainer.evaluation.evaluable import config_of_run
from trainer.evaluation.evaluate import prediction_row, stated_form, unanswered_row
from trainer.evaluation.given_again import given_again
from trainer.evaluation.late_evaluation import manifest_of
from trainer.evaluation.questions import Questions, drawn_questions, read_questions
from trainer.evaluation.regenerate import set_of
from trainer.evaluation.sampler import Sampler
from trainer.loop.base import refuse_other_base
from trainer.loop.mesh import build_mesh
from trainer.loop.task import Task
from trainer.model.params import Params
from trainer.objectives.data import read_training_rows
from trainer.recorder.progress import Watch
from trainer.recorder.receipt import receipt_of

Tell = Callable[[dict[str, Any]], None]
"""Told what happens, as an object with the key `event`."""


@dataclass(frozen=True, kw_only=True)
class ChallengeRequest:
    """A judge's request."""

    folder: Path
    """Of the run, or of its unpacked copy."""
    items: Path | None
    """Questions of the judge's own. None: they are drawn."""
    generate: int
    """How many are drawn."""
    seed: int | None
    """Decides which are drawn and which stated answers are given again. None: it follows from the run's hash."""
    again: int
    """Stated answers that are written anew, at most; the others are followed in one pass."""
    model: str | None
    """Folder of the model that was trained. None: as the run names it."""


def challenge_run(request: ChallengeRequest, watch: Watch, tell: Tell) -> dict[str, Any]:
    """Question the model of a run and return the receipt, not sealed yet.

    Args:
        request: of the judge.
        watch: shows progress.
        tell: called with each event.

    Raises:
        ProblemError: exit code 2; the run states no score, or what it needs cannot be read. Exit code 3: it holds no
            parameters. Exit code 1: it holds others than those that answered.
    """
    folder, config = request.folder, config_of_run(request.folder)
    summary, rows = stated_answers(folder)
    config = replace(config, evaluation=replace(config.evaluation, eval_set=summary["eval_set"]["name"]))
    digest = run_sha256(folder) or ""
    seed = int(digest[:8], 16) if request.seed is None else request.seed
    chosen = random.Random(f"{seed} {digest}").sample(rows, min(request.again, len(rows)))  # noqa: S311 - no secret
    anew = {row["id"] for row in chosen}
    questions = (
        drawn_questions(config, request.generate, seed)
        if request.items is None
        else read_questions(request.items, config)
    )
    scoring = read_scoring(summary)
    if unreadable := unreadable_items(questions.items, scoring):
        raise ProblemError(unreadable, exit_code=2)
    tell({"event": "planned", "segments": [], "items": len(rows), "questions": len(questions.items.rows)})
    devices = devices_here(config, watch)
    task = Task.of(config, source_of(folder, config, request.model), build_mesh(devices.list))
    manifest = manifest_of(folder)
    refuse_other_base(manifest, task, file=str(folder), trains=False)
    shipped = shipped_params(folder, task, manifest, stated_sha256=summary["checkpoint"]["params_sha256"])
    watch.say(f"{shipped.where} holds the parameters that gave the stated answers")
    sampler = Sampler(
        settings=config.evaluation,
        form=form_stated(folder, config),
        scoring=scoring,
        tokenizer=task.model.source.tokenizer(rendered_at(manifest)),
        graphdef=task.model.graphdef,
        max_positions=task.model.source.spec.max_positions,
        seed=config.seed,
        options=task.compiler_options,
    )
    platforms = {devices.platform, manifest["devices"]["platform"]}
    done = steps(watch, tell, "items")
    items = set_of(summary, rows)
    again = given_again(sampler, shipped.params, rows, items, anew=anew, platforms=platforms, progress=done)
    answers = answer_questions(sampler, shipped.params, questions, steps(watch, tell, "questions"))
    claimed = summary["metrics"]["exact_match"]
    found = ChallengeAnswers(
        stated=ExactMatch(correct=round(claimed["value"] * claimed["n"]), n=claimed["n"]),
        stated_set=summary["eval_set"]["name"],
        questions=questions,
        answers=answers,
        again=again,
        items=len(rows),
    )
    return receipt_of(folder, "challenge", device=devices.document(), **receipt_groups(found))


def steps(watch: Watch, tell: Tell, what: str) -> Callable[[int, int], None]:
    """Return what is called with the count of items done."""

    def done(count: int, total: int) -> None:
        watch.done({"items": "stated answers given again", "questions": "questions"}[what], count, total)
        tell({"event": what, "done": count, "of": total})

    return done


def stated_answers(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the summary of a run's evaluation and its answers.

    Raises:
        ProblemError: exit code 2; there is no whole evaluation, or it is not valid.
    """
    if not (folder / layout.EVAL_SUMMARY).is_file():
        raise ProblemError([nothing_stated(folder, "The run has no evaluation.")], exit_code=2)
    summary = read_document(folder / layout.EVAL_SUMMARY, "eval_summary")
    rows = read_rows(folder / layout.PREDICTIONS, "prediction_row")
    errors = [each for each in (*summary.problems, *rows.problems) if each.severity == "error"]
    if summary.value is None or errors:
        raise ProblemError(errors, exit_code=2)
    if summary.value["metrics"]["exact_match"]["value"] is None or not rows.values:
        raise ProblemError([nothing_stated(folder, "The run's evaluation has no answer.")], exit_code=2)
    return summary.value, list(rows.values)


def nothing_stated(folder: Path, what: str) -> Problem:
    """Return the problem of a run that states no score."""
    return problem_of("TP083", file=str(folder), what=what)


def form_stated(folder: Path, config: Config) -> PromptForm:
    """Return the form in which the model was taught to be prompted: as its log states, else as its rows are."""
    return stated_form(folder) or infer_form(read_training_rows(config)[1], config.data.template)


def answer_questions(
    sampler: Sampler, params: Params, questions: Questions, progress: Callable[[int, int], None]
) -> list[dict[str, Any]]:
    """Return the model's answers to a judge's questions, as rows of predictions."""
    items, prompts = questions.items.rows, sampler.prompts_of(questions.items)
    roomy = {item["id"]: prompt for item, prompt in zip(items, prompts, strict=True) if sampler.has_room(prompt)}
    completions = sampler.answer(params, roomy)
    rows = []
    for item, prompt in zip(items, prompts, strict=True):
        if sampler.has_room(prompt):
            rows.append(prediction_row(item, next(completions), sampler))
        else:
            most = sampler.max_prompt_tokens
            rows.append(unanswered_row(item, prompt_tokens=len(prompt), max_prompt_tokens=most))
        progress(len(rows), len(items))
    return rows
