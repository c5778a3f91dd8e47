"""Challenge a run: ask its model questions that its author has not seen, and verify its recorded answers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from evidence.hashes import sha256_json
from evidence.proof.receipts import run_sha256
from evidence.scores.intervals import REFUTATION_LEVEL, ExactMatch, fisher_exact_less
from evidence.scores.overlap import row_texts
from evidence.scores.reading import read_scoring
from schemas.formats import quantity
from schemas.problems import ProblemError, problem_of
from trainer.config.tree import Config
from trainer.data.answers import unreadable_items
from trainer.data.builtin.reasoning import fresh_items, prompt_key
from trainer.data.conversations import rendered_at, untrusted_model
from trainer.data.rows import RowFile, read_eval_set
from trainer.evaluation.answers import Sampler, answer_items
from trainer.evaluation.late import available_devices
from trainer.evaluation.reanswer import MAX_DIFFERENCES, Verdict, VerifiedAnswer, receipt_items, verify_answers
from trainer.evaluation.recorded import (
    find_model,
    load_run_params,
    read_answers,
    read_config,
    read_form,
    read_manifest,
    recorded_items,
)
from trainer.loop.state import refuse_other_base
from trainer.loop.task import Task, build_mesh
from trainer.objectives.data import read_training_rows
from trainer.recorder.manifest import build_receipt
from trainer.recorder.progress import Watch

OnEvent = Callable[[dict[str, Any]], None]
"""Receives progress events, objects with the key `event`."""

VERDICT_TEXTS: Mapping[Verdict, str] = {
    "identical": "generated again, identical",
    "within tolerance": "generated again, within tolerance",
    "followed": "scored in one pass, as stated",
    "different": "different",
}


@dataclass(frozen=True, kw_only=True)
class ChallengeRequest:
    """Arguments of `trainproof challenge`."""

    folder: Path
    """Run folder or an unpacked bundle."""
    items: Path | None
    """File of questions, or None to generate them."""
    generate: int
    """Number of questions to generate."""
    seed: int | None
    """Selects questions and answers to generate again; None derives it from the hash of the run."""
    again: int
    """Most recorded answers to generate again; the others are scored in one forward pass."""
    model: str | None
    """Model folder, or None for the model that the run names."""


@dataclass(frozen=True, kw_only=True)
class Questions:
    """Questions of a challenge."""

    items: RowFile
    source: Literal["generated", "file"]
    seed: int | None
    """Seed of generated questions."""
    in_training: int | None
    """Questions left out because a training row has the same, or None if the training rows are not available."""

    def document(self) -> dict[str, Any]:
        """Return the questions as a receipt states them."""
        return {
            "source": self.source,
            "name": self.items.name,
            "seed": self.seed,
            "n": len(self.items.rows),
            "sha256": self.items.sha256,
            "in_training": self.in_training,
        }


@dataclass(frozen=True, kw_only=True)
class ChallengeResult:
    """Outcome of a challenge."""

    stated: ExactMatch
    """Exact match according to the run."""
    stated_set: str
    """Evaluation set of the run."""
    questions: Questions
    answers: Sequence[dict[str, Any]]
    """Prediction rows of the questions."""
    again: Sequence[VerifiedAnswer]
    """Verified answers of the run."""
    items: int
    """Answers of the run."""

    @property
    def on_questions(self) -> ExactMatch:
        """Exact match on the questions."""
        return ExactMatch(correct=sum(row["correct"] for row in self.answers), n=len(self.answers))

    @property
    def chance(self) -> float:
        """Probability of a score this low if the stated one is true (one-sided Fisher exact test).

        Leaving out questions that occur in training keeps the harder ones, since easy kinds have few distinct
        questions. Those left out therefore count as answered correctly, at most as many as there are questions: an
        honest run is not accused for that selection, and training on nearly everything does not help.

        Example: 83 of 100 correct with 57 left out count as 140 of 157 against a stated 94 of 100: a probability of
        0.14, where 83 of 100 alone would have 0.012.
        """
        left_out = min(self.questions.in_training or 0, self.on_questions.n)
        as_drawn = ExactMatch(correct=self.on_questions.correct + left_out, n=self.on_questions.n + left_out)
        return fisher_exact_less(self.stated, as_drawn)

    @property
    def can_be_true(self) -> bool:
        """Whether the stated score is plausible given the score on the questions."""
        return self.chance >= REFUTATION_LEVEL

    @property
    def result(self) -> str:
        """Verdict of the receipt: the worst one found, where a plausible score is at best within tolerance."""
        verdicts = Counter(each.verdict for each in self.again)
        if not self.can_be_true or verdicts["different"]:
            return "different"
        return "identical" if verdicts["identical"] and not verdicts["within tolerance"] else "within tolerance"

    def receipt_groups(self) -> dict[str, Any]:
        """Return the groups of the receipt that state the outcome."""
        wrong = [row for row in self.answers if not row["correct"]][:MAX_DIFFERENCES]
        return {
            "covered": {"segments": [], "items": receipt_items(self.again)},
            "score": {
                "eval_set": self.stated_set,
                "stated": self.stated.document(),
                "questions": self.questions.document(),
                "found": self.on_questions.document(),
                "chance": self.chance,
                "level": REFUTATION_LEVEL,
                "can_be_true": self.can_be_true,
                "failures": [{key: row[key] for key in ("id", "prompt", "expected", "output_text")} for row in wrong],
            },
            "result": self.result,
            "said": self.describe(),
        }

    def describe(self) -> str:
        """Return the outcome in one or two sentences."""
        stated = f"it states {_score_text(self.stated)} on {self.stated_set}"
        text = f"Scored {_score_text(self.on_questions)} on {quantity(len(self.answers), 'new question')}; {stated}"
        if self.can_be_true:
            text += ", which is plausible."
        else:
            text += f". If that were true, a score this low would have probability {self.chance:.1g}: it is refuted."
        verdicts = Counter(each.verdict for each in self.again)
        parts = [f"{count} {what}" for verdict, what in VERDICT_TEXTS.items() if (count := verdicts[verdict])]
        return f"{text} Of {quantity(self.items, 'stated answer')}: {', '.join(parts)}." if parts else text


def _score_text(score: ExactMatch) -> str:
    """Return a score with its 95 % interval: `0.830 (0.745 to 0.891)`."""
    low, high = score.interval
    return f"{score.value:.3f} ({low:.3f} to {high:.3f})"


@untrusted_model()
def challenge_run(request: ChallengeRequest, watch: Watch, on_event: OnEvent) -> dict[str, Any]:
    """Challenge a run and return the receipt, not sealed yet.

    Raises:
        ProblemError: exit code 2; the run states no score, or a file cannot be read. Exit code 3: the parameters are
            missing. Exit code 1: it has others than those that gave its answers.
    """
    folder, config = request.folder, read_config(request.folder)
    summary, rows = read_answers(folder)
    claimed = summary["metrics"]["exact_match"]
    if claimed["value"] is None or not rows:
        problem = problem_of("TP083", file=str(folder), what="The run's evaluation contains no answer.")
        raise ProblemError([problem], exit_code=2)
    config = replace(config, evaluation=replace(config.evaluation, eval_set=summary["eval_set"]["name"]))
    digest = run_sha256(folder) or ""
    seed = int(digest[:8], 16) if request.seed is None else request.seed
    chosen = random.Random(f"{seed} {digest}").sample(rows, min(request.again, len(rows)))  # noqa: S311 - no secret
    questions = (
        generate_questions(config, request.generate, seed)
        if request.items is None
        else read_questions(request.items, config)
    )
    scoring = read_scoring(summary)
    if unreadable := unreadable_items(questions.items, scoring):
        raise ProblemError(unreadable, exit_code=2)
    on_event({"event": "planned", "segments": [], "items": len(rows), "questions": len(questions.items.rows)})
    devices = available_devices(config, watch)
    task = Task.of(config, find_model(folder, config, request.model), build_mesh(devices.list))
    manifest = read_manifest(folder)
    refuse_other_base(manifest, task, file=str(folder), trains=False)
    loaded = load_run_params(folder, task, manifest, sha256=summary["checkpoint"]["params_sha256"])
    watch.say(f"loaded the parameters that gave the stated answers from {loaded.where}")
    sampler = Sampler.for_task(
        task,
        form=read_form(folder, config),
        scoring=scoring,
        tokenizer=task.model.source.tokenizer(rendered_at(manifest)),
    )

    def progress(event: str, what: str) -> Callable[[int, int], None]:
        def done(count: int, total: int) -> None:
            watch.done(what, count, total)
            on_event({"event": event, "done": count, "of": total})

        return done

    again = verify_answers(
        sampler,
        loaded.params,
        rows,
        recorded_items(summary, rows),
        regenerate={row["id"] for row in chosen},
        platforms={devices.platform, manifest["devices"]["platform"]},
        progress=progress("items", "stated answers verified"),
    )
    answers: list[dict[str, Any]] = []
    count = progress("questions", "questions")
    prompts = sampler.encode_prompts(questions.items)
    for row in answer_items(sampler, loaded.params, questions.items.rows, prompts):
        answers.append(row)
        count(len(answers), len(prompts))
    result = ChallengeResult(
        stated=ExactMatch(correct=round(claimed["value"] * claimed["n"]), n=claimed["n"]),
        stated_set=summary["eval_set"]["name"],
        questions=questions,
        answers=answers,
        again=again,
        items=len(rows),
    )
    return build_receipt(folder, "challenge", device=devices.document(), **result.receipt_groups())


def generate_questions(config: Config, count: int, seed: int) -> Questions:
    """Generate questions of the kinds in a run's evaluation set, or else in its dataset.

    Raises:
        ProblemError: exit code 2; these kinds cannot be generated, or there are fewer new questions.
    """
    training, name = _training_questions(config), config.evaluation.eval_set
    try:
        drawn = fresh_items(name, config.data.dataset, count, seed, training=training or ())
    except ValueError as error:
        what = f"--generate is {count:,}, and the generator has fewer new questions: {error}"
        raise ProblemError([problem_of("TP059", file="--generate", what=what)], exit_code=2) from error
    if drawn is None:
        what = f"Neither the evaluation set {name} nor the dataset {config.data.dataset} is built in."
        raise ProblemError([problem_of("TP059", file="--generate", what=what)], exit_code=2)
    items, left_out = drawn
    file = RowFile(
        name=f"{count} generated, seed {seed}",
        path=Path("--generate"),
        rows=tuple(items),
        lines=tuple(range(1, len(items) + 1)),
        sha256=sha256_json(items),
        warnings=(),
    )
    return Questions(items=file, source="generated", seed=seed, in_training=None if training is None else left_out)


def read_questions(path: Path, config: Config) -> Questions:
    """Read questions from a file, without those that occur in training.

    Raises:
        ProblemError: exit code 2; the file cannot be read or is not valid, or all of its questions occur in training.
    """
    file, training = read_eval_set(str(path)), _training_questions(config)
    if training is None:
        return Questions(items=file, source="file", seed=None, in_training=None)
    seen = set(map(prompt_key, training))
    new = [place for place, item in enumerate(file.rows) if prompt_key(item["prompt"]) not in seen]
    if not new:
        what = f"All {len(file.rows):,} questions of {path} occur in the training rows."
        raise ProblemError([problem_of("TP059", file=str(path), what=what)], exit_code=2)
    kept = replace(file, rows=tuple(file.rows[place] for place in new), lines=tuple(file.lines[place] for place in new))
    return Questions(items=kept, source="file", seed=None, in_training=len(file.rows) - len(new))


def _training_questions(config: Config) -> set[str] | None:
    """Return the prompts of a run's training rows, or None if the rows are not on this machine."""
    try:
        _, rows = read_training_rows(config)
    except ProblemError:
        return None
    return {row_texts(row)[0][0] for row in rows}
