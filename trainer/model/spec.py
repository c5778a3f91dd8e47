"""What a decoder is: sizes and the choices that differ between families.

`ModelSpec` is all that `decoder.py` knows about a model; a family (see `families/`) reads it from a Hugging Face
`config.json`. What may differ from layer to layer stands in `BlockSpec`. Nothing here depends on jax, on files, or on
how a model is trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Activation = Literal["gelu_tanh", "gelu", "silu", "relu"]
NormKind = Literal["layer", "rms", "rms_one_plus"]


@dataclass(frozen=True, kw_only=True)
class LinearScaling:
    """All frequencies divided by `factor` (arXiv 2306.15595)."""

    factor: float


@dataclass(frozen=True, kw_only=True)
class Dynamic:
    """The base grows with the text once that is longer than `positions` (NTK-aware, in transformers `dynamic`)."""

    factor: float
    positions: int
    """Longest text that is not stretched."""


@dataclass(frozen=True, kw_only=True)
class Llama3:
    """Long wavelengths divided by `factor`, short ones kept, between them a slope (Llama 3.1)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    positions: int
    """Longest text of the first training."""


@dataclass(frozen=True, kw_only=True)
class Yarn:
    """Frequencies between stretched and plain by the turns they make in the first context (arXiv 2309.00071)."""

    factor: float
    positions: int
    """Longest text of the first training."""
    attention_factor: float
    """Cosine and sine are multiplied by it."""
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    """The slope begins and ends at whole pairs."""


@dataclass(frozen=True, kw_only=True)
class LongRope:
    """Each frequency divided by a factor of its own, other ones for long texts (arXiv 2402.13753)."""

    short_factors: tuple[float, ...]
    long_factors: tuple[float, ...]
    positions: int
    """Longest text that takes the short factors."""
    attention_factor: float
    """Cosine and sine are multiplied by it."""


@dataclass(frozen=True, kw_only=True)
class Rope:
    """Rotary positions (arXiv 2104.09864): how fast each pair of a head turns (`rope.py`)."""

    theta: float = 10_000.0
    """Base of the wavelengths."""

    stretch: LinearScaling | Dynamic | Llama3 | Yarn | LongRope | None = None
    """How a longer context was made from it. None: not at all."""


@dataclass(frozen=True, kw_only=True)
class BlockSpec:
    """What may differ from one layer of a model to the next."""

    rope: Rope | None = None
    """None: queries and keys are not turned."""

    window: int | None = None
    """A token sees itself and the `window - 1` tokens before it. None: all before it."""

    query_key_norm: bool = False
    """Each head of queries and keys is normalised before it is turned (arXiv 2010.04245)."""

    post_norms: bool = False
    """What attention and MLP give is normalised before it is added."""


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A pre-norm transformer decoder: token table, blocks of attention and MLP, a last norm, a head."""

    family: str
    """Key of `families.FAMILIES`: where the names of its tensors are written down."""

    vocab: int
    """Rows of the token table."""

    blocks: tuple[BlockSpec, ...]
    """The layers, first to last."""

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

    learned_positions: bool = False
    """A table of `max_positions` rows is added to the embeddings."""

    norm: NormKind
    """layer: mean and variance, gain and bias. rms: root mean square. rms_one_plus: the same, the gain is 1 + w."""

    norm_epsilon: float
    """Added to the variance or the mean square."""

    activation: Activation
    """gelu_tanh is GELU's tanh approximation, gelu the exact one."""

    gated_mlp: bool
    """The MLP multiplies `activation(gate(x))` with `up(x)`: GeGLU or SwiGLU."""

    attention_bias: bool
    """Query, key and value projections have a bias."""

    output_bias: bool
    """Attention's output projection has a bias."""

    mlp_bias: bool
    """The projections of the MLP have a bias."""

    scale_embeddings: bool = False
    """Token embeddings are multiplied by the square root of `embed`."""

    query_scale: float | None = None
    """Scores are multiplied by it. None: by `head_dim ** -0.5`."""

    attention_softcap: float | None = None
    """Scores are bent into (−cap, cap) by `cap · tanh(score / cap)`. None: not bent."""

    final_softcap: float | None = None
    """The same for logits."""

    tied_head: bool
    """The head is the token table; otherwise it has its own."""

    initializer_std: float = 0.02
    """Standard deviation of random matrices."""

    scale_residual_init: bool = False
    """Projections into the residual stream start smaller, by the square root of the number of them."""

    @property
    def layers(self) -> int:
        """Number of blocks."""
        return len(self.blocks)
