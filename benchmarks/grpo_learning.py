"""Train a model with rewards, beside controls with the same start, number of updates and number of sequences.

    python benchmarks/grpo_learning.py            # three seeds; prints a table and writes results/grpo_learning.json
    python benchmarks/grpo_learning.py --seeds 0 --arms grpo --steps 20

The task has a checker and no gold answers: reach a number from three given ones. Held-out items are chosen by SHA-256.

| arm | trains on |
|---|---|
| grpo | the correct reward |
| shuffled | the same rewards, permuted over the step |
| rejection | its own correct answers, as supervised data |
| more | further supervised steps on solutions, for which this task has a solver |

Before and after, 16 answers to each held-out item give pass@1 with its interval over items, and pass@16. Each arm is
stored when it ends and not run again, so an interrupted benchmark continues, and several processes with different
seeds can fill one file. `learning_plot.py` draws the result.
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
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
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
from trainer.config.tree import Config, ObjectiveConfig
from trainer.generate.decode import pad_left, row_keys
from trainer.inputs import read_inputs
from trainer.loop.programs import train_program
from trainer.loop.rollouts import Rollouts, StepCompletions, build_rollouts, completion_text
from trainer.loop.state import initial_state
from trainer.loop.step import TrainState
from trainer.model.model import combine
from trainer.model.stacks import Params
from trainer.recorder.environment import environment
from trainer.runtime import choose_devices

CONFIG = Path(__file__).parents[1] / "trainer" / "configs" / "grpo_demo.yaml"
RESULT = Path(__file__).parent / "results" / "grpo_learning.json"
WEIGHTS = CONFIG.parent / "countdown_start" / "model.safetensors"
START = "start"
ARMS = ("grpo", "shuffled", "rejection", "more")
ANSWERS = 16
"""Answers per held-out item."""
EVALUATION_SEED = 7


def held_out_rows() -> list[dict[str, Any]]:
    """Return the tasks that are in no training row."""
    draw = random.Random(countdown.SEED + 2)
    items = [item for item in countdown.all_items() if item.is_held_out]
    return [task_row(item, countdown.shuffled(item.numbers, draw)) for item in items]


def measure(rollouts: Rollouts, params: Params, rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return pass@1 with its interval over items, and pass@16."""
    prompts = [rollouts.tokenizer.encode(row["prompt"], add_special_tokens=True) for row in rows]
    tokens, lengths = pad_left(prompts, max(map(len, prompts)))
    keys = row_keys(jax.random.key(EVALUATION_SEED), range(len(rows)), ANSWERS)
    drawn = replace(rollouts.programs, group_size=ANSWERS).draw(params, tokens, lengths, keys=keys)
    scores = np.zeros((len(rows), ANSWERS))
    for number, each in enumerate(drawn):
        item, answer = divmod(number, ANSWERS)
        attempt = Attempt(
            prompt=rows[item]["prompt"],
            text=completion_text(each.written, rollouts.tokenizer),
            row=rows[item],
            finished=each.written.finish_reason == "stop",
        )
        scores[item, answer] = rollouts.rewards[0].score(attempt)
    means = scores.mean(axis=1)
    mean, error = float(means.mean()), 1.96 * float(means.std(ddof=1)) / len(rows) ** 0.5
    return {
        "pass_1": mean,
        "pass_1_low": mean - error,
        "pass_1_high": mean + error,
        f"pass_{ANSWERS}": float(scores.max(axis=1).mean()),
    }


def replace_advantages(rollouts: Rollouts, assign: Callable[[Any, Callable[[Any], None]], None]) -> Rollouts:
    """Return the same rollouts with other advantages; `assign` gets the rows of a step and the original assignment."""
    original = Rollouts._add_advantages

    class ChangedRollouts(Rollouts):
        def _add_advantages(self, written: Any) -> None:
            assign(written, partial(original, self))

    return ChangedRollouts(**vars(rollouts))


def shuffle_rewards(rollouts: Rollouts, seed: int) -> Rollouts:
    """Return the same rollouts with their rewards permuted over the step."""
    permute = np.random.default_rng(seed).permutation

    def assign(written: Any, original: Callable[[Any], None]) -> None:
        for row, reward in zip(written, permute([row["reward"] for row in written]), strict=True):
            row["reward"] = float(reward)
        original(written)

    return replace_advantages(rollouts, assign)


def reject_wrong(rollouts: Rollouts) -> Rollouts:
    """Return the same rollouts, learning only from correct completions, each with weight 1."""

    def assign(written: Any, _: Callable[[Any], None]) -> None:
        for row in written:
            row["is_used"], row["advantage"] = row["reward"] == 1, 1.0

    return replace_advantages(rollouts, assign)


class NullRecorder:
    """Record nothing."""

    def completions(self, rows: Any) -> None:
        """Ignore completions."""

    def log(self, level: str, event: str, message: str, **fields: Any) -> None:
        """Ignore an event."""


def build_config(seed: int, steps: int) -> Config:
    """Return the configuration of the GRPO demo with another seed and without evaluation."""
    settings = {"seed": seed, "limits.steps": steps, "evaluation.eval_set": None}
    return load_config(CONFIG, settings=[f"{key}={json.dumps(value)}" for key, value in settings.items()])


def train_arm(arm: str, seed: int, steps: int) -> tuple[TrainState, Params, Rollouts, list[float]]:
    """Train an arm; return its state, the frozen parameters, the rollouts and the mean reward of each step."""
    config = build_config(seed, max(steps, 1))
    task, data = read_inputs(config, choose_devices(config.mesh.device, config.mesh.devices))
    rollouts = build_rollouts(task, data)
    assert rollouts is not None, "the demo learns from rewards"
    if arm == "more":
        return *train_supervised(seed, steps), rollouts, []
    [state], frozen = initial_state(task)
    used = rollouts
    if arm == "shuffled":
        used = shuffle_rewards(rollouts, seed)
    elif arm == "rejection":
        used = reject_wrong(rollouts)
    completions = StepCompletions(used, NullRecorder())
    update, rewards = train_program(task).compile().call, []
    for step in range(steps):
        batch = completions.batch(data.source, step, state, frozen)
        state, _ = update(state, frozen, batch)
        rewards.append(float(completions.row(step + 1, {"sampler_gap": 0.0}, update_seconds=0)["reward_mean"] or 0))
        if step % 20 == 19:
            print(f"seed {seed}  {arm:10} step {step + 1}: reward {fmean(rewards[-20:]):.3f}", file=sys.stderr)
    return state, frozen, rollouts, rewards


def train_supervised(seed: int, steps: int) -> tuple[TrainState, Params]:
    """Train on as many sequences of the supervised start; return the state and the frozen parameters."""
    config = build_config(seed, steps)
    with tempfile.TemporaryDirectory() as folder:
        dataset = countdown.write_start(Path(folder) / "countdown_start.jsonl")
        config = replace(config, objective=ObjectiveConfig(), data=replace(config.data, dataset=str(dataset)))
        task, data = read_inputs(config, choose_devices(config.mesh.device, config.mesh.devices))
    [state], frozen = initial_state(task)
    update = train_program(task).compile().call
    for step in range(steps):
        state, _ = update(state, frozen, data.source.batch(step))
    return state, frozen


def run_arm(arm: str, seed: int, steps: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Train and evaluate an arm; `start` is the model that all arms begin with."""
    cpu, wall = time.process_time(), time.perf_counter()
    state, frozen, rollouts, rewards = train_arm("grpo" if arm == START else arm, seed, 0 if arm == START else steps)
    seconds = {"cpu_seconds": time.process_time() - cpu, "wall_seconds": time.perf_counter() - wall}
    figures: dict[str, Any] = measure(rollouts, combine(state.trained, frozen), rows) | seconds
    return figures | ({"rewards": [round(reward, 4) for reward in rewards]} if rewards else {})


def summarize(seeds: Mapping[str, Mapping[str, Mapping[str, float]]]) -> dict[str, Any]:
    """Return the gain of each arm over the start, for the seeds that have both."""
    summary: dict[str, Any] = {}
    for arm in ARMS:
        pairs = [(arms[arm], arms[START]) for arms in seeds.values() if {arm, START} <= arms.keys()]
        gains = {
            name: [after[name] - before[name] for after, before in pairs] for name in ("pass_1", f"pass_{ANSWERS}")
        }
        if pairs:
            summary[arm] = {f"{name}_gain": fmean(values) for name, values in gains.items()}
            summary[arm]["pass_1_gains"] = gains["pass_1"]
    return summary


def store(result: Path, conditions: Mapping[str, Any], seed: str, arm: str, figures: Mapping[str, Any]) -> None:
    """Add an arm to the result, under a lock because other processes may write to it."""
    folder = os.open(result.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        seeds = load_arms(result, conditions)
        seeds.setdefault(seed, {})[arm] = dict(figures)
        document = {"environment": environment(), **conditions, "summary": summarize(seeds)}
        temporary = result.with_suffix(".tmp")
        temporary.write_text(json.dumps(document | {"seeds": dict(sorted(seeds.items()))}, indent=1) + "\n")
        temporary.replace(result)
    finally:
        os.close(folder)


def load_arms(result: Path, conditions: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Load the stored arms of each seed, and refuse a result that was measured under other conditions."""
    document = json.loads(result.read_text()) if result.exists() else conditions
    if different := [name for name, value in conditions.items() if document.get(name) != value]:
        message = f"{result} was measured with another {different[0]}. Delete it, or pass another file by --result."
        raise SystemExit(message)
    return dict(document.get("seeds", {}))


def main() -> None:
    """Run the missing arms of each seed, store each, and print the gains."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--result", type=Path, default=RESULT)
    args = parser.parse_args()
    config, rows = load_config(CONFIG), held_out_rows()
    steps = args.steps or config.limits.steps
    conditions = {
        "steps": steps,
        "answers": ANSWERS,
        "start_sha256": sha256_file(WEIGHTS),
        **{name: asdict(getattr(config, name)) for name in ("objective", "optimizer", "batch")},
        "held_out": len(rows),
    }
    for seed in map(str, args.seeds):
        for arm in (START, *args.arms):
            if arm not in load_arms(args.result, conditions).get(seed, {}):
                figures = run_arm(arm, int(seed), steps, rows)
                store(args.result, conditions, seed, arm, figures)
                rate, best = figures["pass_1"], figures[f"pass_{ANSWERS}"]
                print(f"seed {seed}  {arm:10} pass@1 {rate:.3f}  pass@{ANSWERS} {best:.3f}", flush=True)
    for arm, gained in summarize(load_arms(args.result, conditions)).items():
        gains = gained["pass_1_gains"]
        spread = f" ± {stdev(gains):.3f}" if len(gains) > 1 else ""
        print(f"{arm:10} pass@1 {fmean(gains):+.3f}{spread}  pass@{ANSWERS} {gained[f'pass_{ANSWERS}_gain']:+.3f}")


if __name__ == "__main__":
    main()
