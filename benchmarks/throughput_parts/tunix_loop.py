"""The step of google-tunix's supervised trainer, over its own Qwen3.

python benchmarks/throughput_parts/tunix_loop.py
"""

from __future__ import annotations

from importlib.metadata import version
from math import prod

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from serving import ADAMW, SHAPE, batches, serve
from tunix.models.qwen3 import model as qwen3
from tunix.sft import peft_trainer


def main() -> None:
    """Build the loop and serve it."""
    config = qwen3.ModelConfig(
        num_layers=SHAPE["layers"],
        vocab_size=SHAPE["vocab"],
        embed_dim=SHAPE["embed"],
        hidden_dim=SHAPE["mlp"],
        num_heads=SHAPE["heads"],
        head_dim=SHAPE["head_dim"],
        num_kv_heads=SHAPE["heads"],
        rope_theta=10_000,
        norm_eps=1e-6,
        use_tied_embedding=True,
    )
    model = qwen3.Qwen3(config, rngs=nnx.Rngs(0))
    optimizer = optax.adamw(
        ADAMW["learning_rate"],
        b1=ADAMW["beta1"],
        b2=ADAMW["beta2"],
        eps=ADAMW["epsilon"],
        weight_decay=ADAMW["weight_decay"],
    )
    trainer = peft_trainer.PeftTrainer(model, optimizer, peft_trainer.TrainingConfig(eval_every_n_steps=10**9))
    taken, _ = trainer.jit_train_and_eval_step(cache_nnx_graph=True)
    shape = (SHAPE["batch"], SHAPE["seq"])
    causal = np.tril(np.ones((SHAPE["seq"], SHAPE["seq"]), np.bool_))
    others = {
        "input_mask": np.ones(shape, np.bool_),
        "positions": np.broadcast_to(np.arange(SHAPE["seq"], dtype=np.int32), shape),
        "attention_mask": np.broadcast_to(causal, (SHAPE["batch"], *causal.shape)),
    }
    others = {name: jnp.asarray(value) for name, value in others.items()}
    data = [{"input_tokens": jnp.asarray(one), **others} for one in batches()]

    def step(number: int) -> float:
        loss, _, _ = taken(data[number % len(data)])
        return float(loss)

    serve(
        step,
        parameters=sum(prod(leaf.shape) for leaf in jax.tree.leaves(nnx.state(model, nnx.Param))),
        tokens_per_step=SHAPE["batch"] * SHAPE["seq"],
        versions={name: version(name) for name in ("google-tunix", "jax", "flax", "optax")},
        devices=str(jax.devices()),
    )


if __name__ == "__main__":
    main()
