"""Record a small run and replay it in this process."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schemas.problems import ProblemError
from schemas.validate import check_value
from trainer.config.tree import (
    BatchConfig,
    Config,
    DataConfig,
    EvaluationConfig,
    LimitsConfig,
    MeshConfig,
    ModelConfig,
    OptimizerConfig,
)
from trainer.recorder.progress import Watch
from trainer.replay.recorded import ReplayRequest
from trainer.replay.replay import replay
from trainer.run import RunRequest, run

ITEMS = [{"id": f"q{n}", "prompt": f"What is {n} + {n}?", "expected": str(2 * n)} for n in range(6)]


def small_config(folder: Path, *, steps: int, **groups: Any) -> Config:
    """Return a configuration with six evaluation items, which are written into a folder."""
    items = folder / "items.jsonl"
    items.write_text("".join(json.dumps(item) + "\n" for item in ITEMS))
    base = Config(
        name="small",
        model=ModelConfig(name="tiny-gpt2"),
        data=DataConfig(max_length=96),
        optimizer=OptimizerConfig(learning_rate=1e-2, schedule="constant"),
        batch=BatchConfig(microbatch_size=2),
        mesh=MeshConfig(device="cpu", devices=1),
        evaluation=EvaluationConfig(eval_set=str(items), max_new_tokens=4, batch_size=50),
        limits=LimitsConfig(steps=steps),
    )
    return replace(base, **groups)


def record(config: Config, folder: Path) -> Path:
    with Watch(quiet=True) as watch:
        assert run(RunRequest(config=config, folder=folder, command=["trainproof"]), watch) == 0
    return folder


def replay_run(folder: Path, **arguments: Any) -> tuple[dict[str, Any], int, list[dict[str, Any]]]:
    events: list[dict[str, Any]] = []
    receipt, code = replay(ReplayRequest(folder=folder, **arguments), lambda line: None, events.append)
    assert check_value("receipt", receipt, file="receipt") == []
    return receipt, code, events


def refusal(act: Callable[[], Any]) -> tuple[int, list[str]]:
    with pytest.raises(ProblemError) as caught:
        act()
    return caught.value.exit_code, [f"{each.code} {each.what}" for each in caught.value.problems]
