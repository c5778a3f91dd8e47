"""Handle numbers that are not finite: dynamic loss scaling, skipped steps, and when a run must end.

float16 gradients smaller than 6e-8 underflow, so the loss is multiplied before it is differentiated and the gradient
divided by the same factor in float32 (arXiv 1710.03740, section 3.2). The factor follows the rule and the constants of
`torch.amp.GradScaler`: it halves after a gradient that is not finite and doubles after 2,000 finite ones in a row.

A skipped step leaves parameters and optimizer state unchanged. It still counts: the next step takes the next rows and
the learning rate of its own number, so every row of metrics.jsonl follows from the configuration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float32, Int32

from schemas.formats import quantity
from trainer.config.tree import PrecisionConfig

INITIAL_SCALE = 65536.0
GROWTH_FACTOR = 2.0
BACKOFF_FACTOR = 0.5
GROWTH_INTERVAL = 2000
"""Finite gradients in a row after which the scale grows."""

MIN_SCALE = 1.0
"""A run ends below this scale: unscaled gradients overflow float16 too."""

LOSS_SCALE, SKIPPED = "loss_scale", "skipped_steps"
SKIPPED_IN_A_ROW, SKIPPED_BEYOND = "skipped_in_a_row", "skipped_beyond"
"""Metrics: the factor of the loss, and steps skipped in total, in a row, and in a row beyond the limit."""

MAX_LISTED = 32
"""Rows of a batch that a message lists."""

REMEDY = "set precision.compute to bfloat16 or float32, or lower optimizer.learning_rate"


class LossScale(NamedTuple):
    """Loss scale, a part of the train state."""

    scale: Float32[Array, ""]
    good_steps: Int32[Array, ""]
    """Finite gradients in a row since the scale last changed."""


def uses_loss_scale(precision: PrecisionConfig) -> bool:
    """Return whether the loss of a run is scaled, that is, whether matrix products are float16."""
    return precision.compute == "float16"


def initial_loss_scale() -> LossScale:
    """Return the loss scale before the first step."""
    return LossScale(scale=jnp.float32(INITIAL_SCALE), good_steps=jnp.int32(0))


def next_loss_scale(state: LossScale, *, finite: Bool[Array, ""]) -> LossScale:
    """Return the loss scale after a step, given whether its gradient was finite.

    From 65,536 after 1,999 good steps, a finite gradient gives 131,072 and 0 good steps, another one 32,768.
    """
    good = state.good_steps + jnp.int32(1)
    grows = good >= jnp.int32(GROWTH_INTERVAL)
    grown = state.scale * jnp.float32(GROWTH_FACTOR)
    after_good = jnp.where(grows & jnp.isfinite(grown), grown, state.scale)
    return LossScale(
        scale=jnp.where(finite, after_good, state.scale * jnp.float32(BACKOFF_FACTOR)),
        good_steps=jnp.where(finite & ~grows, good, jnp.int32(0)),
    )


class SkippedSteps(NamedTuple):
    """Counters of skipped steps, a part of the train state if `optimizer.max_nonfinite_steps` is set."""

    total: Int32[Array, ""]
    in_a_row: Int32[Array, ""]


def initial_skipped_steps() -> SkippedSteps:
    """Return the counters before the first step."""
    return SkippedSteps(total=jnp.int32(0), in_a_row=jnp.int32(0))


def next_skipped_steps(before: SkippedSteps, *, finite: Bool[Array, ""], limit: int) -> SkippedSteps:
    """Return the counters after a step, given whether its numbers were finite.

    After more than `limit` skipped steps in a row every step is skipped, so that the state stays as it was until the
    loop, which does not look at every step, ends the run. With limit 1, steps that are finite, not, not, finite count
    0, 1, 2 and 3 in a row.
    """
    skipped = ~finite | (before.in_a_row > jnp.int32(limit))
    return SkippedSteps(
        total=before.total + skipped.astype(jnp.int32),
        in_a_row=jnp.where(skipped, before.in_a_row + jnp.int32(1), jnp.int32(0)),
    )


def conditional_update(
    condition: Bool[Array, ""], update: Callable[[Any, Any], tuple[Any, Any]], params: Any, opt_state: Any
) -> tuple[Any, Any]:
    """Apply an update if a condition holds, in place.

    With `jax.lax.cond` CUDA, and with `jnp.where` or `fori_loop` a CPU keeps both versions of parameters and moments
    in memory. A `while_loop` of at most one iteration updates them in place on CPU, GPU and TPU. `update` maps
    parameters and optimizer state to their new values; the schedule advances in either case.
    """

    def once(carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        return jnp.zeros((), jnp.bool_), *update(carry[1], carry[2])

    _, new_params, new_state = jax.lax.while_loop(lambda carry: carry[0], once, (condition, params, opt_state))

    def is_schedule(node: Any) -> bool:
        return isinstance(node, optax.ScaleByScheduleState)

    def advance(new: Any, old: Any) -> Any:
        return optax.ScaleByScheduleState(count=old.count + jnp.int32(1)) if is_schedule(old) else new

    return new_params, jax.tree.map(advance, new_state, opt_state, is_leaf=is_schedule)


class NonfiniteError(NamedTuple):
    """Why a run ends."""

    error: str
    """Kind of failure, for the manifest's `exit.error`."""
    because: str


def find_nonfinite(
    loss: float,
    grad_norm: float,
    named: Mapping[str, Any],
    *,
    step: int,
    rows: Callable[[int], Sequence[int]],
) -> NonfiniteError | None:
    """Return why the metrics of a step end the run, or None.

    `step` counts from 1; `rows` returns the dataset rows of a step counted from 0.
    """
    is_scaled = LOSS_SCALE in named
    if beyond := int(named.get(SKIPPED_BEYOND, 0)):
        return _too_many_skipped(beyond, int(named[SKIPPED_IN_A_ROW]), step, rows)
    if SKIPPED_BEYOND not in named and not math.isfinite(loss):
        # The loss scale does not act on the forward pass.
        why = f": activations may be beyond 65,504, where float16 ends; {REMEDY}" if is_scaled else ""
        return NonfiniteError("non_finite_loss", f"the loss at step {step} is not finite{why}")
    if SKIPPED_BEYOND not in named and not is_scaled and not math.isfinite(grad_norm):
        return NonfiniteError("non_finite_gradient", f"the gradient at step {step} is not finite")
    if is_scaled and (scale := float(named[LOSS_SCALE])) < MIN_SCALE:
        what = f"the loss scale at step {step} is {scale:g}: gradients are beyond float16 without scaling too"
        return NonfiniteError("loss_scale_collapsed", f"{what}; {REMEDY}")
    return None


def _too_many_skipped(beyond: int, in_a_row: int, step: int, rows: Callable[[int], Sequence[int]]) -> NonfiniteError:
    limit, last = in_a_row - beyond, step - beyond + 1
    learned = rows(last - 1)
    more = f" and {len(learned) - MAX_LISTED:,} more" if len(learned) > MAX_LISTED else ""
    return NonfiniteError(
        "non_finite_steps",
        f"loss or gradient of {quantity(limit + 1, 'step')} in a row, the last of them step {last}, is not finite, and "
        f"optimizer.max_nonfinite_steps is {limit}; step {last} learned from the rows "
        f"{', '.join(map(str, learned[:MAX_LISTED]))}{more}, counted from 0",
    )
