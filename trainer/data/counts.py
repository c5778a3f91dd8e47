"""The counts of `first_examples.json`: how many tokens are learned, and whether rows are whole."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.data.files.encoded import EncodedRow


class Tally:
    """The counts of `first_examples.json`, taken row by row.

    Args:
        end_id: the token that ends a completion.
    """

    def __init__(self, *, end_id: int) -> None:
        self._end_id = end_id
        self._tokens = self._supervised = self._truncated = self._whole = self._ended = 0

    def add(self, parts: Sequence[EncodedRow], *, is_pair: bool = False) -> None:
        """Count what a row became: the parts of its sequence, or the two sequences of a pair."""
        self._tokens += sum(map(len, parts))
        self._supervised += sum(len(part.supervised) for part in parts)
        if last := parts if is_pair else parts[-1:]:
            truncated = any(part.truncated for part in last)
            self._truncated += truncated
            self._whole += not truncated
            self._ended += not truncated and all(part.ends_with(self._end_id) for part in last)

    def counts(self, *, rows: int) -> dict[str, int | bool]:
        """Return the counts; where every row was cut, no end is ever learned."""
        return {
            "rows": rows,
            "prompt_tokens": self._tokens - self._supervised,
            "supervised_tokens": self._supervised,
            "truncated_rows": self._truncated,
            "rows_without_answer": 0,  # they are refused
            "end_token_supervised": 0 < self._whole == self._ended,
        }
