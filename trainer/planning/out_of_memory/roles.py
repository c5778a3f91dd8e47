"""What a named buffer is: logits, attention scores, parameters … by its axes, its place in the program, and the model.

Sizes of the model and the batch say it exactly; without them the axes and the operator's name say what is likely.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from trainer.planning.out_of_memory.report import Allocation

Role = Literal[
    "logits",
    "scores",
    "parameters",
    "opt_state",
    "gradients",
    "activations",
    "cache",
    "argument",
    "host_array",
    "other",
]

WORDS: dict[Role, str] = {
    "logits": "logits, or their gradient",
    "scores": "attention scores",
    "parameters": "parameters",
    "opt_state": "optimizer state",
    "gradients": "the backward pass",
    "activations": "activations",
    "cache": "keys and values of the cache",
    "argument": "given to the program: parameters, optimizer state or a batch",
    "host_array": "an array in main memory",
    "other": "not told by its shape",
}

FEWEST_WORDS = 32_000
"""Rows of the smallest token table of the models in question. A longer axis is a vocabulary unless it is a power of
two, as flattened tokens are."""

GEMMA_WORDS = 262_144

_OPTIMIZER = re.compile(r"opt_state|optimizer|adam|adafactor|scale_by_|\bmu\b|\bnu\b", re.IGNORECASE)
_CACHE = re.compile(r"cache|past_key|key_value", re.IGNORECASE)
_TABLE = re.compile(r"embed|wte\b|vocab_table", re.IGNORECASE)
_LOGITS = re.compile(r"lm_head|logits|cross_entropy|log_softmax|losses?\b|unembed", re.IGNORECASE)
_SCORES = re.compile(r"->\.*b?hqk|hqk|attention_scores|attn_weights", re.IGNORECASE)
_ATTENTION = re.compile(r"attention|attn", re.IGNORECASE)
_BACKWARD = re.compile(r"transpose\(jvp|backward|/grad", re.IGNORECASE)
_LAYER = re.compile(r"jvp\(|mlp|feed_forward|ffn|transformer|/h/|/layers?/|remat|add_any", re.IGNORECASE)
_DRAWN = re.compile(r"_normal|truncated_normal|random_bits|threefry|uniform", re.IGNORECASE)

FEWEST_TOKENS = 64
"""Two equal axes below it are no attention over a text."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes of a model and a batch on one device, where a configuration says them."""

    vocab: int
    embed: int
    mlp: int
    heads: int
    kv_heads: int
    head_dim: int
    sequences: int
    """batch.microbatch_size."""
    length: int
    """data.max_length."""
    chunk_tokens: int | None = None
    """memory.loss_chunk_tokens."""

    @property
    def tokens(self) -> int:
        """Of a microbatch on one device."""
        return self.sequences * self.length


@dataclass(frozen=True, kw_only=True)
class NamedBuffer:
    """A buffer, what it is, and why that is said."""

    allocation: Allocation
    role: Role
    because: str | None = None
    """The configuration's own sizes that it consists of."""


def read_roles(
    largest: Sequence[Allocation], *, sizes: Sizes | None, in_main_memory: bool = False
) -> list[NamedBuffer]:
    """Return each buffer with what it is."""
    arguments = {each.axes for each in largest if each.is_argument and len(each.axes) > 1}
    found = []
    for each in largest:
        known = by_sizes(each, sizes) if sizes is not None else None
        role, because = known or (by_looks(each, arguments, in_main_memory=in_main_memory), None)
        found.append(NamedBuffer(allocation=each, role=role, because=because))
    return found


def by_sizes(allocation: Allocation, sizes: Sizes) -> tuple[Role, str] | None:
    """Return what a buffer is by the configuration's own sizes, None where none of them is in it.

    With 8 sequences of 512 tokens and a vocabulary of 256,000, `f32[8,512,256000]` holds the logits of a microbatch.
    """
    axes = tuple(axis for axis in allocation.axes if axis > 1)
    count = math.prod(axes)
    if sizes.vocab in axes:
        rest = count // sizes.vocab
        if rest == sizes.embed and (allocation.is_argument or axes[0] == sizes.vocab or rest != sizes.tokens):
            return "parameters", f"the token table: {sizes.vocab:,} words × {sizes.embed:,}"
        if rest == sizes.chunk_tokens:
            return "logits", f"memory.loss_chunk_tokens {rest:,} × {sizes.vocab:,} words"
        return "logits", f"{rest:,} tokens × {sizes.vocab:,} words{_batch(rest, sizes)}"
    if len(axes) >= 2 and axes[-1] == axes[-2] == sizes.length:
        rest = count // sizes.length**2
        heads = f"{rest // sizes.heads:,} sequences × {sizes.heads} heads" if rest % sizes.heads == 0 else f"{rest:,}"
        return "scores", f"{heads} × data.max_length {sizes.length:,}²"
    return _layer_by_sizes(axes, count, sizes)


def _layer_by_sizes(axes: tuple[int, ...], count: int, sizes: Sizes) -> tuple[Role, str] | None:
    """Return what a buffer of one layer is: a kernel, or tokens times a width."""
    query, key = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    # Where two are alike, the later name stands.
    widths = {key: "kv_heads × head_dim", query: "heads × head_dim", sizes.mlp: "mlp", sizes.embed: "embed"}
    inside = {*widths, sizes.heads, sizes.kv_heads, sizes.head_dim}
    for first in sorted(widths, key=lambda width: width != axes[0] if axes else True):
        other = count // first
        if other in widths and first * other == count and len(axes) >= 2 and set(axes) <= inside:
            return "parameters", f"a projection: {widths[first]} {first:,} × {widths[other]} {other:,}"
    for width, name in sorted(widths.items(), reverse=True):
        if count == sizes.tokens * width:
            return "activations", f"{sizes.tokens:,} tokens × {name} {width:,}{_batch(sizes.tokens, sizes)}"
    return None


def _batch(tokens: int, sizes: Sizes) -> str:
    """Return how many tokens come from the batch, in the configuration's own keys."""
    if tokens != sizes.tokens:
        return ""
    return f" (batch.microbatch_size {sizes.sequences:,} × data.max_length {sizes.length:,})"


def by_looks(allocation: Allocation, arguments: set[tuple[int, ...]], *, in_main_memory: bool = False) -> Role:
    """Return what a buffer likely is, by its axes and its place in the program."""
    place, axes = allocation.operator or "", tuple(axis for axis in allocation.axes if axis > 1)
    if in_main_memory:
        return "host_array"
    for pattern, role in _BY_NAME:
        if pattern.search(place):
            return role
    if any(is_vocabulary(axis) for axis in axes):
        return _with_a_vocabulary(allocation, axes, arguments)
    if _SCORES.search(place) or _is_square(axes, place):
        return "scores"
    if allocation.is_argument:
        return "argument"
    if _BACKWARD.search(place):
        return "gradients"
    return "activations" if _LAYER.search(place) or len(axes) >= 3 else "other"


_BY_NAME: tuple[tuple[re.Pattern[str], Role], ...] = (
    (_OPTIMIZER, "opt_state"),
    (_CACHE, "cache"),
    (_DRAWN, "parameters"),
)


def _with_a_vocabulary(allocation: Allocation, axes: tuple[int, ...], arguments: set[tuple[int, ...]]) -> Role:
    """Return whether a buffer with a vocabulary's axis is a token table, or logits."""
    place = allocation.operator or ""
    if allocation.is_argument or allocation.axes in arguments or _TABLE.search(place):
        return "parameters"
    if _LOGITS.search(place) or is_vocabulary(axes[-1]):
        return "logits"
    return "parameters" if len(axes) == 2 else "logits"


def is_vocabulary(axis: int) -> bool:
    """Return whether an axis is likely a vocabulary: 151,936 and 262,144, which is Gemma's, but not 65,536 tokens."""
    return axis == GEMMA_WORDS or (axis >= FEWEST_WORDS and axis & (axis - 1) != 0)


def _is_square(axes: tuple[int, ...], place: str) -> bool:
    """Return whether the last two axes are the same text twice: queries and keys."""
    if len(axes) < 3 or axes[-1] != axes[-2] or axes[-1] < FEWEST_TOKENS:
        return False
    return len(axes) >= 4 or _ATTENTION.search(place) is not None
