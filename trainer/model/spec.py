"""Architecture of a decoder: its sizes and the choices that differ between families.

`ModelSpec` is all that the decoder knows about a model; `families.py` reads it from a Hugging Face `config.json`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Activation = Literal["gelu_tanh", "gelu", "silu", "relu"]
RopeKind = Literal["default", "linear", "dynamic", "llama3", "yarn", "longrope"]
NormKind = Literal["layer", "rms", "rms_one_plus"]


@dataclass(frozen=True, kw_only=True)
class Rope:
    """Rotary positions (arXiv 2104.09864) and the extension of their context; the formulas are in `rope.py`.

    `linear` (arXiv 2306.15595) divides all frequencies by `factor`. `dynamic` (NTK-aware) increases the base with the
    length of a text beyond `positions`. `llama3` (Llama 3.1) divides long wavelengths, keeps short ones and
    interpolates between them. `yarn` (arXiv 2309.00071) interpolates by the number of turns in the original context. `longrope`
    (arXiv 2402.13753) divides each frequency by its own factor, with different factors for texts beyond `positions`.
    """

    theta: float = 10_000.0
    """Base of the wavelengths."""
    kind: RopeKind = "default"
    factor: float = 1.0
    positions: int = 0
    """Context length before the extension."""
    attention_factor: float = 1.0
    """Cosine and sine are multiplied by it."""
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    """Whether the interpolation of `yarn` starts and ends at whole pairs."""
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BlockSpec:
    """What may differ between the layers of a model."""

    rope: Rope | None = None
    """Rotary positions, or None if queries and keys are not rotated."""
    window: int | None = None
    """Tokens that a token attends to, itself included, or None for all earlier ones."""
    query_key_norm: bool = False
    """Whether each head of queries and keys is normalised before the rotation (arXiv 2010.04245)."""
    post_norms: bool = False
    """Whether the outputs of attention and MLP are normalised before they are added."""


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A pre-norm transformer decoder: token table, blocks of attention and MLP, final norm, head.

    Attributes:
        family: Key of `families.FAMILIES`.
        vocab: Rows of the token table.
        blocks: The layers, first to last.
        embed: Width of the residual stream.
        heads: Query heads of each layer.
        kv_heads: Key and value heads, a divisor of `heads`; 1 is multi-query attention.
        head_dim: Width of a head; `heads * head_dim` may differ from `embed`.
        mlp: Hidden width of the MLP.
        max_positions: Context length, prompt and output together.
        learned_positions: Whether a table of `max_positions` rows is added to the embeddings.
        norm: `layer` (mean and variance, gain and bias), `rms` (root mean square) or `rms_one_plus` (gain 1 + w).
        norm_epsilon: Added to the variance or the mean square.
        activation: `gelu_tanh` is GELU's tanh approximation, `gelu` the exact function.
        gated_mlp: Whether the MLP multiplies `activation(gate(x))` with `up(x)`, as in GeGLU and SwiGLU.
        attention_bias: Whether query, key and value projections have a bias.
        output_bias: Whether the output projection of attention has a bias.
        mlp_bias: Whether the projections of the MLP have a bias.
        scale_embeddings: Whether token embeddings are multiplied by the square root of `embed`.
        query_scale: Factor of attention scores, or None for `head_dim ** -0.5`.
        attention_softcap: Bounds scores by `cap * tanh(score / cap)`, or None.
        final_softcap: The same for logits.
        tied_head: Whether the head is the token table.
        initializer_std: Standard deviation of random matrices.
        scale_residual_init: Whether random projections into the residual stream are divided by `sqrt(2 * layers)`.
    """

    family: str
    vocab: int
    blocks: tuple[BlockSpec, ...]
    embed: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    max_positions: int
    learned_positions: bool = False
    norm: NormKind
    norm_epsilon: float
    activation: Activation
    gated_mlp: bool
    attention_bias: bool
    output_bias: bool
    mlp_bias: bool
    scale_embeddings: bool = False
    query_scale: float | None = None
    attention_softcap: float | None = None
    final_softcap: float | None = None
    tied_head: bool
    initializer_std: float = 0.02
    scale_residual_init: bool = False

    @property
    def layers(self) -> int:
        """Number of blocks."""
        return len(self.blocks)
