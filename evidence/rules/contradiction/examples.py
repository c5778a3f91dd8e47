"""The first training examples against the counts beside them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from evidence.records.facts import Document, Facts, finding
from evidence.run import layout
from schemas.formats import format_value
from schemas.problems import Problem


def counts_hold_the_examples(facts: Facts) -> Iterator[Problem]:
    """Yield problems for counts that are smaller than what the examples alone show."""
    if facts.first_examples is None:
        return
    counts, examples = facts.first_examples["counts"], facts.first_examples["examples"]
    supervised = sum(token["supervised"] for example in examples for token in example["tokens"])
    truncated = sum(example["truncated"] for example in examples)
    last_row = max(example["row"] for example in examples)
    if supervised > counts["supervised_tokens"]:
        what = f"The examples have {supervised} supervised tokens, all rows {counts['supervised_tokens']}."
        yield _other(facts, what, "/counts/supervised_tokens")
    if truncated > counts["truncated_rows"]:
        what = f"{truncated} of the examples are truncated, of all rows {counts['truncated_rows']}."
        yield _other(facts, what, "/counts/truncated_rows")
    if last_row >= counts["rows"]:
        yield _other(facts, f"Row {last_row} is shown, and there are {counts['rows']} rows.", "/counts/rows")
    if counts["rows_without_answer"] > counts["rows"] or counts["truncated_rows"] > counts["rows"]:
        yield _other(facts, f"More rows are counted than the {counts['rows']} there are.", "/counts/rows")
    for index, example in enumerate(examples):
        yield from _own_contradictions(facts, example, f"/examples/{index}")
    if counts["end_token_supervised"] and (row := _row_with_open_end(examples)) is not None:
        what = f"The last token of row {row} is not supervised, and the end token is said to be in every row."
        yield _other(facts, what, "/counts/end_token_supervised")


def _own_contradictions(facts: Facts, example: Document, pointer: str) -> Iterator[Problem]:
    """Yield problems for supervision that is not a completion, and a text that its tokens do not spell."""
    supervised = [token["supervised"] for token in example["tokens"]]
    row = example["row"]
    if supervised[:1] == [True]:
        what = f"The first token of row {row} is supervised, and no token comes before it to predict it from."
        yield _odd(facts, what, f"{pointer}/tokens/0/supervised")
    elif supervised != sorted(supervised) and not _every_turn(facts):
        place = next(index for index, (one, then) in enumerate(pairwise(supervised), start=1) if one > then)
        what = f"Token {place} of row {row} is not supervised, and the token before it is; a completion has no gap."
        yield _odd(facts, what, f"{pointer}/tokens/{place}/supervised")
    yield from _other_prompt(facts, example, pointer)
    spelt = "".join(token["text"] for token in example["tokens"])
    # A token alone may lose its spaces, or be a part of a character.
    if "\ufffd" not in spelt and "".join(spelt.split()) != "".join(example["text"].split()):
        yield _odd(facts, f"The tokens of row {row} do not spell its text.", f"{pointer}/text")


def _other_prompt(facts: Facts, example: Document, pointer: str) -> Iterator[Problem]:
    """Yield problems for a template that is not the declared one, and a prompt that it cannot have written."""
    template, row = example.get("template"), example["row"]
    if template is None:
        return
    data: Document = (facts.config or {}).get("data", {})
    declared = data.get("template")
    if declared is not None and declared != template:
        what = (
            f"The prompt of row {row} is written {format_value(template)}; config.yaml states {format_value(declared)}."
        )
        yield _odd(facts, what, f"{pointer}/template")
    before, _, after = template.partition("{prompt}")
    prompt = bytes.fromhex(example.get("prompt_utf8", ""))
    if "prompt_utf8" in example and not (
        prompt.startswith(_utf8(before)) and prompt.endswith(_utf8(after.rpartition("{prompt}")[2]))
    ):
        what = f"The prompt of row {row} is not one that the template {format_value(template)} writes."
        yield _odd(facts, what, f"{pointer}/prompt_utf8")


def _utf8(text: str) -> bytes:
    """Return a text in UTF-8, halves of characters as they stand."""
    return text.encode("utf-8", "surrogatepass")


def _every_turn(facts: Facts) -> bool:
    """Return whether all turns of the assistant are learned, between which others stand."""
    data: Document = (facts.config or {}).get("data", {})
    return data.get("supervise") == "all"


def _row_with_open_end(examples: list[Document]) -> int | None:
    for example in examples:
        if not example["truncated"] and example["tokens"] and not example["tokens"][-1]["supervised"]:
            return int(example["row"])
    return None


def _odd(facts: Facts, what: str, pointer: str) -> Problem:
    return finding(facts.folder, "TP366", layout.FIRST_EXAMPLES, what, pointer=pointer)


def _other(facts: Facts, what: str, pointer: str) -> Problem:
    return finding(facts.folder, "TP361", layout.FIRST_EXAMPLES, what, pointer=pointer)


CHECKS = (counts_hold_the_examples,)
