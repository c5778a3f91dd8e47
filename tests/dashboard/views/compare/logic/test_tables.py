from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from synthetic import write_run

from dashboard.shared.config import form
from dashboard.views.compare.logic import tables
from evidence.compare.scores import compare_runs
from evidence.run import read_run


def test_settings_three_times_over_and_where_they_disagree(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path,
        "alpha",
        config={"optimizer": {"name": "adafactor"}, "mesh": {"device": "auto"}},
        manifest={"training": {"optimizer": {"name": "adamw"}}},
    )
    run = read_run(folder)
    found = {item.key: item for item in form.run_settings(run)}
    assert (found["optimizer.name"].declared, found["optimizer.name"].effective) == ("adafactor", "adamw")
    assert found["optimizer.name"].differs
    assert found["optimizer.name"].is_changed
    # auto leaves the choice to the program, and parameters cannot be split over one device.
    assert not found["mesh.device"].differs
    assert not found["mesh.shard_params"].differs
    assert found["mesh.shard_params"].remark == "Parameters cannot be sharded over one device."
    assert found["optimizer.beta1"].effective is None
    assert (found["model.name"].default, found["limits.max_minutes"].declared) == (None, "null")
    assert sum(item.differs for item in found.values()) == 1


def test_settings_of_a_run_without_documents(tmp_path: Path) -> None:
    found = form.run_settings(read_run(tmp_path))
    assert all(item.declared is None and item.effective is None for item in found)


@pytest.mark.parametrize("value", [0.001, 0.0010000001, 1.0, 1e-06, 1.5e-7, 1e22, 0.1 + 0.2, -2.5e-10])
def test_a_number_is_shown_as_yaml_writes_it_with_every_digit(value: float) -> None:
    text = form.as_yaml(value)
    assert yaml.safe_dump(value) == f"{text}\n...\n"
    assert yaml.safe_load(text) == value


def test_what_two_runs_state_to_a_question_is_said_in_words(tmp_path: Path) -> None:
    smoke = write_run(tmp_path, "smoke", mode="smoke", steps=2, items=0, manifest={"model": {"parameters": 169_728}})
    check = compare_runs([read_run(smoke), read_run(write_run(tmp_path, "full"))]).smoke
    assert check is not None
    found = {answer.question: tables.answer_rows(answer) for answer in check.answers}
    assert found["same model"][0][-1] == "169,728 parameters"
    assert found["same shape of a step"][0] == ("8 examples", "256 tokens", "remat layer")
    assert found["same number formats"][1] == ("parameters in float32", "computed in float32")
    assert not [value for values in found.values() for one in values for value in one if "null" in value]
    # A yes says of what it is one: what was set aside stands beside it.
    assert found["same settings apart from model, rows, batch and length"] == [
        ("evaluation.eval_set = None", "limits.steps = 2"),
        ("evaluation.eval_set = own-items", "limits.steps = 20"),
    ]
