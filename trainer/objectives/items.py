"""An evaluation set as it is put to a model: its prompts in tokens, and what is odd about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evidence.scores.reading import Scoring
from schemas.problems import Problem
from trainer.config.tree import Config
from trainer.data.answers import rows_of_another_form, unreadable_items
from trainer.data.encode import Tokenizer
from trainer.data.prompts import odd_items, prompts_of, refused_prompts
from trainer.data.render import PromptForm
from trainer.data.rows import RowFile


@dataclass(frozen=True, kw_only=True)
class Items:
    """An evaluation set as it is put to the model."""

    file: RowFile
    prompts: list[list[int]]
    """Token ids, one of each item."""
    warnings: tuple[Problem, ...]
    """What is odd about the items, and about the rows that are to teach their answers."""


def items_of(
    config: Config,
    file: RowFile,
    rows: Sequence[dict[str, Any]],
    form: PromptForm,
    tokenizer: Tokenizer,
    scoring: Scoring,
    problems: list[Problem],
    *,
    max_positions: int,
) -> Items:
    """Return an evaluation set as it is put to a model.

    Args:
        config: the run.
        file: the set.
        rows: that are learned from.
        form: how prompts are put to the model.
        tokenizer: the model's.
        scoring: how answers are read.
        problems: what keeps all items from being answered, or any from being read, is added to them.
        max_positions: the model's.

    Raises:
        ProblemError: exit code 2; the chat template refuses items.
    """
    prompts = prompts_of(file, form, tokenizer)
    problems += unanswerable(config, file, prompts, max_positions=max_positions)
    problems += (unreadable := unreadable_items(file, scoring))
    of_rows = (
        []
        if unreadable
        else rows_of_another_form(rows, scoring, file, file=config.data.dataset, stop=config.evaluation.stop)
    )
    room = max_positions - config.evaluation.max_new_tokens
    warnings = (*odd_items(file, tokenizer, prompts, scoring, max_prompt_tokens=room), *of_rows)
    return Items(file=file, prompts=prompts, warnings=warnings)


def unanswerable(config: Config, file: RowFile, prompts: list[list[int]], *, max_positions: int) -> list[Problem]:
    """Return what keeps every item of an evaluation set from being answered."""
    return refused_prompts(
        prompts,
        file,
        model=config.model.name,
        max_positions=max_positions,
        max_new_tokens=config.evaluation.max_new_tokens,
    )
