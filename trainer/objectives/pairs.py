"""Pairs of answers as examples and as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from schemas.problems import ProblemError, problem_of, truncate_problems
from trainer.data.encode import EncodedData, Places, Tokenizer, encode_rows
from trainer.data.files.encoded import EncodedRow, laid_out
from trainer.data.source import HostBatch

Pair = tuple[EncodedRow, EncodedRow]
"""The chosen and the rejected answer, each behind the prompt."""


class Pairs(Sequence[Pair]):
    """Encoded rows two by two, each made on access.

    Args:
        rows: the chosen answer of the first pair, its rejected one, that of the second pair, and so on.
    """

    def __init__(self, rows: Sequence[EncodedRow]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows) // 2

    def __getitem__(self, number: Any) -> Any:
        """Return a pair, or those of a slice."""
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        if not -len(self) <= number < len(self):
            raise IndexError(number)
        first = 2 * (number % len(self))
        return self._rows[first], self._rows[first + 1]


def encode_pairs(
    rows: Sequence[dict[str, Any]],
    tokenizer: Tokenizer,
    *,
    max_length: int,
    file: str,
    lines: Sequence[int],
    max_positions: int,
    template: str | None = None,
) -> EncodedData:
    """Return rows that hold two sides each as pairs of token ids.

    Raises:
        ProblemError: exit code 2; as `encode_rows`, or both answers of a row became the same tokens.
    """
    data = encode_rows(
        rows,
        tokenizer,
        max_length=max_length,
        file=file,
        lines=lines,
        max_positions=max_positions,
        template=template,
    )
    pairs = Pairs(data.encoded)
    places = Places(len(rows), lines)
    equal = (
        problem_of(
            "TP028",
            file=file,
            line=places[chosen.row],
            pointer="/rejected",
            what=f"Both answers of row {chosen.row} are the same {len(chosen)} tokens, cut at {max_length} or not.",
            next="Raise data.max_length, or correct or remove the row."
            if chosen.truncated
            else "Use a tokenizer that tells them apart, or correct or remove the row.",
        )
        for chosen, rejected in pairs
        if chosen.token_ids == rejected.token_ids
    )
    if problems := list(truncate_problems(equal)):
        raise ProblemError(problems, exit_code=2)
    sides = data.lengths.reshape(-1, 2)
    return replace(data, encoded=pairs, lengths=sides.sum(axis=1), widths=sides.max(axis=1))


def laid_out_pairs(sequences: Sequence[Sequence[Pair]], length: int) -> HostBatch:
    """Return `tokens` and `loss_mask` of `[2·pairs length]`: each chosen answer and behind it the rejected one."""
    alone = [[row] for [pair] in sequences for row in pair]
    tokens, loss_mask, _ = laid_out(alone, length)
    return {"tokens": tokens, "loss_mask": loss_mask}
