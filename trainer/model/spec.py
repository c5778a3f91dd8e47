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
    interpolates between them. `yarn` (arXiv 2309.00071) interpolates by the turns in the original context. `longrope`
    (arXiv 2402.13753) divides each frequency by its own factor, with different factors for texts beyond `positions`.
    """

    theta: float = 10_000.0  # base of the wavelengths
    kind: RopeKind = "default"
    factor: float = 1.0
    positions: int = 0  # context length before the extension
    attention_factor: float = 1.0  # factor of cosine and sine
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True  # the interpolation of `yarn` starts and ends at whole pairs
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BlockSpec:
    """What may differ between the layers of a model."""

    rope: Rope | None = None  # None if queries and keys are not rotated
    window: int | None = None  # tokens that a token attends to, itself included, or None for all earlier ones
    query_key_norm: bool = False  # normalise each head of queries and keys before the rotation (arXiv 2010.04245)
    post_norms: bool = False  # normalise the outputs of attention and MLP before they are added


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A pre-norm transformer decoder: token table, blocks of attention and MLP, final norm, head."""

    family: str  # key of `families.FAMILIES`
    vocab: int  # rows of the token table
    blocks: tuple[BlockSpec, ...]
    embed: int  # width of the residual stream
    heads: int
    kv_heads: int  # a divisor of `heads`; 1 is multi-query attention
    head_dim: int  # `heads * head_dim` may differ from `embed`
    mlp: int  # hidden width of the MLP
    max_positions: int  # context length, prompt and output together
    learned_positions: bool = False  # add a table of `max_positions` rows to the embeddings
    norm: NormKind  # mean and variance, gain and bias; root mean square; the same with the gain 1 + w
    norm_epsilon: float  # added to the variance or the mean square
    activation: Activation  # `gelu_tanh` is GELU's tanh approximation, `gelu` the exact function
    gated_mlp: bool  # multiply `activation(gate(x))` with `up(x)`, as in GeGLU and SwiGLU
    attention_bias: bool  # of query, key and value projections
    output_bias: bool  # of the output projection of attention
    mlp_bias: bool
    scale_embeddings: bool = False  # multiply token embeddings by the square root of `embed`
    query_scale: float | None = None  # factor of attention scores, or None for `head_dim ** -0.5`
    attention_softcap: float | None = None  # bounds scores by `cap * tanh(score / cap)`
    final_softcap: float | None = None  # the same for logits
    tied_head: bool  # the head is the token table
    initializer_std: float = 0.02
    scale_residual_init: bool = False  # divide random projections into the residual stream by `sqrt(2 * layers)`

    @property
    def layers(self) -> int:
        """Number of blocks."""
        return len(self.blocks)
