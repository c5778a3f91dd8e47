"""The command `sweep`: everything that is wrong is said before anything is queued, and a real sweep of small models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import optuna
import pytest
import yaml

from evidence.layout import CHOOSING, HELD_BACK, SWEEPS
from evidence.run import read_run
from launch.jobs import jobs
from schemas.validate import check_value

TINY: dict[str, Any] = {
    "name": "tiny",
    "model": {"name": "tiny-gpt2"},
    "data": {"max_length": 128},
    "batch": {"microbatch_size": 4},
    "evaluation": {"eval_set": "eval_v1", "baseline": False, "max_new_tokens": 4, "batch_size": 50},
    "limits": {"steps": 2},
}
SWEEP: dict[str, Any] = {
    "name": "small",
    "config": "tiny.yaml",
    "trials": 2,
    "search": {"optimizer.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}, "optimizer.schedule": ["constant"]},
}


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    def write(**changes: Any) -> Path:
        (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(TINY))
        path = tmp_path / "sweep.yaml"
        path.write_text(yaml.safe_dump({**SWEEP, **changes}, sort_keys=False))
        return path

    return write


def test_all_problems_are_told_with_their_lines_and_nothing_is_written(run, write, tmp_path: Path) -> None:
    search = {
        "optimizer.learning_rat": [1e-3],
        "optimizer.beta1": {"low": 0.9, "high": 1.5},
        "batch.accumulation_steps": {"low": 2, "high": 1},
        "method.rank": [4, "many"],
        "evaluation.max_new_tokens": [4, 8],
        "data.buckets": [9],
    }
    code, out, errors = run("sweep", write(search=search, place="moon", prune={"min_steps": 1}), "--root", "runs")
    assert (code, out) == (2, "")
    for line in (
        "sweep.yaml at search.optimizer.learning_rat (line 5): The key \"learning_rat\" is unknown.",
        'Did you mean "learning_rate"?',
        "sweep.yaml at search.optimizer.beta1 (line 7): 1.5 is",
        "sweep.yaml at search.batch.accumulation_steps (line 10)",
        'sweep.yaml at search.method.rank (line 13): "many" is not a whole number.',
        "evaluation.max_new_tokens cannot be searched",
        "sweep.yaml at search.data.buckets (line 19): 9 is above 8.",
        "The place moon is unknown.",
        "Set evaluation.every_steps",
    ):  # fmt: skip
        assert line in errors
    assert not (tmp_path / "runs").exists()


def test_a_missing_extra_is_refused_first(run, write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evidence.extras.missing", lambda extra: ["optuna"] if extra == "sweep" else [])
    code, _, errors = run("sweep", write())
    assert code == 2
    assert "`trainproof sweep` needs packages that are not installed: optuna." in errors


@pytest.mark.slow
def test_a_sweep_ends_with_a_table_and_the_best_is_evaluated_again(run, write, tmp_path: Path) -> None:
    code, out, errors = run("sweep", write(), "--root", "runs")
    assert code == 0, errors
    folder = Path("runs") / SWEEPS / "small"
    document = json.loads((folder / "sweep.json").read_text())
    assert check_value("sweep", document, file="sweep.json") == []
    best, (first, second) = document["best"], document["trials"]
    assert out.startswith(f"Best of 2: trial {best['number']}, {best['run']}. Score ")
    # The choosing score is that of the run, and what was held back is asked of its model anew.
    runs = [read_run(Path("runs") / trial["run"]) for trial in (first, second)]
    scores = [each.eval_summary["metrics"]["exact_match"] for each in runs]
    assert [trial["value"] for trial in (first, second)] == [score["value"] for score in scores]
    assert best["choosing"]["n"] == scores[best["number"]]["n"] == document["eval_set"]["choosing"]
    assert best["held_back"]["n"] == document["eval_set"]["held_back"]
    asked = {json.loads(line)["id"] for line in (folder / CHOOSING).read_text().splitlines()}
    assert asked.isdisjoint(json.loads(line)["id"] for line in (folder / HELD_BACK).read_text().splitlines())
    for trial, each in zip((first, second), runs, strict=True):
        assert {row["id"] for row in each.rows("predictions.jsonl").values} == asked
        assert each.config["optimizer"]["learning_rate"] == trial["settings"]["optimizer.learning_rate"]
        assert f"{trial['settings']['optimizer.learning_rate']:.4g}" in out
    backend = optuna.storages.journal.JournalFileBackend(str(folder / "journal.log"))
    stored = optuna.load_study(study_name="small", storage=optuna.storages.JournalStorage(backend)).trials
    assert [(trial.params, trial.value) for trial in stored] == [
        (one["settings"], one["value"]) for one in (first, second)
    ]
    # Once more: nothing is trained and nothing asked again.
    code, again, _ = run("sweep", tmp_path / "sweep.yaml", "--root", "runs")
    assert (code, again) == (0, out)
    assert len(jobs(Path("runs"))) == 2
