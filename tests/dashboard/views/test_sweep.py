"""The Sweeps page: none, running, stopped, finished and damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pages import Open, figure, press, said
from synthetic import write_run
from synthetic_documents import stored_sweep, write_sweep

from dashboard.shared import state
from evidence.lock import RunLock

SEARCH = {
    "optimizer.learning_rate": {"low": 1e-4, "high": 1e-1, "log": True},
    "optimizer.schedule": ["constant", "cosine"],
}


def test_a_finished_sweep_shows_the_best_with_both_scores_and_every_trial(opened: Open, root: Path) -> None:
    write_sweep(root, stored_sweep())
    app = opened(state.SWEEP, sweep="learning-rate")
    text = said(app)
    assert "Best of 4: trial 2, learning-rate-002-20261127-203241-6b74" in text
    assert "61.9 % (40.9–79.2 %) on the 21 items that chose it, which is biased" in text
    assert "44.8 % (28.4–62.5 %) on the 29 items that did not" in text
    table = app.dataframe[0].value
    assert list(table["number"]) == [2, 0, 1, 3]
    assert list(table["state"]) == ["succeeded", "succeeded", "pruned", "failed"]
    assert len(app.get("plotly_chart")) == 3
    best = next(line for line in figure(app)["data"] if line["name"] == "best so far")
    assert len(best["x"]) == 2
    parallel = json.loads(app.get("plotly_chart")[2].proto.spec)["data"][0]
    assert [one["label"] for one in parallel["dimensions"]] == [
        "log10 optimizer.learning_rate", "optimizer.schedule", "held_out_loss",
    ]  # fmt: skip
    assert parallel["dimensions"][1]["ticktext"] == ["constant", "cosine"]


@pytest.mark.parametrize("is_running", [True, False])
def test_an_unfinished_sweep_says_whether_it_is_running(opened: Open, root: Path, is_running: bool) -> None:
    unfinished = stored_sweep(status="running", finished_at=None, best=None, importance=None, trials=[])
    folder = write_sweep(root, unfinished)
    if is_running:
        with RunLock(folder):
            text = said(opened(state.SWEEP))
    else:
        text = said(opened(state.SWEEP))
    assert "none has begun" in text
    assert ("has stopped" in text) is not is_running


@pytest.mark.parametrize("content", ['{"schema_version": ', "[]", '{"schema_version": "1.2"}', ""])
def test_a_damaged_file_is_explained(opened: Open, root: Path, content: str) -> None:
    (write_sweep(root, stored_sweep()) / "sweep.json").write_text(content)
    text = said(opened(state.SWEEP, sweep="learning-rate"))
    assert "tp-edge-bad" in text
    assert "trainproof sweep FILE" in text


def test_the_address_names_no_folder_outside(opened: Open, root: Path, tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "elsewhere", stored_sweep())
    (root / ".sweeps").mkdir(parents=True)
    (root / ".sweeps" / "linked").symlink_to(folder)
    assert "No sweeps" in said(opened(state.SWEEP, sweep="linked"))


def test_a_run_leads_to_its_sweep(opened: Open, root: Path) -> None:
    write_sweep(root, stored_sweep())
    choosing = str(root / ".sweeps" / "learning-rate" / "choosing.jsonl")
    config: dict[str, Any] = {"evaluation": {"eval_set": choosing}}
    write_run(root, "learning-rate-002-20261127-203241-6b74", config=config)
    app = press(opened(state.RUN, run="learning-rate-002-20261127-203241-6b74"), "Sweep")
    assert "Best of 4" in said(app)
