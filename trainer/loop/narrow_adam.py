"""AdamW's two moments in fewer bits than float32: `optimizer.state`.

`bfloat16` rounds by chance, as parameters are: the second moment changes by a thousandth in a step, which bfloat16's
nearest number loses, so that it would never fall. `int8` is `coded_moments.py`.

Each array is widened, updated and narrowed by itself, and what it gives for the parameters comes from the wide numbers.
A TPU fuses all of that. A CPU makes an array of each operation, and a GPU one of each moment whose magnitudes are
looked for, those of all parameters at once: there a loop goes over pieces of an array and changes them in place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float32, Key

from trainer.loop.coded_moments import CodedMoment, blocks_shape, codes_of, no_moment, numbers_of, scales_of
from trainer.loop.rounding import round_by_noise

StateType = Literal["float32", "bfloat16", "int8"]

DRAWS = 0x6D6F_6D73
"""Seed of rounding by chance: what is drawn depends on the update's number and the array's place alone."""

PIECE = 1 << 18
"""Numbers of an array that a CPU updates at one time."""

GPU_PIECE = 1 << 22
"""The same of a GPU, to which every piece costs a start."""

Kept = tuple[Array, ...]
"""A moment of one parameter: codes and magnitudes of their blocks, or numbers."""
Held = tuple[Array, Kept, Kept]
"""A gradient, in its place later the update, and both moments."""
Update = Callable[[Held, Key[Array, ""]], Held]


def scale_by_narrow_adam(b1: float, b2: float, eps: float, *, kind: StateType) -> optax.GradientTransformation:
    """Return Adam as `optax.scale_by_adam`, of parameters in a dictionary, its moments kept in fewer bits.

    Args:
        b1: decay of the first moment.
        b2: decay of the second.
        eps: added to the denominator.
        kind: bfloat16 or int8.
    """

    def zeros(params: dict[str, Array]) -> Any:
        return no_moment(params) if kind == "int8" else optax.tree.zeros_like(params, dtype=jnp.bfloat16)

    def init(params: dict[str, Array]) -> optax.ScaleByAdamState:
        return optax.ScaleByAdamState(count=jnp.int32(0), mu=zeros(params), nu=zeros(params))

    def update(gradient: dict[str, Array], state: optax.ScaleByAdamState, params: Any = None) -> tuple[Any, Any]:
        del params
        count = optax.safe_increment(state.count)
        key = jax.random.fold_in(jax.random.key(DRAWS), count)

        def moments(held: Held) -> tuple[Array, Array]:
            slope, first, second = held
            return (
                b1 * wide(first, signed=True) + (1 - b1) * slope,
                b2 * wide(second, signed=False) + (1 - b2) * slope**2,
            )

        def updated(held: Held, key: Key[Array, ""]) -> Held:
            slope, *kept = held
            scales: Any = None
            if len(kept[0]) == 2:
                scales = tuple(scales_of(each) for each in moments(held))
                # Without the barrier a compiler would keep both wide moments until their magnitudes are known, where
                # it can compute them twice.
                kept = jax.lax.optimization_barrier(kept)
            first, second = moments((slope, kept[0], kept[1]))
            change = first / (1 - b1**count) / (jnp.sqrt(second / (1 - b2**count)) + eps)
            return (change, *narrow((first, second), kept, scales, key))

        done = {
            name: in_pieces(updated, (slope, kept_of(state.mu, name), kept_of(state.nu, name)), keys)
            for (name, slope), keys in zip(gradient.items(), jax.random.split(key, len(gradient)), strict=True)
        }
        mu = moment_of(state.mu, {name: first for name, (_, first, _) in done.items()})
        nu = moment_of(state.nu, {name: second for name, (*_, second) in done.items()})
        changes = {name: change for name, (change, *_) in done.items()}
        return changes, optax.ScaleByAdamState(count=count, mu=mu, nu=nu)

    return optax.GradientTransformation(init, update)


def in_pieces(updated: Update, held: Held, key: Key[Array, ""]) -> Held:
    """Return what an update makes of one parameter: at once, or on a CPU, and of codes on a GPU, piece by piece."""
    shape, is_coded = held[0].shape, len(held[1]) == 2
    view = blocks_shape(shape, held[1][1].shape) if is_coded else shape
    # A moment's first array has the parameter's shape, its magnitudes have one for each block.
    seen = jax.tree.map(lambda leaf: leaf.reshape(view if leaf.shape == shape else (view[0], *view[2:])), held)
    done = jax.lax.platform_dependent(
        seen,
        key,
        cpu=by_pieces(updated, view, most=PIECE, apart=True),
        cuda=by_pieces(updated, view, most=GPU_PIECE, apart=False) if is_coded else updated,
        default=updated,
    )
    shaped: Held = jax.tree.map(lambda leaf, before: leaf.reshape(before.shape), done, held)
    return shaped


def by_pieces(updated: Update, view: tuple[int, ...], *, most: int, apart: bool) -> Update:
    """Return an update that goes over pieces of arrays and changes them in place; of small arrays the update itself.

    Args:
        updated: the update.
        view: shape of the parameter, blocks along axis 1: cut along the first axis and, of kernels, the last.
        most: numbers of a piece.
        apart: keep a compiler from fusing a piece with what reads and writes the whole arrays, which a CPU's copies.
    """
    width = view[-1] if len(view) < 3 else piece_of(view[-1], most // view[1])
    rows = max(1, min(view[0], most // max(1, math.prod(view[1:-1]) * width)))
    columns = view[-1] // width
    if (rows, columns) == (view[0], 1):
        return updated

    def piece(number: Any, held: Held, key: Key[Array, ""], size: int) -> Held:
        row, column = number // columns * rows, number % columns * width

        def place(leaf: Array) -> tuple[Any, ...]:
            return (row, *[0] * (leaf.ndim - 2), column) if leaf.ndim > 1 else (row,)

        def part(leaf: Array) -> Array:
            sizes = (size, *leaf.shape[1:-1], width) if leaf.ndim > 1 else (size,)
            return jax.lax.dynamic_slice(leaf, place(leaf), sizes)

        def put(leaf: Array, values: Array) -> Array:
            return jax.lax.dynamic_update_slice(leaf, values, place(leaf))

        def turn(held: tuple[Array, Held]) -> tuple[Array, Held]:
            return jnp.bool_(False), updated(held[1], jax.random.fold_in(key, number))  # noqa: FBT003

        begun = (number >= 0, jax.tree.map(part, held))
        # A loop of one turn is fused with nothing outside.
        _, new = jax.lax.while_loop(lambda held: held[0], turn, begun) if apart else turn(begun)
        after: Held = jax.tree.map(put, held, new)
        return after

    def over_all(held: Held, key: Key[Array, ""]) -> Held:
        count, left = divmod(view[0], rows)
        done: Held = jax.lax.fori_loop(0, count * columns, lambda number, held: piece(number, held, key, rows), held)
        if left:
            first, last = count * columns, (count + 1) * columns
            done = jax.lax.fori_loop(first, last, lambda number, held: piece(number, held, key, left), done)
        return done

    return over_all


def piece_of(length: int, most: int) -> int:
    """Return the largest divisor of a length up to a bound."""
    return next(size for size in range(min(length, max(most, 1)), 0, -1) if length % size == 0)


def kept_of(moment: Any, name: str) -> Kept:
    """Return what is kept of one parameter."""
    if not isinstance(moment, CodedMoment):
        return (moment[name],)
    return (moment.codes[name], moment.scales[name]) if name in moment.scales else (moment.codes[name],)


def moment_of(like: Any, kept: dict[str, Kept]) -> Any:
    """Return the moment of which so much is kept of each parameter; the inverse of `kept_of`."""
    first = {name: arrays[0] for name, arrays in kept.items()}
    if not isinstance(like, CodedMoment):
        return first
    return CodedMoment(first, {name: arrays[1] for name, arrays in kept.items() if len(arrays) == 2})


def wide(kept: Kept, *, signed: bool) -> Float32[Array, ...]:
    """Return in float32 what is kept of one parameter."""
    return numbers_of(*kept, signed=signed) if len(kept) == 2 else kept[0].astype(jnp.float32)


def narrow(values: tuple[Array, Array], like: Any, scales: Any, key: Key[Array, ""]) -> tuple[Kept, Kept]:
    """Return both moments of one parameter as `like` keeps them.

    Args:
        values: in float32.
        like: what was kept before.
        scales: magnitudes of both moments' blocks. None: they are not kept as codes.
        key: for rounding by chance.
    """
    if scales is not None:
        (first, second), (of_first, of_second) = values, scales
        return (
            (codes_of(first, of_first, signed=True), of_first),
            (codes_of(second, of_second, signed=False), of_second),
        )
    if like[0][0].dtype == jnp.float32:
        return (values[0],), (values[1],)
    noise = jax.random.bits(key, values[0].shape, jnp.uint32)
    return (round_by_noise(values[0], noise >> 16),), (round_by_noise(values[1], noise & 0xFFFF),)
