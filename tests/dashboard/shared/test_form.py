"""Fields of the schema, values, defaults and assignments; shipped configurations, local models and datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboard.shared import configs, form
from schemas.catalog import schema
from schemas.validate import check_value


def test_every_key_of_the_schema_has_a_field_with_a_title_and_a_help() -> None:
    found = {setting.dotted for setting in form.fields()}
    expected = set()
    for key, node in schema("train_config")["properties"].items():
        expected |= {f"{key}.{name}" for name in node["properties"]} if "properties" in node else {key}
    assert found == expected - {"schema_version"}
    assert all(setting.title and setting.help for setting in form.fields())
    assert set(form.ESSENTIAL) <= {setting.path for setting in form.fields()}


def test_a_field_has_the_type_range_options_and_default_of_the_schema() -> None:
    rate, clip = form.field("optimizer.learning_rate"), form.field("optimizer.max_grad_norm")
    assert (rate.kind, rate.default, rate.nullable) == ("number", 0.001, False)
    assert (clip.kind, clip.nullable) == ("number", True)
    assert form.field("mesh.device").options == ("auto", "cpu", "gpu", "tpu")
    assert form.field("model.weights").nullable
    assert form.field("model.name").required
    assert form.field("data.shuffle").kind == "switch"
    assert form.field("mesh.device").help.endswith(" One of: auto, cpu, gpu, tpu.")
    assert rate.help.endswith(" From 0 to 10.")


@pytest.mark.parametrize(
    ("key", "text", "value", "has_type"),
    [
        ("seed", "41", 41, True),
        ("seed", "4.5", 4.5, False),
        ("seed", "", "", False),
        ("seed", "1" * 5000, "1" * 5000, False),
        ("seed", "[" * 100_000, "[" * 100_000, False),
        ("optimizer.learning_rate", " 2e-3 ", 0.002, True),
        ("optimizer.learning_rate", "Infinity", float("inf"), False),
        ("optimizer.max_grad_norm", None, None, True),
        ("data.shuffle", "false", False, True),
        ("optimizer.schedule", "linear", "linear", True),
        ("model.revision", "null", None, True),
    ],
)
def test_a_value_is_parsed_as_yaml_and_a_wrong_one_is_kept(
    key: str, text: str | None, value: object, has_type: bool
) -> None:
    found = form.field(key).parse(text)
    assert (found, type(found)) == (value, type(value))
    assert form.field(key).has_type(found) is has_type


def test_a_configuration_with_its_defaults_is_valid_and_complete() -> None:
    full = form.fill_defaults({"model": {"name": "demo"}, "limits": {"steps": 7}})
    assert form.problems(full) == []
    assert full["limits"] == {"steps": 7, "max_minutes": None}
    assert full["optimizer"]["learning_rate"] == 0.001
    assert list(full) == list(schema("train_config")["properties"])
    assert next(iter(full["model"])) == "name"


def test_unknown_keys_and_values_instead_of_objects_are_kept_for_validation() -> None:
    full = form.fill_defaults({"model": {"name": "demo", "size": 3}, "colour": "red", "checkpoint": "often"})
    assert (full["colour"], full["model"]["size"], full["checkpoint"]) == ("red", 3, "often")
    assert len(form.problems(full)) == 3


def test_edits_do_not_change_the_original() -> None:
    start = {"model": {"name": "demo"}}
    result = form.edit(start, {("model", "name"): "other", ("limits", "steps"): 3})
    assert result == {"model": {"name": "other"}, "limits": {"steps": 3}}
    assert start == {"model": {"name": "demo"}}


def test_assignments_lead_from_one_configuration_to_the_other_and_wrong_ones_are_left_out() -> None:
    start: dict[str, Any] = {"model": {"name": "demo"}}
    edits = {("limits", "steps"): 7, ("data", "template"): "x = y", ("mesh", "devices"): None}
    texts = form.assignments(start, form.edit(start, edits))
    assert texts == ["data.template=x = y", "limits.steps=7"]
    assert form.parse_assignments(texts) == {("limits", "steps"): 7, ("data", "template"): "x = y"}
    assert form.parse_assignments(["limits.steps", "limits.steps=many", "colour=red", "__class__=1"]) == {}
    assert len(form.parse_assignments(["seed=1"] * 64 + ["limits.steps=7"])) == 1


def named(**names: Any) -> dict[str, Any]:
    found = {"model": "tiny-gpt2", "dataset": "dev-reasoning-v2", "eval_set": "eval_v1"} | names
    return {
        "model": {"name": found["model"]},
        "data": {"dataset": found["dataset"]},
        "evaluation": {"eval_set": found["eval_set"]},
    }


def test_a_missing_name_is_a_problem_at_its_key(tmp_path: Path) -> None:
    found = list(form.absent(named(model="./mine", dataset=f"{tmp_path}/x", eval_set="eval_v3"), file="config.yaml"))
    missing = "it is not built in, and no such file exists."
    assert [(problem.code, problem.key_path, problem.what) for problem in found] == [
        ("TP040", "model.name", f"There is no model ./mine: {missing}"),
        ("TP010", "data.dataset", f"There is no dataset {tmp_path}/x: {missing}"),
        ("TP010", "evaluation.eval_set", f"There is no evaluation set eval_v3: {missing}"),
    ]
    start = f"Relative paths start at {Path.cwd()}, where the dashboard was started."
    assert [problem.why for problem in found] == [start, None, start]


@pytest.mark.parametrize("model", ["demo", "google/gemma-2b", "gpt2", "{here}", None, 7])
def test_names_that_may_exist_are_left_to_the_trainer(tmp_path: Path, model: Any) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("")
    name = model.replace("{here}", str(tmp_path)) if isinstance(model, str) else model
    assert list(form.absent(named(model=name, dataset=str(rows), eval_set=None), file="config.yaml")) == []


def test_a_path_that_the_operating_system_refuses_is_a_problem() -> None:
    (problem,) = form.absent(named(dataset="/" + "x" * 400), file="config.yaml")
    assert (problem.code, problem.key_path) == ("TP101", "data.dataset")


@pytest.mark.parametrize("value", [0.001, 0.0010000001, 1.0, 1e-06, 1.5e-7, 1e22, 0.1 + 0.2, -2.5e-10])
def test_a_number_is_shown_as_yaml_writes_it_with_every_digit(value: float) -> None:
    text = form.format_yaml(value)
    assert yaml.safe_dump(value) == f"{text}\n...\n"
    assert yaml.safe_load(text) == value


def test_every_shipped_configuration_and_its_smoke_test_are_valid() -> None:
    found = configs.sources()
    assert found[0].key == "demo.yaml"
    assert not [source for source in found if source.path.name.startswith("smoke_")]
    smokes = map(configs.make_smoke_config, map(configs.read, found))
    started = [configs.quick_smoke(), *map(configs.read, found), *smokes]
    full = map(form.fill_defaults, started)
    assert [problem for config in full for problem in check_value(form.KIND, config, file="config.yaml")] == []
    assert configs.quick_smoke()["mode"] == "smoke"


def test_models_and_datasets_in_a_folder_and_its_subfolders_are_found(tmp_path: Path) -> None:
    for name in ("a.gguf", "m/b/config.json", "m/b/x.safetensors", "m/c/config.json", ".d/config.json", "m/rows.JSONL"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    uploads = tmp_path / ".launch" / "rows"
    uploads.mkdir(parents=True)
    (uploads / "up.txt").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert configs.local_models(tmp_path) == ["a.gguf", "m/b"]
    assert configs.local_datasets(tmp_path, uploads) == ["m/rows.JSONL", ".launch/rows/up.txt"]
    assert configs.local_models(tmp_path / "nowhere") == []
