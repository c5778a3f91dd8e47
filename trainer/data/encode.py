"""From text to the arrays the train step takes, and the counts that show what is really learned.

Failures that no one notices in a loss curve are refused here: a row whose answer is not supervised, because it was cut
off or the tokenizer does not know it, and rows none of which has a supervised end token, after which a model never
learns to stop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from schemas.problems import Problem, ProblemError
from trainer.data.chat_template import ChatTokenizer, each_rendered
from trainer.data.files.encoded import EncodedRow, Span, TokenFile
from trainer.data.render import Example, PromptForm, form_of, render_sides, texts_of
from trainer.data.row_problems import (
    Where,
    cut_examples,
    lost_answers,
    no_end_token,
    unknown_answers,
    untaught_tasks,
    written_otherwise,
)
from trainer.data.special_tokens import MarkedTokenizer, special_token_problems

CONTEXT_CHARACTERS = 64
"""Of the text before another one, as many as can change the other's first token."""


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


@runtime_checkable
class Tokenizer(ChatTokenizer, MarkedTokenizer, Protocol):
    """What encoding needs of a tokenizer."""

    eos_token_id: int | None
    unk_token_id: int | None

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return the token ids of a text."""

    def decode(self, token_ids: Any, **options: Any) -> Any:
        """Return the text of token ids."""


@dataclass(frozen=True, kw_only=True)
class EncodedData:
    """All rows as token ids, with the counts of `first_examples.json`."""

    encoded: Sequence[Any]
    """Each an `EncodedRow`, or what the objective makes of several, such as a pair."""
    lengths: Int[np.ndarray, " examples"]
    """Tokens of each."""
    widths: Int[np.ndarray, " examples"]
    """Tokens of the longest sequence of each."""
    counts: dict[str, int | bool]
    warnings: tuple[Problem, ...]
    """What is odd about the rows. An error keeps a run from beginning, and no run from being continued or repeated."""


def encode_rows(
    rows: Sequence[dict[str, Any]],
    tokenizer: Tokenizer,
    *,
    max_length: int,
    file: str,
    lines: Sequence[int] | None = None,
    max_positions: int | None = None,
    every_turn: bool = False,
    template: str | None = None,
) -> EncodedData:
    """Return rows as token ids, at most `max_length` each; of a pair both sides, one behind the other.

    Args:
        rows: rows of any shape that `dataset_row.schema.json` allows; they are gone through several times.
        tokenizer: the model's tokenizer; the end token of the rows' form closes every completion.
        max_length: tokens per row; longer rows are cut, longer texts taken in several parts.
        file: what messages call the dataset.
        lines: where its rows stand in it; rows beyond them are from elsewhere. None: one on each line.
        max_positions: the model's, beyond which no `max_length` helps. None: not known.
        every_turn: all turns of the assistant are learned, not only the last.
        template: how plain prompts are written. None: as by default those of each row's shape.

    Raises:
        ProblemError: exit code 2; the tokenizer has no end token or does not know an answer, its chat template refuses
            a row, an end token stands inside a completion, or cutting took a row's answer. That most rows are cut is
            an error among the warnings, which refuses a run that begins.
    """
    if tokenizer.eos_token_id is None:
        raise ProblemError([no_end_token(file)], exit_code=2)
    places = Places(len(rows), lines)
    where = Where(max_length=max_length, max_positions=max_positions, file=file, lines=places)
    form = form_of(rows)
    learned, ends = partial(texts_of, every_turn=every_turn), (form.end_token(tokenizer), tokenizer.eos_token)
    special = special_token_problems(rows, learned, tokenizer, file=file, lines=places, ends=ends)
    if any(problem.severity == "error" for problem in special):
        raise ProblemError(special, exit_code=2)
    end_id = end_token_id(tokenizer, form)
    lost, tally = UntaughtRows(tokenizer), Tally(end_id=end_id)

    render = partial(render_sides, tokenizer=tokenizer, every_turn=every_turn, template=template)
    rendered = each_rendered(rows, render, file=file, lines=places)

    def each() -> Iterator[EncodedRow]:
        for index, examples in rendered:
            found: list[EncodedRow] = []
            for example in examples:
                whole, spans = ids_of(example, tokenizer, end_id)
                parts = cut_to_length(example, whole, spans, max_length, row=index)
                lost.add(index, example, parts, whole=whole, spans=spans)
                found += parts
            tally.add(found, is_pair=len(examples) > 1)
            yield from found

    encoded = TokenFile(each())
    lost.refuse(where)
    counts = tally.counts(rows=len(rows)) | lost.counts()
    if lost.other_rows:
        special.append(written_otherwise(*lost.first_other, lost.other_rows, where))
    warnings, lengths = (*special, *cut_examples(counts, where)), encoded.lengths
    return EncodedData(encoded=encoded, lengths=lengths, widths=lengths, counts=counts, warnings=warnings)


class UntaughtRows:
    """What would not be learned of rows: answers that are cut off or that the tokenizer does not know or keep.

    Args:
        tokenizer: the model's.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._cut: set[int] = set()
        self._unknown: dict[int, str] = {}
        self._tasks: list[int] = []
        self._lost = self._longest = 0
        self.other_rows: set[int] = set()
        """Rows that the tokenizer writes otherwise."""
        self.first_other = ("", "")
        """A text of the first of them, and what the tokenizer makes of it."""

    def add(
        self, index: int, example: Example, parts: Sequence[EncodedRow], *, whole: Sequence[int], spans: Sequence[Span]
    ) -> None:
        """Look at a row, what it became (a blank text: nothing), and its ids and supervised spans before it was cut."""
        if not parts:
            return
        if parts[-1].truncated:
            self._longest = max(self._longest, len(whole))
            self._lost += sum(last - first for first, last in spans) - len(parts[-1].supervised)
        if not example.completion:
            self._tasks.append(index)
            return
        for (first, last), text in zip(spans, example.learned, strict=True):
            made = str(self._tokenizer.decode(whole[first : last - 1], clean_up_tokenization_spaces=False))
            if made.strip() != text.strip():
                self.first_other = self.first_other if self.other_rows else (text, made)
                self.other_rows.add(index)
        if any(has_its_answer(example, part, self._tokenizer) for part in parts):
            return
        if parts[-1].truncated:
            self._cut.add(index)
        else:
            self._unknown[index] = text_of(parts[-1], self._tokenizer)

    def counts(self) -> dict[str, int | bool]:
        """Return the counts of `first_examples.json` that are stated where they are not 0."""
        cut = {"supervised_tokens_lost": self._lost, "longest_row_tokens": self._longest} if self._longest else {}
        return cut | ({"rows_written_otherwise": len(self.other_rows)} if self.other_rows else {})

    def refuse(self, where: Where) -> None:
        """Refuse tasks, and rows that lost their answer."""
        problems = untaught_tasks(self._tasks, where)
        problems += [*lost_answers(self._cut, self._longest, where), *unknown_answers(self._unknown, where)]
        if problems:
            raise ProblemError(problems, exit_code=2)


class Places(Sequence[int | None]):
    """The line of each row, None for those beyond the file's.

    Args:
        rows: how many there are.
        lines: of those in the file. None: one on each line.
    """

    def __init__(self, rows: int, lines: Sequence[int] | None) -> None:
        self._rows = rows
        self._lines = range(1, rows + 1) if lines is None else lines

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, number: Any) -> Any:
        """Return the line of a row."""
        return self._lines[number] if number < len(self._lines) else None


def cut_to_length(
    example: Example, whole: Sequence[int], spans: Sequence[Span], max_length: int, *, row: int = 0
) -> list[EncodedRow]:
    """Return the token ids of one example, at most `max_length`, the last of a whole one its end token.

    Prompt and completion are encoded apart, so that the completion's first token is the same when a prompt is given
    alone, as it is in evaluation. A plain text comes in several parts if it is longer; each begins with the last token
    of the part before, so that every token but the first of the text is learned once.
    """
    if example.is_text and not example.completion.strip():
        return []
    if example.is_text:
        starts = range(0, max(1, len(whole) - 1), max_length - 1)
        chunks = (tuple(whole[start : start + max_length]) for start in starts)
        return [EncodedRow(token_ids=ids, spans=((1, len(ids)),), truncated=False, row=row) for ids in chunks]
    kept = tuple(whole[:max_length])
    inside = tuple((first, min(last, len(kept))) for first, last in spans if first < len(kept))
    return [EncodedRow(token_ids=kept, spans=inside, truncated=len(whole) > max_length, row=row)]


def ids_of(example: Example, tokenizer: Tokenizer, end_id: int) -> tuple[list[int], list[Span]]:
    """Return the token ids of an example that is not cut, and where the supervised ones stand."""
    ids: list[int] = []
    spans = []
    before = ""
    for number, (prompt, completion, ends) in enumerate([*example.earlier, (example.prompt, example.completion, True)]):
        if number == 0:
            ids += prompt_ids(prompt, tokenizer, templated=example.templated)
        else:
            ids += later_ids(prompt, before, tokenizer)
        first = len(ids)
        ids += later_ids(completion, prompt if example.templated else "", tokenizer)
        ids += [end_id] if ends else []
        spans.append((first, len(ids)))
        before = completion + str(tokenizer.decode([end_id])) * ends if example.templated else ""
    return ids, spans


def later_ids(text: str, before: str, tokenizer: Tokenizer) -> list[int]:
    """Return the token ids of a text that stands behind another one, where their border is one of tokens too.

    Some tokenizers begin every text with a space, which the text does not have behind another.
    """
    context = before[-CONTEXT_CHARACTERS:]
    begun = tokenizer.encode(context, add_special_tokens=False) if context else []
    both = tokenizer.encode(context + text, add_special_tokens=False)
    if both[: len(begun)] == begun:
        return both[len(begun) :]
    return tokenizer.encode(text, add_special_tokens=False)


def prompt_ids(prompt: str, tokenizer: Tokenizer, *, templated: bool) -> list[int]:
    """Return a rendered prompt as the model is given it, open at the end.

    A begin token, where the model has one, comes from the tokenizer, unless a chat template wrote the prompt: such a
    text has all its special tokens already, and is encoded as transformers' `apply_chat_template` does it.
    """
    ids = tokenizer.encode(prompt, add_special_tokens=not templated)
    if templated or not ids or ids[-1] != tokenizer.eos_token_id:
        return ids
    # Some tokenizers close every text with the end token; a prompt must stay open. One that is written stays.
    written = tokenizer.encode(prompt, add_special_tokens=False)
    return ids if ids.count(ids[-1]) == written.count(ids[-1]) else ids[:-1]


def end_token_id(tokenizer: Tokenizer, form: PromptForm) -> int:
    """Return the token that ends an output of this form; `encode_rows` refuses a tokenizer without one."""
    text = form.end_token(tokenizer)
    if text != tokenizer.eos_token:
        return next(number for number, token in tokenizer.added_tokens_decoder.items() if token.content == text)
    if tokenizer.eos_token_id is None:
        message = "a tokenizer without an end token came past encode_rows"
        raise AssertionError(message)
    return tokenizer.eos_token_id


def has_its_answer(example: Example, row: EncodedRow, tokenizer: Tokenizer) -> bool:
    """Return whether the supervised text holds the answer; without a stated one, whether there is any known token."""
    if example.answer is not None:
        return f"<answer>{example.answer}</answer>" in text_of(row, tokenizer)
    ends = 0 if row.truncated else 1
    written = (token for first, last in row.spans for token in row.token_ids[first : last - ends])
    return any(token != tokenizer.unk_token_id for token in written)


def text_of(row: EncodedRow, tokenizer: Tokenizer) -> str:
    """Return what a row teaches to write, letter for letter."""
    return str(tokenizer.decode(row.supervised, clean_up_tokenization_spaces=False))
