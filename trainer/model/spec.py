"""What a decoder is: sizes and the choices that differ between families.

`ModelSpec` is all that `decoder.py` knows about a model; a family (see `families/`) reads it from a Hugging Face
`config.json`. Nothing here depends on jax, on files, or on how a model is trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Activation = Literal["gelu_tanh", "gelu", "silu"]
NormKind = Literal["layer", "rms_one_plus"]
PositionKind = Literal["learned", "rotary"]


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A pre-norm transformer decoder: token table, `layers` blocks of attention and MLP, a last norm, a head."""

    family: str
    """Key of `families.FAMILIES`: where the names of its tensors are written down."""

    vocab: int
    """Rows of the token table."""

    layers: int
    """Blocks."""

    embed: int
    """Width of the residual stream."""

    heads: int
    """Query heads of each layer."""

    kv_heads: int
    """Key and value heads; `heads` is a multiple of it. 1 is multi-query attention."""

    head_dim: int
    """Width of a head; `heads * head_dim` need not be `embed`."""

    mlp: int
    """Width inside the MLP."""

    max_positions: int
    """Most positions, prompt and output together."""

    positions: PositionKind
    """learned: a table added to the embeddings. rotary: queries and keys are turned by their position."""

    rope_theta: float = 10_000.0
    """Base of the rotary wavelengths; without effect on learned positions."""

    norm: NormKind
    """layer: mean and variance, gain and bias. rms_one_plus: root mean square, the gain is 1 + w."""

    norm_epsilon: float
    """Added to the variance or the mean square."""

    activation: Activation
    """gelu_tanh is GELU's tanh approximation, gelu the exact one."""

    gated_mlp: bool
    """The MLP multiplies `activation(gate(x))` with `up(x)`: GeGLU or SwiGLU."""

    attention_bias: bool
    """Query, key, value and output projections have a bias."""

    mlp_bias: bool
    """The projections of the MLP have a bias."""

    scale_embeddings: bool
    """Token embeddings are multiplied by the square root of `embed`."""

    tied_head: bool
    """The head is the token table; otherwise it has its own."""

    initializer_std: float = 0.02
    """Standard deviation of random matrices."""

    scale_residual_init: bool = False
    """Projections into the residual stream start smaller, by the square root of the number of them."""
