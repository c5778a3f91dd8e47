"""Which smoke run rehearsed which full run: by the configuration, never by the name of a model alone."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from synthetic import STARTED, write_run

from evidence.compare.pairing import lineage, newest_pair, rehearsals_of, rehearsed_by
from evidence.index.index import index_runs
from evidence.index.summary import RunSummary

REPOSITORY = Path(__file__).parents[3]


def runs(root: Path, **configs: dict[str, Any]) -> dict[str, RunSummary]:
    for seed, (name, config) in enumerate(configs.items()):
        mode = "smoke" if "smoke" in name else "full"
        steps = config.pop("steps", 2 if mode == "smoke" else 200)
        write_run(root, name, steps=steps, mode=mode, items=0, seed=seed, config={"seed": 0} | config)
    return {summary.path.name: summary for summary in index_runs(root)}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, "same configuration"),
        ({"evaluation": {"eval_set": "eval_v1"}, "mesh": {"device": "cpu"}}, "same configuration"),
        ({"model": {"name": "tiny-gpt2"}, "batch": {"microbatch_size": 4}}, "same but for size"),
        ({"optimizer": {"learning_rate": 0.5}}, None),
        ({"optimizer": {"weight_decay": 0.3}}, None),
        ({"steps": 200}, None),
    ],
    ids=["same", "other machine", "smaller", "other rate", "other decay", "as long"],
)
def test_lineage_follows_from_the_settings(tmp_path: Path, config: dict[str, Any], expected: str | None) -> None:
    found = runs(tmp_path, full={}, smoke=config)
    assert lineage(found["smoke"], found["full"]) == expected
    assert lineage(found["full"], found["smoke"]) is None


def test_a_model_of_the_same_name_is_no_lineage(tmp_path: Path) -> None:
    found = runs(tmp_path, full={}, smoke={"optimizer": {"schedule": "cosine"}})
    assert found["smoke"].model == found["full"].model
    assert newest_pair(list(found.values())) is None


def test_the_same_configuration_goes_before_a_newer_smaller_one(tmp_path: Path) -> None:
    day, same = timedelta(days=1), {"seed": 0}
    write_run(tmp_path, "own", steps=2, mode="smoke", seed=1, started=STARTED - 3 * day, config=same)
    small = {"model": {"name": "tiny-gpt2"}}
    write_run(tmp_path, "small", steps=2, mode="smoke", seed=2, started=STARTED - 2 * day, config=small)
    write_run(tmp_path, "full", steps=200, started=STARTED - day)
    write_run(tmp_path, "later", steps=2, mode="smoke", seed=3, started=STARTED, config=same)
    write_run(tmp_path, "failed", steps=200, status="failed", seed=4, started=STARTED + day, config=same)
    found = {summary.path.name: summary for summary in index_runs(tmp_path)}
    assert [run.path.name for run in rehearsals_of(found["full"], found.values())] == ["own", "later", "small"]
    assert [run.path.name for run in rehearsed_by(found["own"], found.values())] == ["full", "failed"]
    assert newest_pair(list(found.values())) == ("own", "full")


def test_the_committed_runs_of_an_earlier_version_pair_by_what_they_state() -> None:
    found = {summary.path.name: summary for summary in index_runs(REPOSITORY / "submission_runs")}
    assert lineage(found["demo-smoke"], found["demo-full"]) in ("same configuration", "same but for size")
