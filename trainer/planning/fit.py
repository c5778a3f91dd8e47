"""Whether rows, prompts and outputs have room in a model's positions."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.problems.problem import Problem, ProblemError
from trainer.config.tree import Config
from trainer.data.rows import RowFile
from trainer.model.files.source import ModelSource


def refuse_too_long_sequences(config: Config, source: ModelSource) -> None:
    """Refuse rows with more tokens than the model has positions."""
    positions = source.spec.max_positions
    if config.data.max_length <= positions:
        return
    problem = Problem(
        code="TP061",
        severity="error",
        file=config.model.name,
        pointer="/data/max_length",
        what=f"data.max_length is {config.data.max_length}; {config.model.name} has {positions} positions.",
        next=f"Set data.max_length to at most {positions}.",
    )
    raise ProblemError([problem], exit_code=2)


def refuse_what_leaves_no_room(
    config: Config, source: ModelSource, items: RowFile, prompts: Sequence[Sequence[int]]
) -> None:
    """Refuse outputs so long that no prompt has room beside them, and prompts of which none has a token.

    A single prompt that is too long, or has no token at all, is an error of its row: the others are answered.

    Args:
        config: the run.
        source: its model.
        items: the evaluation set.
        prompts: the token ids of its prompts.
    """
    lengths = [len(prompt) for prompt in prompts if prompt]
    if not lengths:
        raise ProblemError([no_prompt_with_a_token(items)], exit_code=2)
    if min(lengths) + config.evaluation.max_new_tokens > source.spec.max_positions:
        raise ProblemError([no_room_for_a_prompt(config, source, items, lengths)], exit_code=2)


def no_room_for_a_prompt(config: Config, source: ModelSource, items: RowFile, lengths: list[int]) -> Problem:
    """Return the problem of an evaluation in which no prompt leaves room for an output of the length asked for."""
    positions = source.spec.max_positions
    for_one, for_all = positions - min(lengths), positions - max(lengths)
    return Problem(
        code="TP062",
        severity="error",
        file=config.model.name,
        pointer="/evaluation/max_new_tokens",
        what=f"evaluation.max_new_tokens is {config.evaluation.max_new_tokens} and the shortest prompt of {items.name} "
        f"has {min(lengths)} tokens; {config.model.name} has {positions} positions.",
        why="Prompt and output share the positions, so no item could be answered.",
        next=f"Set evaluation.max_new_tokens to at most {for_one}"
        + (f"; up to {for_all} leave room for every prompt." if 0 < for_all < for_one else ".")
        if for_one > 0
        else "Use an evaluation set with shorter prompts, or a model with more positions.",
    )


def no_prompt_with_a_token(items: RowFile) -> Problem:
    """Return the problem of an evaluation in which no prompt gives the model anything to continue."""
    return Problem(
        code="TP063",
        severity="error",
        file=str(items.path),
        what=f"The model's tokenizer finds no token in any prompt of {items.name}.",
        why="A prompt without tokens leaves nothing to continue, so no item could be answered.",
        next="Use an evaluation set in words that the model's tokenizer knows.",
    )
