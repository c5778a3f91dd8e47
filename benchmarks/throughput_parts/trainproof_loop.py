"""This trainer's own step, as a run calls it.

    python benchmarks/throughput_parts/trainproof_loop.py gemma|qwen3 random|unpacked|packed [all_logits]

random: the tokens that all loops take, every one learned. unpacked, packed: rows of dev-reasoning-v2.
"""

from __future__ import annotations

import json
import shutil
import sys
from importlib.metadata import version
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory

import jax
import numpy as np
from serving import ADAMW, SHAPE, batches, serve

from trainer.config.tree import BatchConfig, Config, DataConfig, MemoryConfig, MeshConfig, ModelConfig, OptimizerConfig
from trainer.inputs import read_inputs
from trainer.loop.programs import train_program
from trainer.loop.state import initial_state
from trainer.model.tokenizer import FOLDER as TOKENIZER
from trainer.runtime import choose_devices


def config_of(family: str, rows: str, folder: Path, *, all_logits: bool) -> Config:
    """Return the configuration, with a model folder of these shapes."""
    shutil.copytree(TOKENIZER, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"), dirs_exist_ok=True)
    model = {
        "model_type": family,
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
    (folder / "config.json").write_text(json.dumps(model))
    return Config(
        model=ModelConfig(name=str(folder), weights="random"),
        data=DataConfig(max_length=SHAPE["seq"], packing=rows == "packed"),
        optimizer=OptimizerConfig(name="adamw", schedule="constant", max_grad_norm=None, **ADAMW),
        batch=BatchConfig(microbatch_size=SHAPE["batch"]),
        memory=MemoryConfig(remat="none", **({"loss_chunk_tokens": None} if all_logits else {})),
        mesh=MeshConfig(device="cpu", devices=1),
    )


def main(family: str, rows: str, loss: str = "in_chunks") -> None:
    """Build the step and serve it."""
    with TemporaryDirectory() as folder:
        config = config_of(family, rows, Path(folder), all_logits=loss == "all_logits")
        task, data = read_inputs(config, choose_devices("cpu", 1))
        state, frozen = initial_state(task)
        program = train_program(task).compile()
        source = data.source
    whole = [{"tokens": one[None], "loss_mask": np.ones((1, *one.shape), np.bool_)} for one in batches()]

    def step(number: int) -> float:
        batch = whole[number % len(whole)] if rows == "random" else source.batch(number)
        state[0], metrics = program.call(state[0], frozen, batch)
        return float(metrics.loss)

    tokens = SHAPE["batch"] * SHAPE["seq"] if rows == "random" else source.tokens_before(1000) / 1000
    serve(
        step,
        parameters=sum(prod(shape.shape) for shape in task.model.shapes.values()),
        tokens_per_step=tokens,
        versions={name: version(name) for name in ("jax", "flax", "optax")},
        devices=str(jax.devices()),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
