"""Optimizer and learning rate schedule with optax, Adam with narrow moments, and stochastic rounding to bfloat16.

8-bit moments use blockwise dynamic quantization (Dettmers et al., arXiv 2110.02861): each block stores its largest
magnitude in float32, and of each number the nearest of 256 fractions of it. The fractions are those of dynamic trees
(arXiv 1511.04561), as in torchao and bitsandbytes, and are numbered as there: seven decades from 1e-7 to 1, decade i
divided into 2^i parts represented by their midpoints, for either sign, and 0 and 1. The second moment has no sign and
twice as many parts. A block has 256 inputs of one output, or the largest power of two below that divides the inputs; in
an embedding table it is a row. Arrays with fewer than 4,096 numbers or one axis stay float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, BFloat16, Float32, Key, PRNGKeyArray, UInt8, UInt32

from trainer.config.tree import OptimizerConfig
from trainer.model.stacks import is_stack

StateType = Literal["float32", "bfloat16", "int8"]

ROUNDING_STREAM = 0x6D6F_6D73
"""Seed of stochastic rounding; the noise depends on the number of the update and the position of the array alone."""

CPU_PIECE, GPU_PIECE = 1 << 18, 1 << 22
"""Numbers of an array that a CPU and a GPU update at a time."""

BLOCK, MIN_BLOCK, MIN_QUANTIZED, DECADES = 256, 16, 4096, 7
MIN_SCALE = 1e-12
"""Scale of a block of zeros, as in torchao."""

Stored = tuple[Array, ...]
"""A moment of one parameter: codes and scales, or its numbers."""
Moments = tuple[Array, Stored, Stored]
"""Gradient, later the update, and both moments of one parameter."""
Update = Callable[[Moments, Key[Array, ""]], Moments]


def build_schedule(optimizer: OptimizerConfig, *, steps: int) -> optax.Schedule:
    """Return the learning rate of each step, counted from 0.

    Warm-up is linear: step s of w uses peak · (s + 1) / w. After it, with p from 0 at step w to 1 at the last step and
    the final fraction f: linear `peak · (1 − (1 − f) p)`, cosine `peak · (f + (1 − f) (1 + cos πp) / 2)`.
    For peak 1, w = 2, 5 steps, linear, f = 0: 0.5, 1, 1, 0.5, 0.
    """
    peak, warmup, final = optimizer.learning_rate, optimizer.warmup_steps, optimizer.final_learning_rate_fraction
    decay_steps = max(steps - warmup - 1, 1)
    after = {
        "constant": lambda: optax.constant_schedule(peak),
        "linear": lambda: optax.linear_schedule(peak, peak * final, transition_steps=decay_steps),
        "cosine": lambda: optax.cosine_decay_schedule(peak, decay_steps=decay_steps, alpha=final),
    }[optimizer.schedule]()
    if warmup == 0:
        return after
    rise = optax.linear_schedule(peak / warmup, peak, transition_steps=max(warmup - 1, 1))
    return optax.join_schedules([rise, after], boundaries=[warmup])


def evaluate_schedule(schedule: optax.Schedule, step: int) -> float:
    """Return the learning rate of a step, counted from 0, as the shortest decimal of its float32 value."""
    device: AbstractContextManager[Any] = nullcontext()
    with suppress(RuntimeError):  # on the CPU it does not wait for the step that an accelerator runs
        device = jax.default_device(jax.local_devices(backend="cpu")[0])
    with device, jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        return float(str(np.float32(schedule(jnp.int32(step)))))


def build_optimizer(optimizer: OptimizerConfig, *, steps: int) -> optax.GradientTransformation:
    """Return AdamW (Loshchilov & Hutter, arXiv 1711.05101) or Adafactor (Shazeer & Stern, arXiv 1804.04235).

    Weight decay applies to matrices only and subtracts learning rate · weight decay · p in each step; optax's own for
    Adafactor does not depend on the learning rate. Adafactor runs without momentum and scales each update by its
    parameter's root mean square, as in its paper, so its learning rate is relative: 1e-3 moves a parameter by about a
    thousandth of its size.
    """
    schedule, decay = build_schedule(optimizer, steps=steps), optimizer.weight_decay
    if optimizer.name == "adafactor" and not decay:
        return allow_type_promotion(optax.adafactor(schedule, momentum=None))
    if optimizer.name == "adafactor":
        # Adafactor's updates already point downhill, so decay is subtracted and the learning rate keeps the sign.
        parts = [
            optax.adafactor(None, momentum=None),
            optax.add_decayed_weights(-decay, mask=weight_decay_mask),
            optax.scale_by_learning_rate(schedule, flip_sign=False),
        ]
    else:
        betas = optimizer.beta1, optimizer.beta2, optimizer.epsilon
        is_narrow = optimizer.state != "float32"
        parts = [
            scale_by_narrow_adam(*betas, kind=optimizer.state) if is_narrow else optax.scale_by_adam(*betas),
            optax.add_decayed_weights(decay, mask=weight_decay_mask),
            optax.scale_by_learning_rate(schedule),
        ]
    return allow_type_promotion(optax.chain(*parts))


def allow_type_promotion(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """Allow type promotion inside an optimizer; tests run under strict promotion, which optax does not support."""

    def promoting(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
                return function(*arguments)

        return call

    return optax.GradientTransformation(promoting(optimizer.init), promoting(optimizer.update))


def weight_decay_mask(params: Any) -> Any:
    """Return a tree with True for parameters of two or more axes, not counting the axis of stacked layers."""

    def is_decayed(path: tuple[Any, ...], leaf: Any) -> bool:
        is_stacked = any(isinstance(part, jax.tree_util.DictKey) and is_stack(str(part.key)) for part in path)
        return jnp.ndim(leaf) - is_stacked >= 2

    return jax.tree_util.tree_map_with_path(is_decayed, params)


def detect_optimizer(opt_state: Any) -> str:
    """Return the name of the optimizer that runs, according to the structure of its state."""
    names = {optax.ScaleByAdamState: "adamw", optax.FactoredState: "adafactor"}
    nodes = jax.tree.leaves(opt_state, is_leaf=lambda node: type(node) in names)
    [name] = {names[type(node)] for node in nodes if type(node) in names}
    return name


def stochastic_round(values: Float32[Array, ...], key: PRNGKeyArray) -> BFloat16[Array, ...]:
    """Round to bfloat16, up or down at random, so that the expected value is kept (arXiv 2502.20566).

    Rounding to nearest would lose updates below about 1/256 of the value: the second moment would never fall.
    A bfloat16 is the upper half of a float32. Adding a uniform 16-bit number to the lower half carries into the upper
    half with probability (lower half) / 2¹⁶; dropping the lower half then leaves one of the two neighbours. Values that
    bfloat16 represents exactly, infinities and NaN are unchanged; a finite value never becomes infinite.
    """
    return _round_with_noise(values, jax.random.bits(key, values.shape, jnp.uint16).astype(jnp.uint32))


def _round_with_noise(values: Float32[Array, ...], noise: UInt32[Array, ...]) -> BFloat16[Array, ...]:
    """Round to bfloat16 as `stochastic_round` does, with noise below 2¹⁶."""
    bits = jax.lax.bitcast_convert_type(values, jnp.uint32)

    def upper_half(number: Array) -> Array:
        return jax.lax.bitcast_convert_type(number & jnp.uint32(0xFFFF0000), jnp.float32)

    rounded = upper_half(bits + noise)
    rounded = jnp.where(jnp.isfinite(rounded), rounded, upper_half(bits))
    return jnp.where(jnp.isfinite(values), rounded, values).astype(jnp.bfloat16)


def scale_by_narrow_adam(b1: float, b2: float, eps: float, *, kind: StateType) -> optax.GradientTransformation:
    """Return `optax.scale_by_adam` for a dictionary of parameters, with moments of dtype `kind`, bfloat16 or int8."""

    def zeros(params: dict[str, Array]) -> Any:
        if kind == "bfloat16":
            return optax.tree.zeros_like(params, dtype=jnp.bfloat16)
        shapes = {name: scales_shape(name, value.shape) for name, value in params.items()}
        # The code of 0 differs between the moments, but with a scale of 0 every code means 0.
        dtypes = {name: jnp.uint8 if shape else jnp.float32 for name, shape in shapes.items()}
        codes = {name: jnp.zeros(params[name].shape, dtype) for name, dtype in dtypes.items()}
        return CodedMoment(codes, {name: jnp.zeros(shape, jnp.float32) for name, shape in shapes.items() if shape})

    def init(params: dict[str, Array]) -> optax.ScaleByAdamState:
        return optax.ScaleByAdamState(count=jnp.int32(0), mu=zeros(params), nu=zeros(params))

    def update(gradient: dict[str, Array], state: optax.ScaleByAdamState, params: Any = None) -> tuple[Any, Any]:
        del params
        count = optax.safe_increment(state.count)
        key = jax.random.fold_in(jax.random.key(ROUNDING_STREAM), count)

        def next_moments(before: Moments) -> tuple[Array, Array]:
            slope, first, second = before
            return (
                b1 * _widen(first, signed=True) + (1 - b1) * slope,
                b2 * _widen(second, signed=False) + (1 - b2) * slope**2,
            )

        def update_one(before: Moments, key: Key[Array, ""]) -> Moments:
            slope, *stored = before
            scales: Any = None
            if len(stored[0]) == 2:
                scales = tuple(jnp.maximum(jnp.max(jnp.abs(each), axis=1), MIN_SCALE) for each in next_moments(before))
                # Without the barrier a compiler would keep both float32 moments until their scales are known, instead
                # of computing them twice.
                stored = jax.lax.optimization_barrier(stored)
            first, second = next_moments((slope, stored[0], stored[1]))
            change = first / (1 - b1**count) / (jnp.sqrt(second / (1 - b2**count)) + eps)
            return (change, *_narrow((first, second), stored, scales, key))

        done = {
            name: _update_in_pieces(update_one, (slope, _stored(state.mu, name), _stored(state.nu, name)), keys)
            for (name, slope), keys in zip(gradient.items(), jax.random.split(key, len(gradient)), strict=True)
        }
        mu = _join(state.mu, {name: first for name, (_, first, _) in done.items()})
        nu = _join(state.nu, {name: second for name, (*_, second) in done.items()})
        changes = {name: change for name, (change, *_) in done.items()}
        return changes, optax.ScaleByAdamState(count=count, mu=mu, nu=nu)

    return optax.GradientTransformation(init, update)


def _update_in_pieces(update: Update, before: Moments, key: Key[Array, ""]) -> Moments:
    """Update one parameter, piece by piece on a CPU, and for 8-bit moments on a GPU.

    A TPU fuses the update. A CPU materializes every operation, and a GPU every dequantized moment.
    """
    shape, is_quantized = before[0].shape, len(before[1]) == 2
    view = _block_view(shape, before[1][1].shape) if is_quantized else shape
    # The first array of a moment has the parameter's shape, its scales one number per block.
    viewed = jax.tree.map(lambda leaf: leaf.reshape(view if leaf.shape == shape else (view[0], *view[2:])), before)
    done = jax.lax.platform_dependent(
        viewed,
        key,
        cpu=_loop_over_pieces(update, view, limit=CPU_PIECE, isolate=True),
        cuda=_loop_over_pieces(update, view, limit=GPU_PIECE, isolate=False) if is_quantized else update,
        default=update,
    )
    shaped: Moments = jax.tree.map(lambda leaf, like: leaf.reshape(like.shape), done, before)
    return shaped


def _loop_over_pieces(update: Update, view: tuple[int, ...], *, limit: int, isolate: bool) -> Update:
    """Return an update that changes pieces of arrays in place, or the update itself for small arrays.

    A `view` has blocks along axis 1 and is cut along the first axis and, for kernels, the last. `isolate` keeps the
    compiler from fusing a piece with reads and writes of the whole array, which a CPU copies.
    """
    width = view[-1]
    if len(view) > 2:  # the largest divisor within the limit
        most = min(width, max(limit // view[1], 1))
        width = next(size for size in range(most, 0, -1) if width % size == 0)
    rows = max(1, min(view[0], limit // max(1, math.prod(view[1:-1]) * width)))
    columns = view[-1] // width
    if (rows, columns) == (view[0], 1):
        return update

    def piece(number: Any, arrays: Moments, key: Key[Array, ""], size: int) -> Moments:
        row, column = number // columns * rows, number % columns * width

        def start(leaf: Array) -> tuple[Any, ...]:
            return (row, *[0] * (leaf.ndim - 2), column) if leaf.ndim > 1 else (row,)

        def cut(leaf: Array) -> Array:
            sizes = (size, *leaf.shape[1:-1], width) if leaf.ndim > 1 else (size,)
            return jax.lax.dynamic_slice(leaf, start(leaf), sizes)

        def paste(leaf: Array, values: Array) -> Array:
            return jax.lax.dynamic_update_slice(leaf, values, start(leaf))

        def once(carry: tuple[Array, Moments]) -> tuple[Array, Moments]:
            return jnp.bool_(False), update(carry[1], jax.random.fold_in(key, number))  # noqa: FBT003

        begun = (number >= 0, jax.tree.map(cut, arrays))
        # A loop of one iteration is not fused with its surroundings.
        _, new = jax.lax.while_loop(lambda carry: carry[0], once, begun) if isolate else once(begun)
        after: Moments = jax.tree.map(paste, arrays, new)
        return after

    def loop(arrays: Moments, key: Key[Array, ""]) -> Moments:
        count, left = divmod(view[0], rows)
        done: Moments = jax.lax.fori_loop(
            0, count * columns, lambda number, arrays: piece(number, arrays, key, rows), arrays
        )
        if left:
            first, last = count * columns, (count + 1) * columns
            done = jax.lax.fori_loop(first, last, lambda number, arrays: piece(number, arrays, key, left), done)
        return done

    return loop


class CodedMoment(NamedTuple):
    """An 8-bit moment of all parameters, by name."""

    codes: dict[str, Any]
    """`uint8` in the parameter's shape, or float32 numbers of small parameters."""
    scales: dict[str, Any]
    """Scales of the blocks of quantized parameters, along the same axes."""


def _stored(moment: Any, name: str) -> Stored:
    if not isinstance(moment, CodedMoment):
        return (moment[name],)
    return (moment.codes[name], moment.scales[name]) if name in moment.scales else (moment.codes[name],)


def _join(like: Any, stored: dict[str, Stored]) -> Any:
    """Return the moment of all parameters, the inverse of `_stored`."""
    first = {name: arrays[0] for name, arrays in stored.items()}
    if not isinstance(like, CodedMoment):
        return first
    return CodedMoment(first, {name: arrays[1] for name, arrays in stored.items() if len(arrays) == 2})


def _widen(stored: Stored, *, signed: bool) -> Float32[Array, ...]:
    if len(stored) == 1:
        return stored[0].astype(jnp.float32)
    return code_values(stored[0], signed=signed) * jnp.expand_dims(stored[1], 1)


def _narrow(
    values: tuple[Array, Array], like: Any, scales: tuple[Array, Array] | None, key: Key[Array, ""]
) -> tuple[Stored, Stored]:
    """Return both float32 moments of one parameter as in `like`, quantized if `scales` of their blocks are given."""
    if scales is not None:
        first = nearest_codes(values[0] * jnp.expand_dims(1 / scales[0], 1), signed=True)
        second = nearest_codes(values[1] * jnp.expand_dims(1 / scales[1], 1), signed=False)
        return (first, scales[0]), (second, scales[1])
    if like[0][0].dtype == jnp.float32:
        return (values[0],), (values[1],)
    noise = jax.random.bits(key, values[0].shape, jnp.uint32)
    return (_round_with_noise(values[0], noise >> 16),), (_round_with_noise(values[1], noise & 0xFFFF),)


def scales_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a parameter's scales, or an empty tuple if its moments stay float32.

    `[512 128]` has scales `[2 128]`; an embedding table has one per row; stacked layers are treated one by one.
    """
    own = shape[is_stack(name) :]
    if len(own) != 2 or own[0] * own[1] < MIN_QUANTIZED:
        return ()
    if name.endswith(".table"):
        return shape[:-1]
    block = BLOCK
    while own[0] % block:
        block //= 2
    return (*shape[:-2], own[0] // block, own[1]) if block >= MIN_BLOCK else ()


def _block_view(shape: tuple[int, ...], scales: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape with a parameter's blocks along axis 1: `[blocks block outputs]` or `[rows width]`."""
    if len(scales) < len(shape):
        return (math.prod(scales), shape[-1])
    return (math.prod(scales[:-1]), shape[-2] // scales[-2], shape[-1])


def nearest_codes(fractions: Float32[Array, ...], *, signed: bool) -> UInt8[Array, ...]:
    """Return the codes of the values nearest to fractions between −1 and 1; 0 is 127 if signed, else 0."""
    size, first = jnp.abs(fractions), 1 if signed else 2
    midpoints = _decade_midpoints(first)
    parts, density = jnp.full_like(size, first), jnp.full_like(size, first * 10**6 / 0.9)
    for decade in range(1, DECADES):
        is_inside = size >= midpoints[decade]
        parts = jnp.where(is_inside, first << decade, parts)
        density = jnp.where(is_inside, (first << decade) * 10 ** (6 - decade) / 0.9, density)
    place = parts + jnp.clip(jnp.floor(size * density - parts * (1 / 9)), 0, parts - 1)
    place = jnp.where(size < midpoints[0], first - 1, place)
    place = jnp.where((fractions if signed else size) >= midpoints[-1], first << DECADES, place)
    return (127 + jnp.sign(fractions) * place if signed else place - 1).astype(jnp.uint8)


def code_values(codes: UInt8[Array, ...], *, signed: bool) -> Float32[Array, ...]:
    """Return the fractions of codes, computed because a table lookup is slow on TPUs.

    The exponent of a code's place is the decade, and its mantissa the position within the decade.
    """
    first = 1 if signed else 2
    counted = codes.astype(jnp.float32) + (-127 if signed else 1)
    place = jnp.abs(counted)
    bits = jax.lax.bitcast_convert_type(place + 0.5, jnp.int32)
    mantissa = jax.lax.bitcast_convert_type((bits & 0x007F_FFFF) | 0x3F80_0000, jnp.float32)
    power = jnp.full_like(place, 1e-6)
    for decade in range(1, DECADES):
        power = jnp.where(place >= first << decade, 10.0 ** (decade - 6), power)
    value = power * (0.1 + 0.9 * (mantissa - 1))
    value = jnp.where(place < first, 0, jnp.where(place >= first << DECADES, 1, value))
    return jnp.sign(counted) * value if signed else value


def _decade_midpoints(first: int) -> list[float]:
    """Return the midpoints between 0 and the least value, between decades, and between the largest value and 1."""
    halves = [0.45 / (first << decade) for decade in range(DECADES)]
    powers = [10.0 ** (decade - 6) for decade in range(DECADES)]
    least = [power * (0.1 + half) for power, half in zip(powers, halves, strict=True)] + [1.0]
    most = [0.0] + [power * (1 - half) for power, half in zip(powers, halves, strict=True)]
    return [(below + above) / 2 for below, above in zip(most, least, strict=True)]
