"""Replay of the committed run: identical if this CPU supports its instruction set level, else within tolerance."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from evidence import layout
from evidence.grade import check_run
from evidence.rewards import logged_rollout_steps
from evidence.run import read_run
from trainer.recorder.environment import NATIVE, request_level, select_level

ROOT = Path(__file__).parents[3]
SMOKE = ROOT / "submission_runs" / "demo-smoke"


def test_the_grpo_run_has_no_findings():
    run = read_run(ROOT / "submission_runs" / "countdown-grpo")
    report = check_run(run)
    assert (report.grade.name, report.findings) == ("consistent", ())
    assert run.manifest is not None
    assert run.manifest["environment"]["processor"]["compiled_for"] == "x86-64-v3"
    assert {json.loads(line)["step"] for line in (run.path / layout.ROLLOUTS).read_text().splitlines()} == set(
        logged_rollout_steps(150, 1)
    )


@pytest.mark.slow
def test_the_smoke_run_is_reproduced(tmp_path, monkeypatch):
    monkeypatch.delenv("XLA_FLAGS")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    command = [sys.executable, "-m", "trainproof", "replay", str(SMOKE), "--all", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if sys.version_info >= (3, 12):
        # `make newest` has newer packages than the run, which may round differently.
        assert (done.returncode, "TP761" in done.stderr) == (3, True), done.stderr
        return
    assert done.returncode == 0, done.stderr
    receipt = json.loads(done.stdout)
    there = json.loads((SMOKE / layout.MANIFEST).read_text())["environment"].get("processor", {})
    request_level("x86-64-v3")
    if there.get("compiled_for") == select_level("x86-64-v3").name != NATIVE:
        assert receipt["result"] == "identical"
    elif receipt["result"] != "identical":
        assert receipt["said"].endswith("within tolerance (another processor).")
