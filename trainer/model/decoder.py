"""The decoder: tokens become hidden states, hidden states become logits.

The two are apart so that a loss can take logits in chunks and never hold `[batch seq vocab]`. Layers are a plain list:
each layer's gradient is then an array of its own, which an update can consume as soon as it exists. Or equal layers are
stacked, and a loop goes over them (`stacks.py`): a program then holds such a layer once, and is compiled in a fraction
of the time. Random parameters are made in `build.py`, decoding with a cache in `trainer/generate`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int, Key

from trainer.model.attention import Context, KeyValues, Layer
from trainer.model.layers import Dtypes, EmbeddingTable, Norm
from trainer.model.lora import Dropout
from trainer.model.spec import ModelSpec
from trainer.model.stacks import Remat, layer_call, layers_stacked, through_stacks
from trainer.model.turns import in_turn


class Decoder(nnx.Module):
    """A language model as its `ModelSpec` describes it.

    Parameters are held in `dtypes.params`; matrix products run in `dtypes.compute`; norms, softmax and logits in
    float32.
    With `remat="layer"` the backward pass keeps each layer's input and recomputes the rest (arXiv 1604.06174); with
    `dots` it keeps the products with weights too, and recomputes what costs little.
    With `runs` equal layers are stacked: such a decoder is trained, and never written to a cache of keys and values.
    """

    def __init__(
        self, spec: ModelSpec, *, dtypes: Dtypes, remat: Remat, rngs: nnx.Rngs, runs: tuple[range, ...] = ()
    ) -> None:
        def table(rows: int) -> EmbeddingTable:
            return EmbeddingTable(rows, spec.embed, std=spec.initializer_std, dtypes=dtypes, rngs=rngs)

        self.spec = spec
        self.remat: Remat = remat
        self.compute_dtype = jnp.dtype(dtypes.compute)
        self.tokens = table(spec.vocab)
        self.positions = table(spec.max_positions) if spec.learned_positions else None
        self.runs = runs
        self.is_adapted = False
        """Whether adapters were added, to any layer."""
        self.layers: Any
        """A list of `Layer`; with runs a dictionary of stacks by their layers."""
        if runs:
            self.layers = nnx.Dict(layers_stacked(spec, runs, dtypes=dtypes, rngs=rngs))
        else:
            self.layers = nnx.List([Layer(spec, block, dtypes=dtypes, rngs=rngs) for block in spec.blocks])
        self.final_norm = Norm(spec.embed, kind=spec.norm, epsilon=spec.norm_epsilon, dtypes=dtypes)
        self.head = None if spec.tied_head else table(spec.vocab)

    def hidden(
        self,
        tokens: Int[Array, "batch seq"],
        segments: Int[Array, "batch seq"] | None = None,
        dropout_key: Key[Array, ""] | None = None,
    ) -> Float[Array, "batch seq embed"]:
        """Return the hidden state of each token, ids below `spec.vocab`, after the last norm.

        A token sees itself and the tokens of its text before it. Right padding therefore changes nothing at the real
        tokens and needs no mask.

        Args:
            tokens: ids.
            segments: number of the text each token belongs to, where rows hold several, each in one piece; positions
                start again with every text. None: one text a row.
            dropout_key: for adapters that drop inputs while they are trained. None: nothing is dropped.
        """
        positions = jnp.broadcast_to(jnp.arange(tokens.shape[1], dtype=jnp.int32)[None, :], tokens.shape)
        if segments is not None:
            positions = positions - first_places(segments)
        context = Context(positions=positions, segments=segments)
        x = self.embed(tokens, positions)
        if self.runs:
            return self.final_norm(through_stacks(self.layers, self.spec, x, context, dropout_key, remat=self.remat))
        run = layer_call(self.remat)
        for number, each in enumerate(self.layers):
            layer = each
            if dropout_key is not None:
                context = context._replace(dropout=Dropout(jax.random.fold_in(dropout_key, number)))
            if self.remat != "none":
                layer, x = in_turn(layer, x, adapters_learn=self.is_adapted)
            x, _ = run(layer, x, context)
        return self.final_norm(x)

    def extend(
        self, tokens: Int[Array, "batch seq"], context: Context, caches: list[KeyValues]
    ) -> tuple[Float[Array, "batch seq embed"], list[KeyValues]]:
        """Return hidden states of `tokens` that continue what `caches` holds, and the caches with them in it."""
        assert not self.runs, "keys and values are kept for layers by themselves"
        x = self.embed(tokens, context.positions)
        extended = []
        for layer, cache in zip(self.layers, caches, strict=True):
            x, kept = layer(x, context, cache)
            assert kept is not None, "a cache was given"
            extended.append(kept)
        return self.final_norm(x), extended

    def logits(self, hidden: Float[Array, "*where embed"]) -> Float[Array, "*where vocab"]:
        """Return unnormalised log-probabilities of the next token, in float32."""
        scores = (self.tokens if self.head is None else self.head).scores(hidden)
        cap = self.spec.final_softcap
        return scores if cap is None else jnp.tanh(scores / cap) * cap

    def embed(
        self, tokens: Int[Array, "batch seq"], positions: Int[Array, "batch seq"]
    ) -> Float[Array, "batch seq embed"]:
        """Return what enters the first layer."""
        x = self.tokens.rows(tokens)
        if self.spec.scale_embeddings:
            # Gemma rounds the factor to the compute dtype before it multiplies; so do we, or bfloat16 would differ.
            x = x * jnp.asarray(self.spec.embed**0.5, self.compute_dtype)
        return x if self.positions is None else x + self.positions.rows(positions)

    def empty_caches(self, batch: int, length: int) -> list[KeyValues]:
        """Return zeroed keys and values for every layer: `[batch kv_heads length head_dim]`, in the compute dtype."""
        shape = (batch, self.spec.kv_heads, length, self.spec.head_dim)
        return [
            KeyValues(jnp.zeros(shape, self.compute_dtype), jnp.zeros(shape, self.compute_dtype)) for _ in self.layers
        ]


def first_places(segments: Int[Array, "batch seq"]) -> Int[Array, "batch seq"]:
    """Return for each token the place where its text begins: `[1, 1, 2, 2, 2, 0]` gives `[0, 0, 2, 2, 2, 5]`."""
    places = jnp.broadcast_to(jnp.arange(segments.shape[1], dtype=jnp.int32)[None, :], segments.shape)
    begins = jnp.concatenate([jnp.ones_like(segments[:, :1], jnp.bool_), segments[:, 1:] != segments[:, :-1]], axis=1)
    return jax.lax.cummax(jnp.where(begins, places, 0), axis=1)
