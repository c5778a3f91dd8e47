"""A LoRA step of this trainer, as a run calls it.

    python benchmarks/real_model_parts/lora_ours.py MODEL BATCH SEQ

MODEL: a GGUF file, or a folder with a config.json alone, whose weights are then random.
"""

from __future__ import annotations

import shutil
import sys
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import jax
import numpy as np
from serving import batches, serve

from trainer.config.tree import (
    BatchConfig,
    Config,
    DataConfig,
    MemoryConfig,
    MeshConfig,
    MethodConfig,
    ModelConfig,
    OptimizerConfig,
)
from trainer.inputs import read_inputs
from trainer.loop.programs import train_program
from trainer.loop.state import initial_state
from trainer.model.tokenizer import FOLDER as TOKENIZER
from trainer.runtime import choose_devices


def model_of(path: Path, folder: Path) -> ModelConfig:
    """Return the model, with the built-in tokenizer where it has none."""
    if path.is_file():
        return ModelConfig(name=str(path))
    shutil.copytree(TOKENIZER, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"), dirs_exist_ok=True)
    shutil.copy(path / "config.json", folder)
    return ModelConfig(name=str(folder), weights="random")


def main(model: str, batch: int, seq: int) -> None:
    """Build the step and serve it."""
    with TemporaryDirectory() as folder:
        config = Config(
            model=model_of(Path(model), Path(folder)),
            data=DataConfig(max_length=seq),
            method=MethodConfig(kind="lora", rank=16, alpha=32.0),
            optimizer=OptimizerConfig(learning_rate=2e-4, schedule="constant"),
            batch=BatchConfig(microbatch_size=batch),
            memory=MemoryConfig(remat="none"),
            mesh=MeshConfig(device="cpu", devices=1),
        )
        task, _ = read_inputs(config, choose_devices("cpu", 1))
        state, frozen = initial_state(task)
        program = train_program(task).compile()
    shape = {"batch": batch, "seq": seq, "vocab": task.model.source.spec.vocab}
    whole = [{"tokens": one[None], "loss_mask": np.ones((1, *one.shape), np.bool_)} for one in batches(shape)]

    def step(number: int) -> float:
        state[0], metrics = program.call(state[0], frozen, whole[number % len(whole)])
        return float(metrics.loss)

    serve(
        step,
        trained=sum(value.size for value in state[0].trained.values()),
        tokens_per_step=batch * seq,
        versions={name: version(name) for name in ("jax", "flax", "optax")},
        devices=str(jax.devices()),
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
