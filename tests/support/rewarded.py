"""Synthetic runs that learned from rewards: countdown tasks, answered as a test states, with figures from NumPy."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from synthetic import seal, write_rows, write_run

from evidence import layout
from evidence.registry import built_in

ROWS = [json.loads(line) for line in Path("trainer/data/countdown-v1.jsonl").read_text("utf-8").splitlines()]
SOLVED = {
    tuple(row["prompt"].split()[-2:] + sorted(row["prompt"].split()[1:4])): row["completion"]
    for row in map(json.loads, Path("trainer/data/countdown-solved-v1.jsonl").read_text("utf-8").splitlines())
}

Written = tuple[str, float, bool]
"""Text, what `countdown` is worth for it, and whether it has its end."""


def solution(row: Mapping[str, Any]) -> str:
    """Return a solution of a countdown row, from the built-in solved rows."""
    words = row["prompt"].split()
    return SOLVED[tuple(words[-2:] + sorted(words[1:4]))]


def in_turn(step: int, group: int, sample: int, row: Mapping[str, Any]) -> Written:
    """Write a solution in every other sample, something else in the others; in every fifth group nothing is right."""
    return (solution(row), 1.0, True) if sample % 2 == 0 and group % 5 != 4 else (f"{sample}+{group}+0", 0.0, True)


def write_rewarded_run(
    root: Path,
    name: str = "run",
    *,
    write: Callable[[int, int, int, Mapping[str, Any]], Written] = in_turn,
    steps: int = 9,
    groups: int = 8,
    size: int = 4,
    rewards: str = "countdown",
    worth: Callable[[str, float], dict[str, float]] = lambda text, value: {"countdown": value},
    total: Callable[[dict[str, float]], float] = lambda parts: parts["countdown"],
    objective: Mapping[str, Any] | None = None,
    figures: Callable[[int], Mapping[str, float]] = lambda step: {},
    rows: Sequence[Mapping[str, Any]] = ROWS,
    **changes: Any,
) -> Path:
    """Write a run of `grpo` whose roll-outs of every step were kept.

    Args:
        root: folder of runs.
        name: of the run.
        write: what the model wrote, by step, group, sample and dataset row.
        steps: of the run.
        groups: prompts of a step.
        size: of a group.
        rewards: of the configuration.
        worth: the parts of a text's reward, from what countdown gives.
        total: their sum.
        objective: further settings.
        figures: further fields of a step's metric row.
        rows: of the dataset.
        changes: as `write_run` takes them.
    """
    settings = {
        "kind": "grpo",
        "rewards": rewards,
        "group_size": size,
        "scale_rewards": "group",
        "mask_truncated": True,
        "max_completion_tokens": 16,
    } | dict(objective or {})
    known = built_in.dataset("countdown-v1") or {}
    changes["config"] = {"data": {"dataset": "countdown-v1"}, "objective": settings} | dict(changes.get("config", {}))
    dataset = {
        "name": "countdown-v1",
        "rows": known["rows"],
        "sha256": known["sha256"],
        "duplicates": 0,
        "split": "all",
    }
    changes["manifest"] = {"dataset": dataset} | dict(changes.get("manifest", {}))
    changes["first_examples"] = {"counts": {"rows": len(rows)}}
    folder = write_run(root, name, steps=steps, items=0, **changes)
    found = [rollouts_of(step, groups, rows, settings, write, worth, total) for step in range(1, steps + 1)]
    write_rows(folder / layout.ROLLOUTS, [row for rows in found for row in rows])
    state_figures(folder, found, figures)
    state_scoring(folder)
    seal(folder)
    return folder


def rollouts_of(
    step: int,
    groups: int,
    dataset: Sequence[Mapping[str, Any]],
    settings: Mapping[str, Any],
    write: Any,
    worth: Any,
    total: Any,
) -> list[dict[str, Any]]:
    """Return the roll-outs of a step, advantages by NumPy."""
    rows, size = [], settings["group_size"]
    for group in range(groups):
        number = ((step - 1) * groups + group) % len(dataset)
        row = dataset[number]
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


def state_figures(
    folder: Path, found: list[list[dict[str, Any]]], figures: Callable[[int], Mapping[str, float]]
) -> None:
    """Write what the steps' completions come to into the metric rows."""
    metrics = [json.loads(line) for line in (folder / layout.METRICS).read_text("utf-8").splitlines()]
    for row, rollouts in zip(metrics, found, strict=False):
        row["reward_mean"] = float(np.mean([each["reward"] for each in rollouts]))
        row["truncated_share"] = float(np.mean([each["finish_reason"] == "length" for each in rollouts]))
        row |= {"sampler_gap": 1e-6, "completion_tokens_mean": 6.0} | dict(figures(row["step"]))
    write_rows(folder / layout.METRICS, metrics)


def state_scoring(folder: Path) -> None:
    """Write into the log how answers were read, behind its first event."""
    log = [json.loads(line) for line in (folder / layout.LOG).read_text("utf-8").splitlines()]
    fields = {"answer": "whole", "answer_regex": None, "compare": "exact", "tolerance": 1e-6}
    log.insert(1, log[0] | {"event": "scoring", "message": "answers are read as whole", "fields": fields})
    write_rows(folder / layout.LOG, log)
