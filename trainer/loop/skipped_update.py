"""A step that changes nothing where its numbers are not finite, without a copy of what it would have changed.

Where an update may be left out, compilers hold parameters and moments before and after it side by side: CUDA's with
`jax.lax.cond`, a CPU's with `jnp.where` and with `fori_loop`. A `while_loop` of one turn or none changes them in place
on both, and on a TPU.

Parameters and moments of a skipped step stay as they are. The step counts all the same, for the next one takes the next
rows, and its learning rate is that of its number, so that every row of metrics.jsonl follows from the configuration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Int32

SKIPPED = "skipped_steps"
"""The field of a metric row: steps skipped since the start of training, this one included."""

IN_A_ROW = "skipped_in_a_row"
"""A figure of each step: those of them that end with this one."""

BEYOND = "skipped_beyond"
"""A figure of each step: how many of those are beyond the limit."""


class SkippedSteps(NamedTuple):
    """A part of the train state where `optimizer.max_nonfinite_steps` is set: saved and restored with it."""

    total: Int32[Array, ""]
    in_a_row: Int32[Array, ""]


def no_skipped_steps() -> SkippedSteps:
    """Return the count before the first step."""
    return SkippedSteps(total=jnp.int32(0), in_a_row=jnp.int32(0))


def next_skipped_steps(before: SkippedSteps, *, finite: Bool[Array, ""], most: int) -> SkippedSteps:
    """Return the count after a step.

    Once more than `most` are skipped in a row every step is, so that the state stays that of before the first of them
    until a loop that looks only now and then has seen it. With `most` 1, steps that are finite, not, not, finite
    have 0, 1, 2 and 3 in a row.

    Args:
        before: the step.
        finite: whether the step's numbers were.
        most: skipped steps in a row that a run survives, 0 or more.
    """
    skipped = ~finite | (before.in_a_row > jnp.int32(most))
    return SkippedSteps(
        total=before.total + skipped.astype(jnp.int32),
        in_a_row=jnp.where(skipped, before.in_a_row + jnp.int32(1), jnp.int32(0)),
    )


def update_where(
    taken: Bool[Array, ""], update: Callable[[Any, Any], tuple[Any, Any]], params: Any, opt_state: Any
) -> tuple[Any, Any]:
    """Return parameters and optimizer state after an update, or before it where the step is not taken.

    Args:
        taken: whether the step is.
        update: from parameters and optimizer state to those after the step.
        params: before the step.
        opt_state: before the step; its place in the schedule goes on, whatever is skipped.
    """

    def turn(held: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        return jnp.zeros((), jnp.bool_), *update(held[1], held[2])

    _, after, changed = jax.lax.while_loop(lambda held: held[0], turn, (taken, params, opt_state))

    def is_place(node: Any) -> bool:
        return isinstance(node, optax.ScaleByScheduleState)

    def gone_on(new: Any, old: Any) -> Any:
        return optax.ScaleByScheduleState(count=old.count + jnp.int32(1)) if is_place(old) else new

    return after, jax.tree.map(gone_on, changed, opt_state, is_leaf=is_place)
