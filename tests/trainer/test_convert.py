"""`trainproof init --from`: configurations of other trainers become ours, and nothing is guessed or lost."""

import dataclasses
import json
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import run_command
from refusals import catch_problems
from transformers import TrainingArguments
from whole_runs import carried_out, manifest_of

from schemas.problems import ProblemError
from schemas.render import render_text
from trainer import convert as module
from trainer.config.load import load_config
from trainer.convert import concept, convert
from trainer.first_config import write_conversion
from trainer.run import RunRequest

CASES = Path("tests/cases/other_trainers")
SETTINGS = {"chart_grpo.yaml": ["objective.rewards=countdown"], "axolotl_qlora.yml": ["limits.steps=20"]}
"""Settings that the user has to decide."""


def leaves(document: dict, path: str = "") -> list[str]:
    """Return the dotted name of each value; lists of groups are one value."""
    found = []
    for key, value in document.items():
        found += leaves(value, f"{path}{key}.") if isinstance(value, dict) and value else [f"{path}{key}"]
    return found


@pytest.mark.parametrize("path", sorted(path for path in CASES.rglob("*.*")), ids=lambda path: path.name)
def test_files_of_every_form_convert_and_load_strictly(path: Path, tmp_path: Path):
    output = tmp_path / "config.yaml"
    converted = write_conversion(path, SETTINGS.get(path.name, []), output, force=False)
    assert load_config(output) == converted.config
    text = output.read_text()
    lines = [line for line in text.splitlines() if line]
    assert all("# " in above + line or line.endswith(":") for above, line in pairwise(lines))
    groups = [f"{each.name}." for each in converted.unconverted]
    names = [name for name in leaves(yaml.safe_load(path.read_text())) if not name.startswith(tuple(groups))]
    assert [name for name in names if name not in text] == []
    assert {each.reason for each in converted.unconverted}.isdisjoint({"unknown key"})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smoke_tiny.yaml", "tpu_memory_safe.yaml", "local_gpu.yaml"])
def test_a_converted_file_trains(name: str, tmp_path: Path):
    settings = ["model.name=tiny-gpt2", "limits.steps=2", "mesh.device=cpu", "data.max_length=160"]
    settings += ["optimizer.warmup_steps=0", "precision.compute=float32"]
    converted = convert(CASES / "seeds" / name, settings)
    carried_out(RunRequest(config=converted.config, folder=tmp_path / "run", command=["trainproof"]))
    manifest = manifest_of(tmp_path / "run")
    assert (manifest["status"], manifest["training"]["steps_done"]) == ("succeeded", 2)
    assert manifest["effective"]["data"].get("system_prompt") == converted.config.data.system_prompt


STATED = yaml.safe_load(Path("tests/cases/conversions.yaml").read_text(encoding="utf-8"))
HF, TRL, FACTORY = (STATED[trainer] for trainer in ("hf", "trl", "factory"))


def converted(folder: Path, document: Any, *settings: str) -> dict[str, Any]:
    path = folder / "old.yaml"
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return {each.key: each.value for each in convert(path, settings).settings}


@pytest.mark.parametrize(("document", "expected"), STATED["becomes"])
def test_values_mean_the_same(document: dict, expected: dict, tmp_path: Path):
    found = converted(tmp_path, document, *["objective.rewards=countdown"] * ("num_generations" in document))
    assert {key: found.get(key) for key in expected} == expected


@pytest.mark.parametrize(("document", "settings"), STATED["asks"])
def test_what_has_several_readings_is_asked_with_its_flags(document: dict, settings: list[str], tmp_path: Path):
    text = render_text(catch_problems(lambda: converted(tmp_path, document)))
    assert [setting for setting in settings if f"--set {setting}" not in text] == []


def test_set_decides_and_is_not_asked_again(tmp_path: Path):
    document = HF | {"train_file": "owner/rows", "optim": "lion", "max_steps": -1, "revision": "main"}
    settings = ("data.dataset=dev-stories-v1", "optimizer.name=adamw", "limits.steps=9", "model.name=demo")
    found = converted(tmp_path, document, *settings)
    assert (found["data.dataset"], found["optimizer.name"], found["limits.steps"]) == ("dev-stories-v1", "adamw", 9)
    assert "model.revision" not in found
    problems = catch_problems(lambda: converted(tmp_path, document, "limits.stepz=9", "data.max_length=few", "nothing"))
    assert {each.code for each in problems} >= {"TP002", "TP010", "TP120", "TP123", "TP191"}


def test_an_invalid_value_is_reported_at_its_own_key_and_line(tmp_path: Path):
    text = "model_name_or_path: gpt2\ntrain_file: dev-reasoning-v2\nmax_steps: 5\nlearning_rate: fast\nseed: -1\n"
    found = {(each.code, each.pointer, each.line) for each in catch_problems(lambda: converted(tmp_path, text))}
    assert found == {("TP120", "/learning_rate", 4), ("TP125", "/seed", 5)}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "TP102"),
        ("- a\n- b\n", "TP113"),
        ("a: [1, 2\n", None),
        ("a: 1\na: 2\n", None),
        ("just text", None),
        ("model_name_or_path: !!python/object:os.system x\n", None),
        ("color: red\n", "TP190"),
        ("compute_environment: LOCAL_MACHINE\nnum_processes: 2\n", "TP190"),
        ("model: {name: demo}\nlimits: {steps: 2}\n", "TP190"),
        ("x: " + "y" * (5 << 20), "TP108"),
        ("a: " + "[" * 3000, None),
    ],
)
def test_other_files_are_refused(text: str, code: str | None, tmp_path: Path):
    problems = catch_problems(lambda: converted(tmp_path, text))
    assert code is None or code in {each.code for each in problems}


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path):
    for path in (tmp_path / "none.yaml", tmp_path):
        assert [each.code for each in catch_problems(lambda path=path: convert(path))] == ["TP001"]


@pytest.mark.parametrize("value", [None, True, -1, 1e300, "", "2e-5", [1, {}], {"a": {"b": None}}])
def test_odd_values_of_any_key_give_problems_and_no_crash(value: Any, tmp_path: Path):
    path = tmp_path / "old.json"
    names = {name.rpartition(".")[2] for name, *_ in module._tables()["keys"].values()}
    for base in (HF, TRL | {"use_peft": True}, TRL | {"num_generations": 4}, TRL | {"beta": 0.1}, FACTORY):
        for name in names:
            path.write_text(json.dumps(base | {name: value}))
            with suppress(ProblemError):
                convert(path, ["objective.rewards=countdown"] if "num_generations" in base else [])


def test_the_tables_know_every_field_of_training_arguments():
    fields = [each.name for each in dataclasses.fields(TrainingArguments) if not each.name.startswith("_")]
    unknown = [name for name in fields if concept("transformers", (name,)) is None and module.reason((name,)) is None]
    assert unknown == []


def test_the_tables_name_keys_of_trainproof_and_each_name_once():
    tables = module._tables()
    names = [name for names in tables["keys"].values() for name in names]
    assert len(names) == len({*names})
    keys = [key for key in tables["keys"] if "." in key] + [key for key, *_ in tables["flags"].values()]
    keys += [key for key, _ in tables["tables"].values()] + [*tables["shares"].values()]
    assert {*keys} <= {*module.keys()}
    for form in tables["forms"].values():
        assert {*form.get("defaults", {})} <= {*tables["keys"]}


def test_a_file_of_another_trainer_is_not_loaded_as_it_is_but_named_with_the_command(tmp_path: Path):
    path = CASES / "seeds" / "tpu_memory_safe.yaml"
    assert f"trainproof init --from {path}" in render_text(catch_problems(lambda: load_config(path)))
    own = tmp_path / "own.yaml"
    own.write_text("model: {name: demo}\noptimizer: {learnig_rate: 1}\n")
    assert "init --from" not in render_text(catch_problems(lambda: load_config(own)))


def test_the_command_writes_once_and_reports_what_has_no_equivalent(tmp_path: Path, capsys):
    source, output = CASES / "seeds" / "smoke_tiny.yaml", tmp_path / "config.yaml"
    command = ("init", "--from", source, "--output", output)
    code, out, _ = run_command(capsys, *command)
    assert code == 0
    assert "data.format: rows are recognized by their columns" in out
    assert f"trainproof train --config {output} --check" in out
    code, _, err = run_command(capsys, *command)
    assert (code, "TP035" in err) == (2, True)
    code, out, _ = run_command(capsys, *command, "--force", "--json", "--set", "limits.steps=7")
    assert code == 0
    assert {"key": "limits.steps", "value": 7, "from": "from --set limits.steps"} in json.loads(out)["settings"]
    onto_itself = ("--from", output, "--output", output, "--force")
    for arguments in (onto_itself, ("demo",), ("demo", "rows.jsonl", "--from", source)):
        assert run_command(capsys, "init", *arguments)[0] == 2
