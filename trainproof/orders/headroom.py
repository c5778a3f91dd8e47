"""What a plan knows of the headroom: what an earlier run measured of the same model and rows, or what it costs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evidence import layout
from evidence.run import Run, read_run
from schemas.formats import quantity
from schemas.problems import Problem, problem_of
from trainer.config.tree import Config, config_of
from trainer.data.batches import global_batch_size
from trainer.data.rows import read_dataset
from trainer.loop.headroom import headroom_problems, in_words

SAME = ("rewards", "group_size", "max_completion_tokens", "temperature", "top_k", "top_p")
"""Settings of the objective that decide what is drawn and when it is right."""


def headroom_findings(config: Config, plan: dict[str, Any], runs: Path) -> tuple[Problem, ...]:
    """Return what is known of the headroom; nothing where no completions are drawn.

    Args:
        config: the run.
        plan: its plan.json.
        runs: folder of run folders in which an earlier measurement may be.
    """
    if config.objective.kind != "grpo" or plan["verdict"] == "unsupported":
        return ()
    if (earlier := next(measured_before(config, runs), None)) is not None:
        assert earlier.manifest is not None, "it states what was measured"
        found, of = earlier.manifest["result"]["headroom"], f", measured by the run {earlier.manifest['run_id']}"
        said = problem_of("TP929", file=config.name, what=f"{in_words(found)}{of}.")
        return tuple(headroom_problems(found, file=config.name, of=of)) or (said,)
    count = config.objective.headroom_items
    if not count:
        what = "objective.headroom_items is 0: nobody finds out before the training whether it can gain anything."
        return (problem_of("TP929", file=config.name, what=what, next="Set objective.headroom_items to 32."),)
    size = config.objective.group_size
    rollouts = math.ceil(count * size / global_batch_size(config, devices=plan["target"]["devices"]))
    drawn = (plan.get("time") or {}).get("rollout")
    seconds = drawn and rollouts * config.objective.updates_per_rollout * drawn["seconds"]["likely"]
    cost = f", likely {seconds:.2g} s" if seconds else ""
    what = (
        f"No run here measured what this model has to gain on these rows. The start will, before the first step: "
        f"{quantity(count, 'prompt')} with {size} completions each, as long as {quantity(rollouts, 'roll-out')}{cost}."
    )
    return (problem_of("TP929", file=config.name, what=what),)


def measured_before(config: Config, runs: Path) -> Iterator[Run]:
    """Yield the runs that measured the same model, with the same rewards on the same rows, drawn in the same way."""
    for path in sorted(runs.glob(f"*/{layout.MANIFEST}"), reverse=True):
        if b'"headroom"' not in path.read_bytes():
            continue
        run = read_run(path.parent)
        if run.manifest is None or run.config is None or "headroom" not in run.manifest["result"]:
            continue
        then = config_of(run.config)
        is_same = (
            (then.model.name, then.model.revision) == (config.model.name, config.model.revision)
            and (run.manifest["model"]["weights"] == "pretrained" or then.seed == config.seed)
            and all(getattr(then.objective, key) == getattr(config.objective, key) for key in SAME)
            and run.manifest["dataset"]["sha256"] == read_dataset(config.data.dataset, config.data.kind).sha256
        )
        if is_same:
            yield run
