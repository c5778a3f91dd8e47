"""One optimizer step: gradient, clip, update, new state, in that order.

The law of accumulation: the gradient of a step is the gradient of the mean loss per unit of weight (a supervised token,
say) over *all* its microbatches. They have different weights, so a mean of their means would be wrong; sums are added
and divided once by the total. The step knows no model, no objective and no method: it is given a function from
parameters and a microbatch to sums. Where the state has a loss scale, gradients are those of float16
(`loss_scale.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int32, Key

from trainer.loop.loss_scale import NAME, LossScale, next_loss_scale
from trainer.loop.rounding import round_like
from trainer.loop.skipped_update import BEYOND, IN_A_ROW, SKIPPED, SkippedSteps, next_skipped_steps, update_where
from trainer.objectives.objective import LossSums, Microbatch

Params = Any
"""A tree of arrays; its structure is the model's own."""

Batch = Mapping[str, Array]
"""What one optimizer step learns from: arrays by name, `[accum batch …]`, as an objective describes them."""

LossFn = Callable[[Params, Params, Microbatch, Key[Array, ""]], LossSums]
"""The sums of `(trained, frozen, microbatch, key)`; the key is for what is drawn at random."""

DRAWS = 0x6472_6F70
"""Sets the keys of draws in the loss apart from those of rounding, which are made of the step alone."""


class TrainState(NamedTuple):
    """All that changes from step to step, and all that a checkpoint holds. Frozen parameters are not part of it."""

    step: Int32[Array, ""]
    """Optimizer steps done."""
    trained: Params
    """The parameters that learn."""
    opt_state: Any
    loss_scale: LossScale | None = None
    """What the loss is multiplied by. None: it is not, for gradients have the range of float32."""
    skipped: SkippedSteps | None = None
    """How many steps were skipped. None: none is, but for the sake of the loss scale."""


class StepMetrics(NamedTuple):
    """What one step measured, before its update."""

    loss: Float[Array, ""]
    """Mean loss per unit of weight; of supervised learning, cross-entropy per supervised token in nats."""
    grad_norm: Float[Array, ""]
    """Global L2 norm before clipping."""
    named: dict[str, Float[Array, ""]]
    """The objective's further figures, each a mean or the largest; and the loss scale, if there is one."""


def first_state(
    trained: Params,
    optimizer: optax.GradientTransformation,
    loss_scale: LossScale | None = None,
    skipped: SkippedSteps | None = None,
) -> TrainState:
    """Return the state before the first step. The optimizer's own numbers are float32 even where params are not."""
    opt_state = optimizer.init(in_float32(trained))
    return TrainState(step=jnp.int32(0), trained=trained, opt_state=opt_state, loss_scale=loss_scale, skipped=skipped)


def build_step(
    loss_fn: LossFn,
    optimizer: optax.GradientTransformation,
    *,
    max_grad_norm: float | None,
    seed: int,
    max_nonfinite_steps: int | None = None,
) -> Callable[[TrainState, Params, Batch], tuple[TrainState, StepMetrics]]:
    """Return the function of one optimizer step, to be jitted with its first argument donated.

    Args:
        loss_fn: the sums of a microbatch.
        optimizer: from `build_optimizer`.
        max_grad_norm: largest global norm of the gradient that is used. None: no clipping.
        seed: decides stochastic rounding and draws in the loss; those of step k depend on seed and k alone.
        max_nonfinite_steps: how many steps in a row are skipped where a number is not finite. None: none, and the state
            has no count of them.
    """

    def train_step(state: TrainState, frozen: Params, batch: Batch) -> tuple[TrainState, StepMetrics]:
        root = jax.random.key(seed)
        draws = jax.random.fold_in(jax.random.fold_in(root, DRAWS), state.step)
        scale = None if state.loss_scale is None else state.loss_scale.scale
        sums, gradient = gradient_of_sum(loss_fn, state.trained, frozen, batch, draws, scale=scale)
        weight = divisor(sums.weight)
        gradient = jax.tree.map(lambda leaf: leaf.astype(jnp.float32) / weight, gradient)
        grad_norm = optax.tree.norm(gradient)
        if max_grad_norm is not None:
            clip = jnp.minimum(jnp.float32(1), jnp.float32(max_grad_norm) / jnp.maximum(grad_norm, 1e-12))
            gradient = jax.tree.map(lambda leaf: leaf * clip, gradient)
        loss, rounding = sums.loss / weight, jax.random.fold_in(root, state.step)

        def update(trained: Params, opt_state: Any) -> tuple[Params, Any]:
            updates, opt_state = optimizer.update(gradient, opt_state, in_float32(trained))
            return with_updates(trained, updates, rounding), opt_state

        if state.loss_scale is None and max_nonfinite_steps is None:
            trained, opt_state = update(state.trained, state.opt_state)
        else:
            taken = is_taken(state, loss, grad_norm, max_nonfinite_steps)
            trained, opt_state = update_where(taken, update, state.trained, state.opt_state)
        # The figures belong to the params before the update: it is what this batch was asked with.
        named = {name: total / weight for name, total in sums.named.items()}
        named |= {name: total / divisor(count) for name, (total, count) in sums.means.items()} | sums.largest
        metrics = StepMetrics(loss=loss, grad_norm=grad_norm, named=named)
        after = TrainState(step=state.step + jnp.int32(1), trained=trained, opt_state=opt_state)
        return with_counts(state, after, metrics, max_nonfinite_steps)

    return train_step


def divisor(weight: Float[Array, ""]) -> Float[Array, ""]:
    """Return a weight, 1 for none: a batch whose rows are all cut to their prompts then has the loss 0, not NaN."""
    return jnp.where(weight > 0, weight, jnp.float32(1))


def is_taken(
    state: TrainState, loss: Float[Array, ""], grad_norm: Float[Array, ""], most: int | None
) -> Bool[Array, ""]:
    """Return whether a step changes the parameters.

    A loss that is not finite is not a matter of the gradient's range; loss scaling cannot fix it. Where steps are
    skipped for its sake alone that step is not, so that it spoils the parameters and the run ends.
    """
    finite = jnp.isfinite(grad_norm)
    if state.skipped is None or most is None:
        return finite | ~jnp.isfinite(loss)
    taken: Array = finite & jnp.isfinite(loss) & (state.skipped.in_a_row <= jnp.int32(most))
    return taken


def with_counts(
    before: TrainState, after: TrainState, metrics: StepMetrics, most: int | None
) -> tuple[TrainState, StepMetrics]:
    """Return state and figures of a step with its loss scale and the count of skipped steps, if there are any."""
    finite = jnp.isfinite(metrics.grad_norm)
    named = dict(metrics.named)
    if before.loss_scale is not None:
        after = after._replace(loss_scale=next_loss_scale(before.loss_scale, finite=finite))
        named[NAME] = before.loss_scale.scale
        finite = jnp.isfinite(metrics.loss)  # a gradient beyond float16 is a matter of the scale
    if before.skipped is not None and most is not None:
        skipped = next_skipped_steps(before.skipped, finite=finite & jnp.isfinite(metrics.loss), most=most)
        after = after._replace(skipped=skipped)
        beyond = jnp.maximum(skipped.in_a_row - jnp.int32(most), jnp.int32(0))
        named |= {SKIPPED: skipped.total, IN_A_ROW: skipped.in_a_row, BEYOND: beyond}
    return after, metrics._replace(named=named)


def gradient_of_sum(
    loss_fn: LossFn,
    trained: Params,
    frozen: Params,
    batch: Batch,
    key: Key[Array, ""],
    *,
    scale: Float[Array, ""] | None = None,
) -> tuple[LossSums, Params]:
    """Return the sums over all microbatches, and the gradient of the loss in float32 where it is added up.

    With a scale each microbatch's mean loss is multiplied by it, and its gradient divided by as much in float32.
    """

    def of_microbatch(microbatch: Microbatch, number: Array) -> tuple[LossSums, Params]:
        def loss(params: Params) -> tuple[Array, tuple[LossSums, Array | None]]:
            sums = loss_fn(params, frozen, microbatch, jax.random.fold_in(key, number))
            if scale is None:
                return sums.loss, (sums, None)
            # The mean, as its gradient does not grow with the number of tokens.
            factor = jax.lax.stop_gradient(scale / jnp.maximum(sums.weight, jnp.float32(1)))
            return sums.loss * factor, (sums, factor)

        (_, (sums, factor)), gradient = jax.value_and_grad(loss, has_aux=True)(trained)
        if factor is not None:
            gradient = jax.tree.map(lambda leaf: leaf.astype(jnp.float32) / factor, gradient)
        return sums, gradient

    # One microbatch takes no loop, so the compiler may apply each layer's update as soon as its gradient exists and
    # never hold all gradients together.
    first = {name: array[0] for name, array in batch.items()}
    numbers = jnp.arange(len(next(iter(batch.values()))))
    if len(numbers) == 1:
        return of_microbatch(first, numbers[0])

    def add(carry: tuple[LossSums, Params], numbered: tuple[Microbatch, Array]) -> tuple[tuple[LossSums, Params], None]:
        sums, gradient = of_microbatch(*numbered)
        added, gradients = jax.tree.map(lambda a, b: a + b.astype(jnp.float32), carry, (sums, gradient))
        largest = jax.tree.map(jnp.maximum, carry[0].largest, sums.largest)
        return (added._replace(largest=largest), gradients), None

    def zeros(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32), tree)

    no_sums = zeros(jax.eval_shape(loss_fn, trained, frozen, first, key))
    total, _ = jax.lax.scan(add, (no_sums, zeros(trained)), (dict(batch), numbers))
    return total


def with_updates(params: Params, updates: Params, key: Array) -> Params:
    """Return params plus updates, each leaf in its own stored type, with its own draw for stochastic rounding."""
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(key, len(leaves))
    changed = [
        round_like(leaf.astype(jnp.float32) + update, leaf, keys[index])
        for index, (leaf, update) in enumerate(zip(leaves, jax.tree.leaves(updates), strict=True))
    ]
    return jax.tree.unflatten(structure, changed)


def in_float32(params: Params) -> Params:
    """Return every leaf in float32; leaves that are float32 already are not copied."""
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params)
