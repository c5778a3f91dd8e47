"""CPU time of a training step: trainproof, torch with transformers, and google-tunix.

    python benchmarks/throughput.py [--rounds 5] [--steps 2] [--only NAME …]

All loops train a model of the same shapes on the same batches. CPU seconds count all threads of a loop and are compared
within a round; wall seconds are upper bounds on a busy machine. Takes about five minutes on two idle cores and 17 GB of
memory; the environments take 5 GB. Writes benchmarks/results/throughput.json unless `--only` is given. The exit code is
1 if a ratio is below its target.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import harness

SHAPE = {"embed": 256, "layers": 4, "heads": 4, "head_dim": 64, "mlp": 1024, "vocab": 32_000, "seq": 256, "batch": 8}
"""12.4 million parameters, embeddings tied to the output layer, no grouped queries."""
BATCH, SEQ = SHAPE["batch"], SHAPE["seq"]
MODEL_CONFIG = {
    "vocab_size": SHAPE["vocab"],
    "hidden_size": SHAPE["embed"],
    "intermediate_size": SHAPE["mlp"],
    "num_hidden_layers": SHAPE["layers"],
    "num_attention_heads": SHAPE["heads"],
    "num_key_value_heads": SHAPE["heads"],
    "head_dim": SHAPE["head_dim"],
    "max_position_embeddings": SEQ,
    "tie_word_embeddings": True,
}
"""The shapes as keys of config.json."""
ADAMW: dict[str, Any] = {"learning_rate": 1e-3, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.01}
"""Constant learning rate, no gradient clipping, float32."""
SETTINGS = f"""
    model.weights=random data.max_length={SEQ} batch.microbatch_size={BATCH} memory.remat=none
    optimizer.name=adamw optimizer.schedule=constant optimizer.max_grad_norm=null
    memory.loss_chunk_tokens=null mesh.device=cpu mesh.devices=1
"""
JAX = ("jax==0.10.2", "flax==0.12.8", "optax==0.2.8")
TORCH, TUNIX = ("torch==2.13.0", "transformers==5.23.0"), ("google-tunix==0.1.7", *JAX)

LOOPS = {
    "trainproof gemma": harness.Loop(arguments=("trainproof", "gemma")),
    "torch gemma": harness.Loop(arguments=("torch", "gemma", "eager"), packages=TORCH),
    "torch gemma, compiled": harness.Loop(arguments=("torch", "gemma", "sdpa", "compiled"), packages=TORCH),
    "trainproof qwen3": harness.Loop(arguments=("trainproof", "qwen3")),
    "tunix qwen3": harness.Loop(arguments=("tunix",), packages=TUNIX),
}
TARGETS = {
    ("torch gemma", "trainproof gemma"): 2.0,
    ("torch gemma, compiled", "trainproof gemma"): None,
    ("tunix qwen3", "trainproof qwen3"): 1.3,
}
"""Minimum ratio of CPU time per token, first over second, in the median round, or None without a target."""


def trainproof_loop(family: str) -> None:
    """Serve this trainer's step, as a run calls it; as in the peers, the logits of all tokens are in memory."""
    adamw = " ".join(f"optimizer.{name}={value}" for name, value in ADAMW.items())
    with TemporaryDirectory() as folder:
        harness.write_model(Path(folder), {"model_type": family, **MODEL_CONFIG})
        harness.serve_trainer(harness.read_config(folder, SETTINGS, adamw), BATCH, SEQ)


def torch_loop(family: str, attention: str, mode: str = "as_written") -> None:
    """Serve a plain torch loop over a transformers model."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **MODEL_CONFIG, use_cache=False)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=attention).train()
    rate, beta1, beta2, epsilon, decay = ADAMW.values()
    optimizer = torch.optim.AdamW(model.parameters(), rate, betas=(beta1, beta2), eps=epsilon, weight_decay=decay)
    model = torch.compile(model) if mode == "compiled" else model
    harness.serve_torch(model, optimizer, BATCH, SEQ, versions=harness.installed("torch", "transformers"), mode=mode)


def tunix_loop() -> None:
    """Serve the step of google-tunix's supervised trainer on its Qwen3."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    from flax import nnx
    from tunix.models.qwen3 import model as qwen3
    from tunix.sft import peft_trainer

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
    rate, beta1, beta2, epsilon, decay = ADAMW.values()
    optimizer = optax.adamw(rate, beta1, beta2, epsilon, weight_decay=decay)
    trainer = peft_trainer.PeftTrainer(model, optimizer, peft_trainer.TrainingConfig(eval_every_n_steps=10**9))
    train_step, _ = trainer.jit_train_and_eval_step(cache_nnx_graph=True)
    others = {
        "input_mask": jnp.ones((BATCH, SEQ), bool),
        "positions": jnp.broadcast_to(jnp.arange(SEQ, dtype=jnp.int32), (BATCH, SEQ)),
        "attention_mask": jnp.broadcast_to(np.tril(np.ones((SEQ, SEQ), np.bool_)), (BATCH, SEQ, SEQ)),
    }
    batches = harness.random_batches(BATCH, SEQ, SHAPE["vocab"])
    data = [{"input_tokens": jnp.asarray(tokens), **others} for tokens in batches]
    harness.serve(
        lambda number: float(train_step(data[number % len(data)])[0]),
        parameters=sum(prod(leaf.shape) for leaf in jax.tree.leaves(nnx.state(model, nnx.Param))),
        tokens_per_step=BATCH * SEQ,
        versions=harness.installed("google-tunix", "jax", "flax", "optax"),
        devices=str(jax.devices()),
    )


def main() -> int:
    """Measure, print and write the result."""
    parser = harness.build_parser(__doc__, LOOPS)
    parser.set_defaults(steps=2)
    args = parser.parse_args()
    facts, rounds, about = harness.run_loops(args, {name: LOOPS[name] for name in args.only or LOOPS})
    found: dict[str, Any] = {}
    below: list[str] = []
    for (first, second), target in TARGETS.items():
        if first in facts and second in facts:
            pair = f"{first} / {second}"
            ratio = found[pair] = harness.ratios(rounds, first, second, "cpu", "wall")
            print(f"{pair}: CPU {ratio['cpu']['median']:.2f} [{ratio['cpu']['min']:.2f}-{ratio['cpu']['max']:.2f}]")
            if target and ratio["cpu"]["median"] < target:
                below.append(f"{pair}: CPU ratio {ratio['cpu']['median']}, target {target}")
    if not args.only:
        loops = {
            name: each
            | {
                f"{clock}_seconds_a_step": harness.spread([costs[name][clock] for costs in rounds])
                for clock in ("cpu", "wall")
            }
            | {key: rounds[-1][name][key] for key in ("loss", "peak_rss_mib")}
            for name, each in facts.items()
        }
        result = {"shape": SHAPE, "adamw": ADAMW, "loops": loops, "ratios": found, "below_target": below}
        harness.write_json("throughput.json", about | result)
    print(*below, sep="\n")
    return 1 if below else 0


if __name__ == "__main__":
    harness.run_script(main, trainproof=trainproof_loop, torch=torch_loop, tunix=tunix_loop)
