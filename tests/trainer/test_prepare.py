"""What is refused before anything is spent, in whole messages."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from schemas.problems import ProblemError
from schemas.render import as_text
from trainer.config.tree import Config, Evaluation
from trainer.prepare import prepare


def refusal(config: Config) -> str:
    with pytest.raises(ProblemError) as caught:
        prepare(config, forced=False)
    assert caught.value.exit_code == 2
    return as_text(caught.value.problems)


def set_of(folder: Path, *prompts: str) -> str:
    path = folder / "items.jsonl"
    items = [{"id": str(number), "prompt": prompt, "expected": "4"} for number, prompt in enumerate(prompts)]
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
    return str(path)


def test_an_output_that_leaves_no_prompt_room_is_refused_with_the_length_that_does(config: Config, tmp_path: Path):
    # A prompt is followed by a line end; "a" is one token, "a a a a" are more.
    items = set_of(tmp_path, "a", "a a a a")
    evaluation = Evaluation(eval_set=items, max_new_tokens=1024)
    assert refusal(replace(config, evaluation=evaluation)) == (
        "error TP062: tiny-gpt2 at /evaluation/max_new_tokens: "
        "evaluation.max_new_tokens is 1024 and the shortest prompt "
        "of items.jsonl has 2 tokens; tiny-gpt2 has 512 positions.\n"
        "  Prompt and output share the positions, so no item could be answered.\n"
        "  Next: Set evaluation.max_new_tokens to at most 510; up to 504 leave room for every prompt.\n"
    )
    assert prepare(replace(config, evaluation=replace(evaluation, max_new_tokens=510)), forced=False).items


def test_prompts_that_fill_every_position_are_refused(config: Config, tmp_path: Path):
    items = set_of(tmp_path, "a " * 600)
    assert refusal(replace(config, evaluation=Evaluation(eval_set=items, max_new_tokens=4))) == (
        "error TP062: tiny-gpt2 at /evaluation/max_new_tokens: "
        "evaluation.max_new_tokens is 4 and the shortest prompt of "
        "items.jsonl has 1201 tokens; tiny-gpt2 has 512 positions.\n"
        "  Prompt and output share the positions, so no item could be answered.\n"
        "  Next: Use an evaluation set with shorter prompts, or a model with more positions.\n"
    )


def test_everything_that_exceeds_the_positions_is_named_at_once(config: Config):
    both = replace(
        config,
        data=replace(config.data, max_length=513),
        evaluation=Evaluation(eval_set="eval_v1", max_new_tokens=512),
    )
    assert refusal(both) == (
        "error TP061: tiny-gpt2 at /data/max_length: data.max_length is 513; tiny-gpt2 has 512 positions.\n"
        "  Next: Set data.max_length to at most 512.\n"
        "error TP062: tiny-gpt2 at /evaluation/max_new_tokens: "
        "evaluation.max_new_tokens is 512 and the shortest prompt "
        "of eval_v1 has 6 tokens; tiny-gpt2 has 512 positions.\n"
        "  Prompt and output share the positions, so no item could be answered.\n"
        "  Next: Set evaluation.max_new_tokens to at most 506; up to 496 leave room for every prompt.\n"
    )
