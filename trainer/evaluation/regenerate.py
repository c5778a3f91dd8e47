"""Answering items of an evaluation again, and holding the answers against those that a run states.

The same program on the same kind of machine gives the same bits. Elsewhere two nearly equally likely tokens may
change places, and the rest of an answer with them. The stated answer is then followed in one pass: every token of it
must be one that these weights could have taken, within what other hardware was measured to change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from evidence import layout
from evidence.scores.reading import Scoring, accepted_answers
from evidence.scores.recompute import iter_answers, majority_fields
from schemas.catalog import EVAL_SETS
from trainer.data.rows import RowFile, read_eval_set
from trainer.evaluation.evaluate import identity, prediction_row, unanswered_row
from trainer.evaluation.one_pass import AnswerTrace, follow_texts
from trainer.evaluation.sampler import Sampler
from trainer.evaluation.tolerance import allowed_margin
from trainer.generate.sampling import DrawKeys
from trainer.model.stacks import Params

Verdict = Literal["identical", "within tolerance", "followed", "different"]
"""`followed`: not written anew; each token of the stated answer is one that the model takes."""


@dataclass(frozen=True, kw_only=True)
class RepeatedAnswer:
    """One item, answered again."""

    id: str
    verdict: Verdict
    why: str
    """What differs, in a sentence; empty where nothing does."""
    expected: str
    """The right answer."""
    stated_text: str
    """What the run states that the model wrote."""
    found_text: str
    """What the model wrote now."""


def set_of(summary: Mapping[str, Any], rows: Sequence[dict[str, Any]]) -> RowFile:
    """Return the set that a run was evaluated on: the built-in one, or as its answers repeat it."""
    name = summary["eval_set"]["name"]
    if name in EVAL_SETS:
        return read_eval_set(name)
    items = tuple({key: value for key, value in identity(row).items() if value is not None} for row in rows)
    lines = tuple(range(1, len(items) + 1))
    return RowFile(name=name, path=Path(layout.PREDICTIONS), rows=items, lines=lines, sha256="", warnings=())


def reanswer(
    sampler: Sampler,
    params: Params,
    stated: Sequence[dict[str, Any]],
    items: RowFile,
    *,
    platforms: Collection[str] = (),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[RepeatedAnswer, ...]:
    """Answer items again and return how each answer compares with the stated one, in the order of `stated`.

    Args:
        sampler: the sampler of the run.
        params: the model.
        stated: prediction rows of the run, all or some.
        items: the whole set that the run was evaluated on, which decides the program that answers.
        platforms: where the stated answers were given and where these are: cpu, gpu or tpu.
        progress: called with items done and items in all.
    """
    prompts = dict(zip((item["id"] for item in items.rows), sampler.prompts_of(items), strict=True))
    by_id = {item["id"]: item for item in items.rows}
    known = [row for row in stated if row["id"] in prompts]
    roomy = {row["id"]: prompts[row["id"]] for row in known if sampler.has_room(prompts[row["id"]])}
    completions = sampler.answer(params, roomy, like=[each for each in prompts.values() if sampler.has_room(each)])
    found: dict[str, dict[str, Any]] = {}
    for each in dict.fromkeys(row["id"] for row in known):
        item, prompt = by_id[each], prompts[each]
        if each in roomy:
            found[each] = prediction_row(item, next(completions), sampler)
        else:
            most = sampler.max_prompt_tokens
            found[each] = unanswered_row(item, prompt_tokens=len(prompt), max_prompt_tokens=most)
        progress(len(found), len(stated))
    return compare_answers(sampler, params, stated, found, prompts, platforms)


def compare_answers(
    sampler: Sampler,
    params: Params,
    stated: Sequence[dict[str, Any]],
    found: Mapping[str, dict[str, Any]],
    prompts: Mapping[str, list[int]],
    platforms: Collection[str],
) -> tuple[RepeatedAnswer, ...]:
    """Return how stated answers compare with those found; ones of other bits are followed in one pass.

    Args:
        sampler: the sampler of the run.
        params: the model.
        stated: rows of the run.
        found: rows of now, by item.
        prompts: in token ids, by item.
        platforms: where both were computed.
    """
    others = [row for row in stated if row["id"] in found and not is_same(row, found[row["id"]])]
    traces = traces_of(others, prompts, sampler, params)
    return tuple(
        judge(row, found.get(row["id"]), traces.get(row["id"], ()), platforms, sampler.scoring, sampler.settings.stop)
        for row in stated
    )


def traces_of(
    rows: Sequence[dict[str, Any]], prompts: Mapping[str, list[int]], sampler: Sampler, params: Params
) -> dict[str, list[AnswerTrace]]:
    """Return how the model follows every answer that rows state, by item.

    Items of which not every answer can be followed, or that have another number of them than are drawn, are left out.
    """
    vocab, samples = params["tokens.table"].shape[0], sampler.settings.samples
    asked: dict[str, list[list[int]]] = {}
    for row in rows:
        tokens = [stated_tokens(each, sampler, vocab=vocab) for each in iter_answers(row)]
        whole = [each for each in tokens if each is not None]
        if len(whole) == len(tokens) == samples and sampler.has_room(prompts[row["id"]]):
            asked[row["id"]] = whole
    traces = follow_texts(
        sampler.graphdef,
        params,
        [(prompts[each], answer) for each, answers in asked.items() for answer in answers],
        batch_size=sampler.settings.batch_size,
        drawing=None
        if sampler.sampling is None or not asked
        else DrawKeys(keys=sampler.keys_of(list(asked)).reshape(-1, 1), sampling=sampler.sampling),
        options=sampler.options,
    )
    return {each: [next(traces) for _ in range(samples)] for each in asked}


def stated_tokens(row: Mapping[str, Any], sampler: Sampler, *, vocab: int) -> list[int] | None:
    """Return the tokens of a stated answer, cut from its text where the row does not state them.

    None: they are not the tokens of such an answer. One that ended has the end token last and nowhere else; one that
    was cut off has as many tokens as were allowed; their text is the one stated.
    """
    if row["error"] is not None:
        return None
    end, ended = sampler.stop_token_id, row["finish_reason"] == "stop"
    if "output_token_ids" in row:
        tokens = [int(each) for each in row["output_token_ids"].split()]
    else:
        tokens = [*sampler.tokenizer.encode(row["output_text"], add_special_tokens=False), *[end] * ended]
    if not tokens or max(tokens) >= vocab or len(tokens) != row["output_tokens"]:
        return None
    stopped = sampler.tokens_to_stop(tokens)
    if ended and end not in tokens:
        whole = stopped == len(tokens)
    elif ended:
        whole = tokens.index(end) == len(tokens) - 1 and stopped in (None, len(tokens))
    else:
        whole = end not in tokens and len(tokens) == sampler.settings.max_new_tokens and stopped is None
    return tokens if whole and sampler.text_of(tokens) == row["output_text"] else None


def judge(
    stated: dict[str, Any],
    found: dict[str, Any] | None,
    traces: Sequence[AnswerTrace],
    platforms: Collection[str],
    scoring: Scoring,
    stop: str | None = None,
) -> RepeatedAnswer:
    """Return the verdict on one stated answer.

    Args:
        stated: the run's row.
        found: the row of now. None: the set has no such item.
        traces: how the model follows each stated answer. Empty: they are the same, or one cannot be followed.
        platforms: where both were computed.
        scoring: how answers are read.
        stop: the text that ends an output.
    """
    if found is not None and is_same(stated, found):
        verdict: Verdict = "identical"
        why = ""
    else:
        why = other_item(stated, found) or other_scores(stated, scoring, stop)
        if not why and not traces:
            why = "The stated answer is not one that the model's tokens can be."
        if not why:
            why = differences(stated, traces, platforms)
        verdict = "different" if why else "within tolerance"
    return RepeatedAnswer(
        id=stated["id"],
        verdict=verdict,
        why=why,
        expected=stated["expected"],
        stated_text=stated["output_text"],
        found_text="" if found is None else found["output_text"],
    )


def is_same(stated: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Return whether a stated row is the one found; fields that it does not state are not compared."""
    return all(stated[key] == value for key, value in found.items() if key in stated)


def other_item(stated: dict[str, Any], found: dict[str, Any] | None) -> str:
    """Return in which way a row repeats another item than the set holds; empty if it does not."""
    if found is None:
        return "The evaluation set has no item of this id."
    for key, value in identity(found).items():
        if stated.get(key) != value:
            return f"The set states {key} {value!r}, and the run {stated.get(key)!r}."
    return ""


def other_scores(stated: dict[str, Any], scoring: Scoring, stop: str | None = None) -> str:
    """Return in which way an answer was scored otherwise than its text states; empty if it was not."""
    if stated["error"] is not None:
        return f"The run states an error ({stated['error']}), and the model answers."
    answers = list(iter_answers(stated))
    accepted = accepted_answers(stated)
    verdicts = [scoring.verdict(each["output_text"], each["finish_reason"], accepted, stop=stop) for each in answers]
    for answer, verdict in zip(answers, verdicts, strict=True):
        for key, value in verdict.items():
            if key in answer and answer[key] != value:
                return f"By its text, {key} is {value!r}; the run states {answer[key]!r}."
    majority = majority_fields([each["extracted_answer"] for each in verdicts], scoring, accepted)
    for key, value in majority.items() if len(answers) > 1 else ():
        if stated.get(key) != value:
            return f"By its samples, {key} is {value!r}; the run states {stated.get(key)!r}."
    return ""


def differences(stated: dict[str, Any], traces: Sequence[AnswerTrace], platforms: Collection[str]) -> str:
    """Return why the model did not give one of the stated answers, of the first that it did not give, or ""."""
    found = (difference(trace, platforms) for _, trace in zip(iter_answers(stated), traces, strict=True))
    return next(filter(None, found), "")


def difference(passed: AnswerTrace, platforms: Collection[str]) -> str:
    """Return why the model did not give a stated answer, or "" if it may have given it."""
    most = allowed_margin(str(passed.states.dtype), platforms)
    at, worst = int(passed.margins.argmax()), float(passed.margins.max())
    if worst > most:
        return (
            f"The model does not write this: token {at + 1} of the stated answer has a logit {worst:.3g} below the "
            f"largest; other hardware gives at most {most:g}."
        )
    return ""
