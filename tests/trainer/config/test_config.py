"""The configuration tree, its schema, its file names of old, and what is refused."""

import json
import typing
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from refusals import refusal_text

from evidence.scores.reading import Scoring
from schemas.catalog import VERSION, schema
from trainer.config.load import CURRENT_NAMES, config_text, get_path, load_config
from trainer.config.tree import GROUPS, Config, build_config, to_document
from trainer.data.answers import infer_scoring

CONFIGS = Path("trainer/configs")


def written(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(text)
    return path


def list_defaults(group: type) -> dict:
    return {entry.name: entry.default for entry in fields(group) if entry.default is not MISSING}


def list_choices(group: type) -> dict:
    """Return the values of every field whose type is a set of literals."""
    hints = typing.get_type_hints(group)
    found = {}
    for name, hint in hints.items():
        literals = [part for part in (hint, *typing.get_args(hint)) if typing.get_origin(part) is typing.Literal]
        if literals:
            optional = type(None) in typing.get_args(hint)
            found[name] = [*typing.get_args(literals[0]), *([None] if optional else [])]
    return found


def test_the_tree_and_the_schema_have_the_same_groups_in_the_same_order():
    properties = schema("train_config")["properties"]
    assert [entry.name for entry in fields(Config)] == list(properties)
    assert [name for name, value in properties.items() if value.get("type") == "object"] == list(GROUPS)
    scalars = {name: value["default"] for name, value in properties.items() if "default" in value}
    assert scalars.items() <= list_defaults(Config).items()


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_has_the_keys_defaults_and_choices_of_the_schema(group: str):
    properties = schema("train_config")["properties"][group]["properties"]
    tree = GROUPS[group]
    assert is_dataclass(tree)
    assert [entry.name for entry in fields(tree)] == list(properties)
    assert list_defaults(tree) == {name: value["default"] for name, value in properties.items() if "default" in value}
    assert list_choices(tree) == {name: value["enum"] for name, value in properties.items() if "enum" in value}


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.name)
def test_a_shipped_configuration_loads_and_resolves_to_itself(path: Path, tmp_path: Path):
    config = load_config(path)
    assert load_config(written(tmp_path, config_text(config))) == config
    assert build_config(to_document(config)) == config


def test_the_weakest_to_the_strongest_source(tmp_path: Path):
    base = written(tmp_path, "model: {name: demo}\nlimits: {steps: 7}\nseed: 1\n")
    overlay = tmp_path / "smoke.yaml"
    overlay.write_text("limits: {steps: 2}\nbatch: {microbatch_size: 3}\nseed: 2\n")
    config = load_config(base, overlay=overlay, flags={"seed": 3, "mode": None}, settings=["seed=4", "name=x"])
    assert (config.limits.steps, config.batch.microbatch_size, config.seed, config.name) == (2, 3, 4, "x")
    assert config.mode == "full"


def test_settings_are_json_or_text_and_numbers_get_the_type_of_their_key(tmp_path: Path):
    base = written(tmp_path, "model: {name: demo}\noptimizer: {learning_rate: 1}\nlimits: {steps: 5.0}\n")
    settings = ["optimizer.beta1=1e-5", "optimizer.max_grad_norm=null", "data.shuffle=false", "name=run-1", "seed=5.0"]
    config = load_config(base, settings=settings)
    assert (config.optimizer.beta1, config.optimizer.max_grad_norm, config.data.shuffle) == (1e-5, None, False)
    numbers = (config.optimizer.learning_rate, config.limits.steps, config.seed)
    assert [repr(each) for each in numbers] == ["1.0", "5", "5"]


@pytest.mark.parametrize(("old", "new"), CURRENT_NAMES.items())
def test_every_old_name_sets_the_present_key(old: str, new: str, tmp_path: Path):
    numbers = {"optimizer.weight_decay": 0.25, "data.max_length": 64}
    texts = {"optimizer.name": "adafactor", "optimizer.schedule": "linear", "precision.compute": "bfloat16"}
    value = ({"mesh.device": "cpu"} | numbers | texts).get(new, 3)
    group, key = old.split(".")
    document: dict = {"model": {"name": "demo"}}
    document.setdefault(group, {})[key] = value
    config = to_document(load_config(written(tmp_path, json.dumps(document))))
    assert get_path(config, new.split(".")) == value


def refusal(path: Path, **options) -> str:
    return refusal_text(load_config, path, **options).replace(str(path), "CONFIG")


@pytest.mark.parametrize(
    ("base", "overlay", "error"),
    [
        (None, None, "error TP001: CONFIG: The configuration cannot be read: No such file or directory."),
        ("model: {name: demo}\n", "- limits\n", "error TP113: SMOKE: The document is a list of 1 item."),
        ("# nothing yet\n", "- limits\n", "error TP113: CONFIG: The document is empty."),
        (
            "seed: 1\nmodel:\n  revision: null\n",
            "model: {weights: null}\n",
            'error TP122: CONFIG at model (line 2): The key "name" is missing.',
        ),
        (
            "model: {name: demo}\noptimizer: {max_grad_norm: null}\ntraining: {max_grad_norm: 1.0}\n",
            None,
            (
                "error TP005: CONFIG at training.max_grad_norm (line 3): training.max_grad_norm is 1.0, but "
                "optimizer.max_grad_norm, which is the same setting, is null."
            ),
        ),
    ],
)
def test_the_file_with_the_mistake_is_named(base: str | None, overlay: str | None, error: str, tmp_path: Path):
    path, smoke = tmp_path / "config.yaml", tmp_path / "smoke.yaml"
    for file, text in ((path, base), (smoke, overlay)):
        if text is not None:
            file.write_text(text)
    said = refusal(path, overlay=smoke if overlay else None).replace(str(smoke), "SMOKE")
    assert error in said.splitlines()


def test_each_value_is_blamed_on_who_stated_it(tmp_path: Path):
    base, overlay = written(tmp_path, "model: {name: demo}\nseed: one\n"), tmp_path / "smoke.yaml"
    overlay.write_text("limits:\n  steps: few\ntraining:\n  batch_size: some\n")
    text = refusal(
        base,
        overlay=overlay,
        flags={"mesh.device": "quantum"},
        settings=["optimizer.learning_rate=abc", "optimizer.learnig_rate=1", "training.warmup_steps=-1", "steps"],
    ).replace(str(overlay), "SMOKE")
    assert [line for line in text.splitlines() if line.startswith("error")] == [
        "error TP002: --set: 'steps' names no setting.",
        'error TP120: CONFIG at seed (line 2): "one" is not a whole number.',
        'error TP120: SMOKE at limits.steps (line 2): "few" is not a whole number.',
        'error TP120: SMOKE at training.batch_size (line 4): "some" is not a whole number.',
        'error TP121: --device at mesh.device: "quantum" is not an allowed value.',
        'error TP120: --set at optimizer.learning_rate: "abc" is not a number.',
        "error TP125: --set at training.warmup_steps: -1 is below 0.",
        'error TP123: --set at optimizer.learnig_rate: The key "learnig_rate" is unknown.',
    ]
    assert 'Next: Did you mean "learning_rate"?' in text


def test_a_whole_number_of_thousands_of_digits_is_refused(tmp_path: Path):
    base = written(tmp_path, "model: {name: demo}\n")
    said = "error TP127: --set at seed: A whole number of more than 308 digits is not a YAML value.\n"
    for digits in (400, 5000):
        assert refusal(base, settings=[f"seed={'9' * digits}"]).startswith(said)


@pytest.mark.parametrize("more", [{}, {"settings": ["optimizer.learning_rate=0.1"]}])
def test_a_group_that_is_no_mapping_is_not_replaced_in_silence(more: dict, tmp_path: Path):
    old = "" if more else "training: {learning_rate: 0.1}\n"
    text = refusal(written(tmp_path, f"model: {{name: demo}}\noptimizer: adamw\n{old}"), **more)
    assert text.startswith('error TP120: CONFIG at optimizer (line 2): "adamw" is not a group of keys.\n')
    assert text.count("error") == 1


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_missing_key_means_what_the_version_did(version: str):
    document: dict[str, Any] = {"schema_version": version, "model": {"name": "demo"}, "data": {"kind": "text"}}
    earlier = build_config(document)
    assert (earlier.data.kind, earlier.data.template, earlier.evaluation.answer) == ("text", "{prompt}\n", "tags")
    assert infer_scoring(earlier.evaluation, [], []) == Scoring()
    assert build_config(document | {"data": {"template": None}}).data.template is None
    for new in (document | {"schema_version": VERSION}, {"model": {"name": "demo"}}):
        assert (build_config(new).data.template, build_config(new).evaluation.answer) == (None, None)
