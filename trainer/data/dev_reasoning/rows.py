"""Rows of the built-in datasets: the committed ones, and as many more as a run requests."""

from collections.abc import Mapping
from itertools import islice
from typing import Any

from trainer.data.dev_reasoning.catalog import DATASET_SHARES
from trainer.data.dev_reasoning.evaluation import eval_prompts
from trainer.data.dev_reasoning.sampling import DrawnProblem, draw_problems, prompt_key

DATASET = "dev-reasoning-v2"
"""The dataset that the built-in tokenizer was trained on."""
COMMITTED: Mapping[str, tuple[int, int]] = {DATASET: (550, 7), "dev-stories-v1": (100, 8)}
"""Each dataset with its number of committed rows and their seed."""
TRACE_VERSION = "2"


def build_dataset(name: str, eval_prompts: frozenset[str]) -> list[dict[str, Any]]:
    """Return the rows of a committed dataset, given the prompts of the evaluation sets."""
    return _draw_rows(name, *COMMITTED[name], eval_prompts)


def generate_rows(dataset: str, count: int, seed: int, *, exclude_prompts: frozenset[str]) -> list[dict[str, Any]]:
    """Return further rows of a dataset: no prompt twice, none of an evaluation set.

    Args:
        dataset: its name.
        count: how many rows.
        seed: decides which; the committed rows have seeds of their own.
        exclude_prompts: further prompts to leave out, for example those of the committed rows. Prompts that differ
            only in case, white space or punctuation are left out too.

    Raises:
        ValueError: the generator has fewer different prompts than that.
    """
    return _draw_rows(dataset, count, seed, exclude_prompts | eval_prompts())


def _draw_rows(dataset: str, count: int, seed: int, exclude_prompts: frozenset[str]) -> list[dict[str, Any]]:
    keys = frozenset(prompt_key(prompt) for prompt in exclude_prompts)
    drawn = draw_problems(seed, DATASET_SHARES[dataset], excluded_keys=keys)
    return [_row(one) for one in islice(drawn, count)]


def _row(drawn: DrawnProblem) -> dict[str, Any]:
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
