"""One optimizer step: gradient, clipping, update, and what happens to numbers that are not finite.

With gradient accumulation, the gradient is that of the mean loss per unit of weight (for example per supervised token)
over all microbatches. Their weights differ, so sums are added and divided once by the total.

float16 gradients smaller than 6e-8 underflow, so the loss is multiplied before it is differentiated and the gradient
divided by the same factor in float32 (arXiv 1710.03740, section 3.2), which follows the rule of `torch.amp.GradScaler`.
A skipped step leaves parameters and optimizer state unchanged, and still counts: the next step takes the next rows and
the learning rate of its own number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Float32, Int32, Key

from schemas.formats import quantity
from trainer.loop.optimizer import stochastic_round
from trainer.objectives.objective import LossSums, Microbatch

Params = Any
"""A tree of arrays."""

Batch = Mapping[str, Array]
"""Batch of one optimizer step: arrays by name, `[accum batch …]`, as the objective describes them."""

LossFn = Callable[[Params, Params, Microbatch, Key[Array, ""]], LossSums]
"""Function from `(trained, frozen, microbatch, key)` to sums; the key is for dropout."""

LOSS_STREAM = 0x6472_6F70
"""Separates the keys of the loss from the keys of stochastic rounding."""

INITIAL_SCALE, GROWTH_FACTOR, BACKOFF_FACTOR = 65536.0, 2.0, 0.5
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
    """Loss scale, a part of the train state if matrix products are float16."""

    scale: Float32[Array, ""]
    good_steps: Int32[Array, ""]
    """Finite gradients in a row since the scale last changed."""


class SkippedSteps(NamedTuple):
    """Counters of skipped steps, a part of the train state if `optimizer.max_nonfinite_steps` is set."""

    total: Int32[Array, ""]
    in_a_row: Int32[Array, ""]


class TrainState(NamedTuple):
    """Everything that changes from step to step and is saved in checkpoints; frozen parameters are not included."""

    step: Int32[Array, ""]
    """Optimizer steps done."""
    trained: Params
    """Trained parameters."""
    opt_state: Any
    loss_scale: LossScale | None = None
    """Loss scale, or None if gradients have the range of float32."""
    skipped: SkippedSteps | None = None
    """Skipped steps, or None if non-finite steps are not counted (float16 runs skip via the loss scale)."""


class StepMetrics(NamedTuple):
    """Metrics of a step, of the parameters before its update."""

    loss: Float[Array, ""]
    """Mean loss per unit of weight; in supervised learning, cross-entropy per supervised token in nats."""
    grad_norm: Float[Array, ""]
    """Global L2 norm of the gradient before clipping."""
    named: dict[str, Float[Array, ""]]
    """Further metrics of the objective, each a mean or a maximum, and the loss scale if there is one."""


def first_state(
    trained: Params,
    optimizer: optax.GradientTransformation,
    loss_scale: LossScale | None = None,
    skipped: SkippedSteps | None = None,
) -> TrainState:
    """Return the state before the first step; the optimizer state is float32 even if the parameters are not."""
    opt_state = optimizer.init(cast_to_fp32(trained))
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

    The gradient is clipped to the global norm `max_grad_norm`. `seed` is for dropout and stochastic rounding; the
    noise of step k depends on seed and k alone. At most `max_nonfinite_steps` in a row are skipped, or none if it is
    None.
    """

    def train_step(state: TrainState, frozen: Params, batch: Batch) -> tuple[TrainState, StepMetrics]:
        root = jax.random.key(seed)
        draws = jax.random.fold_in(jax.random.fold_in(root, LOSS_STREAM), state.step)
        scale = None if state.loss_scale is None else state.loss_scale.scale
        sums, gradient = gradient_of_sum(loss_fn, state.trained, frozen, batch, draws, scale=scale)
        weight = safe_denominator(sums.weight)
        gradient = jax.tree.map(lambda leaf: leaf.astype(jnp.float32) / weight, gradient)
        grad_norm = optax.tree.norm(gradient)
        if max_grad_norm is not None:
            clip = jnp.minimum(jnp.float32(1), jnp.float32(max_grad_norm) / jnp.maximum(grad_norm, 1e-12))
            gradient = jax.tree.map(lambda leaf: leaf * clip, gradient)
        loss, rounding = sums.loss / weight, jax.random.fold_in(root, state.step)

        def update(trained: Params, opt_state: Any) -> tuple[Params, Any]:
            updates, opt_state = optimizer.update(gradient, opt_state, cast_to_fp32(trained))
            return apply_updates(trained, updates, rounding), opt_state

        if state.loss_scale is None and max_nonfinite_steps is None:
            trained, opt_state = update(state.trained, state.opt_state)
        else:
            condition = should_update(state, loss, grad_norm, max_nonfinite_steps)
            trained, opt_state = conditional_update(condition, update, state.trained, state.opt_state)
        named = {name: total / weight for name, total in sums.named.items()}
        named |= {name: total / safe_denominator(count) for name, (total, count) in sums.means.items()} | sums.largest
        metrics = StepMetrics(loss=loss, grad_norm=grad_norm, named=named)
        after = TrainState(step=state.step + jnp.int32(1), trained=trained, opt_state=opt_state)
        return update_counters(state, after, metrics, max_nonfinite_steps)

    return train_step


def safe_denominator(weight: Float[Array, ""]) -> Float[Array, ""]:
    """Return the weight, or 1 if it is 0, so that a batch without supervised tokens has loss 0 instead of NaN."""
    return jnp.where(weight > 0, weight, jnp.float32(1))


def should_update(
    state: TrainState, loss: Float[Array, ""], grad_norm: Float[Array, ""], limit: int | None
) -> Bool[Array, ""]:
    """Return whether to apply an update; unless steps are counted, a loss that is not finite ends the run anyway."""
    finite = jnp.isfinite(grad_norm)
    if state.skipped is None or limit is None:
        return finite | ~jnp.isfinite(loss)
    condition: Array = finite & jnp.isfinite(loss) & (state.skipped.in_a_row <= jnp.int32(limit))
    return condition


def update_counters(
    before: TrainState, after: TrainState, metrics: StepMetrics, limit: int | None
) -> tuple[TrainState, StepMetrics]:
    """Update loss scale and counters of skipped steps, if there are any, and add them to the metrics."""
    finite = jnp.isfinite(metrics.grad_norm)
    named = dict(metrics.named)
    if before.loss_scale is not None:
        after = after._replace(loss_scale=next_loss_scale(before.loss_scale, finite=finite))
        named[LOSS_SCALE] = before.loss_scale.scale
        finite = jnp.isfinite(metrics.loss)  # a non-finite gradient only changes the scale
    if before.skipped is not None and limit is not None:
        skipped = next_skipped_steps(before.skipped, finite=finite & jnp.isfinite(metrics.loss), limit=limit)
        after = after._replace(skipped=skipped)
        beyond = jnp.maximum(skipped.in_a_row - jnp.int32(limit), jnp.int32(0))
        named |= {SKIPPED: skipped.total, SKIPPED_IN_A_ROW: skipped.in_a_row, SKIPPED_BEYOND: beyond}
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
    """Return the sums over all microbatches and the gradient of the summed loss, accumulated in float32.

    With a loss scale, the mean loss of each microbatch is multiplied by it and its gradient divided in float32.
    """

    def grad_of_microbatch(microbatch: Microbatch, number: Array) -> tuple[LossSums, Params]:
        def loss(params: Params) -> tuple[Array, tuple[LossSums, Array | None]]:
            sums = loss_fn(params, frozen, microbatch, jax.random.fold_in(key, number))
            if scale is None:
                return sums.loss, (sums, None)
            # The gradient of the mean does not grow with the number of tokens.
            factor = jax.lax.stop_gradient(scale / jnp.maximum(sums.weight, jnp.float32(1)))
            return sums.loss * factor, (sums, factor)

        (_, (sums, factor)), gradient = jax.value_and_grad(loss, has_aux=True)(trained)
        if factor is not None:
            gradient = jax.tree.map(lambda leaf: leaf.astype(jnp.float32) / factor, gradient)
        return sums, gradient

    # Without a loop the compiler can apply each layer's update as soon as its gradient exists, and never holds all
    # gradients together.
    first = {name: array[0] for name, array in batch.items()}
    numbers = jnp.arange(len(next(iter(batch.values()))))
    if len(numbers) == 1:
        return grad_of_microbatch(first, numbers[0])

    def add(carry: tuple[LossSums, Params], numbered: tuple[Microbatch, Array]) -> tuple[tuple[LossSums, Params], None]:
        sums, gradient = grad_of_microbatch(*numbered)
        added, gradients = jax.tree.map(lambda a, b: a + b.astype(jnp.float32), carry, (sums, gradient))
        largest = jax.tree.map(jnp.maximum, carry[0].largest, sums.largest)
        return (added._replace(largest=largest), gradients), None

    def zeros(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32), tree)

    no_sums = zeros(jax.eval_shape(loss_fn, trained, frozen, first, key))
    total, _ = jax.lax.scan(add, (no_sums, zeros(trained)), (dict(batch), numbers))
    return total


def apply_updates(params: Params, updates: Params, key: Array) -> Params:
    """Add updates to parameters; bfloat16 leaves are rounded stochastically, each with its own key."""
    leaves, structure = jax.tree.flatten(params)
    keys, changed = jax.random.split(key, len(leaves)), []
    for number, (leaf, update) in enumerate(zip(leaves, jax.tree.leaves(updates), strict=True)):
        total = leaf.astype(jnp.float32) + update
        changed.append(stochastic_round(total, keys[number]) if leaf.dtype == jnp.bfloat16 else total)
    return jax.tree.unflatten(structure, changed)


def cast_to_fp32(params: Params) -> Params:
    """Cast every leaf to float32."""
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params)


def initial_loss_scale() -> LossScale:
    """Return the loss scale before the first step."""
    return LossScale(scale=jnp.float32(INITIAL_SCALE), good_steps=jnp.int32(0))


def initial_skipped_steps() -> SkippedSteps:
    """Return the counters before the first step."""
    return SkippedSteps(total=jnp.int32(0), in_a_row=jnp.int32(0))


def next_loss_scale(state: LossScale, *, finite: Bool[Array, ""]) -> LossScale:
    """Return the loss scale after a step: halved if its gradient is not finite, doubled after 2,000 finite ones."""
    good = state.good_steps + jnp.int32(1)
    grows = good >= jnp.int32(GROWTH_INTERVAL)
    grown = state.scale * jnp.float32(GROWTH_FACTOR)
    after_good = jnp.where(grows & jnp.isfinite(grown), grown, state.scale)
    return LossScale(
        scale=jnp.where(finite, after_good, state.scale * jnp.float32(BACKOFF_FACTOR)),
        good_steps=jnp.where(finite & ~grows, good, jnp.int32(0)),
    )


def next_skipped_steps(before: SkippedSteps, *, finite: Bool[Array, ""], limit: int) -> SkippedSteps:
    """Return the counters after a step, given whether its numbers were finite.

    After more than `limit` skipped steps in a row every step is skipped, so that the state stays as it was until the
    loop, which does not look at every step, ends the run.
    """
    skipped = ~finite | (before.in_a_row > jnp.int32(limit))
    return SkippedSteps(
        total=before.total + skipped.astype(jnp.int32),
        in_a_row=jnp.where(skipped, before.in_a_row + jnp.int32(1), jnp.int32(0)),
    )


def conditional_update(
    condition: Bool[Array, ""], update: Callable[[Any, Any], tuple[Any, Any]], params: Any, opt_state: Any
) -> tuple[Any, Any]:
    """Apply an update of parameters and optimizer state in place if a condition holds; the schedule advances anyway.

    With `jax.lax.cond` CUDA, and with `jnp.where` or `fori_loop` a CPU keeps both versions in memory. A `while_loop` of
    at most one iteration updates them in place on CPU, GPU and TPU.
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
    """Why a run ends: the step, the kind of failure for the manifest's `exit.error`, and a message."""

    step: int
    error: str
    because: str


def find_nonfinite(metrics: StepMetrics, *, step: int, rows: Callable[[int], Sequence[int]]) -> NonfiniteError | None:
    """Return why a step, counted from 1, ends the run, or None; `rows` lists the rows of a step counted from 0."""
    named, is_counted, is_scaled = metrics.named, SKIPPED_BEYOND in metrics.named, LOSS_SCALE in metrics.named
    if beyond := int(named.get(SKIPPED_BEYOND, 0)):
        limit, last = int(named[SKIPPED_IN_A_ROW]) - beyond, step - beyond + 1
        learned = rows(last - 1)
        more = f" and {len(learned) - MAX_LISTED:,} more" if len(learned) > MAX_LISTED else ""
        because = (
            f"loss or gradient of {quantity(limit + 1, 'step')} in a row, the last of them step {last}, is not finite, "
            f"and optimizer.max_nonfinite_steps is {limit}; step {last} learned from the rows "
            f"{', '.join(map(str, learned[:MAX_LISTED]))}{more}, counted from 0"
        )
        return NonfiniteError(step, "non_finite_steps", because)
    if not is_counted and not math.isfinite(metrics.loss):
        # The loss scale does not act on the forward pass.
        why = f": activations may be beyond 65,504, where float16 ends; {REMEDY}" if is_scaled else ""
        return NonfiniteError(step, "non_finite_loss", f"the loss at step {step} is not finite{why}")
    if not is_counted and not is_scaled and not math.isfinite(metrics.grad_norm):
        return NonfiniteError(step, "non_finite_gradient", f"the gradient at step {step} is not finite")
    if is_scaled and (scale := float(named[LOSS_SCALE])) < MIN_SCALE:
        what = f"the loss scale at step {step} is {scale:g}: gradients are beyond float16 without scaling too"
        return NonfiniteError(step, "loss_scale_collapsed", f"{what}; {REMEDY}")
    return None
