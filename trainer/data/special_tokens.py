"""Special tokens that stand as text in what a user wrote, and the one with which a chat template closes a turn.

A tokenizer reads `<eos>` in a text as the end token itself, not as five characters. An end token in the middle of a
completion would teach the model to stop there, so it is refused. Any other special token may be meant, as the marks of
a prompt that was written for this model by hand, so it is only reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from schemas.problems import Problem, problem_of
from trainer.data.chat_template import (
    SHOWN_ROWS,
    ChatTokenizer,
    TemplateBrokenError,
    TemplateRefusedError,
    has_template,
    written_by_template,
)

Row = TypeVar("Row")

Written = tuple[str, str, bool]
"""Pointer into the row, the text there, and whether the model learns to write it."""


@runtime_checkable
class MarkedTokenizer(Protocol):
    """What finding special tokens needs of a tokenizer."""

    eos_token: str | None

    @property
    def added_tokens_decoder(self) -> dict[int, Any]:
        """Tokens beside the vocabulary by id, each with its `content` and whether it is `special`."""


@runtime_checkable
class TurnTokenizer(ChatTokenizer, MarkedTokenizer, Protocol):
    """What finding the end of a turn needs of a tokenizer."""


PROBE = "An answer that nobody gives."
"""A turn of the assistant that no template writes by itself."""


def turn_end(tokenizer: TurnTokenizer) -> str | None:
    r"""Return the added token with which the chat template closes the assistant's turn, None where it writes none.

    Of `<start_of_turn>model\nAn answer.<end_of_turn>\n` that is `<end_of_turn>`, flagged as special or not.
    """
    if not has_template(tokenizer):
        return None
    turns = [{"role": "user", "content": "A question."}, {"role": "assistant", "content": PROBE}]
    try:
        _, _, after = written_by_template(turns, tokenizer, opened=False).partition(PROBE)
    except (TemplateRefusedError, TemplateBrokenError):
        return None  # told with the rows that it does not write
    texts = [token.content for token in tokenizer.added_tokens_decoder.values() if token.content.strip()]
    return max(filter(after.lstrip().startswith, texts), key=len, default=None)


def special_texts(tokenizer: MarkedTokenizer, ends: Sequence[str | None] = ()) -> re.Pattern[str] | None:
    """Return what finds the text of any special token or end, the longest that fits, or None if it has none."""
    added = tokenizer.added_tokens_decoder.values()
    texts = {token.content for token in added if token.special or token.content in ends}
    return re.compile("|".join(re.escape(text) for text in sorted(texts, key=len, reverse=True))) if texts else None


def special_token_problems(
    rows: Iterable[Row],
    texts_of: Callable[[Row], Iterable[Written]],
    tokenizer: MarkedTokenizer,
    *,
    file: str,
    lines: Sequence[int | None],
    ends: Sequence[str | None] = (),
) -> list[Problem]:
    """Return an error for each of the first rows that would end early, then a warning about all other special tokens.

    Args:
        rows: the rows or items of a file.
        texts_of: gives what a user wrote into one.
        tokenizer: the model's.
        file: the file, for messages.
        lines: where each row stands in it; None where it stands in none.
        ends: the tokens that end an output, where the model learns from the rows.
    """
    pattern = special_texts(tokenizer, ends)
    if pattern is None:
        return []
    early: list[tuple[int, str, str]] = []
    others: list[tuple[int, str]] = []
    for index, row in enumerate(rows):
        for pointer, token, supervised in found_in(texts_of(row), pattern):
            if supervised and token in ends:
                early.append((index, pointer, token))
            else:
                others.append((index, token))
    problems = [early_end(index, pointer, token, file, lines) for index, pointer, token in early[:SHOWN_ROWS]]
    if len(early) > SHOWN_ROWS:
        found = sorted({token for _, _, token in early[SHOWN_ROWS:]})
        problems.append(more_early_ends(len(early) - SHOWN_ROWS, " or ".join(found), file))
    return problems + ([taken_as_tokens(others, file, lines)] if others else [])


def found_in(texts: Iterable[Written], pattern: re.Pattern[str]) -> Iterator[Written]:
    """Yield each special token once for each text that holds it."""
    for pointer, text, supervised in texts:
        for token in sorted(set(pattern.findall(text))):
            yield pointer, token, supervised


def early_end(index: int, pointer: str, token: str, file: str, lines: Sequence[int | None]) -> Problem:
    """Return the problem of an end token inside a text that is learned."""
    return problem_of(
        "TP023",
        file=file,
        line=lines[index],
        pointer=pointer,
        what=f"Row {index} has {token} in the text to be learned; the tokenizer reads it as the end token.",
        why="The model would learn to stop there. Behind every completion the end token is put anyway.",
        next=f"Take {token} out of the row.",
    )


def more_early_ends(count: int, token: str, file: str) -> Problem:
    """Return the problem of the rows that are not named one by one."""
    return problem_of(
        "TP023",
        file=file,
        what=f"{token} stands in {count} further texts to be learned.",
        next=f"Take {token} out of them.",
        why=None,
    )


def taken_as_tokens(found: Sequence[tuple[int, str]], file: str, lines: Sequence[int | None]) -> Problem:
    """Return the warning about the text of special tokens that the model is given as these tokens."""
    rows, tokens = {index for index, _ in found}, sorted({token for _, token in found})
    have = "1 row has" if len(rows) == 1 else f"{len(rows)} rows have"
    return problem_of(
        "TP024",
        file=file,
        line=lines[min(rows)],
        what=f"{have} the text of special tokens in it, the first here: {', '.join(tokens)}.",
    )
