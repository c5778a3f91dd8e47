"""Every stated answer compared with the weights that are stated to have given it, in one pass over all of its tokens.

Writing an answer takes a step a token; following one that is stated takes one pass. So all answers are followed, and
only a few are written anew, for equal bits. An answer that cannot be followed is written anew before it is called
different: then both ways deny it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from trainer.data.rows import RowFile
from trainer.evaluation.evaluate import identity, unanswered_row
from trainer.evaluation.regenerate import (
    RepeatedAnswer,
    differences,
    is_same,
    other_item,
    other_scores,
    reanswer,
    traces_of,
)
from trainer.evaluation.sampler import Sampler
from trainer.model.stacks import Params

MOST_SHOWN = 20
"""Differences that a receipt lists."""


def given_again(
    sampler: Sampler,
    params: Params,
    stated: Sequence[dict[str, Any]],
    items: RowFile,
    *,
    anew: Collection[str],
    platforms: Collection[str] = (),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[RepeatedAnswer, ...]:
    """Return what came of every stated answer, in their order.

    Args:
        sampler: the sampler of the run.
        params: the model.
        stated: all rows of the run that it is stated to have answered.
        items: the whole set that the run was evaluated on.
        anew: ids of the answers that are written anew too, for equal bits.
        platforms: where the stated answers were given and where these are: cpu, gpu or tpu.
        progress: called with answers done and answers in all.
    """
    by_id = {item["id"]: item for item in items.rows}
    prompts = dict(zip(by_id, sampler.prompts_of(items), strict=True))
    rest = [row for row in stated if row["id"] not in anew]
    found: dict[str, RepeatedAnswer] = {}
    for row in (
        *rows_without_answer(rest, by_id, prompts, sampler),
        *rows_reproduced(rest, by_id, prompts, sampler, params, platforms),
    ):
        found[row["id"]] = as_stated(row)
        progress(len(found), len(stated))
    left, before = [row for row in stated if row["id"] not in found], len(found)
    if left:

        def done(count: int, total: int) -> None:
            progress(before + count, len(stated))

        again = reanswer(sampler, params, left, items, platforms=platforms, progress=done)
        found |= {each.id: each for each in again}
    return tuple(found[row["id"]] for row in stated)


def rows_without_answer(
    rows: Sequence[dict[str, Any]],
    items: Mapping[str, dict[str, Any]],
    prompts: Mapping[str, list[int]],
    sampler: Sampler,
) -> Iterator[dict[str, Any]]:
    """Yield the rows that state no answer, of items for whose answer there is no room."""
    for row in rows:
        prompt = prompts.get(row["id"])
        if prompt is None or sampler.has_room(prompt):
            continue
        most = sampler.max_prompt_tokens
        if is_same(row, unanswered_row(items[row["id"]], prompt_tokens=len(prompt), max_prompt_tokens=most)):
            yield row


def rows_reproduced(
    rows: Sequence[dict[str, Any]],
    items: Mapping[str, dict[str, Any]],
    prompts: Mapping[str, list[int]],
    sampler: Sampler,
    params: Params,
    platforms: Collection[str],
) -> Iterator[dict[str, Any]]:
    """Yield the rows whose answer the model takes, token by token."""
    known = []
    for row in rows:
        prompt = prompts.get(row["id"])
        if prompt is None or not sampler.has_room(prompt):
            continue
        if other_item(row, identity(items[row["id"]])) or other_scores(row, sampler.scoring, sampler.settings.stop):
            continue
        known.append(row)
    traces = traces_of(known, prompts, sampler, params)
    for row in known:
        if row["id"] in traces and not differences(row, traces[row["id"]], platforms):
            yield row


def as_stated(row: Mapping[str, Any]) -> RepeatedAnswer:
    """Return what came of an answer of which every token is one that the model takes."""
    return RepeatedAnswer(
        id=row["id"],
        verdict="followed",
        why="",
        expected=row["expected"],
        stated_text=row["output_text"],
        found_text=row["output_text"],
    )


def items_group(trained: Sequence[RepeatedAnswer], untrained: Sequence[RepeatedAnswer] = ()) -> dict[str, Any]:
    """Return a receipt's group `items`.

    `drawn` counts the answers that were written anew. `different` counts all that differ, and all of those were.
    """
    both = [*untrained, *trained]
    verdicts = Counter(each.verdict for each in both)
    group: dict[str, Any] = {
        "drawn": len(both) - verdicts["followed"],
        "identical": verdicts["identical"],
        "within_tolerance": verdicts["within tolerance"],
        "different": verdicts["different"],
        "trained": sum(each.verdict != "followed" for each in trained),
        "given_again": {
            "trained": sum(each.verdict != "different" for each in trained),
            "untrained": sum(each.verdict != "different" for each in untrained),
        },
    }
    if verdicts["different"]:
        others = [each for each in both if each.verdict == "different"]
        group["differences"] = [{"id": each.id, "why": each.why} for each in others[:MOST_SHOWN]]
    return group
