"""Train `trainer/configs/grpo_demo.yaml` with rewards, beside controls with as many updates on as many sequences.

    python benchmarks/grpo_learning.py [--seeds 0 1 2] [--result FILE]

The task has a checker: reach a number from three given ones. SHA-256 splits its items into those of the start, of GRPO,
and held-out ones, so no task of GRPO was ever taught.

| arm | trains on |
|---|---|
| grpo | the correct rewards |
| rejection | its own correct answers, as supervised data |
| more | further solutions of the items of the start, for which this task has a solver |
| shuffled | the same rewards, permuted over the step |
| memorised | the correct rewards, but both start and GRPO are taught the same few tasks |

Before and after, each held-out item is answered once greedily and 16 times at temperature 1. Gains are paired by item;
intervals are 95 % over items. Each arm is stored when it ends and not run again, so an interrupted benchmark continues.
Prints the table of docs/guides/rewards.md and writes benchmarks/results/grpo_learning.json.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import countdown
import jax
import numpy as np
from harness import REPOSITORY, RESULTS, build_parser, write_json

from evidence.hashes import sha256_file
from evidence.rewards import Attempt
from trainer.config.load import load_config
from trainer.config.tree import Config, ObjectiveConfig
from trainer.generate.decode import Completion, generate, pad_left, row_keys
from trainer.inputs import read_inputs
from trainer.loop.programs import train_program
from trainer.loop.rollouts import Rollouts, StepCompletions, assign_advantages, build_rollouts, completion_text
from trainer.loop.state import initial_state
from trainer.loop.step import TrainState
from trainer.model.model import combine
from trainer.model.stacks import Params
from trainer.recorder.environment import environment
from trainer.runtime import choose_devices

CONFIG = REPOSITORY / "trainer" / "configs" / "grpo_demo.yaml"
WEIGHTS = CONFIG.parent / "countdown_start" / "model.safetensors"
ARMS = {
    "grpo": "GRPO",
    "rejection": "own correct answers",
    "more": "more solutions",
    "shuffled": "shuffled rewards",
    "memorised": "GRPO on memorised tasks",
}
ANSWERS, AT_A_TIME = 16, 150
"""Sampled answers per held-out item, and items per batch."""
DIGITS = "0123456789abcdefg"
"""A digit states how many of the 16 answers to an item were correct, from 0 to g."""
EVALUATION_SEED = 7
MEMORISED_TASKS, MEMORISING_STEPS = 600, 200
MEMORISING = (
    *("optimizer.learning_rate=1.5e-3", "optimizer.schedule=constant", "batch.microbatch_size=128"),
    f"limits.steps={MEMORISING_STEPS}",
)


def measure(rollouts: Rollouts, params: Params) -> dict[str, str]:
    """Answer the held-out items; return the correct ones of 16 answers to each, and of one greedy answer."""
    rows = [row for _, row in countdown.held_out_tasks()]
    prompts = [rollouts.data.tokenizer.encode(row["prompt"], add_special_tokens=True) for row in rows]
    programs = replace(rollouts.programs, group_size=ANSWERS)

    def is_right(row: dict[str, Any], written: Completion) -> bool:
        text, finished = completion_text(written, rollouts.data.tokenizer), written.finish_reason == "stop"
        attempt = Attempt(prompt=row["prompt"], text=text, row=row, finished=finished)
        return rollouts.rewards[0].score(attempt) == 1

    right = []
    for first in range(0, len(rows), AT_A_TIME):
        part = range(first, first + AT_A_TIME)
        tokens, lengths = pad_left([prompts[item] for item in part], max(map(len, prompts)))
        drawn = programs.draw(params, tokens, lengths, keys=row_keys(jax.random.key(EVALUATION_SEED), part, ANSWERS))
        right += [is_right(rows[first + number // ANSWERS], each.written) for number, each in enumerate(drawn)]
    greedy = generate(
        programs.graphdef,
        params,
        prompts,
        max_new_tokens=programs.max_new_tokens,
        stop_token_id=programs.stop_token_id,
        batch_size=AT_A_TIME,
    )
    counts = np.sum(np.reshape(right, (len(rows), ANSWERS)), axis=1)
    return {
        "right": "".join(DIGITS[count] for count in counts),
        "greedy_right": "".join(str(int(is_right(*each))) for each in zip(rows, greedy, strict=True)),
    }


def shuffle_rewards(seed: int) -> Any:
    """Return an assignment of advantages with the rewards of a step permuted."""
    random = np.random.default_rng(seed)

    def assign(rows: Sequence[dict[str, Any]], settings: ObjectiveConfig) -> None:
        for row, reward in zip(rows, random.permutation([row["reward"] for row in rows]), strict=True):
            row["reward"] = float(reward)
        assign_advantages(rows, settings)

    return assign


def keep_correct(rows: Sequence[dict[str, Any]], _: ObjectiveConfig) -> None:
    """Learn from correct completions only, each with weight 1."""
    for row in rows:
        row["is_used"], row["advantage"] = row["reward"] == 1, 1.0


def build_config(seed: int, *settings: str) -> Config:
    """Return the configuration of the demo with another seed and without evaluation."""
    return load_config(CONFIG, settings=[f"seed={seed}", "evaluation.eval_set=null", *settings])


def train(config: Config, assign: Any = assign_advantages, initial: Params | None = None) -> tuple[TrainState, Params]:
    """Train as configured, from other parameters if given; return the state and the frozen parameters."""
    task, data = read_inputs(config, choose_devices(config.mesh.device, config.mesh.devices))
    [state], frozen = initial_state(task)
    if initial is not None:
        state = state._replace(trained=initial)
    rollouts = build_rollouts(task, data)
    recorder: Any = SimpleNamespace(completions=lambda rows: None, log=lambda *event, **fields: None)
    completions = StepCompletions(replace(rollouts, assign_advantages=assign), recorder) if rollouts else None
    update = train_program(task).compile().call
    for step in range(config.limits.steps):
        prompts = data.source.batch(step // max(1, task.objective.updates_per_rollout))
        batch = completions.batch(prompts, step, state, frozen) if completions else prompts
        state, _ = update(state, frozen, batch)
    return state, frozen


def train_supervised(config: Config, rows: list[dict[str, Any]], folder: Path) -> tuple[TrainState, Params]:
    """Train on solved rows, with the other settings of a configuration."""
    dataset = countdown.write_rows(folder / "solved.jsonl", rows)
    return train(replace(config, objective=ObjectiveConfig(), data=replace(config.data, dataset=str(dataset))))


def run_arm(arm: str, seed: int, rollouts: Rollouts, folder: Path) -> dict[str, Any]:
    """Train and evaluate an arm under a seed."""
    config, before, initial = build_config(seed), {}, None
    if arm == "memorised":
        # The start learns the first tasks of GRPO by heart; GRPO then gets the same tasks, several times.
        tasks = countdown.tasks()[:MEMORISED_TASKS]
        given = [row["task"] for row in tasks]
        known = [countdown.Item(numbers=tuple(sorted(task["numbers"])), target=task["target"]) for task in given]
        rows = countdown.solved(tuple(known), MEMORISING_STEPS * 128, seed)
        state, frozen = train_supervised(build_config(seed, *MEMORISING), rows, folder)
        initial, before = state.trained, {"before": measure(rollouts, combine(state.trained, frozen))}
        config = build_config(seed, f"data.dataset={countdown.write_rows(folder / 'tasks.jsonl', tasks)}")
    began = time.process_time()
    if arm == "more":
        count = config.limits.steps * config.batch.microbatch_size
        state, frozen = train_supervised(config, countdown.solved(countdown.items("start"), count, seed), folder)
    else:
        assign = {"shuffled": shuffle_rewards(seed), "rejection": keep_correct}.get(arm, assign_advantages)
        state, frozen = train(config, assign, initial)
    return {"cpu_seconds": time.process_time() - began, **before, **measure(rollouts, combine(state.trained, frozen))}


def shares(answers: Mapping[str, str], name: str) -> Any:
    """Return the share of correct answers to each item."""
    return np.array([DIGITS.index(digit) for digit in answers[name]]) / (ANSWERS if name == "right" else 1)


def mean_interval(values: Any) -> tuple[float, float]:
    """Return the mean over items and half of its 95 % interval."""
    return float(np.mean(values)), float(1.96 * np.std(values, ddof=1) / len(values) ** 0.5)


def rates(*several: Mapping[str, str]) -> dict[str, float]:
    """Return pass@1 with its interval, pass@16 and the share of correct greedy answers, each as a mean over seeds."""

    def each(answers: Mapping[str, str]) -> dict[str, float]:
        right = shares(answers, "right")
        mean, half = mean_interval(right)
        solved, greedy = float(np.mean(right > 0)), float(np.mean(shares(answers, "greedy_right")))
        return {"pass_1": mean, "pass_1_half_interval": half, f"pass_{ANSWERS}": solved, "greedy": greedy}

    found = [each(answers) for answers in several]
    return {name: fmean(one[name] for one in found) for name in found[0]}


def summarize(start: Mapping[str, Any], seeds: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the mean figures of the start and of each arm, and its gain under each seed, paired by item."""
    summary: dict[str, Any] = {"start": rates(start)}
    for arm in ARMS:
        if not (found := [arms[arm] for arms in seeds.values() if arm in arms]):
            continue
        summary[arm] = rates(*found)
        for name, gain in (("right", "gain"), ("greedy_right", "greedy_gain")):
            pairs = [(one, one.get("before", start)) for one in found]
            gains = [mean_interval(shares(one, name) - shares(before, name)) for one, before in pairs]
            summary[arm] |= {gain: fmean(mean for mean, _ in gains), f"{gain}s": gains}
        if "before" in found[0]:
            summary[arm]["before"] = rates(*(one["before"] for one in found))
        summary[arm]["cpu_seconds"] = fmean(one["cpu_seconds"] for one in found)
    return summary


def format_table(summary: Mapping[str, Any]) -> str:
    """Return the figures as Markdown: percentages, and gains in points under each seed."""
    lines = [
        f"| arm | pass@1 | gain under each seed | mean gain | greedy | pass@{ANSWERS} | CPU s |",
        "|---|---|---|---|---|---|---|",
    ]
    for arm, name in {"start": "before", **ARMS}.items():
        if (figures := summary.get(arm)) is None:
            continue
        gains = mean = seconds = ""
        if arm != "start":
            gains = " / ".join(f"{100 * gain:+.1f} ± {100 * half:.1f}" for gain, half in figures["gains"])
            mean, seconds = f"{100 * figures['gain']:+.1f}", f"{figures['cpu_seconds']:.0f}"
        before = f" (before: {100 * figures['before']['pass_1']:.1f})" if "before" in figures else ""
        one, greedy, most = (100 * figures[key] for key in ("pass_1", "greedy", f"pass_{ANSWERS}"))
        lines.append(f"| {name}{before} | {one:.1f} | {gains} | {mean} | {greedy:.1f} | {most:.1f} | {seconds} |")
    return "\n".join(lines)


def main() -> None:
    """Run the missing arms of each seed, store each, and print the table."""
    parser = build_parser(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--result", type=Path, default=RESULTS / "grpo_learning.json")
    args = parser.parse_args()
    config = build_config(0)
    groups = {name: asdict(getattr(config, name)) for name in ("objective", "optimizer", "batch", "limits")}
    conditions = {"start_sha256": sha256_file(WEIGHTS), **groups}
    document = json.loads(args.result.read_text()) if args.result.exists() else conditions
    if any(document.get(name) != value for name, value in conditions.items()):
        message = f"{args.result} was measured with other settings. Delete it, or pass --result."
        raise SystemExit(message)
    task, data = read_inputs(config, choose_devices(config.mesh.device, config.mesh.devices))
    rollouts = build_rollouts(task, data)
    assert rollouts is not None, "the demo learns from rewards"
    [state], frozen = initial_state(task)
    start = document.get("start") or measure(rollouts, combine(state.trained, frozen))
    seeds: dict[str, Any] = document.get("seeds", {})
    for arm, seed in ((arm, seed) for arm in ARMS for seed in args.seeds):
        done = seeds.setdefault(str(seed), {})
        if arm not in done:
            with tempfile.TemporaryDirectory() as folder:
                done[arm] = run_arm(arm, seed, rollouts, Path(folder))
            print(f"seed {seed}  {arm:10}", {name: round(value, 3) for name, value in rates(done[arm]).items()})
        summary = summarize(start, seeds)
        document = conditions | {"environment": environment(), "summary": summary, "start": start, "seeds": seeds}
        write_json(args.result.resolve(), document)
    print(format_table(document["summary"]))


if __name__ == "__main__":
    main()
