"""Built-in and published names follow from what the trainer uses; targets follow the schema of a user's file."""

import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from leaves import Forger
from refusals import catch_problems
from synthetic import write_rows

from evidence import registry
from evidence.grade import check_run
from evidence.run import read_run
from evidence.targets import find_target, load_target, targets
from schemas.catalog import DATASETS, EVAL_SETS
from schemas.validate import check_value
from trainer.data.rows import read_dataset, read_eval_set
from trainer.model.decoder import build, flatten, parameter_count
from trainer.model.source import resolve

REPOSITORY = Path(__file__).parents[2]
SMOKE = REPOSITORY / "tests" / "cases" / "earlier" / "demo-smoke"


def test_registry_equals_what_the_trainer_uses() -> None:
    for name in DATASETS:
        file = read_dataset(name)
        assert registry.built_in_dataset(name) == {"sha256": file.sha256, "rows": len(file.rows), "split": "all"}
    for name in EVAL_SETS:
        assert registry.built_in_eval_set(name)["sha256"] == read_eval_set(name).sha256
    for name, stated in registry.BUILT_IN_MODELS.items():
        spec = resolve(name).spec
        drawn = partial(build, spec, params_dtype=jnp.float32, compute_dtype=jnp.float32, remat="none")
        params = jax.eval_shape(lambda key, drawn=drawn: flatten(drawn(key=key))[1], jax.random.key(0))
        assert (spec.family, parameter_count(params)) == (stated["family"], stated["parameters"])


@pytest.mark.parametrize("key", ["section", "category", "difficulty", "expected"])
def test_field_of_an_item_changed_in_both_files(tmp_path: Path, key: str) -> None:
    folder = Forger(SMOKE, tmp_path / "run").folder
    for name in ("predictions.jsonl", "baseline_predictions.jsonl"):
        rows = [json.loads(line) for line in (folder / name).read_text("utf-8").splitlines()]
        rows[0][key] = "other"
        write_rows(folder / name, rows)
    assert "TP382" in {each.code for each in check_run(read_run(folder)).findings}


def test_published_parameters() -> None:
    assert registry.published_model("google/Gemma-2B") == {"family": "gemma", "parameters": 2_506_172_416}
    assert registry.published_model("somebody/else") == {}
    assert registry.built_in_dataset("own.jsonl") is registry.built_in_eval_set("own.jsonl") is None
    assert all(stated["source"] and stated["date"] for stated in registry.published_models().values())


CASES = REPOSITORY / "tests" / "cases" / "documents"
GIB = 2**30


def test_built_in_targets_follow_the_schema():
    documents = json.loads((Path(registry.__file__).parent / "targets.json").read_text("utf-8"))
    assert [document["name"] for document in documents] == list(targets())
    for document in documents:
        assert check_value("target", document, file=document["name"]) == []
    assert all(set(target.element_types) == set(target.peak_flops) for target in targets().values())


@pytest.mark.parametrize(
    ("name", "gib", "devices"),
    [
        ("tpu-v3-8", 15.48, 8),
        ("tpu-v5e-1", 15.75, 1),
        ("kaggle-tpu-v5e-8", 15.75, 8),
        ("tpu-v5p-8", 95.73, 4),
        ("tpu-v6e-8", 31.24, 8),
        ("kaggle-t4x2", 14.56, 2),
    ],
)
def test_usable_memory(name: str, gib: float, devices: int):
    target = load_target(name)
    assert target.memory_bytes is not None
    assert abs(target.memory_bytes - gib * GIB) < 1
    assert target.devices == devices


def test_figures_of_targets_are_in_seconds_and_operations():
    target = load_target("kaggle-tpu-v5e-8")
    assert (target.session_seconds, target.week_seconds) == (9 * 3600, 20 * 3600)
    assert target.peak_flops["bfloat16"] == 197e12
    own = load_target(str(CASES / "valid" / "target.own_gpu.yaml"))
    assert (own.name, own.kind, own.host_memory_bytes) == ("my-4060ti", "NVIDIA GeForce RTX 4060 Ti", 64 * 10**9)
    assert own.session_seconds is None


def test_invalid_file_is_refused_with_all_problems():
    assert len(catch_problems(lambda: load_target(str(CASES / "broken" / "target.several.yaml")))) >= 4


@pytest.mark.parametrize(
    ("name", "next_words"),
    [
        ("kaggle-tpu", "Did you mean kaggle-tpu-v5e-8"),
        ("T4X2", "kaggle-t4x2"),
        ("rtx4090", "rtx-4090"),
        ("gone.yaml", "or a YAML file"),
    ],
)
def test_unknown_target_is_refused_with_similar_names(name: str, next_words: str):
    problem = catch_problems(lambda: load_target(name))[0]
    assert next_words in problem.next
    assert "this-machine" in (problem.expected or "")


def test_target_of_a_jax_device():
    found = [find_target("TPU v5 lite", count).name for count in (8, 1, 4)]
    assert found == ["kaggle-tpu-v5e-8", "tpu-v5e-1", "kaggle-tpu-v5e-8"]
    assert find_target("cpu") is None
