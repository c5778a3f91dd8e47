"""From text to the arrays the train step takes, and the counts that show what is really learned.

Failures that nobody notices in a loss curve are refused here: a row whose answer is not supervised, because it was cut
off or the tokenizer does not know it, and rows none of which has a supervised end token, after which a model never
learns to stop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int32

from schemas.catalog import VERSION
from schemas.problems.problem import Problem, ProblemError
from trainer.data.chat_template import ChatTokenizer, each_rendered
from trainer.data.render import Example, PromptForm, form_of, render_row, texts_of
from trainer.data.row_problems import Where, lost_answers, no_end_token, no_whole_row, unknown_answers
from trainer.data.special_tokens import MarkedTokenizer, special_token_problems


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
class EncodedRow:
    """One row as token ids, padding left out."""

    token_ids: tuple[int, ...]
    prompt_tokens: int
    """How many of them come first and are not supervised."""
    truncated: bool


@dataclass(frozen=True, kw_only=True)
class EncodedData:
    """All rows as token ids, with the counts of `first_examples.json`."""

    encoded: tuple[EncodedRow, ...]
    counts: dict[str, int | bool]
    warnings: tuple[Problem, ...]
    """What is odd about the rows and keeps nobody from training on them."""


def encode_rows(
    rows: Sequence[dict[str, Any]],
    tokenizer: Tokenizer,
    *,
    max_length: int,
    file: str,
    lines: Sequence[int] | None = None,
    max_positions: int | None = None,
) -> EncodedData:
    """Return rows as token ids, at most `max_length` each.

    Args:
        rows: rows of any shape that `dataset_row.schema.json` allows.
        tokenizer: the model's tokenizer; the end token of the rows' form closes every completion.
        max_length: tokens per row; longer rows are cut.
        file: what messages call the dataset.
        lines: where its rows stand in it; rows beyond them are from elsewhere. None: one on each line.
        max_positions: the model's, beyond which no `max_length` helps. None: not known.

    Raises:
        ProblemError: exit code 2; the tokenizer has no end token or does not know an answer, its chat template refuses
            a row, an end token stands inside a completion, or cutting took a row's answer or every row's end.
    """
    if tokenizer.eos_token_id is None:
        raise ProblemError([no_end_token(file)], exit_code=2)
    places = places_of(len(rows), lines)
    form = form_of(rows)
    ends = (form.end_token(tokenizer), tokenizer.eos_token)
    special = special_token_problems(rows, texts_of, tokenizer, file=file, lines=places, ends=ends)
    if any(problem.severity == "error" for problem in special):
        raise ProblemError(special, exit_code=2)
    examples = each_rendered(rows, lambda row: render_row(row, tokenizer), file=file, lines=places)
    end_id = end_token_id(tokenizer, form)
    encoded = tuple(encode_example(example, tokenizer, max_length, end_id) for example in examples)
    where = Where(max_length=max_length, max_positions=max_positions, file=file, lines=places)
    refuse_what_is_not_taught(examples, encoded, tokenizer, end_id, where)
    tokens, loss_mask = padded(encoded, max_length)
    return EncodedData(
        encoded=encoded,
        counts={
            "rows": len(encoded),
            "prompt_tokens": sum(row.prompt_tokens for row in encoded),
            "supervised_tokens": int(loss_mask.sum()),
            "truncated_rows": sum(row.truncated for row in encoded),
            "rows_without_answer": 0,  # they are refused
            "end_token_supervised": ends_are_supervised(encoded, tokens, loss_mask, end_id),
        },
        warnings=tuple(special),
    )


def refuse_what_is_not_taught(
    examples: Sequence[Example], encoded: Sequence[EncodedRow], tokenizer: Tokenizer, end_id: int, where: Where
) -> None:
    """Refuse rows that lost their answer, and rows of which none has its end."""
    pairs = enumerate(zip(examples, encoded, strict=True))
    lost = [index for index, (example, row) in pairs if not has_its_answer(example, row, tokenizer)]
    if lost:
        cut = {index: needed_tokens(examples[index], tokenizer, end_id) for index in lost if encoded[index].truncated}
        whole = {index: text_of(encoded[index], tokenizer) for index in lost if index not in cut}
        raise ProblemError([*lost_answers(cut, where), *unknown_answers(whole, where)], exit_code=2)
    if all(row.truncated for row in encoded):
        shortest = min(needed_tokens(example, tokenizer, end_id) for example in examples)
        raise ProblemError([no_whole_row(len(encoded), shortest, where)], exit_code=2)


def places_of(rows: int, lines: Sequence[int] | None) -> list[int | None]:
    """Return the line of each row, None for those beyond the file's."""
    known = range(1, rows + 1) if lines is None else lines
    return [*known, *[None] * (rows - len(known))]


def encode_example(example: Example, tokenizer: Tokenizer, max_length: int, end_id: int) -> EncodedRow:
    """Return one example as at most `max_length` token ids, the last of a whole one `end_id`.

    Prompt and completion are encoded apart, so that the completion's first token is the same when a prompt is given
    alone, as it is in evaluation.
    """
    prompt = prompt_ids(example.prompt, tokenizer, templated=example.templated)
    completion = tokenizer.encode(example.completion, add_special_tokens=False)
    whole = [*prompt, *completion, end_id]
    kept = tuple(whole[:max_length])
    return EncodedRow(token_ids=kept, prompt_tokens=min(len(prompt), len(kept)), truncated=len(whole) > max_length)


def prompt_ids(prompt: str, tokenizer: Tokenizer, *, templated: bool) -> list[int]:
    """Return a rendered prompt as the model is given it, open at the end.

    A begin token, where the model has one, comes from the tokenizer, unless a chat template wrote the prompt: such a
    text has all its special tokens already, and is encoded as transformers' `apply_chat_template` does it.
    """
    ids = tokenizer.encode(prompt, add_special_tokens=not templated)
    # Some tokenizers close every text with the end token; a prompt must stay open.
    closed = bool(ids) and not templated and ids[-1] == tokenizer.eos_token_id
    return ids[:-1] if closed else ids


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
    supervised = row.token_ids[row.prompt_tokens : None if row.truncated else -1]
    return any(token != tokenizer.unk_token_id for token in supervised)


def text_of(row: EncodedRow, tokenizer: Tokenizer) -> str:
    """Return what a row teaches to write, letter for letter."""
    supervised = row.token_ids[row.prompt_tokens :]
    return str(tokenizer.decode(supervised, clean_up_tokenization_spaces=False))


def padded(
    encoded: Sequence[EncodedRow], max_length: int
) -> tuple[Int32[np.ndarray, "rows seq"], Bool[np.ndarray, "rows seq"]]:
    """Return token ids and loss mask, padded on the right with token 0, which the mask leaves out.

    The mask says whether the loss asks for a token, so it is false on prompts and padding and true on completions and
    the end token. A row of the ids `[7, 8, 9]` with one prompt token gives, at length 4, `[7, 8, 9, 0]` and
    `[0, 1, 1, 0]`.
    """
    tokens = np.zeros((len(encoded), max_length), np.int32)
    loss_mask = np.zeros((len(encoded), max_length), np.bool_)
    for index, row in enumerate(encoded):
        tokens[index, : len(row.token_ids)] = row.token_ids
        loss_mask[index, row.prompt_tokens : len(row.token_ids)] = True
    return tokens, loss_mask


def ends_are_supervised(
    encoded: Sequence[EncodedRow],
    tokens: Int32[np.ndarray, "rows seq"],
    loss_mask: Bool[np.ndarray, "rows seq"],
    end_token: int,
) -> bool:
    """Return whether the arrays ask for the end token at the end of every row that was not cut, and there is one.

    Where every row was cut, no end is ever learned. Whole rows of `[7, 2]` and `[8, 9, 2]` with the end token 2 and the
    mask `[0, 1, 0]`, `[0, 1, 1]` give True; without the last 1 they give False.
    """
    whole = [(index, len(row.token_ids) - 1) for index, row in enumerate(encoded) if not row.truncated]
    return bool(whole) and all(tokens[place] == end_token and loss_mask[place] for place in whole)


def first_examples(data: EncodedData, order: Sequence[int], tokenizer: Tokenizer, *, run_id: str) -> dict[str, Any]:
    """Return the document `first_examples.json`: the rows of `order` as the model sees them, and the counts."""
    return {
        "schema_version": VERSION,
        "run_id": run_id,
        "examples": [shown_row(index, data.encoded[index], tokenizer) for index in order],
        "counts": data.counts,
    }


def shown_row(index: int, row: EncodedRow, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return one row with each token's text and whether it is supervised."""
    return {
        "row": index,
        "text": str(tokenizer.decode(row.token_ids)),
        "tokens": [
            {"id": token, "text": str(tokenizer.decode([token])), "supervised": position >= row.prompt_tokens}
            for position, token in enumerate(row.token_ids)
        ],
        "truncated": row.truncated,
    }


def needed_tokens(example: Example, tokenizer: Tokenizer, end_id: int) -> int:
    """Return the length at which an example is not cut."""
    return len(encode_example(example, tokenizer, max_length=1 << 30, end_id=end_id).token_ids)
