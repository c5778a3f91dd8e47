"""The main job as the README tells it: configuration → training → check → bundle → verify → pages, on a CPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pages import APP, show
from streamlit.testing.v1 import AppTest

CONFIG = """
name: story
model: {name: tiny-gpt2}
data: {max_length: 96}
optimizer: {learning_rate: 0.01}
batch: {microbatch_size: 8}
mesh: {device: cpu}
evaluation: {eval_set: eval_v1, max_new_tokens: 8, batch_size: 50}
limits: {steps: 12}
"""


def trainproof(folder: Path, *arguments: str, expected: int = 0) -> str:
    """Run the command in `folder` as a user does, and return what it prints."""
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    command = [sys.executable, "-m", "trainproof", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == expected, done.stdout + done.stderr
    return done.stdout


def test_from_a_configuration_to_verified_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "story.yaml").write_text(CONFIG)

    # A plan costs nothing and says whether the run fits.
    assert json.loads(trainproof(tmp_path, "plan", "--config", "story.yaml", "--json"))["verdict"] == "fits"

    # A smoke run proves the pipeline; a full run is meant.
    trainproof(tmp_path, "train", "--config", "story.yaml", "--smoke_steps", "2", "--output", "submission_runs/smoke")
    trainproof(tmp_path, "train", "--config", "story.yaml", "--output", "submission_runs/full")
    first, *_, last = (
        json.loads(line)["loss"] for line in (tmp_path / "submission_runs/full/metrics.jsonl").read_text().splitlines()
    )
    assert last < first

    # Both hold against their own evidence.
    report = json.loads(trainproof(tmp_path, "check", "submission_runs", "--json"))
    assert [run["path"] for run in report["runs"]] == ["submission_runs/full", "submission_runs/smoke"]
    assert [finding for run in report["runs"] for finding in run["findings"] if finding["severity"] == "error"] == []
    grades = {run["path"]: run["grade"] for run in report["runs"]}
    assert set(grades.values()) <= {"consistent", "measured"}

    # What differs, and whether the scores do by more than chance.
    compared = trainproof(tmp_path, "compare", "submission_runs/smoke", "submission_runs/full")
    assert "limits.steps" in compared

    # One command packs, one verifies, and an edited number is found.
    trainproof(tmp_path, "package", "submission_runs/smoke", "submission_runs/full", "--output", "bundle.zip")
    assert json.loads(trainproof(tmp_path, "verify", "bundle.zip", "--json"))["ok"]
    edited = tmp_path / "submission_runs/full/eval_summary.json"
    summary = json.loads(edited.read_text())
    summary["metrics"]["exact_match"]["value"] = 0.9
    edited.write_text(json.dumps(summary))
    assert "contradictory" in trainproof(tmp_path, "check", "submission_runs/full", expected=1)

    # The pages show the same folders, the edited one with its grade.
    show(tmp_path / "submission_runs", tmp_path, monkeypatch)
    page = AppTest.from_file(APP, default_timeout=60).run()
    assert not page.exception
    table = page.dataframe[0].value.set_index("run")
    assert set(table.index) == {"full", "smoke"}
    assert "contradictory" in table["grade"]["full"][0]
