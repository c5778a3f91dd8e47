"""What a configuration names and is not there: a problem for each, and none for what the trainer can fetch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dashboard.shared.config.missing_names import absent


def config(**names: Any) -> dict[str, Any]:
    full = {"model": "tiny-gpt2", "dataset": "dev-reasoning-v2", "eval_set": "eval_v1"} | names
    return {
        "model": {"name": full["model"]},
        "data": {"dataset": full["dataset"]},
        "evaluation": {"eval_set": full["eval_set"]},
    }


def test_a_missing_name_is_a_problem_at_its_place(tmp_path: Path) -> None:
    found = list(absent(config(model="./mine", dataset=f"{tmp_path}/x", eval_set="eval_v3"), file="config.yaml"))
    assert [(problem.code, problem.pointer, problem.what) for problem in found] == [
        ("TP040", "/model/name", "There is no model ./mine: it is not built in, and no such file exists."),
        ("TP010", "/data/dataset", f"There is no dataset {tmp_path}/x: it is not built in, and no such file exists."),
        (
            "TP010",
            "/evaluation/eval_set",
            "There is no evaluation set eval_v3: it is not built in, and no such file exists.",
        ),
    ]
    start = f"Relative paths start at {Path.cwd()}, where the dashboard was started."
    assert [problem.why for problem in found] == [start, None, start]


@pytest.mark.parametrize("model", ["demo", "google/gemma-2b", "gpt2", "{here}", None, 7])
def test_what_may_be_there_is_left_to_the_trainer(tmp_path: Path, model: Any) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("")
    name = model.replace("{here}", str(tmp_path)) if isinstance(model, str) else model
    assert list(absent(config(model=name, dataset=str(rows), eval_set=None), file="config.yaml")) == []


def test_a_path_that_the_system_refuses_is_said(tmp_path: Path) -> None:
    (problem,) = absent(config(dataset="/" + "x" * 400), file="config.yaml")
    assert (problem.code, problem.pointer) == ("TP101", "/data/dataset")
    assert problem.what == "The operating system reports: File name too long."
