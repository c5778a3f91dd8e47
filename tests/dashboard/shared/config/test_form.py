from __future__ import annotations

from dashboard.shared.config import configs, form
from schemas.catalog import schema
from schemas.validate import check_value


def test_every_key_of_the_schema_has_a_field_with_a_title_and_a_help() -> None:
    found = {field.dotted for field in form.fields()}
    wanted = set()
    for key, node in schema("train_config")["properties"].items():
        wanted |= {f"{key}.{name}" for name in node["properties"]} if "properties" in node else {key}
    assert found == wanted - {"schema_version"}
    assert all(field.title and field.help for field in form.fields())


def test_what_a_field_knows() -> None:
    by_name = {field.dotted: field for field in form.fields()}
    rate = by_name["optimizer.learning_rate"]
    assert (rate.kind, rate.low, rate.high, rate.default, rate.nullable) == ("number", 0, 10, 0.001, False)
    clip = by_name["optimizer.max_grad_norm"]
    assert (clip.kind, clip.nullable) == ("number", True)
    assert by_name["mesh.device"].options == ("auto", "cpu", "gpu", "tpu")
    assert (by_name["model.weights"].nullable, by_name["model.weights"].options) == (True, ("pretrained", "random"))
    assert by_name["model.name"].required
    assert by_name["optimizer.final_learning_rate_fraction"].high == 1
    assert by_name["data.shuffle"].kind == "switch"


def test_the_essential_fields_exist() -> None:
    assert set(form.ESSENTIAL) <= {field.path for field in form.fields()}


def test_a_configuration_with_its_defaults_is_valid_and_complete() -> None:
    full = form.with_defaults({"model": {"name": "demo"}, "limits": {"steps": 7}})
    assert check_value("train_config", full, file="config.yaml") == []
    assert full["limits"] == {"steps": 7, "max_minutes": None}
    assert full["optimizer"]["learning_rate"] == 0.001
    assert list(full) == list(schema("train_config")["properties"])


def test_keys_that_the_schema_does_not_know_are_kept_so_that_checking_names_them() -> None:
    full = form.with_defaults({"model": {"name": "demo", "size": 3}, "colour": "red"})
    assert full["colour"] == "red"
    assert full["model"]["size"] == 3
    assert len(check_value("train_config", full, file="config.yaml")) == 2


def test_edits_are_put_in_without_touching_what_they_came_from() -> None:
    start = {"model": {"name": "demo"}}
    result = form.edit(start, {("model", "name"): "other", ("limits", "steps"): 3})
    assert result == {"model": {"name": "other"}, "limits": {"steps": 3}}
    assert start == {"model": {"name": "demo"}}


def test_every_shipped_configuration_can_be_launched_and_rehearsed() -> None:
    found = configs.sources()
    assert found
    assert not [source for source in found if source.path.name.startswith("smoke_")]
    for source in found:
        config = configs.read(source)
        for launched in (config, configs.smoke_of(config)):
            assert check_value("train_config", form.with_defaults(launched), file=source.key) == []


def test_the_one_click_smoke_run_is_valid() -> None:
    quick = configs.quick_smoke()
    assert quick["mode"] == "smoke"
    assert check_value("train_config", form.with_defaults(quick), file="config.yaml") == []
