"""This trainer's own roll-outs and step, as a run calls them.

python benchmarks/grpo_parts/trainproof_loop.py tiny|small|uneven TOKENIZER
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from importlib.metadata import version
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory

import jax
import turns as shared
from safetensors.numpy import save_file
from transformers import PreTrainedTokenizerFast
from turns import ADAMW, EPSILONS, GROUP, NEW_TOKENS, PROMPT_TOKENS, PROMPTS, Turns, model_config, prompts, weights

from evidence.rewards import Attempt
from trainer.config.tree import (
    BatchConfig,
    Config,
    DataConfig,
    MemoryConfig,
    MeshConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimizerConfig,
)
from trainer.inputs import read_inputs
from trainer.loop.programs import train_program
from trainer.loop.rollouts import build_rollouts
from trainer.loop.state import initial_state
from trainer.runtime import choose_devices


def share_of_e(attempt: Attempt) -> float:
    """Return the reward of a completion."""
    return shared.share_of_e(attempt.text)


def config_of(size: str, tokenizer: Path, folder: Path) -> Config:
    """Return the configuration, with a folder of the model and a file of prompts."""
    shutil.copytree(tokenizer, folder / "model", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    (folder / "model" / "config.json").write_text(json.dumps(model_config()[size]))
    save_file(weights(size, end_of(tokenizer)), folder / "model" / "model.safetensors")
    rows = [json.dumps({"prompt": prompt, "completion": "0"}) for prompt in prompts(size)]
    (folder / "prompts.jsonl").write_text("\n".join(rows) + "\n")
    return Config(
        model=ModelConfig(name=str(folder / "model")),
        data=DataConfig(dataset=str(folder / "prompts.jsonl"), max_length=PROMPT_TOKENS[size] + NEW_TOKENS),
        objective=ObjectiveConfig(
            kind="grpo",
            rewards="trainproof_loop:share_of_e",
            loss_type="dapo",
            group_size=GROUP,
            max_completion_tokens=NEW_TOKENS,
            mask_truncated=False,
            **EPSILONS,
        ),
        optimizer=OptimizerConfig(name="adamw", schedule="constant", max_grad_norm=1.0, **ADAMW),
        batch=BatchConfig(microbatch_size=PROMPTS * GROUP),
        memory=MemoryConfig(remat="none"),
        mesh=MeshConfig(device="cpu", devices=1),
    )


def end_of(tokenizer: Path) -> int:
    """Return the token that ends a completion."""
    folder = PreTrainedTokenizerFast.from_pretrained(tokenizer)
    return int(folder.eos_token_id)


def main(size: str, tokenizer: str) -> None:
    """Build what a run builds and have it take its turns."""
    with TemporaryDirectory() as folder:
        task, data = read_inputs(config_of(size, Path(tokenizer), Path(folder)), choose_devices("cpu", 1))
        state, frozen = initial_state(task)
    found = build_rollouts(task, data)
    assert found is not None
    # No token ends a completion, so that all have the same length.
    rollouts = found if size == "uneven" else replace(found, programs=replace(found.programs, stop_token_id=-1))
    program = train_program(task).compile()
    turns = Turns(
        parameters=sum(prod(shape.shape) for shape in task.model.shapes.values()),
        prompt_tokens=max(int(data.source.batch(number)["lengths"].max()) for number in range(32)),
        versions={name: version(name) for name in ("jax", "flax", "optax")},
        devices=str(jax.devices()),
    )
    number = 0
    while True:
        turns.begin_step()
        with turns.rolling_out():
            rolled = rollouts.draw(number, data.source.batch(number), state[0], frozen)
        turns.rolled_out([len(row["token_ids"]) for row in rolled.rows], size)
        state[0], metrics = program.call(state[0], frozen, rolled.batch)
        float(metrics.loss)
        number += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
