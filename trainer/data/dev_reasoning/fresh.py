"""New items of a built-in evaluation set's kinds, under a seed of a user's own."""

from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any

from trainer.data.dev_reasoning.catalog import DATASET_SHARES
from trainer.data.dev_reasoning.evaluation import SETS, eval_prompts, in_shares, item_of
from trainer.data.dev_reasoning.sampling import DrawnProblem, draw_problems, prompt_key

MOST_DRAWS = 20
"""Draws for each item; a kind with 7 % of a set is drawn often enough in one and a half, on average."""


def fresh_items(
    eval_set: str | None, dataset: str, count: int, seed: int, *, training: Collection[str]
) -> tuple[list[dict[str, Any]], int] | None:
    """Return items drawn in the shares of an evaluation set, and how many were left out because training has them.

    None of the committed evaluation sets has any of them.

    Args:
        eval_set: A built-in set whose kinds are drawn. Any other, or None: the kinds of the dataset.
        dataset: A built-in dataset. Any other: there is no generator of its kinds.
        count: How many.
        seed: Decides which.
        training: Prompts of the training rows.

    Returns:
        None where neither set nor dataset is built in.

    Raises:
        ValueError: The generator has fewer different prompts than that.
    """
    shares = SETS[eval_set][0] if eval_set is not None and eval_set in SETS else DATASET_SHARES.get(dataset)
    if shares is None:
        return None
    seen = frozenset(map(prompt_key, training))
    left_out: list[DrawnProblem] = []

    def new_to_the_model(drawn: DrawnProblem) -> bool:
        is_seen = prompt_key(drawn.problem.prompt) in seen
        if is_seen:
            left_out.append(drawn)
        return not is_seen

    drawn = at_most(
        MOST_DRAWS * count + len(seen),
        draw_problems(seed, shares, excluded_keys=frozenset(map(prompt_key, eval_prompts()))),
    )
    chosen = in_shares(filter(new_to_the_model, drawn), shares, count)
    return [item_of(f"seed-{seed}", number, each) for number, each in enumerate(chosen, 1)], len(left_out)


def at_most(count: int, drawn: Iterator[DrawnProblem]) -> Iterator[DrawnProblem]:
    """Yield problems, and give up after so many: a kind may be exhausted while the others go on for ever.

    Raises:
        ValueError: that many were drawn, and more are requested.
    """
    yield from islice(drawn, count)
    message = f"a kind of problem has no new prompt left after {count:,} draws."
    raise ValueError(message)
