"""Record a small run, and replay or challenge it in this process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from configs import changed
from model_folders import row_file

from schemas.problems import ProblemError
from schemas.validate import check_value
from trainer.config.tree import Config, ModelConfig
from trainer.evaluation.challenge import ChallengeRequest, challenge_run
from trainer.recorder.progress import Watch
from trainer.replay.recorded import ReplayRequest
from trainer.replay.replay import replay
from trainer.run import RunRequest, run

ITEMS = [{"id": f"q{n}", "prompt": f"What is {n} + {n}?", "expected": str(2 * n)} for n in range(6)]


def small_config(folder: Path, *, steps: int, **groups: Any) -> Config:
    """Return a configuration with six evaluation items, which are written into a folder."""
    base = changed(
        Config(name="small", model=ModelConfig(name="tiny-gpt2")),
        data={"max_length": 96},
        optimizer={"learning_rate": 1e-2, "schedule": "constant"},
        batch={"microbatch_size": 2},
        mesh={"device": "cpu", "devices": 1},
        evaluation={"eval_set": row_file(folder / "items.jsonl", *ITEMS), "max_new_tokens": 4, "batch_size": 50},
        limits={"steps": steps},
    )
    return changed(base, **groups)


def record(config: Config, folder: Path) -> Path:
    with Watch(quiet=True) as watch:
        assert run(RunRequest(config=config, folder=folder, command=["trainproof"]), watch) == 0
    return folder


def replay_run(folder: Path, **arguments: Any) -> tuple[dict[str, Any], int, list[dict[str, Any]]]:
    events: list[dict[str, Any]] = []
    receipt, code = replay(ReplayRequest(folder=folder, **arguments), lambda line: None, events.append)
    assert check_value("receipt", receipt, file="receipt") == []
    return receipt, code, events


def challenged(folder: Path, **asked: Any) -> dict[str, Any]:
    """Challenge a run in this process and return the receipt."""
    chosen = {"items": None, "generate": 40, "seed": 3, "again": 6, "model": None} | asked
    receipt = challenge_run(ChallengeRequest(folder=folder, **chosen), Watch(quiet=True), lambda event: None)
    assert check_value("receipt", receipt, file="receipt") == []
    return receipt


def refusal(act: Callable[[], Any]) -> tuple[int, list[str]]:
    with pytest.raises(ProblemError) as caught:
        act()
    return caught.value.exit_code, [f"{each.code} {each.what}" for each in caught.value.problems]
