"""CPU time of a training step: trainproof, torch with transformers, and google-tunix.

    python benchmarks/throughput.py --environments FOLDER [--find-links WHEELS] [--rounds 5] [--steps 2] [--only NAME …]

All loops train a model of the same shapes on the same batches. CPU seconds count all threads of a loop and are compared
within a round; wall seconds are upper bounds on a busy machine. Takes about five minutes on two idle cores and 17 GB of
memory; the environments take 5 GB. Writes benchmarks/results/throughput.json. The exit code is 1 if a ratio is below
its target.
"""

from __future__ import annotations

import json
import sys
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from harness import (
    RESULTS,
    Loop,
    build_parser,
    copy_tokenizer,
    installed,
    random_batches,
    run_loops,
    serve,
    serve_trainer,
    spread,
    write_json,
)

SHAPE = {"embed": 256, "layers": 4, "heads": 4, "head_dim": 64, "mlp": 1024, "vocab": 32_000, "seq": 256, "batch": 8}
"""12.4 million parameters, embeddings tied to the output layer, no grouped queries."""
ADAMW: dict[str, Any] = {"learning_rate": 1e-3, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.01}
"""Constant learning rate, no gradient clipping, float32."""
JAX = ("jax==0.10.2", "flax==0.12.8", "optax==0.2.8")
ENVIRONMENTS = {"torch": ("torch==2.13.0", "transformers==5.23.0"), "tunix": ("google-tunix==0.1.7", *JAX)}

LOOPS = {
    name: Loop(script=__file__, arguments=arguments, environment=None if arguments[0] == "trainproof" else arguments[0])
    for name, arguments in {
        "trainproof gemma": ("trainproof", "gemma"),
        "torch gemma": ("torch", "gemma", "eager"),
        "torch gemma, compiled": ("torch", "gemma", "sdpa", "compiled"),
        "trainproof qwen3": ("trainproof", "qwen3"),
        "tunix qwen3": ("tunix",),
    }.items()
}
TARGETS = {
    ("torch gemma", "trainproof gemma"): 2.0,
    ("torch gemma, compiled", "trainproof gemma"): None,
    ("tunix qwen3", "trainproof qwen3"): 1.3,
}
"""Minimum ratio of CPU time per token, first over second, in the median round, or None without a target."""


def trainproof_loop(family: str) -> None:
    """Serve this trainer's step, as a run calls it; as in the peers, the logits of all tokens are in memory."""
    from trainer.config import tree

    with TemporaryDirectory() as folder:
        copy_tokenizer(folder)
        (Path(folder) / "config.json").write_text(json.dumps({"model_type": family, **model_config()}))
        config = tree.Config(
            model=tree.ModelConfig(name=folder, weights="random"),
            data=tree.DataConfig(max_length=SHAPE["seq"]),
            optimizer=tree.OptimizerConfig(name="adamw", schedule="constant", max_grad_norm=None, **ADAMW),
            batch=tree.BatchConfig(microbatch_size=SHAPE["batch"]),
            memory=tree.MemoryConfig(remat="none", loss_chunk_tokens=None),
            mesh=tree.MeshConfig(device="cpu", devices=1),
        )
        serve_trainer(config, make_batches)


def torch_loop(family: str, attention: str, mode: str = "as_written") -> None:
    """Serve a plain torch loop over a transformers model: forward, backward, AdamW."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(family, **model_config(), use_cache=False)
    model = transformers.AutoModelForCausalLM.from_config(
        config, dtype=torch.float32, attn_implementation=attention
    ).train()
    rate, beta1, beta2, epsilon, decay = ADAMW.values()
    optimizer = torch.optim.AdamW(model.parameters(), rate, betas=(beta1, beta2), eps=epsilon, weight_decay=decay)
    forward = torch.compile(model) if mode == "compiled" else model
    data = [torch.from_numpy(tokens).long() for tokens in make_batches()]

    def step(number: int) -> float:
        tokens = data[number % len(data)]
        loss = forward(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())

    serve(
        step,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        tokens_per_step=SHAPE["batch"] * SHAPE["seq"],
        versions=installed("torch", "transformers"),
        devices=f"{torch.get_num_threads()} threads, attention {model.config._attn_implementation}, {mode}",
    )


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
    batch, seq = SHAPE["batch"], SHAPE["seq"]
    others = {
        "input_mask": jnp.ones((batch, seq), bool),
        "positions": jnp.broadcast_to(jnp.arange(seq, dtype=jnp.int32), (batch, seq)),
        "attention_mask": jnp.broadcast_to(np.tril(np.ones((seq, seq), np.bool_)), (batch, seq, seq)),
    }
    data = [{"input_tokens": jnp.asarray(tokens), **others} for tokens in make_batches()]

    def step(number: int) -> float:
        loss, _, _ = train_step(data[number % len(data)])
        return float(loss)

    serve(
        step,
        parameters=sum(prod(leaf.shape) for leaf in jax.tree.leaves(nnx.state(model, nnx.Param))),
        tokens_per_step=batch * seq,
        versions=installed("google-tunix", "jax", "flax", "optax"),
        devices=str(jax.devices()),
    )


def make_batches(vocab: int = SHAPE["vocab"]) -> list[Any]:
    """Return the batches of all loops."""
    return random_batches(SHAPE["batch"], SHAPE["seq"], vocab)


def model_config() -> dict[str, Any]:
    """Return the shapes as keys of config.json."""
    return {
        "vocab_size": SHAPE["vocab"],
        "hidden_size": SHAPE["embed"],
        "intermediate_size": SHAPE["mlp"],
        "num_hidden_layers": SHAPE["layers"],
        "num_attention_heads": SHAPE["heads"],
        "num_key_value_heads": SHAPE["heads"],
        "head_dim": SHAPE["head_dim"],
        "max_position_embeddings": SHAPE["seq"],
        "tie_word_embeddings": True,
    }


def main() -> int:
    """Create environments, measure, print and write the result."""
    args = build_parser(__doc__, list(LOOPS), rounds=5, steps=2).parse_args()
    facts, rounds, about = run_loops(args, {name: LOOPS[name] for name in args.only or LOOPS}, ENVIRONMENTS)
    ratios: dict[str, Any] = {}
    below: list[str] = []
    for (first, second), target in TARGETS.items():
        if first in facts and second in facts:
            pair = f"{first} / {second}"
            ratio = ratios[pair] = {
                clock: spread([costs[first][clock] / costs[second][clock] for costs in rounds])
                for clock in ("cpu", "wall")
            }
            print(f"{pair}: CPU {ratio['cpu']['median']:.2f} [{ratio['cpu']['min']:.2f}-{ratio['cpu']['max']:.2f}]")
            if target and ratio["cpu"]["median"] < target:
                below.append(f"{pair}: CPU ratio {ratio['cpu']['median']}, target {target}")
    loops = {
        name: each
        | {f"{clock}_seconds_a_step": spread([costs[name][clock] for costs in rounds]) for clock in ("cpu", "wall")}
        | {key: rounds[-1][name][key] for key in ("loss", "peak_rss_mib")}
        for name, each in facts.items()
    }
    if not args.only:
        result = {"shape": SHAPE, "adamw": ADAMW, "loops": loops, "ratios": ratios, "below_target": below}
        write_json(RESULTS / "throughput.json", about | result)
    print(*below, sep="\n")
    return 1 if below else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--loop"]:
        {"trainproof": trainproof_loop, "torch": torch_loop, "tunix": tunix_loop}[sys.argv[2]](*sys.argv[3:])
    else:
        sys.exit(main())
