"""Which roll-outs of a run stand in rollouts.jsonl: the trainer writes these, and the checker expects them."""

from __future__ import annotations

from collections.abc import Iterator

WRITTEN_ROLLOUTS = 20
"""Roll-outs between which lie equally many that are not written; of fewer than twice as many all are."""


def written_steps(steps: int, updates_per_rollout: int) -> Iterator[int]:
    """Yield the optimizer steps, from 1, whose completions are written: the first, then evenly, and the last.

    Of 100 steps with one update each these are 1, 6, 11, … 96 and 100; of 8 steps with two updates 1, 3, 5 and 7.

    Args:
        steps: that the run plans.
        updates_per_rollout: optimizer steps on completions that are drawn once.
    """
    count = -(-steps // updates_per_rollout)
    apart = max(1, count // WRITTEN_ROLLOUTS)
    for number in range(0, count, apart):
        yield number * updates_per_rollout + 1
    if (count - 1) % apart:
        yield (count - 1) * updates_per_rollout + 1
