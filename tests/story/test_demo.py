"""The demo with shorter runs: three runs, the last from the export of the second, checked, packed, verified, shown."""

import json
import sys
from pathlib import Path

import pytest
from pages import APP, said, show
from streamlit.testing.v1 import AppTest

from dashboard.shared import state
from evidence.layout import EXPORT
from evidence.run import read_run
from trainproof.cli import train

pytestmark = pytest.mark.slow

ASKED = {"eval_v2": "first-full", "eval_stories_v1": "first-lora"}


def shorten_configs(folder: Path) -> None:
    """Write the demo's configurations with few steps and short answers."""
    for name in ("demo.yaml", "demo_lora.yaml"):
        text = (train.CONFIGS / name).read_text()
        for key, value in {"steps": 3, "max_new_tokens": 3, "generated_rows": 0, "log_every_steps": 1}.items():
            [before] = [line for line in text.splitlines() if line.strip().startswith(f"{key}:")]
            text = text.replace(before, f"{before.partition(':')[0]}: {value}")
        (folder / name).write_text(f"{text}mesh: {{devices: 1}}\n")


@pytest.mark.slow
def test_a_full_run_and_a_lora_run_from_its_export(tmp_path, monkeypatch, capsys):
    shorten_configs(tmp_path)
    monkeypatch.setattr(train, "CONFIGS", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "own"))
    monkeypatch.setattr(sys, "argv", ["trainproof", "demo"])
    runs = Path("runs")
    assert train.run_demo(runs, again=False) == 0
    first = capsys.readouterr()

    manifests = {name: read_run(runs / name).manifest for name in ("first-smoke", "first-full", "first-lora")}
    assert {manifest["status"] for manifest in manifests.values()} == {"succeeded"}
    full, lora = manifests["first-full"], manifests["first-lora"]
    assert (full["effective"]["method"]["kind"], lora["effective"]["method"]["kind"]) == ("full", "lora")
    assert lora["model"]["name"] == str(runs / "first-full" / EXPORT)
    assert lora["model"]["weights"] == "pretrained"
    assert lora["dataset"]["name"] == "dev-stories-v1"
    assert lora["dataset"]["overlap_with_eval"] == 0
    assert "first-smoke: Replayed 2 of 2 segments" in first.out
    assert "answers: identical." in first.out
    said_scores = (first.out + first.err).split("Scores, each on its own questions:")[1]
    for asked, name in ASKED.items():
        summary = json.loads((runs / name / "eval_summary.json").read_text())
        assert summary["eval_set"]["name"] == asked
        assert summary["baseline"]["metrics"]["exact_match"]["interval"]["high"] > 0
        assert f"{name} on {asked}: before training " in said_scores

    # A second call trains nothing: every document is as it was.
    before = {path: path.read_bytes() for path in runs.rglob("*.json*")}
    assert train.run_demo(runs, again=False) == 0
    assert {path: path.read_bytes() for path in runs.rglob("*.json*")} == before

    # The page of the comparison shows both.
    show(runs, tmp_path, monkeypatch)
    page = AppTest.from_file(APP, default_timeout=60).run()
    page.switch_page(str(APP.parent / state.COMPARE.file))
    page.query_params["runs"] = ["first-full", "first-lora"]
    page.run()
    assert not page.exception
    for text in ("first-full", "first-lora", "eval_stories_v1"):
        assert text in said(page)
