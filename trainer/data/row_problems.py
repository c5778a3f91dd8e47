"""Problems of rows that would not teach what they hold: no end, no answer. `encode.py` finds them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from evidence.rules.plausibility import describe_truncation
from schemas.formats import format_value, join_words, quantity
from schemas.problems import Problem, problem_of, truncate_problems
from trainer.data.chat_template import SHOWN_ROWS

BEFORE_DIFFERENCE = 12
"""Characters that are shown before two texts differ."""


@dataclass(frozen=True, kw_only=True)
class Where:
    """Where rows stand, and how long they may be."""

    max_length: int
    """At which rows are cut."""
    max_positions: int | None
    """The model's; longer rows cannot be kept whole. None: not known."""
    file: str
    """The dataset."""
    lines: Sequence[int | None]
    """Where its rows stand in it."""

    def fix(self, tokens: int) -> str:
        """Return what keeps a row of so many tokens whole."""
        if self.max_positions is None or tokens <= self.max_positions:
            return f"Set data.max_length to at least {tokens}, or shorten or remove rows."
        return f"Shorten or remove rows: the longest has {tokens} tokens, the model {self.max_positions} positions."


def no_end_token(file: str) -> Problem:
    """Return the problem of a tokenizer without an end token."""
    return problem_of(
        "TP020",
        file=file,
        what="The model's tokenizer has no end token.",
        expected="eos_token in tokenizer_config.json",
    )


def untaught_tasks(indices: Sequence[int], where: Where) -> list[Problem]:
    """Return the problem of the first row, by its index, that is a task and teaches no text, and how many there are."""
    if not indices:
        return []
    more = f"; so are {len(indices) - 1:,} more" if len(indices) > 1 else ""
    what = f"Row {indices[0]} is a task{more}."
    return [problem_of("TP908", file=where.file, line=where.lines[indices[0]], what=what)]


def lost_answers(rows: Collection[int], longest: int, where: Where) -> list[Problem]:
    """Return the problem of rows whose answer was cut off, given how many tokens the longest of all rows has."""
    if not rows:
        return []
    named = [f"row {row}" for row in sorted(rows)[:SHOWN_ROWS]] + ["others"] * (len(rows) > SHOWN_ROWS)
    what = f"data.max_length is {where.max_length}, but {len(rows):,} of {len(where.lines):,} examples lose their "
    what += f"answer at that length: {join_words(named, last='and')}."
    return [problem_of("TP021", file=where.file, line=where.lines[min(rows)], what=what, next=where.fix(longest))]


def unknown_answers(texts: dict[int, str], where: Where) -> list[Problem]:
    """Return a problem for each of the first whole rows whose answer the tokenizer does not know.

    Args:
        texts: what the tokenizer makes of each such row, by its index.
        where: the dataset.
    """
    found = (
        problem_of(
            "TP025",
            file=where.file,
            line=where.lines[index],
            what=(
                f"The model's tokenizer makes {format_value(text)} of what row {index} teaches; "
                "its answer is not in it."
            ),
            next="Use the tokenizer that the model was trained with, or write the row in text that it knows.",
        )
        for index, text in texts.items()
    )
    return list(truncate_problems(found))


def cut_examples(counts: dict[str, int | bool], where: Where) -> Iterator[Problem]:
    """Yield the warning that examples lose the end of their answer, an error where most do."""
    if not counts["truncated_rows"]:
        return
    what, fix = describe_truncation(counts, where.max_length), where.fix(counts["longest_row_tokens"])
    rule = "TP026" if 2 * counts["truncated_rows"] > counts["rows"] else "TP455"
    yield problem_of(rule, file=where.file, what=what, next=fix)


def written_otherwise(text: str, made: str, indices: Collection[int], where: Where) -> Problem:
    """Return the warning that the tokenizer makes another text of rows, with one of the first row before and after."""
    what = f"{len(indices):,} of {quantity(len(where.lines), 'row')} are learned otherwise than they are written: "
    what += in_other_words(text, made)
    return problem_of("TP456", file=where.file, line=where.lines[min(indices)], what=what)


def in_other_words(text: str, made: str) -> str:
    """Return a text and what the tokenizer makes of it, both from shortly before they differ."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(text, made, strict=False)))
    start = max(0, same - BEFORE_DIFFERENCE)
    return f"of {format_value(text[start:])} the tokenizer makes {format_value(made[start:])}."
