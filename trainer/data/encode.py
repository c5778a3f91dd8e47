"""Rows as token ids, batches as arrays, and the counts of `first_examples.json`.

Mistakes that no loss curve shows are refused: a row whose answer is not in the loss because it was cut off or the
tokenizer does not know it, and an end token inside a completion, after which the model would learn to stop.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os.path import commonprefix
from typing import Any

import numpy as np
from jaxtyping import Bool, Int, Int32

from evidence.rules.plausibility import describe_truncation
from schemas.formats import format_value, quantity
from schemas.problems import Problem, ProblemError, collect_problems, problem_of, truncate_problems
from trainer.data.conversations import (
    Example,
    PromptForm,
    Tokenizer,
    end_token_id,
    infer_form,
    learned_texts,
    render_each,
    render_sides,
)
from trainer.data.files import LazySequence, StoredSequence

CONTEXT_CHARACTERS = 64  # characters before a text that can influence its first token
Span = tuple[int, int]  # the first place and the place after the last


@dataclass(frozen=True, kw_only=True, eq=False)
class EncodedRow:
    """Token ids of a row, without padding."""

    token_ids: Int32[np.ndarray, " tokens"]
    spans: tuple[Span, ...]  # places of the tokens in the loss: completions with their end tokens
    truncated: bool
    row: int = 0  # number of the row that it is, or is a part of

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def learned(self) -> list[int]:
        """Tokens in the loss."""
        return [token for first, last in self.spans for token in self.token_ids[first:last].tolist()]

    @property
    def learned_count(self) -> int:
        """Number of tokens in the loss."""
        return sum(last - first for first, last in self.spans)


def collate(
    sequences: Sequence[Sequence[EncodedRow]], length: int
) -> tuple[Int32[np.ndarray, "batch seq"], Bool[np.ndarray, "batch seq"], Int32[np.ndarray, "batch seq"]]:
    """Return token ids, loss mask and segments of sequences of one or several rows, padded on the right.

    The mask is true on completions and end tokens, and false on prompts, padding and the first token of a row, which
    nothing predicts. Segments count the rows of a sequence from 1; padding is 0. The rows `[7, 8, 9]` and `[5, 6]` with
    one prompt token each give, at length 6, `[7, 8, 9, 5, 6, 0]`, `[0, 1, 1, 0, 1, 0]` and `[1, 1, 1, 2, 2, 0]`.
    """
    tokens = np.zeros((len(sequences), length), np.int32)
    loss_mask = np.zeros((len(sequences), length), np.bool_)
    segments = np.zeros((len(sequences), length), np.int32)
    for index, rows in enumerate(sequences):
        place = 0
        for number, row in enumerate(rows, start=1):
            tokens[index, place : place + len(row)] = row.token_ids
            segments[index, place : place + len(row)] = number
            for first, last in row.spans:
                loss_mask[index, place + max(first, 1) : place + last] = True
            place += len(row)
    return tokens, loss_mask, segments


@dataclass(frozen=True, kw_only=True)
class EncodedData:
    """All rows as token ids, with the counts of `first_examples.json`."""

    encoded: Sequence[Any]  # examples: each an `EncodedRow` or a pair
    lengths: Int[np.ndarray, " examples"]  # tokens of each example
    widths: Int[np.ndarray, " examples"]  # tokens of the longest sequence of each example
    counts: dict[str, int | bool]
    warnings: tuple[Problem, ...]  # an error among them keeps a new run from starting, not a resumed or replayed one


def row_lines(rows: int, lines: Sequence[int | None] | None) -> Sequence[int | None]:
    """Return the line of each row, None for generated rows, which come last. Without lines, one row a line."""
    known: Sequence[int | None] = range(1, rows + 1) if lines is None else lines
    return LazySequence(rows, lambda number: known[number] if number < len(known) else None)


def encode_rows(
    rows: Sequence[dict[str, Any]],
    tokenizer: Tokenizer,
    *,
    max_length: int,
    file: str,
    lines: Sequence[int | None] | None = None,
    max_positions: int | None = None,
    form: PromptForm | None = None,
    every_turn: bool = False,
    template: str | None = None,
) -> EncodedData:
    """Tokenize rows in one pass; a pair becomes two sequences, the chosen answer first.

    Every completion is followed by the end token of `form`, which is inferred if it is None. Rows longer than
    `max_length` tokens are cut; longer texts become several sequences. `file` and `lines` are for messages; rows beyond
    `lines` were generated. With `every_turn` all assistant turns are learned, not only the last. `template` is used
    for plain prompts; None means the default of each kind.

    Raises:
        ProblemError: Exit code 2; the tokenizer lacks an end token or does not know an answer, its chat template
            refuses a row, a completion contains an end token, or a row lost its answer. If most rows are cut, there is
            an error among the warnings.
    """
    require_end_token(tokenizer, file)
    form, lines = form or infer_form(rows), row_lines(len(rows), lines)
    ends = {form.end_token(tokenizer), tokenizer.eos_token}
    added = {token.content for token in tokenizer.added_tokens_decoder.values()}
    with_ends = sorted((token for token in added if any(end in token for end in ends)), key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, with_ends)))  # the longest first, as the tokenizer reads them
    encoder = _Encoder(tokenizer, end_token_id(tokenizer, form), max_length, max_positions, file, lines)
    early: list[Problem] = []

    def render(numbered: tuple[int, dict[str, Any]]) -> list[Example]:
        index, row = numbered
        for pointer, text in learned_texts(row, every_turn=every_turn):
            for token in sorted(ends.intersection(pattern.findall(text))):
                what = f"Row {index} has the end token {token} in the text to be learned."
                early.append(problem_of("TP023", file=file, line=lines[index], pointer=pointer, what=what))
        return render_sides(row, tokenizer, every_turn=every_turn, template=template)

    problems: list[Problem] = []
    with collect_problems(problems):
        rendered = render_each(enumerate(rows), render, file=file, lines=lines)
        encoded = StoredSequence(part for index, examples in rendered for part in encoder.encode(index, examples))
    # The template may have refused a row because of its end token.
    if problems := list(truncate_problems(early)) or problems or encoder.errors():
        raise ProblemError(problems, exit_code=2)
    lengths, counts = np.array([len(row) for row in encoded], np.int64), encoder.counts(len(rows))
    warnings = tuple(encoder.warnings(counts))
    return EncodedData(encoded=encoded, lengths=lengths, widths=lengths, counts=counts, warnings=warnings)


def require_end_token(tokenizer: Tokenizer, file: str) -> None:
    """Raise a ProblemError with exit code 2 if the tokenizer lacks an end token."""
    if tokenizer.eos_token_id is None:
        what = "The model's tokenizer lacks an end token."
        expected = "eos_token in tokenizer_config.json"
        raise ProblemError([problem_of("TP020", file=file, what=what, expected=expected)], exit_code=2)


@dataclass
class _Encoder:
    """Encodes and counts rows, and finds those whose answer is cut off, unknown to the tokenizer or changed by it."""

    tokenizer: Tokenizer
    end_id: int
    max_length: int
    max_positions: int | None
    file: str
    lines: Sequence[int | None]
    totals: Counter[str] = field(default_factory=Counter)
    cut: list[int] = field(default_factory=list)
    unknown: list[Problem] = field(default_factory=list)
    tasks: list[Problem] = field(default_factory=list)
    changed: dict[int, tuple[str, str]] = field(default_factory=dict)  # the first with a text and its decoded tokens

    def encode(self, index: int, examples: Sequence[Example]) -> list[EncodedRow]:
        """Return the sequences of a row: the parts of a text, or two answers of a pair."""
        found: list[EncodedRow] = []
        for example in examples:
            ids, spans = tokenize(example, self.tokenizer, self.end_id)
            if parts := cut_to_length(example, ids, spans, self.max_length, row=index):  # none of a blank text
                self._check(index, example, parts, ids, spans)
            found += parts
        self.totals["tokens"] += sum(map(len, found))
        self.totals["learned"] += sum(part.learned_count for part in found)
        if last := found if len(examples) > 1 else found[-1:]:
            truncated = any(part.truncated for part in last)
            self.totals["truncated" if truncated else "whole"] += 1
            self.totals["ended"] += not truncated and all(part.token_ids[-1] == self.end_id for part in last)
        return found

    def _check(
        self, index: int, example: Example, parts: Sequence[EncodedRow], ids: Sequence[int], spans: Sequence[Span]
    ) -> None:
        """Check an example, given its sequences and its ids and learned spans before it was cut."""
        if parts[-1].truncated:
            self.totals["longest_cut"] = max(self.totals["longest_cut"], len(ids))
            self.totals["lost"] += sum(last - first for first, last in spans) - parts[-1].learned_count
        if not example.completion:
            what = f"Row {index} is a task."
            self.tasks.append(problem_of("TP908", file=self.file, line=self.lines[index], what=what))
            return
        for (first, last), text in zip(spans, example.learned, strict=True):
            decoded = self._decode(ids[first : last - 1])
            if decoded.strip() != text.strip():
                self.changed.setdefault(index, ("", "") if self.changed else (text, decoded))
        if any(self._has_answer(example, part) for part in parts):
            return
        if not parts[-1].truncated:
            what = f"The model's tokenizer changes the answer of row {index} to "
            what += f"{format_value(self._decode(parts[-1].learned))}."
            self.unknown.append(problem_of("TP025", file=self.file, line=self.lines[index], what=what))
        elif index not in self.cut[-1:]:  # of a pair, both answers may be
            self.cut.append(index)

    def _has_answer(self, example: Example, row: EncodedRow) -> bool:
        """Return whether the learned text has the answer; without a known answer, whether it has any known token."""
        if example.answer is not None:
            return f"<answer>{example.answer}</answer>" in self._decode(row.learned)
        spans = ((first, last - (not row.truncated)) for first, last in row.spans)
        return any(bool((row.token_ids[first:last] != self.tokenizer.unk_token_id).any()) for first, last in spans)

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(ids, clean_up_tokenization_spaces=False))

    def counts(self, rows: int) -> dict[str, int | bool]:
        """Return the counts of `first_examples.json`; if every row was cut, no end is learned."""
        totals = self.totals
        counts: dict[str, int | bool] = {
            "rows": rows,
            "prompt_tokens": totals["tokens"] - totals["learned"],
            "supervised_tokens": totals["learned"],
            "truncated_rows": totals["truncated"],
            "rows_without_answer": 0,  # they are refused
            "end_token_supervised": 0 < totals["whole"] == totals["ended"],
        }
        if totals["longest_cut"]:
            counts |= {"supervised_tokens_lost": totals["lost"], "longest_row_tokens": totals["longest_cut"]}
        return counts | ({"rows_written_otherwise": len(self.changed)} if self.changed else {})

    def errors(self) -> list[Problem]:
        """Return problems of tasks, and of rows that lost their answer."""
        problems = list(truncate_problems(self.tasks, limit=1))
        if self.cut:
            first, more = self.cut[0], " and others" if len(self.cut) > 1 else ""
            what = f"data.max_length is {self.max_length}, but {len(self.cut):,} of {len(self.lines):,} examples lose "
            what += f"their answer at that length: row {first}{more}."
            fix = self._fix_length(self.totals["longest_cut"])
            problems.append(problem_of("TP021", file=self.file, line=self.lines[first], what=what, next=fix))
        return [*problems, *truncate_problems(self.unknown)]

    def warnings(self, counts: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield warnings about changed and cut rows; an error if most rows are cut."""
        if self.changed:
            first, (text, decoded) = next(iter(self.changed.items()))
            what = f"{len(self.changed):,} of {quantity(len(self.lines), 'row')} are changed by the tokenizer: "
            what += describe_difference(text, decoded)
            yield problem_of("TP456", file=self.file, line=self.lines[first], what=what)
        if counts["truncated_rows"]:
            code = "TP026" if 2 * counts["truncated_rows"] > counts["rows"] else "TP455"
            what = describe_truncation(dict(counts), self.max_length)
            yield problem_of(code, file=self.file, what=what, next=self._fix_length(counts["longest_row_tokens"]))

    def _fix_length(self, tokens: int) -> str:
        if self.max_positions is None or tokens <= self.max_positions:
            return f"Set data.max_length to at least {tokens}, or shorten or remove rows."
        return f"Shorten or remove rows: the longest has {tokens} tokens, the model {self.max_positions} positions."


def describe_difference(text: str, decoded: str) -> str:
    """Describe how encoding and decoding changes a text, from 12 characters before the first difference."""
    start = max(0, len(commonprefix([text, decoded])) - 12)  # noqa: RUF071 - of texts
    return f"{format_value(text[start:])} becomes {format_value(decoded[start:])}."


def cut_to_length(
    example: Example, ids: Sequence[int], spans: Sequence[Span], max_length: int, *, row: int = 0
) -> list[EncodedRow]:
    """Return the sequences of an example, each at most `max_length` tokens.

    A longer plain text becomes several sequences. Each begins with the last token of the previous one, so that every
    token but the first is learned once.
    """
    if example.is_text and not example.completion.strip():
        return []
    whole = np.asarray(ids, np.int32)
    if example.is_text:
        starts = range(0, max(1, len(ids) - 1), max_length - 1)
        chunks = (whole[start : start + max_length] for start in starts)
        return [EncodedRow(token_ids=chunk, spans=((1, len(chunk)),), truncated=False, row=row) for chunk in chunks]
    kept = whole[:max_length]
    inside = tuple((first, min(last, len(kept))) for first, last in spans if first < len(kept))
    return [EncodedRow(token_ids=kept, spans=inside, truncated=len(ids) > max_length, row=row)]


def tokenize(example: Example, tokenizer: Tokenizer, end_id: int) -> tuple[list[int], list[Span]]:
    """Return the token ids of an example, and the spans that are learned.

    Prompt and completion are tokenized separately, so that the prompt has the same tokens in evaluation.
    """
    ids = encode_prompt(example.first_prompt, tokenizer, templated=example.templated)
    spans: list[Span] = []
    before = ""
    for prompt, completion, ends in [*example.earlier, (example.prompt, example.completion, True)]:
        ids += encode_after(prompt, before, tokenizer) if spans else []
        first = len(ids)
        ids += encode_after(completion, prompt if example.templated else "", tokenizer)
        ids += [end_id] if ends else []
        spans.append((first, len(ids)))
        before = completion + str(tokenizer.decode([end_id])) * ends if example.templated else ""
    return ids, spans


def encode_after(text: str, before: str, tokenizer: Tokenizer) -> list[int]:
    """Tokenize a text that follows another one, if there is a token boundary between them.

    Some tokenizers prefix every text with a space, which a text after another one does not have.
    """
    context = before[-CONTEXT_CHARACTERS:]
    prefix: list[int] = tokenizer.encode(context, add_special_tokens=False) if context else []
    both: list[int] = tokenizer.encode(context + text, add_special_tokens=False)
    if both[: len(prefix)] == prefix:
        return both[len(prefix) :]
    return list(tokenizer.encode(text, add_special_tokens=False))


def encode_prompt(prompt: str, tokenizer: Tokenizer, *, templated: bool) -> list[int]:
    """Tokenize a rendered prompt as the model is given it.

    The tokenizer adds the begin token, unless a chat template wrote the prompt with all its special tokens.
    """
    ids: list[int] = tokenizer.encode(prompt, add_special_tokens=not templated)
    if templated or not ids or ids[-1] != tokenizer.eos_token_id:
        return ids
    # Some tokenizers append the end token to every text; a prompt must stay open. One in the prompt itself stays.
    plain = tokenizer.encode(prompt, add_special_tokens=False)
    return ids if ids.count(ids[-1]) == plain.count(ids[-1]) else ids[:-1]
