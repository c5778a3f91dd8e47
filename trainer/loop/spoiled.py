"""Whether a run can go on from what a step measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from schemas.formats import quantity
from trainer.data.order import BatchSource
from trainer.loop.loss_scale import NAME, SMALLEST
from trainer.loop.skipped_update import BEYOND, IN_A_ROW
from trainer.loop.step import StepMetrics
from trainer.objectives.objective import Objective

INSTEAD = "set precision.compute to bfloat16 or float32, or lower optimizer.learning_rate"

MOST_NAMED = 32
"""Rows of a batch that a message names."""


class NonfiniteState(NamedTuple):
    """Why a run does not go on from a state."""

    error: str
    """For the manifest's `exit.error`."""
    because: str


def spoiled_by(
    metrics: StepMetrics, *, step: int, rows: Callable[[int], Sequence[int]] | None = None
) -> NonfiniteState | None:
    """Return which of a step's numbers ends the run, None if none does; waits for the step to end.

    Args:
        metrics: of the step.
        step: its number, counted from 1.
        rows: the rows that a step learns from, by its number counted from 0. None: no message names them.
    """
    if BEYOND in metrics.named:
        return _beyond(metrics, step, rows)
    scale = metrics.named.get(NAME)
    if not math.isfinite(metrics.loss):
        # The loss scale has no part in the forward pass, so it cannot help.
        why = "" if scale is None else f": activations may be beyond 65,504, where float16 ends; {INSTEAD}"
        return NonfiniteState("non_finite_loss", f"the loss at step {step} is not finite{why}")
    if scale is None and not math.isfinite(metrics.grad_norm):
        # The loss is that of the params before the update; a gradient that is not finite has spoiled those after it.
        return NonfiniteState("non_finite_gradient", f"the gradient at step {step} is not finite")
    return _of_scale(metrics, step)


def _of_scale(metrics: StepMetrics, step: int) -> NonfiniteState | None:
    scale = metrics.named.get(NAME)
    if scale is None or float(scale) >= SMALLEST:
        return None
    what = f"the loss scale at step {step} is {float(scale):g}: gradients are beyond float16 without scaling too"
    return NonfiniteState("loss_scale_collapsed", f"{what}; {INSTEAD}")


def _beyond(metrics: StepMetrics, step: int, rows: Callable[[int], Sequence[int]] | None) -> NonfiniteState | None:
    """Return why steps that are skipped end a run; the step that did so may lie before the one that is looked at."""
    beyond = int(metrics.named[BEYOND])
    if not beyond:
        return _of_scale(metrics, step)
    most, last = int(metrics.named[IN_A_ROW]) - beyond, step - beyond + 1
    what = f"loss or gradient of {quantity(most + 1, 'step')} in a row, the last of them step {last}, is not finite"
    limit = f"{what}, and optimizer.max_nonfinite_steps is {most}"
    return NonfiniteState("non_finite_steps", limit if rows is None else f"{limit}; {named_rows(last, rows(last - 1))}")


def rows_learned(source: BatchSource, objective: Objective, step: int) -> list[int]:
    """Return the rows that a step, counted from 0, learns from; of what is drawn, those that have the prompts."""
    return source.rows(step // max(1, objective.updates_per_rollout))


def named_rows(step: int, rows: Sequence[int]) -> str:
    """Return in words which rows a step learned from, counted from 0: "step 3 learned from the rows 4, 7"."""
    more = f" and {len(rows) - MOST_NAMED:,} more" if len(rows) > MOST_NAMED else ""
    return f"step {step} learned from the rows {', '.join(map(str, rows[:MOST_NAMED]))}{more}, counted from 0"
