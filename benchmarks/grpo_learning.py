"""Whether a model learns from rewards, beside its controls: the same warm start, as many steps, as many sequences.

The task has a checker and no gold answers: reach a number from three given ones. Items are held out by their SHA-256.
From one warm start each arm takes the same number of updates on as many sequences:

    grpo       the reward that is right
    shuffled   the same rewards, dealt out at random over the step: what the loss does of itself
    rejection  its own right answers, learned as if they were given
    more       supervised steps on solutions, which this task happens to have a solver for

Measured before and after with 16 answers to each held-out item: pass@1, pass@16, and the interval of pass@1 over items.

    python benchmarks/grpo_learning.py            # three seeds; prints the table and writes results/grpo_learning.json
    python benchmarks/grpo_learning.py --seeds 0 --arms grpo --steps 20

Each arm is written down as soon as it has ended. An arm that the file holds is not run again, so that a
benchmark goes on where it was stopped, and processes with seeds of their own fill one file.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import countdown
import jax
import numpy as np
from countdown import task_row

from evidence.hashes import sha256_file
from evidence.rewards import Attempt
from trainer.config.load import load_config
from trainer.config.tree import Config
from trainer.data.order import HostBatch
from trainer.generate.decode import pad_left
from trainer.generate.groups import row_keys
from trainer.inputs import read_inputs
from trainer.loop.programs import train_program
from trainer.loop.rollouts import Rollouts, StepCompletions, build_rollouts, completion_text
from trainer.loop.state import initial_state
from trainer.loop.step import TrainState
from trainer.model.model import combine
from trainer.model.stacks import Params
from trainer.recorder.environment import environment
from trainer.runtime import choose_devices, init_runtime

CONFIG = Path(__file__).parents[1] / "trainer" / "configs" / "grpo_demo.yaml"
RESULT = Path(__file__).parent / "results" / "grpo_learning.json"
WEIGHTS = CONFIG.parent / "countdown_start" / "model.safetensors"
START = "start"
ARMS = ("grpo", "shuffled", "rejection", "more")
ANSWERS = 16
"""Answers to each held-out item."""
EVALUATED_WITH = 7
"""Seed of the answers that are measured, the same for every arm."""


def held_out() -> list[dict[str, Any]]:
    """Return the tasks that no training row has, as rows that state the task."""
    draw = random.Random(countdown.SEED + 2)
    items = [item for item in countdown.all_items() if item.is_held_out]
    return [task_row(item, countdown.shuffled(item.numbers, draw)) for item in items]


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
            text=completion_text(each.written, rollouts.tokenizer),
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
    init_runtime(config)
    devices = choose_devices(config.mesh.device, config.mesh.devices)
    task, data = read_inputs(config, devices)
    rollouts = build_rollouts(task, data)
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
        if step % 20 == 19:
            print(f"seed {seed}  {arm:10} step {step + 1}: reward {fmean(rewards[-20:]):.3f}", file=sys.stderr)
    return state, frozen, rollouts, rewards


def supervised(seed: int, steps: int) -> tuple[TrainState, Params]:
    """Return the state after as many steps on as many of the start's own sequences, and what is frozen."""
    usual = configured(seed, steps)
    with tempfile.TemporaryDirectory() as folder:
        dataset = countdown.write_start(Path(folder) / "countdown_start.jsonl")
        config = replace(usual, objective=type(usual.objective)(), data=replace(usual.data, dataset=str(dataset)))
        init_runtime(config)
        devices = choose_devices(config.mesh.device, config.mesh.devices)
        task, data = read_inputs(config, devices)
    [state], frozen = initial_state(task)
    update = train_program(task).compile().call
    for step in range(steps):
        batch: HostBatch = data.source.batch(step)
        state, _ = update(state, frozen, batch)
    return state, frozen


def run_arm(arm: str, seed: int, steps: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what was measured of an arm under a seed; `start` is what all arms begin from."""
    began, wall = time.process_time(), time.perf_counter()
    state, frozen, rollouts, rewards = train_arm("grpo" if arm == START else arm, seed, 0 if arm == START else steps)
    seconds = {"cpu_seconds": time.process_time() - began, "wall_seconds": time.perf_counter() - wall}
    found: dict[str, Any] = measure(rollouts, combine(state.trained, frozen), rows) | seconds
    return found | ({"rewards": [round(reward, 4) for reward in rewards]} if rewards else {})


def line_of(arm: str, figures: Mapping[str, Any]) -> str:
    """Return an arm's figures on a line."""
    return (
        f"{arm:10} pass@1 {figures['pass_1']:.3f} ({figures['pass_1_low']:.3f} to {figures['pass_1_high']:.3f})  "
        f"pass@{ANSWERS} {figures[f'pass_{ANSWERS}']:.3f}  {figures['cpu_seconds']:.0f} CPU s, "
        f"{figures['wall_seconds']:.0f} s"
    )


def summary_of(seeds: Mapping[str, Mapping[str, Mapping[str, float]]]) -> dict[str, Any]:
    """Return what each arm gained over the start, over the seeds that have it."""
    summary: dict[str, Any] = {}
    for arm in ARMS:
        pairs = [(found[arm], found[START]) for found in seeds.values() if {arm, START} <= found.keys()]
        if pairs:
            gains = [after["pass_1"] - before["pass_1"] for after, before in pairs]
            of_all = [after[f"pass_{ANSWERS}"] - before[f"pass_{ANSWERS}"] for after, before in pairs]
            summary[arm] = {"pass_1_gain": fmean(gains), f"pass_{ANSWERS}_gain": fmean(of_all), "pass_1_gains": gains}
    return summary


def store(result: Path, conditions: Mapping[str, Any], seed: str, arm: str, figures: Mapping[str, Any]) -> None:
    """Write an arm into the file, beside what other processes have written there."""
    folder = os.open(result.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        seeds = stored(result, conditions)
        seeds.setdefault(seed, {})[arm] = dict(figures)
        document = {"environment": environment(), **conditions, "summary": summary_of(seeds)}
        working = result.with_suffix(".tmp")
        working.write_text(json.dumps(document | {"seeds": dict(sorted(seeds.items()))}, indent=1) + "\n")
        working.replace(result)
    finally:
        os.close(folder)


def conditions_of(steps: int) -> dict[str, Any]:
    """Return what the arms' figures depend on."""
    config = load_config(CONFIG)
    settings = {name: asdict(getattr(config, name)) for name in ("objective", "optimizer", "batch")}
    return {"steps": steps, "answers": ANSWERS, "start_sha256": sha256_file(WEIGHTS), **settings}


def stored(result: Path, conditions: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the arms of each seed that the file holds, and refuse those that were found under other conditions."""
    document = json.loads(result.read_text()) if result.exists() else conditions
    if other := [name for name, value in conditions.items() if document.get(name) != value]:
        message = f"{result} was measured under another {other[0]}: remove it, or name another file by --result"
        raise SystemExit(message)
    return dict(document.get("seeds", {}))


def main() -> None:
    """Run the arms under each seed that are not there yet, write each down, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--result", type=Path, default=RESULT)
    given = parser.parse_args()
    steps, rows = given.steps or load_config(CONFIG).limits.steps, held_out()
    conditions = conditions_of(steps) | {"held_out": len(rows)}
    for seed in map(str, given.seeds):
        for arm in (START, *given.arms):
            if arm not in stored(given.result, conditions).get(seed, {}):
                figures = run_arm(arm, int(seed), steps, rows)
                store(given.result, conditions, seed, arm, figures)
                print(f"seed {seed}  {line_of(arm, figures)}", flush=True)
    for arm, gained in summary_of(stored(given.result, conditions)).items():
        gains = gained["pass_1_gains"]
        spread = f" ± {stdev(gains):.3f}" if len(gains) > 1 else ""
        print(f"{arm:10} pass@1 {fmean(gains):+.3f}{spread}  pass@{ANSWERS} {gained[f'pass_{ANSWERS}_gain']:+.3f}")


if __name__ == "__main__":
    main()
