"""What stands under a built-in name is held against the facts that ship, which follow from what the trainer uses."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import pytest
from leaves import Forger

from evidence.judge.judgement import check_run
from evidence.records.ours import read_run
from evidence.registry import built_in
from evidence.registry.known_models import known_models, parameters_of, vocabulary_of

REPOSITORY = Path(__file__).parents[3]
SMOKE = REPOSITORY / "tests" / "cases" / "earlier" / "demo-smoke"


@pytest.fixture(scope="module")
def made() -> ModuleType:
    """Return the script that makes the registry."""
    spec = importlib.util.spec_from_file_location("make_registry", REPOSITORY / "docs" / "make_registry.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def forger(tmp_path: Path) -> Forger:
    return Forger(SMOKE, tmp_path / "run")


def codes(folder: Path) -> set[str]:
    return {each.code for each in check_run(read_run(folder)) if each.severity == "error"}


def changed(forger: Forger, name: str, change: Any) -> set[str]:
    """Return what is found after a change of one document or of its rows, every hash made to fit."""
    path = forger.folder / name
    if name.endswith("l"):
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        change(rows)
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    else:
        document = json.loads(path.read_text("utf-8"))
        change(document)
        path.write_text(json.dumps(document), "utf-8")
    return codes(path.parent)


@pytest.mark.slow
def test_the_registry_is_what_the_trainer_uses(made: ModuleType) -> None:
    stated = json.loads(made.FILE.read_text("utf-8"))
    first = made.SEEDS[0] + made.GENERATOR_SEED_OFFSET
    assert {name: made.dataset_facts(name) for name in made.DATASETS} == stated["datasets"]
    assert {name: made.eval_set_facts(name) for name in made.EVAL_SETS} == stated["eval_sets"]
    generated = [made.generated_facts(name, count, 0) for name, count in made.GENERATED]
    assert generated == [each for each in stated["generated"] if each["generator_seed"] == first]
    assert stated["generator_seed_offset"] == made.GENERATOR_SEED_OFFSET


@pytest.mark.slow
def test_start_weights_are_what_a_process_without_flags_draws(made: ModuleType) -> None:
    """Not drawn in this process: the flags of the tests make the compiler round otherwise."""
    script = "import json, make_registry; print(json.dumps(make_registry.model_facts('tiny-gpt2', range(1))))"
    plain = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    plain["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY / "docs"), str(REPOSITORY)])
    drawn = json.loads(
        subprocess.run([sys.executable, "-c", script], env=plain, capture_output=True, check=True).stdout
    )
    stated = json.loads(made.FILE.read_text("utf-8"))["models"]["tiny-gpt2"]
    weights, version = drawn.pop("start_weights")["float32"], built_in.jax_version(jax.__version__)
    assert weights[version]["0"] == stated.pop("start_weights")["float32"][version]["0"]
    assert drawn == stated


@pytest.mark.parametrize("key", ["section", "category", "difficulty"])
def test_a_label_moved_in_both_files_is_found(forger: Forger, key: str) -> None:
    for name in ("predictions.jsonl", "baseline_predictions.jsonl"):
        found = changed(forger, name, lambda rows: rows[0].update({key: "other"}))
    assert "TP382" in found


def test_an_expected_answer_changed_in_both_files_is_found(forger: Forger) -> None:
    for name in ("predictions.jsonl", "baseline_predictions.jsonl"):
        found = changed(forger, name, lambda rows: rows[0].update(expected="yes"))
    assert "TP382" in found


def test_a_training_row_that_the_dataset_does_not_have_is_found(forger: Forger) -> None:
    def other(document: dict[str, Any]) -> None:
        document["examples"][0]["row"] += 1

    assert "TP385" in changed(forger, "first_examples.json", other)


def test_counts_of_generated_rows_follow_from_the_seed(tmp_path: Path) -> None:
    forger = Forger(SMOKE.with_name("demo-full"), tmp_path / "run")

    def fewer(document: dict[str, Any]) -> None:
        document["counts"]["supervised_tokens"] -= 1

    assert "TP386" in changed(forger, "first_examples.json", fewer)


def test_other_start_weights_are_a_warning_since_processors_differ(forger: Forger) -> None:
    def other(document: dict[str, Any]) -> None:
        document["model"]["weights_sha256"] = "5" * 64

    changed(forger, "run_manifest.json", other)
    found = [each for each in check_run(read_run(forger.folder)) if each.code == "TP387"]
    assert [each.severity for each in found] == ["warning"]


def test_start_weights_are_those_of_the_version_of_jax_that_drew_them(forger: Forger) -> None:
    stated = built_in.model("tiny-gpt2")["start_weights"]["float32"]
    seed = str(json.loads((forger.folder / "run_manifest.json").read_text())["training"]["seed"])
    assert stated["0.10"][seed] != stated["0.12"][seed]

    def drawn_by(version: str, by: str) -> set[str]:
        def other(document: dict[str, Any]) -> None:
            document["environment"]["packages"]["jax"] = version
            document["model"]["weights_sha256"] = stated[by][seed]

        changed(forger, "run_manifest.json", other)
        return {each.code for each in check_run(read_run(forger.folder))}

    assert "TP387" not in drawn_by("0.12.1", "0.12")
    assert "TP387" in drawn_by("0.12.1", "0.10")
    assert "TP387" not in drawn_by("0.13.0", "0.12"), "nobody knows what that version draws"


def test_a_published_size_is_that_of_the_shape() -> None:
    assert parameters_of("google/Gemma-2B") == 2_506_172_416
    assert vocabulary_of("google/gemma-2b-it") == 256_000
    assert parameters_of("somebody/else") is None
    assert all(stated["source"] and stated["date"] for stated in known_models().values())


def test_facts_of_another_name_are_not_known() -> None:
    assert built_in.dataset("own.jsonl") is None
    assert built_in.eval_set("own.jsonl") is None
    assert built_in.model("google/gemma-2b") is None
    assert built_in.generated_counts("dev-reasoning-v2", 12000, 5) is None
