"""The document `first_examples.json`: rows as the model sees them, each token with whether it is supervised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schemas.catalog import VERSION
from trainer.data.encode import EncodedData, Tokenizer
from trainer.data.files.encoded import EncodedRow


def first_examples(data: EncodedData, order: Sequence[int], tokenizer: Tokenizer, *, run_id: str) -> dict[str, Any]:
    """Return the document `first_examples.json`: the rows of `order` as the model sees them, and the counts."""
    return {
        "schema_version": VERSION,
        "run_id": run_id,
        "examples": [shown_row(row, tokenizer) for index in order for row in in_sequences(data.encoded[index])],
        "counts": data.counts,
    }


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
