"""How far the log-probabilities of the sampler and of the trainer lie apart: rounding alone, and with foreign weights.

What is drawn is trained on in the same step, by the same parameters, through two programs: one token at a time with
keys and values kept, and the whole sequence at once. Where the parameters are the same, the largest difference over all
tokens of a step is rounding. For each type, model, length, and seed this is measured as a run measures it
(`sampler_gap`), with weights as they are drawn and with weights whose kernels are made larger, as training makes them,
so that the model is sure of its tokens. Then two samplers that a check is to find: one with the weights of the step
before, at the learning rate of the demo, and one with weights that are rounded to 8 bits.

    python benchmarks/sampler_gap.py            # writes results/sampler_gap.json
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp

from evidence.rewards import Attempt
from evidence.rules.rollouts import SAMPLER_GAPS
from trainer.config.tree import (
    BatchConfig,
    Config,
    DataConfig,
    MeshConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimizerConfig,
    PrecisionConfig,
)
from trainer.inputs import read_inputs
from trainer.loop.programs import train_program
from trainer.loop.rollouts import rollouts_of
from trainer.loop.state import initial_state
from trainer.loop.step import TrainState
from trainer.recorder.environment import environment
from trainer.runtime import choose_devices

RESULT = Path(__file__).parent / "results" / "sampler_gap.json"
TYPES = ("float32", "bfloat16", "float16")
MODELS = (("trainer/configs/countdown_start", 12), ("tiny-gpt2", 48), ("demo", 48))
"""Models, and new tokens of each completion. The first was trained, the others have weights as they are drawn."""
SHARPER = (1.0, 4.0)
"""By which the token table is multiplied: of larger ones the model is surer of its tokens."""
LEARNING_RATE = 1e-6
"""Of the step that the old weights lack: as small as anyone takes; the demo's is 100 times as large."""


SAMPLERS = ("same", "quantised", "one_step_old")


def variety(attempt: Attempt) -> float:
    """Return a reward that nearly every completion has another of, so that all are learned from."""
    return len(set(attempt.text)) / (1 + len(attempt.text))


def configured(model: str, compute: str, length: int, seed: int) -> Config:
    """Return a run of one step of 4 groups of 4."""
    return Config(
        seed=seed,
        model=ModelConfig(name=model),
        data=DataConfig(dataset="countdown-v1", max_length=32 + length),
        objective=ObjectiveConfig(
            kind="grpo",
            rewards="sampler_gap:variety",
            group_size=4,
            max_completion_tokens=length,
            mask_truncated=False,
        ),
        optimizer=OptimizerConfig(name="adamw", learning_rate=LEARNING_RATE, schedule="constant"),
        batch=BatchConfig(microbatch_size=16),
        precision=PrecisionConfig(compute=compute),
        mesh=MeshConfig(device="cpu", devices=1),
    )


def sharpened(state: TrainState, by: float) -> TrainState:
    """Return a state whose token table is larger."""
    table = "tokens.table"
    return state._replace(trained=state.trained | {table: state.trained[table] * jnp.float32(by)})


def in_8_bits(state: TrainState) -> TrainState:
    """Return a state whose kernels are rounded to 255 values a column."""

    def rounded(value: jax.Array) -> jax.Array:
        if value.ndim < 2:
            return value
        scale = jnp.max(jnp.abs(value), axis=0, keepdims=True) / 127 + jnp.asarray(1e-12, value.dtype)
        return jnp.round(value / scale) * scale

    return state._replace(trained={name: rounded(value) for name, value in state.trained.items()})


def gaps(model: str, compute: str, length: int, seeds: int) -> Iterator[dict[str, Any]]:
    """Yield what is measured of a model in a type, for each seed and sharpness."""
    update = None
    for seed in range(seeds):
        task, data = read_inputs(configured(model, compute, length, seed), choose_devices("cpu", 1))
        rollouts = rollouts_of(task, data)
        assert rollouts is not None, "it learns from rewards"
        # The seed is no part of the program: it decides weights and draws.
        update = update or train_program(task).compile().call
        prompts = data.source.batch(0)
        [first], frozen = initial_state(task)
        for by in SHARPER:
            state = sharpened(first, by)
            copies = [jax.tree.map(jnp.copy, state) for _ in range(2)]
            found: dict[str, float] = {}
            trained = copies[0]
            for name, sampler in (("same", state), ("quantised", in_8_bits(state)), ("one_step_old", state)):
                batch = rollouts.draw(0, prompts, sampler, frozen).batch
                if name == "quantised":
                    _, metrics = update(copies[1], frozen, batch)
                else:
                    # The step that follows the first has its weights; what draws for it has those before.
                    trained, metrics = update(trained, frozen, batch)
                found[name] = float(metrics.named["sampler_gap"])
            yield {"model": Path(model).name, "compute": compute, "tokens": length, "seed": seed, "sharper": by} | found


def main() -> None:
    """Measure, print a line each, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--result", type=Path, default=RESULT)
    given = parser.parse_args()
    cases = []
    for (model, length), compute in product(MODELS, TYPES):
        for found in gaps(model, compute, length, given.seeds):
            cases.append(found)
            print(json.dumps(found), flush=True)
    document = {
        "environment": environment(),
        "models": [list(model) for model in MODELS],
        "learning_rate": LEARNING_RATE,
        "types": {each: summary(cases, each) for each in TYPES},
        "cases": cases,
    }
    given.result.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(document["types"], indent=1))


def summary(cases: list[dict[str, Any]], compute: str) -> dict[str, Any]:
    """Return of a type the largest rounding, and how far foreign samplers are off and how many the limit finds.

    A case in which no completion was learned from, because the model wrote one text to all, says nothing.
    """
    of_type = [case for case in cases if case["compute"] == compute and any(case[name] for name in SAMPLERS)]
    limit = SAMPLER_GAPS[compute]
    return {
        "limit": limit,
        "cases": len(of_type),
        "same_largest": max(case["same"] for case in of_type),
        "same_median": median(case["same"] for case in of_type),
        "limit_over_largest": limit / max(case["same"] for case in of_type),
        **{
            name: {
                "least": min(case[name] for case in of_type),
                "median": median(case[name] for case in of_type),
                "largest": max(case[name] for case in of_type),
                "found": sum(case[name] > limit for case in of_type),
            }
            for name in SAMPLERS[1:]
        },
    }


if __name__ == "__main__":
    sys.exit(main())
