"""One optimizer step: gradient, clip, update, new state, in that order.

The law of accumulation: the gradient of a step is the gradient of the mean loss per supervised token over *all* its
tokens. Microbatches hold different numbers of supervised tokens, so a mean of their means would be wrong; sums are
added and divided once by the total.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int32

from trainer.loop.rounding import round_like
from trainer.objectives.cross_entropy import next_token_targets

Params = Any
"""A tree of arrays; its structure is the model's own."""

LossSum = Callable[[Params, Int32[Array, "batch seq"], Int32[Array, "batch seq"], Bool[Array, "batch seq"]], Array]
"""Summed loss of `(params, tokens, targets, mask)`."""


class TrainState(NamedTuple):
    """All that changes from step to step, and all that a checkpoint holds."""

    step: Int32[Array, ""]
    """Optimizer steps done."""
    params: Params
    opt_state: Any


class Batch(NamedTuple):
    """What one optimizer step learns from; `accum` microbatches of `batch` sequences over all devices."""

    tokens: Int32[Array, "accum batch seq"]
    loss_mask: Bool[Array, "accum batch seq"]


class StepMetrics(NamedTuple):
    """What one step measured."""

    loss: Float[Array, ""]
    """Mean cross-entropy per supervised token before the update, nats."""
    grad_norm: Float[Array, ""]
    """Global L2 norm before clipping."""


def first_state(params: Params, optimizer: optax.GradientTransformation) -> TrainState:
    """Return the state before the first step. The optimizer's own numbers are float32 even where params are not."""
    return TrainState(step=jnp.int32(0), params=params, opt_state=optimizer.init(in_float32(params)))


def build_step(
    loss_sum: LossSum,
    optimizer: optax.GradientTransformation,
    *,
    max_grad_norm: float | None,
    seed: int,
) -> Callable[[TrainState, Batch], tuple[TrainState, StepMetrics]]:
    """Return the function of one optimizer step, to be jitted with its first argument donated.

    Args:
        loss_sum: the model's summed loss.
        optimizer: from `build_optimizer`.
        max_grad_norm: largest global norm of the gradient that is used. None: no clipping.
        seed: decides stochastic rounding; the draw of step k depends on seed and k alone.
    """

    def step(state: TrainState, batch: Batch) -> tuple[TrainState, StepMetrics]:
        # A batch may have no supervised token at all (every row cut to its prompt); 0/1 then gives 0, not NaN.
        supervised = jnp.maximum(jnp.sum(batch.loss_mask[:, :, 1:]), 1).astype(jnp.float32)
        total, gradient = gradient_of_sum(loss_sum, state.params, batch)
        gradient = jax.tree.map(lambda leaf: leaf.astype(jnp.float32) / supervised, gradient)
        grad_norm = optax.tree.norm(gradient)
        if max_grad_norm is not None:
            scale = jnp.minimum(jnp.float32(1), jnp.float32(max_grad_norm) / jnp.maximum(grad_norm, 1e-12))
            gradient = jax.tree.map(lambda leaf: leaf * scale, gradient)
        updates, opt_state = optimizer.update(gradient, state.opt_state, in_float32(state.params))
        key = jax.random.fold_in(jax.random.key(seed), state.step)
        params = with_updates(state.params, updates, key)
        # The loss belongs to the params before the update: it is what this batch was asked with.
        metrics = StepMetrics(loss=total / supervised, grad_norm=grad_norm)
        return TrainState(step=state.step + jnp.int32(1), params=params, opt_state=opt_state), metrics

    return step


def gradient_of_sum(loss_sum: LossSum, params: Params, batch: Batch) -> tuple[Array, Params]:
    """Return the summed loss over all microbatches, and its gradient in float32 where it is added up."""

    def of_microbatch(tokens: Array, loss_mask: Array) -> tuple[Array, Params]:
        targets, mask = next_token_targets(tokens, loss_mask)
        loss_and_gradient: tuple[Array, Params] = jax.value_and_grad(loss_sum)(params, tokens, targets, mask)
        return loss_and_gradient

    # One microbatch takes no loop, so the compiler may apply each layer's update as soon as its gradient exists and
    # never hold all gradients together.
    if batch.tokens.shape[0] == 1:
        return of_microbatch(batch.tokens[0], batch.loss_mask[0])

    def add(carry: tuple[Array, Params], microbatch: Batch) -> tuple[tuple[Array, Params], None]:
        total, gradient = of_microbatch(microbatch.tokens, microbatch.loss_mask)
        summed = jax.tree.map(lambda a, b: a + b.astype(jnp.float32), carry[1], gradient)
        return (carry[0] + total, summed), None

    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32), params)
    (total, gradient), _ = jax.lax.scan(add, (jnp.float32(0), nothing), batch)
    return total, gradient


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
