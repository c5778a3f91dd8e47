"""Built-in and published names are compared with the registry, which follows from what the trainer uses."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from leaves import Forger
from synthetic import write_rows

from evidence import registry
from evidence.grade import find_problems
from evidence.run import read_run
from schemas.catalog import DATASETS, EVAL_SETS
from trainer.data.rows import read_dataset, read_eval_set
from trainer.model.decoder import build, flatten, parameter_count
from trainer.model.source import resolve

REPOSITORY = Path(__file__).parents[3]
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
    assert "TP382" in {each.code for each in find_problems(read_run(folder))}


def test_published_parameters() -> None:
    assert registry.published_parameters("google/Gemma-2B") == 2_506_172_416
    assert registry.published_parameters("somebody/else") is None
    assert all(stated["source"] and stated["date"] for stated in registry.published_models().values())


def test_other_names_are_unknown() -> None:
    assert registry.built_in_dataset("own.jsonl") is None
    assert registry.built_in_eval_set("own.jsonl") is None
