"""Problems of rows that would not teach what they hold: no end, no answer. `encode.py` finds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.problems.problem import Problem
from schemas.problems.rule import Rule, problem_of
from schemas.problems.words import show
from trainer.data.chat_template import SHOWN_ROWS

NO_END = Rule(
    "TP020",
    "No end token",
    "Without one in the training text the model never learns to stop.",
    "Name the token that ends a text as eos_token in the model's tokenizer_config.json.",
)
CUT_OFF = Rule(
    "TP021", "Answer cut off", "The model would learn the question and never the answer.", "Raise data.max_length."
)
UNKNOWN = Rule(
    "TP025",
    "Answer that the tokenizer does not know",
    "A model learns and writes only what its tokenizer knows.",
    "Use the tokenizer that the model was trained with.",
)
NONE_WHOLE = Rule(
    "TP026",
    "No row is kept whole",
    "Without an end token in the training text the model never learns to stop.",
    "Raise data.max_length.",
)

NOTHING_TO_LEARN = Rule(
    "TP908",
    "Task without a text to learn",
    "A task states how an answer is judged and none that could be learned.",
    "Learn from rewards, `objective.kind: grpo`, or give the rows completions.",
)


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

    def holds(self, tokens: int) -> bool:
        """Return whether the model can take so many tokens."""
        return self.max_positions is None or tokens <= self.max_positions


def no_end_token(file: str) -> Problem:
    """Return the problem of a tokenizer without an end token."""
    return problem_of(
        NO_END, file=file, what="The model's tokenizer has no end token.", expected="eos_token in tokenizer_config.json"
    )


def untaught_tasks(indices: Sequence[int], where: Where) -> list[Problem]:
    """Return the problem of the first row, by its index, that is a task and teaches no text, and how many there are."""
    if not indices:
        return []
    more = f"; so are {len(indices) - 1:,} more" if len(indices) > 1 else ""
    what = f"Row {indices[0]} is a task{more}."
    return [problem_of(NOTHING_TO_LEARN, file=where.file, line=where.lines[indices[0]], what=what)]


def lost_answers(needed: dict[int, int], where: Where) -> list[Problem]:
    """Return a problem for each of the first rows whose answer was cut off, and one for the rest.

    Args:
        needed: the tokens of each such row, by its index.
        where: the dataset and its lengths.
    """
    problems = [
        problem_of(
            CUT_OFF,
            file=where.file,
            line=where.lines[index],
            what=f"Row {index} has {tokens} tokens; cut to {where.max_length}, it loses its answer.",
            next=f"Use --set data.max_length={tokens}, or shorten or remove the row."
            if where.holds(tokens)
            else f"Shorten or remove the row: the model has {where.max_positions} positions.",
        )
        for index, tokens in list(needed.items())[:SHOWN_ROWS]
    ]
    rest = list(needed.values())[SHOWN_ROWS:]
    if rest:
        longest, most = max(needed.values()), where.max_positions
        problems.append(
            problem_of(
                CUT_OFF,
                file=where.file,
                what=f"{len(rest)} further rows lose their answer at {where.max_length} tokens.",
                why=None,
                next=f"Use --set data.max_length={longest} to keep every row whole."
                if where.holds(longest)
                else f"Shorten or remove rows of more than {most} tokens: the model has no more positions.",
            )
        )
    return problems


def unknown_answers(texts: dict[int, str], where: Where) -> list[Problem]:
    """Return a problem for each of the first whole rows whose answer the tokenizer does not know, one for the rest.

    Args:
        texts: what the tokenizer makes of each such row, by its index.
        where: the dataset.
    """
    problems = [
        problem_of(
            UNKNOWN,
            file=where.file,
            line=where.lines[index],
            what=f"The model's tokenizer makes {show(text)} of what row {index} teaches; its answer is not in it.",
            next="Use the tokenizer that the model was trained with, or write the row in text that it knows.",
        )
        for index, text in list(texts.items())[:SHOWN_ROWS]
    ]
    if len(texts) > SHOWN_ROWS:
        problems.append(
            problem_of(
                UNKNOWN,
                file=where.file,
                what=f"The model's tokenizer does not know the answers of {len(texts) - SHOWN_ROWS} further rows.",
                why=None,
            )
        )
    return problems


def no_whole_row(rows: int, shortest: int, where: Where) -> Problem:
    """Return the problem of rows that are all cut; the shortest has `shortest` tokens."""
    return problem_of(
        NONE_WHOLE,
        file=where.file,
        what=f"All rows ({rows}) are cut to {where.max_length} tokens, so none of them ends.",
        next=f"Use --set data.max_length={shortest} or more, which keeps the shortest row whole."
        if where.holds(shortest)
        else f"Shorten rows: the shortest has {shortest} tokens, and the model has {where.max_positions} positions.",
    )
