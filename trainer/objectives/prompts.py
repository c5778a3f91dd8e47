"""Rows as prompts alone: what completions are drawn to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from schemas.problems import Problem, ProblemError, problem_of, truncate_problems
from trainer.data.chat_template import each_rendered
from trainer.data.encode import EncodedData, Places, Tokenizer, prompt_ids
from trainer.data.files.encoded import EncodedRow, TokenFile
from trainer.data.render import render_question, texts_of
from trainer.data.row_problems import no_end_token
from trainer.data.special_tokens import special_token_problems


def encode_prompts(
    rows: Sequence[dict[str, Any]],
    tokenizer: Tokenizer,
    *,
    max_length: int,
    max_completion_tokens: int,
    file: str,
    lines: Sequence[int],
    template: str | None = None,
) -> EncodedData:
    """Return the prompt of each row as token ids.

    Args:
        rows: of any shape but plain text; what they teach to write is not looked at.
        tokenizer: the model's.
        max_length: tokens of a prompt with its completion.
        max_completion_tokens: tokens that are left for a completion.
        file: what messages call the dataset.
        lines: where its rows stand in it; rows beyond them were generated.
        template: how plain prompts are written. None: as by default those of each row's shape.

    Raises:
        ProblemError: exit code 2; the tokenizer has no end token, its chat template refuses a row, or a prompt has no
            token or leaves no room for a completion.
    """
    if tokenizer.eos_token_id is None:
        raise ProblemError([no_end_token(file)], exit_code=2)
    places = Places(len(rows), lines)
    rendered = each_rendered(
        rows, partial(render_question, tokenizer=tokenizer, template=template), file=file, lines=places
    )

    def each() -> Iterator[EncodedRow]:
        for index, example in rendered:
            ids = prompt_ids(example.prompt, tokenizer, templated=example.templated)
            yield EncodedRow(token_ids=tuple(ids), spans=(), truncated=False, row=index)

    encoded = TokenFile(each())
    room = max_length - max_completion_tokens
    if problems := list(truncate_problems(_problems_of(encoded.lengths.tolist(), room, file, places))):
        raise ProblemError(problems, exit_code=2)
    return EncodedData(
        encoded=encoded,
        lengths=encoded.lengths,
        widths=encoded.lengths,
        counts={
            "rows": len(rows),
            "prompt_tokens": int(np.sum(encoded.lengths)),
            "supervised_tokens": 0,
            "truncated_rows": 0,
            "rows_without_answer": 0,
            "end_token_supervised": False,
        },
        warnings=tuple(special_token_problems(rows, _prompt_texts, tokenizer, file=file, lines=places)),
    )


def _prompt_texts(row: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """Return the texts of a row that are put to the model: a completion is not."""
    return [(pointer, text, False) for pointer, text, learned in texts_of(row) if not learned]


def _problems_of(lengths: Sequence[int], room: int, file: str, places: Places) -> Iterator[Problem]:
    for number, length in enumerate(lengths):
        if length == 0:
            yield problem_of(
                "TP912",
                file=file,
                line=places[number],
                what=f"The tokenizer finds no token in the prompt of row {number}.",
            )
        elif length > room:
            what = f"The prompt of row {number} has {length} tokens; {max(room, 0)} are left beside the completion."
            yield problem_of("TP911", file=file, line=places[number], what=what)
