"""Dynamic loss scaling, without which gradients in float16 are lost (arXiv 1710.03740, section 3.2).

float16 ends at 65,504 below infinity and at 6e-8 above zero, and gradients are often smaller than that. So the loss is
multiplied before it is differentiated, and the gradient divided by as much in float32. The scale is found by trial, by
the rule of `torch.amp.GradScaler` and with its numbers: it halves where a gradient is not finite, and doubles after
2,000 steps in a row whose gradients were.

A step whose gradient is not finite is skipped (`skipped_update.py`).
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32

from trainer.config.tree import PrecisionConfig

FIRST = 65536.0
GROWTH = 2.0
BACKOFF = 0.5
GROWTH_INTERVAL = 2000
"""Steps in a row with finite gradients after which the scale grows."""

SMALLEST = 1.0
"""A run ends below it: gradients that float16 does not hold even as they are will not be held by scaling."""

NAME = "loss_scale"
"""The field of a metric row: what the loss of this step was multiplied by."""


class LossScale(NamedTuple):
    """A part of the train state: saved, restored and donated with it."""

    scale: Float32[Array, ""]
    good_steps: Int32[Array, ""]
    """Steps in a row with finite gradients since the scale last changed."""


def is_scaled(precision: PrecisionConfig) -> bool:
    """Return whether the loss of a run is scaled: gradients have the range of its products."""
    return precision.compute == "float16"


def first_loss_scale() -> LossScale:
    """Return the scale before the first step."""
    return LossScale(scale=jnp.float32(FIRST), good_steps=jnp.int32(0))


def next_loss_scale(state: LossScale, *, finite: Bool[Array, ""]) -> LossScale:
    """Return the scale after a step.

    At 65,536 and 1,999 good steps a finite gradient gives 131,072 and 0 of them, one that is not 32,768 and 0.

    Args:
        state: before the step.
        finite: whether all numbers of its gradient were finite.
    """
    good = state.good_steps + jnp.int32(1)
    grows = good >= jnp.int32(GROWTH_INTERVAL)
    grown = state.scale * jnp.float32(GROWTH)
    after_good = jnp.where(grows & jnp.isfinite(grown), grown, state.scale)
    return LossScale(
        scale=jnp.where(finite, after_good, state.scale * jnp.float32(BACKOFF)),
        good_steps=jnp.where(finite & ~grows, good, jnp.int32(0)),
    )
