"""Fields of the schema, values, defaults and assignments; shipped configurations, local models and datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

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


def test_a_configuration_with_its_defaults_is_valid_and_complete_and_keeps_what_is_wrong_for_validation() -> None:
    full = form.fill_defaults({"model": {"name": "demo"}, "limits": {"steps": 7}})
    assert form.problems(full) == []
    assert full["limits"] == {"steps": 7, "max_minutes": None}
    assert full["optimizer"]["learning_rate"] == 0.001
    assert list(full) == list(schema("train_config")["properties"])
    wrong = form.fill_defaults({"model": {"name": "demo", "size": 3}, "colour": "red", "checkpoint": "often"})
    assert (wrong["colour"], wrong["model"]["size"], wrong["checkpoint"]) == ("red", 3, "often")
    assert len(form.problems(wrong)) == 3


def test_assignments_lead_from_one_configuration_to_the_other_and_wrong_ones_are_left_out() -> None:
    start: dict[str, Any] = {"model": {"name": "demo"}}
    edits = {("limits", "steps"): 7, ("data", "template"): "x = y", ("mesh", "devices"): None}
    texts = form.assignments(start, form.edit(start, edits))
    assert start == {"model": {"name": "demo"}}
    assert texts == ["data.template=x = y", "limits.steps=7"]
    assert form.parse_assignments(texts) == {("limits", "steps"): 7, ("data", "template"): "x = y"}
    assert form.parse_assignments(["limits.steps", "limits.steps=many", "colour=red", "__class__=1"]) == {}
    assert len(form.parse_assignments(["seed=1"] * 64 + ["limits.steps=7"])) == 1


def absent(model: Any = "tiny-gpt2", dataset: str = "dev-reasoning-v2", eval_set: str | None = "eval_v1") -> list:
    names = {"model": {"name": model}, "data": {"dataset": dataset}, "evaluation": {"eval_set": eval_set}}
    return [(found.code, found.key_path, found.what, found.why) for found in form.absent(names, file="config.yaml")]


def test_a_missing_name_is_a_problem_at_its_key(tmp_path: Path) -> None:
    missing = "it is not built in, and no such file exists."
    start = f"Relative paths start at {Path.cwd()}, where the dashboard was started."
    assert absent(model="./mine", dataset=f"{tmp_path}/x", eval_set="eval_v3") == [
        ("TP040", "model.name", f"There is no model ./mine: {missing}", start),
        ("TP010", "data.dataset", f"There is no dataset {tmp_path}/x: {missing}", None),
        ("TP010", "evaluation.eval_set", f"There is no evaluation set eval_v3: {missing}", start),
    ]
    (refused,) = absent(dataset="/" + "x" * 400)
    assert refused[:2] == ("TP101", "data.dataset"), "a path that the operating system refuses"


@pytest.mark.parametrize("model", ["demo", "google/gemma-2b", "gpt2", "{here}", None, 7])
def test_names_that_may_exist_are_left_to_the_trainer(tmp_path: Path, model: Any) -> None:
    (tmp_path / "rows.jsonl").touch()
    name = model.replace("{here}", str(tmp_path)) if isinstance(model, str) else model
    assert absent(model=name, dataset=str(tmp_path / "rows.jsonl"), eval_set=None) == []


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_shown_as_yaml_writes_it_with_every_digit(value: float) -> None:
    assert yaml.safe_dump(value) == f"{form.format_yaml(value)}\n...\n"


def test_every_shipped_configuration_and_its_smoke_test_are_valid() -> None:
    found = configs.sources()
    assert found[0].key == "demo.yaml"
    assert not [source for source in found if source.path.name.startswith("smoke_")]
    smokes = map(configs.make_smoke_config, map(configs.read, found))
    started = [configs.quick_smoke(), *map(configs.read, found), *smokes]
    full = map(form.fill_defaults, started)
    assert [problem for config in full for problem in check_value(form.KIND, config, file="config.yaml")] == []
    assert configs.quick_smoke()["mode"] == "smoke"


def test_a_smoke_run_leads_to_its_shipped_configuration_or_to_itself_with_more_steps() -> None:
    smoke = form.fill_defaults(configs.make_smoke_config(configs.read(configs.sources()[0])))
    assert configs.full_run_parameters(smoke, "a") == {"source": "demo.yaml"}
    queued = form.edit(smoke, {("optimizer", "learning_rate"): 0.5})
    full = ["name=demo", "mode=full", "model.shape=own", "limits.steps=100"]
    assert configs.full_run_parameters(queued, "a") == {"source": "same as a", "set": full}
    # A model that was made small gets the sizes that were queued.
    small = form.edit(queued, {("model", "shape"): "small", ("batch", "microbatch_size"): 4})
    size = f"batch.microbatch_size={queued['batch']['microbatch_size']}"
    assert configs.full_run_parameters(small, "a", queued=queued)["set"] == [*full, size]


def test_models_and_datasets_in_a_folder_and_its_subfolders_are_found(tmp_path: Path) -> None:
    models = ("a.gguf", "m/b/config.json", "m/b/x.safetensors", "m/c/config.json", ".d/config.json")
    for name in (*models, "m/rows.JSONL", ".launch/rows/up.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    uploads = tmp_path / ".launch" / "rows"
    assert configs.local_models(tmp_path) == ["a.gguf", "m/b"]
    assert configs.local_datasets(tmp_path, uploads) == ["m/rows.JSONL", ".launch/rows/up.txt"]
    assert configs.local_models(tmp_path / "nowhere") == []
