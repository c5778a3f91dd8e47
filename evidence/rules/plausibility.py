"""Check that figures can come from a real run, items are unseen, and built-in data and models are the real ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from evidence import registry
from evidence.layout import EVAL_SUMMARY, FIRST_EXAMPLES, MANIFEST, METRICS, PREDICTIONS
from evidence.rules.checker import Checker, ValidRun, rule
from evidence.rules.results import report_rows
from evidence.rules.scores import evaluated_models
from evidence.run import Document, Run, same
from evidence.scores.intervals import BY_PROMPT
from evidence.scores.overlap import Overlap, find_overlap, row_texts
from evidence.scores.reading import accepted_answers
from evidence.targets import find_target
from schemas.formats import join_words, quantity, size
from schemas.reading import get_path, parse_time

_EMPTY_HASH = hashlib.sha256(b"").hexdigest()
_FEWEST_TO_COMPARE = 5  # fewest rows or items whose equal values are not a coincidence
_ADAMW_BYTES = {None: 4.0, "float32": 8.0, "bfloat16": 4.0, "int8": 2.0}
"""Smallest AdamW state per parameter, two moments, by the type stated in the manifest."""
_FIRST_DAY = datetime(2025, 10, 1, tzinfo=UTC)  # no version of trainproof is older
_OPERATIONS = 2
"""Fewest operations per parameter and token: a token table may hold half of the parameters and is only looked up; the
other half takes two operations forward and two backward."""
_MEMORY_TOLERANCE = 0.1  # drivers and runtimes reserve different shares of the memory
_NEAR_BY_CHANCE = 0.05
"""Share of evaluation items that rows of the same templates may be near; 2 % at most in the built-in sets."""
_NAMED_ITEMS = 3


@rule("TP404", "metrics")
def learning(run: ValidRun, check: Checker) -> None:
    """Check that the loss can be a cross-entropy, if it is one, and that there are gradients and learning rates."""
    losses, rates, norms = (run.columns[name] for name in ("loss", "learning_rate", "grad_norm"))
    if not run.draws_completions:
        for code, wrong in (("TP403", losses < 0), ("TP401", losses == 0)):
            report_rows(check, wrong, "loss", "loss is {:g}.", losses, code=code)
        finite = losses[np.isfinite(losses)]
        if len(finite) >= _FEWEST_TO_COMPARE and finite[0] != 0:
            what = f"loss is {finite[0]:g} in all {len(finite)} rows."
            check.require((finite != finite[0]).any(), METRICS, what, "/loss", code="TP402")
    what = f"learning_rate is 0 in all {len(rates)} rows."
    check.require(len(rates) < _FEWEST_TO_COMPARE or rates.any(), METRICS, what, "/learning_rate", code="TP413")
    if len(norms) and not _nothing_to_learn(run):
        check.require(norms.any(), METRICS, f"grad_norm is 0 in all {len(norms)} rows.", "/grad_norm")


def _nothing_to_learn(run: Run) -> bool:
    """Return whether all groups of completions had equal rewards, so that no step has a gradient."""
    return run.draws_completions and all(row.get("flat_groups") == 1 for row in run.metrics or ())


@rule("TP407", "first_examples")
def examples(run: ValidRun, check: Checker) -> None:
    """Check that the training examples supervise their answers and their end, and are not truncated or changed."""
    counts = run.first_examples["counts"]
    rows, changed = counts["rows"], counts.get("rows_written_otherwise")

    def require(condition: object, pointer: str, what: str, code: str | None = None) -> None:
        check.require(condition, FIRST_EXAMPLES, what, pointer, code=code)

    if not run.draws_completions:
        unanswered, has_tokens = counts["rows_without_answer"], counts["supervised_tokens"] != 0
        what = f"{unanswered} of {rows} rows do not supervise their answer."
        require(unanswered <= 0, "/counts/rows_without_answer", what, "TP405")
        what = "The end token is not supervised in every row."
        require(counts["end_token_supervised"], "/counts/end_token_supervised", what, "TP406")
        require(has_tokens, "/counts/supervised_tokens", "No token of the data is supervised.")
        for index, example in enumerate(run.first_examples["examples"] if has_tokens else ()):
            is_supervised = any(token["supervised"] for token in example["tokens"])
            require(is_supervised, f"/examples/{index}/tokens", f"No token of row {example['row']} is supervised.")
    what = describe_truncation(counts, get_path(run.config, "data", "max_length"))
    require(not 0 < counts["truncated_rows"] <= rows, "/counts/truncated_rows", what, "TP455")
    what = f"The tokenizer changes the text of {changed or 0:,} of {quantity(rows, 'row')}."
    require(not changed, "/counts/rows_written_otherwise", what, "TP456")


def describe_truncation(counts: Document, max_length: int | None) -> str:
    """Describe how many examples are truncated and what that loses, from the counts of first_examples.json."""
    what = "" if max_length is None else f"data.max_length is {max_length}, but "
    what += f"{counts['truncated_rows']:,} of {counts['rows']:,} examples lose their answer or its end at that length"
    if lost := counts.get("supervised_tokens_lost"):
        what += f"; {lost / (counts['supervised_tokens'] + lost):.1%} of the supervised tokens are cut off"
    longest = counts.get("longest_row_tokens")
    return f"{what}." if longest is None else f"{what}. The longest example has {longest:,} tokens."


@rule("TP458", "eval_summary")
def items(run: ValidRun, check: Checker) -> None:
    """Warn about items that could not be evaluated, share a prompt, or have answers that the tokenizer changes."""
    found = dict(score_caveats(run.eval_summary))
    if repeated := describe_repeated_prompts(run.predictions or ()):
        found["TP458"] = f"{found.get('TP458', 'the interval takes them as independent')}; {repeated}"
    for code, what in found.items():
        check.report(EVAL_SUMMARY, f"{what[0].upper()}{what[1:].removesuffix('.')}.", code=code)


def score_caveats(summary: Document | None) -> Iterator[tuple[str, str]]:
    """Yield code and text of the reservations about the score in an eval_summary.json."""
    if summary is None:
        return
    metric, n = summary["metrics"]["exact_match"], f"{summary['metrics']['exact_match']['n']:,}"
    if metric["n_errors"]:
        yield "TP457", f"{metric['n_errors']:,} of {n} items could not be evaluated and count as wrong"
    if unwritable := summary["eval_set"].get("items_unwritable"):
        yield "TP459", f"{unwritable:,} of {n} items expect an answer that the tokenizer changes"
    if metric["interval"] and metric["interval"]["method"] == BY_PROMPT:
        clusters = metric.get("clusters", metric["n"])
        yield "TP458", f"items repeat prompts, so the interval counts {n} items as {clusters:,}"


def describe_repeated_prompts(rows: Sequence[Document]) -> str | None:
    """Describe the items that repeat an earlier prompt, or return None if all prompts differ."""
    first: dict[str, Document] = {}
    pairs = ((item, first.setdefault(item["prompt"].strip(), item)) for item in rows)
    repeated = [(item, before) for item, before in pairs if item["id"] != before["id"]]
    if not repeated:
        return None
    other = sum(set(accepted_answers(item)).isdisjoint(accepted_answers(before)) for item, before in repeated)
    pairs_shown = join_words([f"{item['id']} ({before['id']})" for item, before in repeated[:_NAMED_ITEMS]], last="and")
    differ = f", {other:,} with another expected answer" if other else ""
    return f"{len(repeated):,} of {len(rows):,} items repeat an earlier prompt{differ}: {pairs_shown}."


@rule("TP409", "eval_summary", "model")
def changed_parameters(run: ValidRun, check: Checker) -> None:
    """Check that the evaluated parameters differ from those before the first step."""
    after = run.eval_summary["checkpoint"]
    is_same = after["step"] > 0 and after["params_sha256"] == run.model["weights_sha256"]
    what = f"The parameters after step {after['step']} are those before the first step."
    check.require(not is_same or _nothing_to_learn(run), EVAL_SUMMARY, what, "/checkpoint/params_sha256")


@rule("TP410", "predictions", "manifest")
def constant_output(run: ValidRun, check: Checker) -> None:
    """Warn if a full run gives the same output to every prompt."""
    rows = run.predictions if run.manifest["mode"] != "smoke" else ()
    if len(rows) >= _FEWEST_TO_COMPARE and len({row["prompt"] for row in rows}) > 1:
        is_constant = len({row["output_text"] for row in rows}) == 1
        check.require(not is_constant, PREDICTIONS, f"All {len(rows)} items got the same output.", "/output_text")


@rule("TP412")
def empty_hashes(run: ValidRun, check: Checker) -> None:
    """Check that no commit or hash is zero, or the hash of an empty file."""
    for file, document, paths in (
        (MANIFEST, run.manifest, ("code/commit", "model/weights_sha256", "dataset/sha256")),
        (EVAL_SUMMARY, run.eval_summary, ("eval_set/sha256", "checkpoint/params_sha256")),
    ):
        for path in paths:
            value = get_path(document, *path.split("/"))
            is_empty = value == _EMPTY_HASH or (isinstance(value, str) and not value.strip("0"))
            check.require(not is_empty, file, f"{path.replace('/', '.')} is {value}.", f"/{path}")


@rule("TP411", "training", "model")
def optimizer_state(run: ValidRun, check: Checker) -> None:
    """Check the size of the optimizer state with the number of parameters and the optimizer."""
    optimizer, parameters = run.training["optimizer"], run.model["trainable_parameters"]
    stated, pointer = optimizer["state_bytes_per_parameter"], "/training/optimizer/state_bytes_per_parameter"
    if parameters and not same(optimizer["state_bytes"] / parameters, stated):
        what = f"{optimizer['state_bytes']} bytes for {parameters} parameters are not {stated:g} per parameter."
        check.report(MANIFEST, what, pointer)
    elif optimizer["name"] == "adamw":
        what = f"The AdamW state has {stated:g} bytes per parameter."
        check.require(stated >= _ADAMW_BYTES[optimizer.get("state")], MANIFEST, what, pointer)


@rule("TP416", "training", "model")
def device_limits(run: ValidRun, check: Checker) -> None:
    """Compare speed, memory and compute type with the device, if it is in the table of machines."""
    devices, measured = run.manifest["devices"], run.manifest["result"]
    if (target := find_target(devices["kind"], devices["count"])) is None:
        return
    seconds, memory, compute = measured["train_seconds"], measured["peak_memory_bytes"], run.model["dtypes"]["compute"]
    steps = run.training["steps_done"] - (get_path(run.manifest["parent"], "step") or 0)
    tokens, parameters = steps * run.training["tokens_per_step"], run.model["parameters"]
    needed = _OPERATIONS * parameters * tokens / seconds if seconds else 0.0
    peak = max(target.peak_flops.values(), default=0.0) * devices["count"]
    taken = f"{tokens:,} tokens in {seconds or 0:,.1f} s with {parameters:,} parameters take {needed:.3g} operations"
    what = f"{taken} per second; {devices['count']} × {target.kind} can do {peak:.3g}."
    check.require(not peak or needed <= peak, MANIFEST, what, "/result/train_seconds")
    if memory and target.memory_bytes:
        what = f"The peak memory is {size(memory)}; programs on {target.kind} can use {size(target.memory_bytes)}."
        fits = memory <= target.memory_bytes * (1 + _MEMORY_TOLERANCE)
        check.require(fits, MANIFEST, what, "/result/peak_memory_bytes", code="TP417")
    if compute not in target.element_types:
        what = f"The compute type is {compute}; {target.kind} supports {join_words(target.element_types, 'and')}."
        check.report(MANIFEST, what, "/model/dtypes/compute", code="TP730", severity="warning")


@rule("TP442", "manifest")
def dates(run: ValidRun, check: Checker) -> None:
    """Warn about a run that started before trainproof existed, or that ends in the future."""
    for key in ("started_at", "finished_at"):
        time, limit = parse_time(run.manifest[key] or ""), datetime.now(UTC) + timedelta(days=1)
        if time and not _FIRST_DAY <= time <= limit:
            reason = f"before {_FIRST_DAY:%B %Y}" if time < _FIRST_DAY else "in the future"
            check.report(MANIFEST, f"{key} is {run.manifest[key]}, which is {reason}.", f"/{key}")
            return


@rule("TP408", "manifest")
def overlap(run: ValidRun, check: Checker) -> None:
    """Check that training rows contain no evaluation items, and that the stated overlap is complete."""
    dataset = run.manifest["dataset"]
    stated, rows = dataset.get("overlap"), dataset["overlap_with_eval"]
    what = f"{rows} training rows have a prompt of the evaluation set{_name_items(stated or {})}."
    check.require(not rows, MANIFEST, what, "/dataset/overlap_with_eval", expected="0")
    answered = run.predictions or ()
    if len(answered) != get_path(run.eval_summary, "eval_set", "items"):
        answered = ()
    for code, what in describe_overlap(stated, items=len(answered)) if stated else ():
        if code == "TP414":
            check.report(MANIFEST, what, "/dataset/overlap", code=code)
    found = registry.dataset_file(run) if answered and rows is not None else None
    texts = tuple((item["id"], item["prompt"], item["expected"]) for item in answered)
    counted = _count_overlap(*found, texts) if found else None
    if counted is None:
        return
    is_more = counted.rows_same > rows
    if stated and not dataset["generated_rows"]:
        # With generated rows more grams may be everyday language, so only all rows together show which are near.
        is_more = is_more or len(counted.items_near) > stated["items_near"]
    if is_more and stated:
        what = f"{_format_counts(counted.document())}; the manifest states: {_format_counts(stated)}."
        check.report(MANIFEST, what, "/dataset/overlap", code="TP317")
    elif is_more:  # Until version 1.2 only prompts that were equal in every character were counted.
        what = f"{counted.rows_same} training rows have a prompt of the evaluation set, spelled differently"
        check.report(MANIFEST, f"{what}{_name_items(counted.document())}.", "/dataset/overlap_with_eval")


def describe_overlap(overlap: Mapping[str, Any], *, items: int) -> Iterator[tuple[str, str]]:
    """Yield code and text of the problems with `dataset.overlap` of a manifest, given the number of items."""
    by_chance = _NEAR_BY_CHANCE * items
    for code, are, kind, fewest in (("TP408", "contain", "same", 0), ("TP414", "are near", "near", max(1, by_chance))):
        if overlap[f"items_{kind}"] > fewest:
            count = f"{overlap[f'items_{kind}']} of the {items} evaluation items"
            rows = quantity(overlap[f"rows_{kind}"], "row")
            yield code, f"Training rows {are} {count} ({rows}){_name_items(overlap, near=kind == 'near')}."


def _format_counts(overlap: Mapping[str, Any]) -> str:
    contained = f"{overlap['rows_same']} training rows contain {overlap['items_same']} items"
    return f"{contained}, {overlap['rows_near']} are near {overlap['items_near']} others"


def _name_items(overlap: Mapping[str, Any], *, near: bool = False) -> str:
    """Format the ids of the first items that rows contain, or are near, for the end of a sentence."""
    ids, contained = overlap.get("items", []), overlap.get("items_same", 0)
    ids = ids[contained:] if near else ids[:contained]
    more = " and others" if len(ids) > _NAMED_ITEMS else ""
    return f": {', '.join(ids[:_NAMED_ITEMS])}{more}" if ids else ""


@lru_cache(maxsize=64)
def _count_overlap(path: Path, stamp: registry.Stamp, items: tuple[tuple[str, str, str], ...]) -> Overlap | None:
    """Return the overlap of a dataset's rows with evaluation items, or None if the rows cannot be read."""
    rows = registry.dataset_rows(path, stamp)
    named = [dict(zip(("id", "prompt", "expected"), item, strict=True)) for item in items]
    return None if rows is None else find_overlap(named, map(row_texts, rows))


@rule("TP381", "manifest")
def built_in_dataset(run: ValidRun, check: Checker) -> None:
    """Compare hash, split and rows with the built-in dataset; none of its rows repeats, but generated rows may."""
    stated = run.manifest["dataset"]
    if known := registry.built_in_dataset(stated["name"]):
        has_only_its_rows = not stated["generated_rows"] and get_path(run.config, "data", "kind") in (None, "rows")
        for key, value in (dict(known) | ({"duplicates": 0} if has_only_its_rows else {})).items():
            check.equal(MANIFEST, f"/dataset/{key}", stated[key], value, f"the built-in {stated['name']}")


@rule("TP382", "eval_summary")
def built_in_items(run: ValidRun, check: Checker) -> None:
    """Compare the hashes of the evaluation set and every item with the built-in set."""
    stated = run.eval_summary["eval_set"]
    name = stated["name"]
    if known := registry.built_in_eval_set(name):
        for key in ("items", "sha256", "ids_sha256", "prompts_sha256", "expected_sha256"):
            check.equal(EVAL_SUMMARY, f"/eval_set/{key}", stated[key], known[key], f"the built-in {name}")
        for model in evaluated_models(run):
            for line, row in enumerate(model.rows, start=1):
                what, item = f"{row['id']} is not an item of {name}.", known["rows"].get(row["id"])
                check.require(item, model.file, what, "/id", line=line)
                what = f"{row['id']} of {name} has another prompt, expected answer or label."
                check.require(item in (None, registry.item_key(row)), model.file, what, "/prompt", line=line)


@rule("TP383", "model")
def known_model(run: ValidRun, check: Checker) -> None:
    """Compare family, weights and size with the built-in or published model."""
    name, family = run.model["name"], run.model["family"]
    added = run.model["trainable_parameters"] if get_path(run.training, "method") in ("lora", "qlora") else 0
    stated = {"family": family, "weights": run.model["weights"]}
    # A quantised base packs several parameters into one number.
    if run.training and get_path(run.config, "method", "base") in (None, "plain"):
        stated["parameters"] = run.model["parameters"] - added
    bare = stated | {"family": None if family is None else family.removesuffix("_text")}
    for found, known, source, code in (
        (stated, registry.BUILT_IN_MODELS.get(name, {}), f"the built-in model {name}", "TP383"),
        (bare, registry.published_model(name), f"the published {name}", "TP384"),
    ):
        for key, value in known.items():
            if found.get(key) is not None:
                check.equal(MANIFEST, f"/model/{key}", found[key], value, source, code=code)
