"""The prompts of an evaluation set as the model is given them, and whether they leave room for an output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evidence.rules.plausibility import describe_repeated_prompts
from evidence.scores.reading import Scoring, accepted_answers
from schemas.problems import Problem, problem_of
from trainer.data.chat_template import each_rendered
from trainer.data.encode import Tokenizer, prompt_ids
from trainer.data.render import PromptForm
from trainer.data.row_problems import in_other_words
from trainer.data.rows import RowFile
from trainer.data.special_tokens import special_token_problems


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The prompts of an evaluation, as far as they decide its memory."""

    prompts: int
    longest_tokens: int
    """Of the longest prompt."""


def prompts_of(items: RowFile, form: PromptForm, tokenizer: Tokenizer) -> list[list[int]]:
    """Return each item's prompt as the model was taught to be prompted, open at the end.

    Raises:
        ProblemError: exit code 2; the chat template refuses items.
    """
    texts = each_rendered(
        items.rows, lambda item: form.render(item["prompt"], tokenizer), file=str(items.path), lines=items.lines
    )
    templated = form.templated(tokenizer)
    return [prompt_ids(text, tokenizer, templated=templated) for _, text in texts]


def refused_prompts(
    prompts: Sequence[Sequence[int]], items: RowFile, *, model: str, max_positions: int, max_new_tokens: int
) -> list[Problem]:
    """Return the problem of outputs that leave no prompt room, or of prompts of which none has a token.

    A single prompt that is too long, or has no token at all, is an error of its row: the others are answered.

    Args:
        prompts: token ids, one of each item.
        items: the evaluation set.
        model: its name, for messages.
        max_positions: the model's.
        max_new_tokens: of an output.
    """
    lengths = [len(prompt) for prompt in prompts if prompt]
    if not lengths:
        what = f"The model's tokenizer finds no token in any prompt of {items.name}."
        return [problem_of("TP063", file=str(items.path), what=what)]
    shortest = min(lengths)
    if shortest + max_new_tokens <= max_positions:
        return []
    for_one, for_all = max_positions - shortest, max_positions - max(lengths)
    most = f"Set evaluation.max_new_tokens to at most {for_one}"
    most += f"; up to {for_all} leave room for every prompt." if 0 < for_all < for_one else "."
    shorter = "Use an evaluation set with shorter prompts, or a model with more positions."
    return [
        problem_of(
            "TP062",
            file=model,
            pointer="/evaluation/max_new_tokens",
            what=f"evaluation.max_new_tokens is {max_new_tokens} and the shortest prompt of {items.name} has "
            f"{shortest} tokens; {model} has {max_positions} positions.",
            next=most if for_one > 0 else shorter,
        )
    ]


def odd_items(
    items: RowFile, tokenizer: Tokenizer, prompts: Sequence[Sequence[int]], scoring: Scoring, *, max_prompt_tokens: int
) -> tuple[Problem, ...]:
    """Return what is odd about an evaluation set: special tokens in prompts, items that cannot be asked or be right."""
    special = special_token_problems(
        items.rows,
        lambda item: [("/prompt", item["prompt"], False)],
        tokenizer,
        file=str(items.path),
        lines=items.lines,
    )
    file, found = str(items.path), [*items.warnings, *special]
    unasked = [place for place, prompt in enumerate(prompts) if not 0 < len(prompt) <= max_prompt_tokens]
    if unasked:
        longest = max(map(len, prompts))
        why = f": the longest has {longest:,} tokens, and {max_prompt_tokens:,} leave room for an output."
        what = f"{len(unasked):,} of {len(prompts):,} items cannot be asked and count as wrong"
        what += why if longest > max_prompt_tokens else ": the tokenizer finds no token in them."
        found.append(problem_of("TP457", file=file, line=items.lines[unasked[0]], what=what))
    if repeated := describe_repeated_prompts(items.rows):
        found.append(problem_of("TP458", file=file, what=repeated))
    if unwritable := unwritable_items(items.rows, tokenizer, scoring):
        [(place, expected, made), *_] = unwritable
        what = f"{len(unwritable):,} of {len(prompts):,} items expect an answer that the tokenizer writes otherwise: "
        what += in_other_words(expected, made)
        found.append(problem_of("TP459", file=file, line=items.lines[place], what=what))
    return tuple(found)


def unwritable_items(
    items: Sequence[Mapping[str, Any]], tokenizer: Tokenizer, scoring: Scoring
) -> list[tuple[int, str, str]]:
    """Return place, first expected answer and what the tokenizer makes of it, of each item that can never be right."""
    found = []
    for place, item in enumerate(items):
        accepted = accepted_answers(item)
        # Some tokenizers write the first word of a text in another way than the same word behind a space.
        made = [
            str(tokenizer.decode(tokenizer.encode(before + each, add_special_tokens=False))).strip()
            for each in accepted
            for before in ("", " ")
        ]
        if not any(scoring.is_right(each, accepted) for each in made):
            found.append((place, accepted[0], made[0]))
    return found
