"""The document `first_examples.json`: rows as the model sees them, each token with whether it is supervised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schemas.catalog import VERSION
from trainer.config.tree import DataConfig
from trainer.data.encode import EncodedData, Tokenizer
from trainer.data.files.encoded import EncodedRow
from trainer.data.files.pairs import sides_of
from trainer.data.kinds import template_of
from trainer.data.render import render_question, render_sides


def first_examples(
    data: EncodedData,
    order: Sequence[int],
    tokenizer: Tokenizer,
    *,
    run_id: str,
    rows: Sequence[dict[str, Any]],
    settings: DataConfig,
) -> dict[str, Any]:
    """Return the document `first_examples.json`: the rows of `order` as the model sees them, and the counts.

    Args:
        data: all rows as token ids.
        order: which of them are shown.
        tokenizer: the model's.
        run_id: of the run.
        rows: all of them as they were read.
        settings: how they were written.
    """
    shown = [row for index in order for row in in_sequences(data.encoded[index])]
    return {
        "schema_version": VERSION,
        "run_id": run_id,
        "examples": [shown_row(row, tokenizer) | shown_prompt(row, rows, tokenizer, settings) for row in shown],
        "counts": data.counts,
    }


def shown_prompt(
    encoded: EncodedRow, rows: Sequence[dict[str, Any]], tokenizer: Tokenizer, settings: DataConfig
) -> dict[str, Any]:
    """Return how the prompt of a row was written: its template, if it has one, and its bytes."""
    row, every_turn = rows[encoded.row], settings.supervise == "all"
    template = template_of(sides_of(row)[0], settings.template)
    if encoded.spans:
        example = render_sides(row, tokenizer, every_turn=every_turn, template=settings.template)[0]
    else:
        example = render_question(row, tokenizer, template=settings.template)
    stated = {} if template is None else {"template": template}
    return {**stated, "prompt_utf8": example.given.encode("utf-8", "surrogatepass").hex()}


def in_sequences(example: EncodedRow | Sequence[EncodedRow]) -> Sequence[EncodedRow]:
    """Return the sequences of an example: its own one, or both of a pair."""
    return (example,) if isinstance(example, EncodedRow) else example


def shown_row(row: EncodedRow, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return one row with each token's text and whether it is supervised."""
    asked = {place for first, last in row.spans for place in range(max(first, 1), last)}
    return {
        "row": row.row,
        "text": str(tokenizer.decode(row.token_ids)),
        "tokens": [
            {"id": token, "text": str(tokenizer.decode([token])), "supervised": place in asked}
            for place, token in enumerate(row.token_ids)
        ],
        "truncated": row.truncated,
    }
