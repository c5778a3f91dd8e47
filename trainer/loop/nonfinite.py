"""Whether a step has made its state useless: what it measured is not finite, or no loss scale is left to try."""

from __future__ import annotations

import math
from typing import NamedTuple

from trainer.loop.loss_scale import NAME as SCALE
from trainer.loop.loss_scale import SMALLEST
from trainer.loop.step import StepMetrics


class NonfiniteState(NamedTuple):
    """Why a state is of no use to go on from."""

    error: str
    """For the manifest's `exit.error`."""
    because: str


def spoiled_by(metrics: StepMetrics, *, step: int) -> NonfiniteState | None:
    """Return which of a step's numbers makes its state useless, None if none does; waits for the step to end."""
    scale = metrics.named.get(SCALE)
    if not math.isfinite(metrics.loss):
        # The loss scale has no part in the forward pass, so it cannot help.
        why = "" if scale is None else f": activations may be beyond 65,504, where float16 ends; {INSTEAD}"
        return NonfiniteState("non_finite_loss", f"the loss at step {step} is not finite{why}")
    if scale is None and not math.isfinite(metrics.grad_norm):
        # The loss is that of the params before the update; a gradient that is not finite has spoiled those after it.
        return NonfiniteState("non_finite_gradient", f"the gradient at step {step} is not finite")
    if scale is not None and float(scale) < SMALLEST:
        what = f"the loss scale at step {step} is {float(scale):g}: gradients are beyond float16 without scaling too"
        return NonfiniteState("loss_scale_collapsed", f"{what}; {INSTEAD}")
    return None


INSTEAD = "set precision.compute to bfloat16 or float32, or lower optimizer.learning_rate"
