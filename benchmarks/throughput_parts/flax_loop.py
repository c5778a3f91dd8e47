"""A plain loop of optax over transformers' own Flax model of Gemma, which version 4 is the last to have.

python benchmarks/throughput_parts/flax_loop.py
"""

from __future__ import annotations

from functools import partial
from importlib.metadata import version
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import optax
from serving import ADAMW, SHAPE, batches, serve
from transformers import FlaxGemmaForCausalLM, GemmaConfig


def main() -> None:
    """Build the loop and serve it."""
    config = GemmaConfig(
        vocab_size=SHAPE["vocab"],
        hidden_size=SHAPE["embed"],
        intermediate_size=SHAPE["mlp"],
        num_hidden_layers=SHAPE["layers"],
        num_attention_heads=SHAPE["heads"],
        num_key_value_heads=SHAPE["heads"],
        head_dim=SHAPE["head_dim"],
        max_position_embeddings=SHAPE["seq"],
        use_cache=False,
    )
    model = FlaxGemmaForCausalLM(config, input_shape=(1, SHAPE["seq"]), seed=0)
    optimizer = optax.adamw(
        ADAMW["learning_rate"],
        b1=ADAMW["beta1"],
        b2=ADAMW["beta2"],
        eps=ADAMW["epsilon"],
        weight_decay=ADAMW["weight_decay"],
    )

    @partial(jax.jit, donate_argnums=(0, 1))
    def train(params: Any, opt_state: Any, tokens: Any) -> tuple[Any, ...]:
        def loss_of(params: Any) -> Any:
            logits = model(tokens, params=params, train=True).logits[:, :-1]
            return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

        loss, gradient = jax.value_and_grad(loss_of)(params)
        updates, opt_state = optimizer.update(gradient, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    params = model.params
    state = [params, optimizer.init(params)]
    data = [jnp.asarray(one) for one in batches()]

    def step(number: int) -> float:
        *state[:], loss = train(*state, data[number % len(data)])
        return float(loss)

    serve(
        step,
        parameters=sum(prod(leaf.shape) for leaf in jax.tree.leaves(params)),
        tokens_per_step=SHAPE["batch"] * SHAPE["seq"],
        versions={name: version(name) for name in ("transformers", "jax", "flax", "optax")},
        devices=str(jax.devices()),
    )


if __name__ == "__main__":
    main()
