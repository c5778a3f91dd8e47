"""A row as token ids, and sequences of such rows as the arrays that the train step takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int32

Span = tuple[int, int]
"""First place, and the place behind the last."""


@dataclass(frozen=True, kw_only=True)
class EncodedRow:
    """One row as token ids, padding left out; its length is their number."""

    token_ids: tuple[int, ...]
    spans: tuple[Span, ...]
    """Where the supervised tokens stand: completions and what ends them."""
    truncated: bool
    row: int = 0
    """Which row of the data it is, or is a part of."""

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def supervised(self) -> tuple[int, ...]:
        """The tokens in the loss."""
        return tuple(token for first, last in self.spans for token in self.token_ids[first:last])

    def ends_with(self, token: int) -> bool:
        """Return whether the last token is this one, and supervised."""
        return bool(self.spans) and self.spans[-1][1] == len(self.token_ids) and self.token_ids[-1] == token


def laid_out(
    sequences: Sequence[Sequence[EncodedRow]], max_length: int
) -> tuple[Int32[np.ndarray, "batch seq"], Bool[np.ndarray, "batch seq"], Int32[np.ndarray, "batch seq"]]:
    """Return token ids, loss mask and segments of sequences that hold one or several rows, padded on the right.

    The mask states whether a token is in the loss, so it is false on prompts and padding, true on completions and the
    end token, and false on the first token of a row, before which nothing stands. Segments count the rows of a
    sequence from 1; padding is 0, as its tokens are. The rows `[7, 8, 9]` and `[5, 6]` with one prompt token each
    give, at length 6, `[7, 8, 9, 5, 6, 0]`, `[0, 1, 1, 0, 1, 0]` and `[1, 1, 1, 2, 2, 0]`.
    """
    tokens = np.zeros((len(sequences), max_length), np.int32)
    loss_mask = np.zeros((len(sequences), max_length), np.bool_)
    segments = np.zeros((len(sequences), max_length), np.int32)
    for index, rows in enumerate(sequences):
        place = 0
        for number, row in enumerate(rows, start=1):
            tokens[index, place : place + len(row)] = row.token_ids
            segments[index, place : place + len(row)] = number
            for first, last in row.spans:
                loss_mask[index, place + max(first, 1) : place + last] = True
            place += len(row)
    return tokens, loss_mask, segments
