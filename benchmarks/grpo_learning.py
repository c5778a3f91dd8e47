"""Whether a model learns from rewards, beside its controls: the same warm start, as many steps, as many sequences.

The task has a checker and no gold answers: reach a number from three given ones. Items are held out by their SHA-256.
From one warm start each arm takes the same number of updates on as many sequences:

    grpo       the reward that is right
    shuffled   the same rewards, dealt out at random over the step: what the loss does of itself
    rejection  its own right answers, learned as if they were given
    more       supervised steps on solutions, which this task happens to have a solver for

Measured before and after with 16 answers to each held-out item: pass@1, pass@16, and the interval of pass@1 over items.

    python benchmarks/grpo_learning.py            # three seeds; prints the table and writes results/grpo_learning.json
    python benchmarks/grpo_learning.py --seeds 1 --steps 20
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import jax
import numpy as np

from evidence.rewards import Attempt
from schemas.problems.words import listed
from trainer.config.load import load_config
from trainer.config.tree import Config
from trainer.data import countdown
from trainer.data.countdown import task_row
from trainer.data.source import HostBatch
from trainer.generate.decode import pad_left
from trainer.generate.groups import row_keys
from trainer.inputs import read_inputs
from trainer.loop.drawing import StepCompletions
from trainer.loop.programs import train_program
from trainer.loop.rollouts import Rollouts, rollouts_of, text_of
from trainer.loop.state import initial_state
from trainer.loop.step import TrainState
from trainer.methods.method import combine
from trainer.model.params import Params
from trainer.planning.devices import choose_devices

CONFIG = Path(__file__).parents[1] / "trainer" / "configs" / "grpo_demo.yaml"
RESULT = Path(__file__).parent / "results" / "grpo_learning.json"
ARMS = ("grpo", "shuffled", "rejection", "more")
ANSWERS = 16
"""Answers to each held-out item."""
EVALUATED_WITH = 7
"""Seed of the answers that are measured, the same for every arm."""


def held_out() -> list[dict[str, Any]]:
    """Return the tasks that no training row has, as rows that state the task."""
    draw = random.Random(countdown.SEED + 2)
    items = [item for item in countdown.all_items() if item.is_held_out]
    return [task_row(item, countdown.in_some_order(item.numbers, draw)) for item in items]


def measure(rollouts: Rollouts, params: Params, rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return pass@1 with its interval over items, and pass@16."""
    prompts = [rollouts.tokenizer.encode(row["prompt"], add_special_tokens=True) for row in rows]
    tokens, lengths = pad_left(prompts, max(map(len, prompts)))
    keys = row_keys(jax.random.key(EVALUATED_WITH), range(len(rows)), ANSWERS)
    drawn = replace(rollouts.programs, group_size=ANSWERS).draw(params, tokens, lengths, keys=keys)
    right = np.zeros((len(rows), ANSWERS))
    for number, each in enumerate(drawn):
        row = rows[number // ANSWERS]
        attempt = Attempt(
            prompt=row["prompt"],
            text=text_of(each.written, rollouts.tokenizer),
            row=row,
            finished=each.written.finish_reason == "stop",
        )
        right[number // ANSWERS, number % ANSWERS] = rollouts.rewards[0].score(attempt)
    of_items = right.mean(axis=1)
    error = 1.96 * float(of_items.std(ddof=1)) / len(rows) ** 0.5
    first = float(of_items.mean())
    return {
        "pass_1": first,
        "pass_1_low": first - error,
        "pass_1_high": first + error,
        f"pass_{ANSWERS}": float(right.max(axis=1).mean()),
    }


def shuffle_rewards(rollouts: Rollouts, seed: int) -> Rollouts:
    """Return what draws the same completions and deals their rewards out at random over the step."""
    deal = np.random.default_rng(seed)

    class ShuffledRollouts(Rollouts):
        def _compare(self, written: Any) -> None:
            for row, reward in zip(written, deal.permutation([row["reward"] for row in written]), strict=True):
                row["reward"] = float(reward)
            super()._compare(written)

    return ShuffledRollouts(**vars(rollouts))


def reject_wrong(rollouts: Rollouts) -> Rollouts:
    """Return what draws the same completions and learns the right ones alone, each with the weight 1."""

    class RightRollouts(Rollouts):
        def _compare(self, written: Any) -> None:
            for row in written:
                row["is_used"] = row["reward"] == 1
                row["advantage"] = 1.0

    return RightRollouts(**vars(rollouts))


class _NoRecorder:
    """Takes down nothing."""

    def completions(self, rows: Any) -> None:
        """Let completions go by."""

    def log(self, level: str, event: str, message: str, **fields: Any) -> None:
        """Let an event go by."""


def configured(seed: int, steps: int, **settings: Any) -> Config:
    """Return the demo's configuration under another seed, without evaluation."""
    stated = {"seed": seed, "limits.steps": steps, "evaluation.eval_set": None} | settings
    return load_config(CONFIG, settings=[f"{key}={json.dumps(value)}" for key, value in stated.items()])


def train_arm(arm: str, seed: int, steps: int) -> tuple[TrainState, Params, Rollouts, list[float]]:
    """Return the state after an arm's steps, what is frozen, what draws, and the mean rewards of its steps."""
    config = configured(seed, max(steps, 1))
    devices = choose_devices(config.mesh.device, config.mesh.devices)
    task, data = read_inputs(config, devices)
    rollouts = rollouts_of(task, data)
    assert rollouts is not None, "the demo learns from rewards"
    [state], frozen = initial_state(task)
    if arm == "more":
        return *supervised(seed, steps), rollouts, []
    drawing = {
        "grpo": lambda: rollouts,
        "shuffled": lambda: shuffle_rewards(rollouts, seed),
        "rejection": lambda: reject_wrong(rollouts),
    }[arm]()
    completions = StepCompletions(drawing, _NoRecorder())
    update, rewards = train_program(task).compile().call, []
    for step in range(steps):
        batch = completions.batch(data.source, step, state, frozen)
        state, _ = update(state, frozen, batch)
        rewards.append(float(completions.row(step + 1, {"sampler_gap": 0.0}, update_seconds=0)["reward_mean"] or 0))
    return state, frozen, rollouts, rewards


def supervised(seed: int, steps: int) -> tuple[TrainState, Params]:
    """Return the state after as many supervised steps on as many sequences, and what is frozen."""
    usual = configured(seed, steps)
    config = replace(
        usual,
        objective=type(usual.objective)(),
        data=replace(usual.data, dataset="countdown-solved-v1"),
    )
    devices = choose_devices(config.mesh.device, config.mesh.devices)
    task, data = read_inputs(config, devices)
    [state], frozen = initial_state(task)
    update = train_program(task).compile().call
    for step in range(steps):
        batch: HostBatch = data.source.batch(step)
        state, _ = update(state, frozen, batch)
    return state, frozen


def run_arms(seed: int, steps: int, rows: list[dict[str, Any]], show: Callable[[str], None]) -> dict[str, Any]:
    """Return what was measured of each arm under one seed."""
    found: dict[str, Any] = {}
    for arm in ("start", *ARMS):
        began, wall = time.process_time(), time.perf_counter()
        state, frozen, rollouts, rewards = train_arm(
            "grpo" if arm == "start" else arm, seed, 0 if arm == "start" else steps
        )
        seconds = {"cpu_seconds": time.process_time() - began, "wall_seconds": time.perf_counter() - wall}
        found[arm] = measure(rollouts, combine(state.trained, frozen), rows) | seconds
        if rewards:
            found[arm]["rewards"] = [round(reward, 4) for reward in rewards]
        show(f"seed {seed}  {line_of(arm, found[arm])}")
    return found


def line_of(arm: str, figures: Mapping[str, Any]) -> str:
    """Return an arm's figures on a line."""
    return (
        f"{arm:10} pass@1 {figures['pass_1']:.3f} ({figures['pass_1_low']:.3f} to {figures['pass_1_high']:.3f})  "
        f"pass@{ANSWERS} {figures[f'pass_{ANSWERS}']:.3f}  {figures['cpu_seconds']:.0f} CPU s, "
        f"{figures['wall_seconds']:.0f} s"
    )


def main() -> None:
    """Run every arm under each seed, print the table and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--result", type=Path, default=RESULT)
    given = parser.parse_args()
    steps = given.steps or load_config(CONFIG).limits.steps
    rows = held_out()
    seeds = {}
    for seed in range(given.seeds):
        seeds[str(seed)] = run_arms(seed, steps, rows, lambda line: print(line, flush=True))
    summary = {}
    for arm in ARMS:
        gains = [seeds[seed][arm]["pass_1"] - seeds[seed]["start"]["pass_1"] for seed in seeds]
        of_all = [seeds[seed][arm][f"pass_{ANSWERS}"] - seeds[seed]["start"][f"pass_{ANSWERS}"] for seed in seeds]
        summary[arm] = {"pass_1_gain": fmean(gains), f"pass_{ANSWERS}_gain": fmean(of_all), "pass_1_gains": gains}
        spread = f" ± {stdev(gains):.3f}" if len(gains) > 1 else ""
        print(f"{arm:10} pass@1 {fmean(gains):+.3f}{spread}  pass@{ANSWERS} {fmean(of_all):+.3f}")
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    versions = {name: version(name) for name in ("jax", "jaxlib", "flax", "optax")}
    document = {"machine": machine, "versions": versions, "steps": steps, "held_out": len(rows)}
    document |= {"answers": ANSWERS, "arms": listed(ARMS), "summary": summary, "seeds": seeds}
    given.result.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
