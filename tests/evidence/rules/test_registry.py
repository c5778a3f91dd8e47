"""What stands under a built-in name is held against the facts that ship, which follow from what the trainer uses."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from leaves import Forger

from evidence.judge.judgement import check_run
from evidence.records.ours import read_run
from evidence.registry import built_in
from evidence.registry.known_models import known_models, parameters_of
from schemas.catalog import DATASETS, EVAL_SETS
from trainer.data.rows import read_dataset, read_eval_set
from trainer.model.build import build
from trainer.model.files.source import resolve
from trainer.model.params import flatten, parameter_count

REPOSITORY = Path(__file__).parents[3]
SMOKE = REPOSITORY / "tests" / "cases" / "earlier" / "demo-smoke"


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


def test_the_registry_is_what_the_trainer_uses() -> None:
    for name in DATASETS:
        file = read_dataset(name)
        assert built_in.dataset(name) == {"sha256": file.sha256, "rows": len(file.rows), "split": "all"}
    for name in EVAL_SETS:
        assert built_in.eval_set(name)["sha256"] == read_eval_set(name).sha256
    for name, stated in built_in.MODELS.items():
        spec = resolve(name).spec
        drawn = partial(build, spec, params_dtype=jnp.float32, compute_dtype=jnp.float32, remat="none")
        params = jax.eval_shape(lambda key, drawn=drawn: flatten(drawn(key=key))[1], jax.random.key(0))
        assert (spec.family, parameter_count(params)) == (stated["family"], stated["parameters"])


@pytest.mark.parametrize("key", ["section", "category", "difficulty"])
def test_a_label_moved_in_both_files_is_found(forger: Forger, key: str) -> None:
    for name in ("predictions.jsonl", "baseline_predictions.jsonl"):
        found = changed(forger, name, lambda rows: rows[0].update({key: "other"}))
    assert "TP382" in found


def test_an_expected_answer_changed_in_both_files_is_found(forger: Forger) -> None:
    for name in ("predictions.jsonl", "baseline_predictions.jsonl"):
        found = changed(forger, name, lambda rows: rows[0].update(expected="yes"))
    assert "TP382" in found


def test_a_published_size_is_that_of_the_shape() -> None:
    assert parameters_of("google/Gemma-2B") == 2_506_172_416
    assert parameters_of("somebody/else") is None
    assert all(stated["source"] and stated["date"] for stated in known_models().values())


def test_facts_of_another_name_are_not_known() -> None:
    assert built_in.dataset("own.jsonl") is None
    assert built_in.eval_set("own.jsonl") is None
