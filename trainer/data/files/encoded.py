"""A row as token ids, and sequences of such rows as the arrays that the train step takes.

A row takes about forty bytes of memory, however long it is. Its tokens are in a temporary file without a name.
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int, Int32

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


class TokenFile(Sequence[EncodedRow]):
    """Encoded rows, each made on access.

    Args:
        rows: taken one by one; none of them is kept.
    """

    def __init__(self, rows: Iterable[EncodedRow]) -> None:
        self._starts, self._spans, self._span_starts = array("q", [0]), array("q"), array("q", [0])
        self._rows, self._truncated = array("q"), array("b")
        with tempfile.TemporaryFile() as file:  # once it is mapped it stays, closed or not
            for row in rows:
                file.write(np.asarray(row.token_ids, np.int32).tobytes())
                self._note(row)
            file.flush()
            tokens = self._starts[-1]
            self._tokens = np.memmap(file, np.int32, "r", shape=(tokens,)) if tokens else np.zeros(0, np.int32)

    def _note(self, row: EncodedRow) -> None:
        """Keep where a row stands."""
        self._starts.append(self._starts[-1] + len(row))
        for span in row.spans:
            self._spans.extend(span)
        self._span_starts.append(len(self._spans))
        self._rows.append(row.row)
        self._truncated.append(row.truncated)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: Any) -> Any:
        """Return a row, or those of a slice."""
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        if not -len(self) <= number < len(self):
            raise IndexError(number)
        number %= len(self)
        spans = self._spans[self._span_starts[number] : self._span_starts[number + 1]]
        return EncodedRow(
            token_ids=tuple(self._tokens[self._starts[number] : self._starts[number + 1]].tolist()),
            spans=tuple(zip(spans[::2], spans[1::2], strict=True)),
            truncated=bool(self._truncated[number]),
            row=self._rows[number],
        )

    @property
    def lengths(self) -> Int[np.ndarray, " rows"]:
        """Tokens of each row."""
        return np.diff(np.frombuffer(self._starts, np.int64))
