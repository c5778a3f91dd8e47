"""TP4xx: numbers that agree with each other and still cannot come from a run that did what it was for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from evidence.records.facts import Document, Facts, finding, same, value_at, where
from evidence.run import layout
from evidence.scores.clusters import BY_PROMPT
from evidence.scores.reading import accepted_of
from schemas.formats import join_words, quantity
from schemas.problems import Problem

_EMPTY = hashlib.sha256(b"").hexdigest()
_FEWEST_TO_COMPARE = 5
"""Rows or items from which on equal values are not coincidence."""
_ADAMW_BYTES = {None: 4.0, "float32": 8.0, "bfloat16": 4.0, "int8": 2.0}
"""Smallest AdamW state per parameter, two moments, by the type that a manifest states of it."""


def loss_is_a_cross_entropy(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for a loss below 0, of exactly 0, or equal in every row; a policy's loss may be any of them."""
    if facts.draws_completions:
        return
    losses, steps = facts.columns["loss"], facts.columns["step"]
    for rule, wrong in (("TP403", where(losses < 0)), ("TP401", where(losses == 0))):
        if wrong:
            first = wrong[0]
            what = f"The loss at step {steps[first]:.0f} is {losses[first]:g}{_and_more(len(wrong))}."
            yield finding(facts.folder, rule, layout.METRICS, what, line=first + 1, pointer="/loss")
    stated = losses[np.isfinite(losses)]
    if len(stated) >= _FEWEST_TO_COMPARE and (stated == stated[0]).all() and stated[0] != 0:
        what = f"The loss is {stated[0]:g} in all {len(stated)} rows."
        yield finding(facts.folder, "TP402", layout.METRICS, what, pointer="/loss")


def gradients_reach_the_model(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where every row has a gradient, or a learning rate, of exactly 0."""
    rates, norms = facts.columns["learning_rate"], facts.columns["grad_norm"]
    if len(rates) >= _FEWEST_TO_COMPARE and not rates.any():
        what = f"learning_rate is 0 in all {len(rates)} rows."
        yield finding(facts.folder, "TP413", layout.METRICS, what, pointer="/learning_rate")
    if len(norms) and not norms.any() and not _nothing_to_learn(facts):
        what = f"grad_norm is 0 in all {len(norms)} rows."
        yield finding(facts.folder, "TP404", layout.METRICS, what, pointer="/grad_norm")


def examples_teach_the_answer(facts: Facts) -> Iterator[Problem]:
    """Yield problems for training examples that cannot teach what is evaluated; prompts alone teach nothing."""
    if facts.first_examples is None or facts.draws_completions:
        return
    counts = facts.first_examples["counts"]
    if counts["rows_without_answer"] > 0:
        what = f"{counts['rows_without_answer']} of {counts['rows']} rows do not supervise their answer."
        yield _example(facts, "TP405", what, "/counts/rows_without_answer")
    if not counts["end_token_supervised"]:
        yield _example(facts, "TP406", "The end token is not supervised in every row.", "/counts/end_token_supervised")
    if counts["supervised_tokens"] == 0:
        yield _example(facts, "TP407", "No token of the data is supervised.", "/counts/supervised_tokens")
    for index, example in enumerate(facts.first_examples["examples"]):
        if counts["supervised_tokens"] > 0 and not any(token["supervised"] for token in example["tokens"]):
            what = f"No token of row {example['row']} is supervised."
            yield _example(facts, "TP407", what, f"/examples/{index}/tokens")
            return


def cut_in_words(counts: Document, max_length: int | None) -> str:
    """Return how many examples are cut and, as far as the counts of `first_examples.json` state it, what that loses."""
    what = "" if max_length is None else f"data.max_length is {max_length}, but "
    what += f"{counts['truncated_rows']:,} of {counts['rows']:,} examples lose their answer or its end at that length"
    if lost := counts.get("supervised_tokens_lost"):
        what += f"; {lost / (counts['supervised_tokens'] + lost):.1%} of the supervised tokens are cut off"
    longest = counts.get("longest_row_tokens")
    return f"{what}." if longest is None else f"{what}. The longest example has {longest:,} tokens."


def rows_are_learned_whole(facts: Facts) -> Iterator[Problem]:
    """Yield warnings where rows were cut, or their tokens spell another text."""
    if facts.first_examples is None:
        return
    counts = facts.first_examples["counts"]
    if 0 < counts["truncated_rows"] <= counts["rows"]:
        what = cut_in_words(counts, (facts.config or {}).get("data", {}).get("max_length"))
        yield _example(facts, "TP455", what, "/counts/truncated_rows")
    if others := counts.get("rows_written_otherwise"):
        what = f"{others:,} of {quantity(counts['rows'], 'row')} are learned otherwise than they are written."
        yield _example(facts, "TP456", what, "/counts/rows_written_otherwise")


def same_prompts(items: Sequence[Document]) -> str | None:
    """Return in words how many items repeat a prompt, and how many of them expect another answer; None if none does."""
    first: dict[str, Document] = {}
    pairs = ((item, first.setdefault(item["prompt"].strip(), item)) for item in items)
    again = [(item, before) for item, before in pairs if item["id"] != before["id"]]
    other = sum(set(accepted_of(item)).isdisjoint(accepted_of(before)) for item, before in again)
    if not again:
        return None
    named = join_words([f"{item['id']} that of {before['id']}" for item, before in again[:3]], last="and")
    apart = f", {other:,} of them with another expected answer" if other else ""
    return f"{len(again):,} of {len(items):,} items repeat the prompt of another{apart}, such as {named}."


def caveats_of(summary: Document | None) -> Iterator[tuple[str, str]]:
    """Yield what must be known beside the score of an eval_summary.json: what was not asked or cannot be right."""
    if summary is None:
        return
    metric, n = summary["metrics"]["exact_match"], f"{summary['metrics']['exact_match']['n']:,}"
    if metric["n_errors"]:
        yield "TP457", f"{metric['n_errors']:,} of {n} items could not be asked and count as wrong"
    if unwritable := summary["eval_set"].get("items_unwritable"):
        yield "TP459", f"{unwritable:,} of {n} items expect an answer that the tokenizer writes otherwise"
    if metric["interval"] and metric["interval"]["method"] == BY_PROMPT:
        clusters = metric.get("clusters", metric["n"])
        yield "TP458", f"items repeat prompts, so the interval counts {n} items as {clusters:,}"


def items_can_be_right(facts: Facts) -> Iterator[Problem]:
    """Yield warnings where items were not asked, share a prompt, or expect what the tokenizer cannot write."""
    found = dict(caveats_of(facts.eval_summary))
    if repeated := same_prompts(facts.predictions or ()):
        found["TP458"] = f"{found.get('TP458', 'the interval takes them as independent')}; {repeated}"
    for rule, said in found.items():
        yield finding(facts.folder, rule, layout.EVAL_SUMMARY, f"{said[0].upper()}{said[1:].removesuffix('.')}.")


def training_changes_parameters(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where the evaluated parameters are those before the first step."""
    if facts.eval_summary is None or facts.model is None or _nothing_to_learn(facts):
        return
    after = facts.eval_summary["checkpoint"]
    if after["step"] > 0 and after["params_sha256"] == facts.model["weights_sha256"]:
        what = f"The parameters after step {after['step']} have the hash of those before the first step."
        yield finding(facts.folder, "TP409", layout.EVAL_SUMMARY, what, pointer="/checkpoint/params_sha256")


def outputs_differ(facts: Facts) -> Iterator[Problem]:
    """Yield a warning where a full run gives the same output to every item; a smoke run may."""
    rows = facts.predictions or []
    if facts.manifest is None or facts.manifest["mode"] == "smoke" or len(rows) < _FEWEST_TO_COMPARE:
        return
    if len({row["prompt"] for row in rows}) > 1 and len({row["output_text"] for row in rows}) == 1:
        what = f"All {len(rows)} items got the same output."
        yield finding(facts.folder, "TP410", layout.PREDICTIONS, what, pointer="/output_text")


def hashes_are_of_something(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for each commit or hash that is that of nothing."""
    for name, document, pointers in (
        (layout.MANIFEST, facts.manifest, ("/code/commit", "/model/weights_sha256", "/dataset/sha256")),
        (layout.EVAL_SUMMARY, facts.eval_summary, ("/eval_set/sha256", "/checkpoint/params_sha256")),
    ):
        for pointer in pointers:
            value = _value_or_none(document, pointer)
            if value == _EMPTY or (isinstance(value, str) and not value.strip("0")):
                yield finding(facts.folder, "TP412", name, f"The value is {value}.", pointer=pointer)


def optimizer_state_fits(facts: Facts) -> Iterator[Problem]:
    """Yield problems where the state's size is not that of the optimizer, or its two figures disagree."""
    if facts.training is None or facts.model is None:
        return
    optimizer, parameters = facts.training["optimizer"], facts.model["trainable_parameters"]
    stated = optimizer["state_bytes_per_parameter"]
    if parameters and not same(optimizer["state_bytes"] / parameters, stated):
        what = f"{optimizer['state_bytes']} bytes for {parameters} trained parameters are not {stated:g} for each."
        yield _state(facts, what)
    elif optimizer["name"] == "adamw" and stated < _ADAMW_BYTES[optimizer.get("state")]:
        yield _state(facts, f"The state of adamw has {stated:g} bytes for each parameter.")


def _nothing_to_learn(facts: Facts) -> bool:
    """Return whether the rows state that no group of completions ever had a spread: no step then has a gradient."""
    return facts.draws_completions and all(row.get("flat_groups") == 1 for row in facts.metrics or ())


def _value_or_none(document: Document | None, pointer: str) -> Any:
    try:
        return value_at(document, pointer)
    except KeyError:
        return None


def _state(facts: Facts, what: str) -> Problem:
    pointer = "/training/optimizer/state_bytes_per_parameter"
    return finding(facts.folder, "TP411", layout.MANIFEST, what, pointer=pointer)


def _example(facts: Facts, code: str, what: str, pointer: str) -> Problem:
    return finding(facts.folder, code, layout.FIRST_EXAMPLES, what, pointer=pointer)


def _and_more(count: int) -> str:
    return f", and so in {count - 1} more rows" if count > 1 else ""


CHECKS = (
    loss_is_a_cross_entropy,
    gradients_reach_the_model,
    examples_teach_the_answer,
    rows_are_learned_whole,
    items_can_be_right,
    training_changes_parameters,
    hashes_are_of_something,
    outputs_differ,
    optimizer_state_fits,
)
