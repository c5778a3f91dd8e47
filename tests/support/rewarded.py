"""Synthetic runs that learned from rewards: countdown tasks, answered as a test states, with figures from NumPy."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from synthetic import seal, write_rows, write_run

from evidence import layout, registry

ROWS = [json.loads(line) for line in Path("trainer/data/builtin/countdown-v1.jsonl").read_text("utf-8").splitlines()]
SOLVED = {
    tuple(row["prompt"].split()[-2:] + sorted(row["prompt"].split()[1:4])): row["completion"]
    for row in map(json.loads, Path("trainer/data/builtin/countdown-solved-v1.jsonl").read_text("utf-8").splitlines())
}

Written = tuple[str, float, bool]
"""Text, its countdown reward, and whether it has its end token."""


def solution(row: Mapping[str, Any]) -> str:
    """Return a solution of a countdown row, from the built-in solved rows."""
    words = row["prompt"].split()
    return SOLVED[tuple(words[-2:] + sorted(words[1:4]))]


def solve_every_other(step: int, group: int, sample: int, row: Mapping[str, Any]) -> Written:
    """Write a solution in every other sample, something else in the others; in every fifth group nothing is right."""
    return (solution(row), 1.0, True) if sample % 2 == 0 and group % 5 != 4 else (f"{sample}+{group}+0", 0.0, True)


def write_rewarded_run(
    root: Path,
    name: str = "run",
    *,
    write: Callable[[int, int, int, Mapping[str, Any]], Written] = solve_every_other,
    steps: int = 9,
    groups: int = 8,
    size: int = 4,
    rewards: str = "countdown",
    worth: Callable[[str, float], dict[str, float]] = lambda text, value: {"countdown": value},
    total: Callable[[dict[str, float]], float] = lambda parts: parts["countdown"],
    objective: Mapping[str, Any] | None = None,
    figures: Callable[[int], Mapping[str, float]] = lambda step: {},
    **changes: Any,
) -> Path:
    """Write a GRPO run with the roll-outs of every step.

    Args:
        root: Folder of runs.
        name: Name of the run.
        write: Returns a completion from step, group, sample and dataset row.
        steps: Number of steps.
        groups: Prompts per step.
        size: Completions per prompt.
        rewards: `objective.rewards`.
        worth: Returns the rewards of a text from its countdown reward.
        total: Returns the weighted sum of the rewards.
        objective: Further settings of the objective.
        figures: Returns further fields of the metric row of a step.
        changes: As for `write_run`.
    """
    settings = {
        "kind": "grpo",
        "rewards": rewards,
        "group_size": size,
        "scale_rewards": "group",
        "mask_truncated": True,
        "max_completion_tokens": 16,
    } | dict(objective or {})
    known = registry.built_in_dataset("countdown-v1") or {}
    changes["config"] = {"data": {"dataset": "countdown-v1"}, "objective": settings} | dict(changes.get("config", {}))
    dataset = {
        "name": "countdown-v1",
        "rows": known["rows"],
        "sha256": known["sha256"],
        "duplicates": 0,
        "split": "all",
    }
    changes["manifest"] = {"dataset": dataset} | dict(changes.get("manifest", {}))
    changes["first_examples"] = {"counts": {"rows": len(ROWS)}}
    folder = write_run(root, name, steps=steps, items=0, **changes)
    found = [_rollouts(step, groups, settings, write, worth, total) for step in range(1, steps + 1)]
    write_rows(folder / layout.ROLLOUTS, [row for rows in found for row in rows])
    metrics = [json.loads(line) for line in (folder / layout.METRICS).read_text("utf-8").splitlines()]
    for row, rollouts in zip(metrics, found, strict=False):
        row["reward_mean"] = float(np.mean([each["reward"] for each in rollouts]))
        row["truncated_share"] = float(np.mean([each["finish_reason"] == "length" for each in rollouts]))
        row |= {"sampler_gap": 1e-6, "completion_tokens_mean": 6.0} | dict(figures(row["step"]))
    write_rows(folder / layout.METRICS, metrics)
    log = [json.loads(line) for line in (folder / layout.LOG).read_text("utf-8").splitlines()]
    scoring = {"answer": "whole", "answer_regex": None, "compare": "exact", "tolerance": 1e-6}
    log.insert(1, log[0] | {"event": "scoring", "message": "answers are read as whole", "fields": scoring})
    write_rows(folder / layout.LOG, log)
    seal(folder)
    return folder


def _rollouts(
    step: int, groups: int, settings: Mapping[str, Any], write: Any, worth: Any, total: Any
) -> list[dict[str, Any]]:
    """Return the roll-outs of a step, with advantages computed by NumPy."""
    rows, size = [], settings["group_size"]
    for group in range(groups):
        number = ((step - 1) * groups + group) % len(ROWS)
        row = ROWS[number]
        texts = [write(step, group, sample, row) for sample in range(size)]
        parts = [worth(text, value) for text, value, _ in texts]
        sums = np.array([total(each) for each in parts])
        spread = sums.max() > sums.min()
        scaled = (sums - sums.mean()) / (sums.std(ddof=1) + 1e-4) if spread else np.zeros(size)
        for sample, (text, _, ends) in enumerate(texts):
            rows.append(
                {
                    "step": step,
                    "group": group,
                    "sample": sample,
                    "row": number,
                    "prompt": row["prompt"],
                    "completion": text,
                    "finish_reason": "stop" if ends else "length",
                    "rewards": parts[sample],
                    "reward": float(sums[sample]),
                    "advantage": float(scaled[sample]),
                    "is_used": bool(spread) and (ends or not settings["mask_truncated"]),
                }
            )
    return rows
