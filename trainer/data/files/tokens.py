"""Encoded rows on disk: all token ids in one file that is mapped, so that memory holds only where each row stands.

A row takes about forty bytes of memory, however long it is. The file has no name: it is gone with the process.
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from trainer.data.files.encoded import EncodedRow


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
