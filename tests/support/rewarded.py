"""Synthetic runs that learned from rewards: countdown tasks with the answers of a test, and figures from NumPy."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
from synthetic import read_rows, seal, write_rows, write_run

from evidence import layout, registry

DATASET = "countdown-v2"
ROWS = read_rows(Path(f"trainer/data/builtin/{DATASET}.jsonl"))

Written = tuple[str, float, bool]
"""Text, its countdown reward, and whether it ended."""


def solution(row: Mapping[str, Any]) -> str:
    """Return the first solution of a countdown row that brute force finds."""
    target = row["task"]["target"]
    for (a, b, c), one, other in product(permutations(row["task"]["numbers"]), "+-*/", "+-*/"):
        for text in (f"({a}{one}{b}){other}{c}", f"{a}{one}({b}{other}{c})"):
            with suppress(ZeroDivisionError):
                if abs(eval(text) - target) < 1e-9:
                    return text
    raise AssertionError(row)


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
    """Write a GRPO run with the rollouts of every step.

    `write` returns a completion from step, group, sample and dataset row, `worth` the rewards of a text from its
    countdown reward, `total` their weighted sum, and `figures` further fields of a step's metric row. `groups` and
    `size` are prompts per step and completions per prompt; `changes` are those of `write_run`.
    """
    settings = {
        "kind": "grpo",
        "rewards": rewards,
        "group_size": size,
        "scale_rewards": "group",
        "mask_truncated": True,
        "max_completion_tokens": 16,
    } | dict(objective or {})
    known = registry.built_in_dataset(DATASET) or {}
    changes["config"] = {"data": {"dataset": DATASET}, "objective": settings} | dict(changes.get("config", {}))
    dataset = {"name": DATASET, "rows": len(ROWS), "sha256": known["sha256"], "duplicates": 0, "split": "all"}
    changes["manifest"] = {"dataset": dataset} | dict(changes.get("manifest", {}))
    changes["first_examples"] = {"counts": {"rows": len(ROWS)}}
    folder = write_run(root, name, steps=steps, items=0, **changes)
    found = [_rollouts(step, groups, settings, write, worth, total) for step in range(1, steps + 1)]
    write_rows(folder / layout.ROLLOUTS, [row for rows in found for row in rows])
    metrics = read_rows(folder / layout.METRICS)
    for row, rollouts in zip(metrics, found, strict=False):
        row["reward_mean"] = float(np.mean([each["reward"] for each in rollouts]))
        row["truncated_share"] = float(np.mean([each["finish_reason"] == "length" for each in rollouts]))
        row |= {"sampler_gap": 1e-6, "completion_tokens_mean": 6.0} | dict(figures(row["step"]))
    write_rows(folder / layout.METRICS, metrics)
    log = read_rows(folder / layout.LOG)
    scoring = {"answer": "whole", "answer_regex": None, "compare": "exact", "tolerance": 1e-6}
    log.insert(1, log[0] | {"event": "scoring", "message": "answers are read as whole", "fields": scoring})
    write_rows(folder / layout.LOG, log)
    seal(folder)
    return folder


def _rollouts(
    step: int, groups: int, settings: Mapping[str, Any], write: Any, worth: Any, total: Any
) -> list[dict[str, Any]]:
    """Return the rollouts of a step, with advantages computed by NumPy."""
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
