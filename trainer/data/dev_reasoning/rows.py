"""Rows of `dev-reasoning-v2`: the 550 committed ones, and as many more as a run asks for."""

from itertools import islice
from typing import Any

from trainer.data.dev_reasoning.evaluation import eval_prompts
from trainer.data.dev_reasoning.sampling import Drawn, draw_problems, prompt_key

DATASET = "dev-reasoning-v2"
COUNT = 550
SEED = 7
TRACE_VERSION = "2"


def build_dataset(eval_prompts: frozenset[str]) -> list[dict[str, Any]]:
    """Return the rows of the committed dataset, given the prompts of the evaluation sets."""
    return _draw_rows(COUNT, SEED, eval_prompts)


def generate_rows(count: int, seed: int, *, exclude_prompts: frozenset[str]) -> list[dict[str, Any]]:
    """Return further rows of the dataset: no prompt twice, none of an evaluation set.

    Args:
        count: how many rows.
        seed: decides which; the committed rows have seed 7.
        exclude_prompts: further prompts to leave out, for example those of the committed rows. Prompts that differ
            only in case, white space or punctuation are left out too.

    Raises:
        ValueError: the generator has fewer different prompts than that.
    """
    return _draw_rows(count, seed, exclude_prompts | eval_prompts())


def _draw_rows(count: int, seed: int, exclude_prompts: frozenset[str]) -> list[dict[str, Any]]:
    keys = frozenset(prompt_key(prompt) for prompt in exclude_prompts)
    return [_row(drawn) for drawn in islice(draw_problems(seed, excluded_keys=keys), count)]


def _row(drawn: Drawn) -> dict[str, Any]:
    steps = [
        {"i": position, "type": step.type, "content": step.content} for position, step in enumerate(drawn.problem.steps)
    ]
    return {
        "trace_version": TRACE_VERSION,
        "prompt": drawn.problem.prompt,
        "final_answer": drawn.problem.answer,
        "steps": steps,
        "meta": {"category": drawn.kind.category, "kind": drawn.kind.name, "difficulty": drawn.difficulty},
    }
