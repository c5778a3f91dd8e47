"""What a configuration names and is not there: the very words of the trainer, and no word on what it can fetch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dashboard.shared.config.missing_names import absent
from schemas.problems import Problem


def config(**names: Any) -> dict[str, Any]:
    full = {"model": "tiny-gpt2", "dataset": "dev-reasoning-v2", "eval_set": "eval_v1"} | names
    return {
        "model": {"name": full["model"]},
        "data": {"dataset": full["dataset"]},
        "evaluation": {"eval_set": full["eval_set"]},
    }


def test_what_is_absent_is_said_with_its_place_and_where_relative_paths_start(tmp_path: Path) -> None:
    start = f"A relative path starts at {Path.cwd()}, where this dashboard was started."
    assert list(absent(config(model="./mine", dataset=f"{tmp_path}/x", eval_set="eval_v3"), file="config.yaml")) == [
        Problem(
            code="TP040",
            severity="error",
            file="config.yaml",
            pointer="/model/name",
            what="There is no model ./mine.",
            why="It is not built in, not on this machine, and not written like a hub name (owner/model). " + start,
            next="Name a built-in model (demo, tiny-gpt2), a local folder with config.json, safetensors and tokenizer, "
            "or a GGUF file.",
        ),
        Problem(
            code="TP010",
            severity="error",
            file="config.yaml",
            pointer="/data/dataset",
            what=f"There is no dataset '{tmp_path}/x': it is not built in, and no such file exists.",
            expected="a built-in name (dev-reasoning-v2, dev-stories-v1, countdown-v1, countdown-solved-v1) or the "
            "path of a file or folder of rows",
            next="Give --dataset one of these.",
        ),
        Problem(
            code="TP010",
            severity="error",
            file="config.yaml",
            pointer="/evaluation/eval_set",
            what="There is no evaluation set 'eval_v3': it is not built in, and no such file exists.",
            why=start,
            expected="a built-in name (eval_v1, eval_v2, eval_stories_v1, eval_countdown_v1) or the path of a "
            "file or folder of rows",
            next="Did you mean eval_v2? Else give --set evaluation.eval_set one of these.",
        ),
    ]


@pytest.mark.parametrize("model", ["demo", "google/gemma-2b", "gpt2", "{here}", None, 7])
def test_what_may_be_there_is_left_to_the_trainer(tmp_path: Path, model: Any) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("")
    name = model.replace("{here}", str(tmp_path)) if isinstance(model, str) else model
    assert list(absent(config(model=name, dataset=str(rows), eval_set=None), file="config.yaml")) == []


def test_a_path_that_the_system_refuses_is_said(tmp_path: Path) -> None:
    (problem,) = absent(config(dataset="/" + "x" * 400), file="config.yaml")
    assert (problem.code, problem.pointer) == ("TP101", "/data/dataset")
    assert problem.what == "The system refuses this: File name too long."
