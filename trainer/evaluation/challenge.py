"""Challenge a run: ask its model questions that its author has not seen, and verify its recorded answers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.hashes import sha256_json
from evidence.proof.receipts import run_sha256
from evidence.proof.signatures import problem_error
from evidence.scores.intervals import REFUTATION_LEVEL, ExactMatch, fisher_exact_less
from evidence.scores.overlap import row_texts
from evidence.scores.reading import read_scoring
from schemas.formats import quantity
from schemas.problems import ProblemError
from trainer.config.tree import Config
from trainer.data.answers import unreadable_items
from trainer.data.builtin.reasoning import fresh_items, prompt_key
from trainer.data.conversations import untrusted_model
from trainer.data.rows import RowFile, read_eval_set
from trainer.evaluation.answers import (
    MAX_DIFFERENCES,
    Verdict,
    VerifiedAnswer,
    answer_items,
    receipt_items,
    select_rows,
    verify_answers,
)
from trainer.evaluation.evaluate import available_devices
from trainer.evaluation.recorded import (
    find_model,
    load_run_params,
    read_answers,
    read_config,
    read_manifest,
    read_sampler,
    recorded_items,
)
from trainer.loop.state import refuse_other_base
from trainer.loop.task import Task, build_mesh
from trainer.objectives.data import read_training_rows
from trainer.recorder.progress import Watch
from trainer.recorder.recorder import build_receipt

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
    seed: int | None
    """Selects questions and answers to generate again; None derives it from the hash of the run."""
    again: int
    """Most recorded answers to generate again; the others are scored in one forward pass."""
    model: str | None
    """Model folder, or None for the model that the run names."""


def score_probability(stated: ExactMatch, found: ExactMatch, *, dropped: int) -> float:
    """Return the probability of a score this low if the stated one is true (one-sided Fisher exact test).

    Dropping questions that occur in training keeps the harder ones, since easy kinds have few distinct questions.
    Dropped questions therefore count as answered correctly, at most as many as there are questions: an honest run is
    not accused because of the selection, and training on nearly everything does not help.

    Example: 83 of 100 correct with 57 dropped count as 140 of 157 against a stated 94 of 100: a probability of 0.14,
    where 83 of 100 alone would have 0.012.
    """
    right = min(dropped, found.n)
    return fisher_exact_less(stated, ExactMatch(correct=found.correct + right, n=found.n + right))


def receipt_groups(
    summary: Mapping[str, Any],
    questions: Mapping[str, Any],
    answers: Sequence[dict[str, Any]],
    again: Sequence[VerifiedAnswer],
) -> dict[str, Any]:
    """Return the groups of the receipt about the outcome: new questions and verified answers of the run.

    The result is the worst verdict; a plausible score alone is at best within tolerance.
    """
    claimed, eval_set = summary["metrics"]["exact_match"], summary["eval_set"]["name"]
    stated = ExactMatch(correct=round(claimed["value"] * claimed["n"]), n=claimed["n"])
    found = ExactMatch(correct=sum(row["correct"] for row in answers), n=len(answers))
    wrong = [row for row in answers if not row["correct"]][:MAX_DIFFERENCES]
    chance = score_probability(stated, found, dropped=questions["in_training"] or 0)
    can_be_true, verdicts = chance >= REFUTATION_LEVEL, Counter(each.verdict for each in again)
    result = "identical" if verdicts["identical"] and not verdicts["within tolerance"] else "within tolerance"

    said = f"Scored {_score_text(found)} on {quantity(found.n, 'new question')}; "
    said += f"it states {_score_text(stated)} on {eval_set}"
    if can_be_true:
        said += ", which is plausible."
    else:
        said += f". If that were true, a score this low would have probability {chance:.1g}: it is refuted."
    if parts := [f"{count} {what}" for verdict, what in VERDICT_TEXTS.items() if (count := verdicts[verdict])]:
        said += f" Of {quantity(len(again), 'stated answer')}: {', '.join(parts)}."
    return {
        "covered": {"segments": [], "items": receipt_items(again)},
        "score": {
            "eval_set": eval_set,
            "stated": stated.document(),
            "questions": questions,
            "found": found.document(),
            "chance": chance,
            "level": REFUTATION_LEVEL,
            "can_be_true": can_be_true,
            "failures": [{key: row[key] for key in ("id", "prompt", "expected", "output_text")} for row in wrong],
        },
        "result": "different" if not can_be_true or verdicts["different"] else result,
        "said": said,
    }


def _score_text(score: ExactMatch) -> str:
    """Return a score with its 95 % interval: `0.830 (0.745 to 0.891)`."""
    low, high = score.interval
    return f"{score.value:.3f} ({low:.3f} to {high:.3f})"


@untrusted_model()
def challenge_run(request: ChallengeRequest, watch: Watch, on_event: OnEvent) -> dict[str, Any]:
    """Challenge a run and return the receipt, not sealed yet.

    Raises `ProblemError` with exit code 2 if the run states no score, a file cannot be read, or there are too few new
    questions, 3 if the parameters are missing, and 1 if only parameters with another hash were found.
    """
    folder, config = request.folder, read_config(request.folder)
    summary, rows = read_answers(folder)
    if summary["metrics"]["exact_match"]["value"] is None or not rows:
        raise problem_error(folder, "TP083", what="The run's evaluation contains no answers.")
    config = config.changed(evaluation={"eval_set": summary["eval_set"]["name"]})
    digest = run_sha256(folder) or ""
    seed = int(digest[:8], 16) if request.seed is None else request.seed
    chosen = random.Random(f"{seed} {digest}").sample(rows, min(request.again, len(rows)))  # noqa: S311 - no secret
    if request.items is None:
        questions, dropped = generate_questions(config, request.generate, seed)
    else:
        questions, dropped = read_questions(request.items, config)
    scoring = read_scoring(summary)
    if unreadable := unreadable_items(questions, scoring):
        raise ProblemError(unreadable, exit_code=2)
    on_event({"event": "planned", "segments": [], "items": len(rows), "questions": len(questions.rows)})
    devices = available_devices(config, watch)
    task = Task.of(config, find_model(folder, config, request.model), build_mesh(devices.list))
    manifest = read_manifest(folder)
    refuse_other_base(manifest, task, file=str(folder), trains=False)
    params, name = load_run_params(folder, task, sha256=summary["checkpoint"]["params_sha256"])
    watch.say(f"loaded the parameters that gave the stated answers from {name}")
    sampler = read_sampler(folder, task, None, scoring)

    def progress(event: str, what: str) -> Callable[[int, int], None]:
        def done(count: int, total: int) -> None:
            watch.done(what, count, total)
            on_event({"event": event, "done": count, "of": total})

        return done

    again = verify_answers(
        sampler,
        params,
        rows,
        recorded_items(summary, rows),
        regenerate={row["id"] for row in chosen},
        platforms={devices.platform, manifest["devices"]["platform"]},
        progress=progress("items", "stated answers verified"),
    )
    answers, count = list[dict[str, Any]](), progress("questions", "questions")
    for row in answer_items(sampler, params, questions.rows, sampler.encode_prompts(questions)):
        answers.append(row)
        count(len(answers), len(questions.rows))
    asked = {
        "source": "generated" if request.items is None else "file",
        "name": questions.name,
        "seed": seed if request.items is None else None,
        "n": len(questions.rows),
        "sha256": questions.sha256,
        "in_training": dropped,
    }
    groups = receipt_groups(summary, asked, answers, again)
    return build_receipt(folder, "challenge", device=devices.document(), **groups)


def generate_questions(config: Config, count: int, seed: int) -> tuple[RowFile, int | None]:
    """Generate questions of the kinds in a run's evaluation set, or else in its dataset.

    Also return how many were dropped because a training row has the same, or None if the rows are not on this machine.
    """
    training, name = _training_questions(config), config.evaluation.eval_set
    try:
        drawn = fresh_items(name, config.data.dataset, count, seed, training=training or ())
    except ValueError as error:
        what = f"--generate is {count:,}, and the generator has fewer new questions: {error}"
        raise problem_error(file="--generate", code="TP059", what=what) from error
    if drawn is None:
        what = f"Neither the evaluation set {name} nor the dataset {config.data.dataset} is built in."
        raise problem_error(file="--generate", code="TP059", what=what)
    items, dropped = drawn
    name, lines, sha256 = f"{count} generated, seed {seed}", tuple(range(1, len(items) + 1)), sha256_json(items)
    file = RowFile(name=name, path=Path("--generate"), rows=tuple(items), lines=lines, sha256=sha256, warnings=())
    return file, None if training is None else dropped


def read_questions(path: Path, config: Config) -> tuple[RowFile, int | None]:
    """Read questions from a file, without those that occur in training; see `generate_questions`."""
    file, training = read_eval_set(str(path)), _training_questions(config)
    if training is None:
        return file, None
    seen = set(map(prompt_key, training))
    new = [place for place, item in enumerate(file.rows) if prompt_key(item["prompt"]) not in seen]
    if not new:
        what = f"All {len(file.rows):,} questions of {path} occur in the training rows."
        raise problem_error(path, "TP059", what=what)
    return select_rows(file, new), len(file.rows) - len(new)


def _training_questions(config: Config) -> set[str] | None:
    """Return the prompts of a run's training rows, or None if the rows are not on this machine."""
    try:
        _, rows = read_training_rows(config)
    except ProblemError:
        return None
    return {row_texts(row)[0][0] for row in rows}
