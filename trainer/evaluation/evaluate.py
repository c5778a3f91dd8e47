"""Answering an evaluation set: every output written as it comes, every score computed from what was written.

Scoring rules stand in `evidence.scores.reading`, sums in `evidence.scores.recompute`, so a checker computes the same.
Decoding is `trainer.generate.decode`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from evidence import layout
from evidence.hashes import sha256_file, sha256_json, sha256_lines
from evidence.scores.reading import Scoring, accepted_answers, expected_line, read_scoring
from evidence.scores.recompute import MORE_SAMPLES, compute_scores, majority_fields
from evidence.writing import RowWriter
from schemas.catalog import VERSION
from schemas.reading import read_rows
from schemas.validate import read_document
from trainer.data.answers import SCORING, scoring_document
from trainer.data.rows import AS_WRITTEN, WITH_NEWLINE
from trainer.data.answers import unwritable_items
from trainer.data.conversations import FORM, PromptForm
from trainer.data.rows import RowFile
from trainer.evaluation.sampler import Sampler
from trainer.generate.decode import Completion
from trainer.model.params import Params
from trainer.recorder.recorder import now

EVALUATED = "evaluated"
"""Event of the log that states a run's score."""


@dataclass(frozen=True, kw_only=True)
class PredictionsFile:
    """One model's answers to a set, complete or up to where it was stopped."""

    complete: bool
    started_at: str
    finished_at: str
    rows: tuple[dict[str, Any], ...]
    path: Path


@dataclass(frozen=True, kw_only=True)
class ModelAnswers:
    """One model's answers, and which parameters gave them."""

    evaluated: PredictionsFile
    checkpoint: dict[str, Any]

    @property
    def seconds(self) -> float:
        """How long it took to make them."""
        began, ended = (datetime.fromisoformat(at) for at in (self.evaluated.started_at, self.evaluated.finished_at))
        return (ended - began).total_seconds()


def is_evaluated(folder: Path) -> bool:
    """Return whether a run has an evaluation; one that was stopped before every item was answered does not count yet.

    Where the log states the score of a part, the whole would contradict it.
    """
    stated = stated_evaluation(folder)
    if stated is None:
        return False
    logged = (record["event"] for record in read_rows(folder / layout.LOG, "log_record").values)
    return stated.get("status") != "partial" or EVALUATED in logged


def stated_evaluation(folder: Path) -> dict[str, Any] | None:
    """Return the eval_summary.json of a run folder, or None if it is missing.

    It is empty if the file is not a JSON object.
    """
    document = read_document(folder / layout.EVAL_SUMMARY, "eval_summary")
    if (folder / layout.EVAL_SUMMARY).exists():
        return document.value or {}
    return None


def stated_form(folder: Path) -> PromptForm | None:
    """Return the form in which a run's model was taught to be prompted, None where its log does not state it."""
    stated = [row["fields"] for row in read_rows(folder / layout.LOG, "log_record").values if row["event"] == FORM]
    if not stated:
        return None
    conversation, system = stated[-1].get("conversation") is True, stated[-1].get("system")
    template = stated[-1].get("template", AS_WRITTEN if conversation else WITH_NEWLINE)
    thinks = stated[-1].get("thinks")
    return PromptForm(
        conversation=conversation,
        system=system if isinstance(system, str) else None,
        template=template if isinstance(template, str) else AS_WRITTEN,
        thinks=thinks if isinstance(thinks, bool) else None if conversation else False,
    )


def stated_scoring(folder: Path) -> Scoring | None:
    """Return how the answers of a run are read, or None if its log does not state it: then the rows decide."""
    stated = [row["fields"] for row in read_rows(folder / layout.LOG, "log_record").values if row["event"] == SCORING]
    return read_scoring({"scoring": stated[-1]}) if stated else None


def answer_set(
    items: RowFile,
    sampler: Sampler,
    params: Params,
    *,
    path: Path,
    stop_now: Callable[[], str | None],
    progress: Callable[[int, int], None],
) -> PredictionsFile:
    """Answer every item in order and append a row each to `path`.

    Args:
        items: the evaluation set.
        sampler: how it is put to the model. A prompt without room for an output is an error of its row, and so is one
            without a token, which leaves nothing to continue.
        params: the model.
        path: file for the prediction rows.
        stop_now: called before each item; a reason ends the evaluation early.
        progress: called with items done and items in all.
    """
    started_at = now()
    prompts = sampler.prompts_of(items)
    roomy = {item["id"]: prompt for item, prompt in zip(items.rows, prompts, strict=True) if sampler.has_room(prompt)}
    completions = sampler.answer(params, roomy)
    rows: list[dict[str, Any]] = []
    with RowWriter(path) as writer:
        for item, prompt in zip(items.rows, prompts, strict=True):
            if stop_now():
                break
            if sampler.has_room(prompt):
                row = prediction_row(item, next(completions), sampler)
            else:
                row = unanswered_row(item, prompt_tokens=len(prompt), max_prompt_tokens=sampler.max_prompt_tokens)
            writer.append(row)
            rows.append(row)
            progress(len(rows), len(items.rows))
    return PredictionsFile(
        complete=len(rows) == len(items.rows), started_at=started_at, finished_at=now(), rows=tuple(rows), path=path
    )


def prediction_row(item: dict[str, Any], outputs: Sequence[Completion], sampler: Sampler) -> dict[str, Any]:
    """Return the row of an answered item: its own fields are of the first sample.

    The first is one draw, as a user gets it: its score is an unbiased pass@1, and one text has one verdict and one
    length. The majority has no text of its own, and its score depends on how many samples there are.
    """
    first, *others = (sample_of(item, output, sampler) for output in outputs)
    row = identity(item) | first | {"error": None}
    if not others:
        return row
    answers = [each["extracted_answer"] for each in (first, *others)]
    return row | {MORE_SAMPLES: others} | majority_fields(answers, sampler.scoring, accepted_answers(item))


def sample_of(item: dict[str, Any], output: Completion, sampler: Sampler) -> dict[str, Any]:
    """Return what a row states of one answer."""
    text = sampler.text_of(output.tokens)
    return {
        "output_text": text,
        **sampler.scoring.verdict(text, output.finish_reason, accepted_answers(item), stop=sampler.settings.stop),
        "output_tokens": len(output.tokens),
        "finish_reason": output.finish_reason,
        "output_token_ids": " ".join(map(str, output.tokens)),
    }


def unanswered_row(item: dict[str, Any], *, prompt_tokens: int, max_prompt_tokens: int) -> dict[str, Any]:
    """Return the row of an item that the model cannot answer: nothing to continue, or no room for it."""
    why = f"the prompt has {prompt_tokens} tokens; at most {max_prompt_tokens} leave room for an output"
    if prompt_tokens == 0:
        why = "the tokenizer finds no token in the prompt, so there is nothing to continue"
    return identity(item) | {
        "output_text": "",
        "extracted_answer": None,
        "correct": False,
        "format_ok": False,
        "lenient_correct": False,
        "output_tokens": 0,
        "finish_reason": "error",
        "error": why,
    }


def identity(item: dict[str, Any]) -> dict[str, Any]:
    """Return what a row repeats of its item; items that share a group are not independent."""
    group = {"group": item["group"]} if "group" in item else {}
    expected, *others = accepted_answers(item)
    also = {"also_expected": others} if others else {}
    return (
        group
        | also
        | {
            "id": item["id"],
            "prompt": item["prompt"],
            "expected": expected,
            "section": item.get("section"),
            "category": item.get("category"),
            "difficulty": item.get("difficulty"),
        }
    )


def generation_of(sampler: Sampler) -> dict[str, Any]:
    """Return how a model is prompted, as `eval_summary.json` states it."""
    of = sampler.settings
    drawn = {"samples": of.samples, "seed": sampler.seed} | {
        key: getattr(of, key) for key in ("temperature", "top_k", "top_p")
    }
    generation = {
        "method": "greedy" if of.samples == 1 else "sampled",
        **(drawn if of.samples > 1 else {}),
        **({} if of.stop is None else {"stop": of.stop}),
        "max_new_tokens": of.max_new_tokens,
        "stop_token_id": sampler.stop_token_id,
        "prompt_template": sampler.prompt_template,
    }
    return generation | {"sha256": sha256_json(generation)}


def summary_of(
    trained: ModelAnswers,
    baseline: ModelAnswers | None,
    *,
    run_id: str,
    items: RowFile,
    sampler: Sampler,
) -> dict[str, Any]:
    """Return the document `eval_summary.json`."""
    complete = trained.evaluated.complete and (baseline is None or baseline.evaluated.complete)
    unwritable = unwritable_items(items.rows, sampler.tokenizer, sampler.scoring)
    return {
        "schema_version": VERSION,
        "run_id": run_id,
        "status": "complete" if complete else "partial",
        "started_at": trained.evaluated.started_at,
        "finished_at": trained.evaluated.finished_at,
        "eval_set": {
            "name": items.name,
            "items": len(items.rows),
            "sha256": items.sha256,
            "ids_sha256": sha256_lines(item["id"] for item in items.rows),
            "prompts_sha256": sha256_lines(item["prompt"] for item in items.rows),
            "expected_sha256": sha256_lines(map(expected_line, items.rows)),
            **({"items_unwritable": len(unwritable)} if unwritable else {}),
        },
        "generation": generation_of(sampler),
        "scoring": scoring_document(sampler.scoring),
        **score(trained, sampler.settings.samples),
        "baseline": None if baseline is None else score(baseline, sampler.settings.samples),
    }


def score(answered: ModelAnswers, samples: int) -> dict[str, Any]:
    """Return which parameters answered, the file of the answers, and the scores that follow from it."""
    evaluated = answered.evaluated
    return {
        "checkpoint": answered.checkpoint,
        "predictions": {
            "path": evaluated.path.name,
            "rows": len(evaluated.rows),
            "sha256": sha256_file(evaluated.path),
        },
        **compute_scores(evaluated.rows, samples),
    }
