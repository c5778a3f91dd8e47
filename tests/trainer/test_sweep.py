"""Sweeps with scripted trials, read back from Optuna's own journal."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import optuna
import psutil
import pytest
import scripted_sweep
from scripted_sweep import ITEMS, SETTINGS, scripted
from stand_ins import stand_in, wait_for

from evidence.layout import CHOOSING, HELD_BACK, SWEEPS
from launch import queue
from launch.jobs import jobs, launch_folder
from launch.places.local import Local
from schemas.problems import ProblemError
from schemas.validate import check_value
from trainer.sweep import find_problems, split_items


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a runs folder whose jobs are scripted, and are killed after the test."""
    stand_in(monkeypatch)
    monkeypatch.setattr("trainer.sweep.POLL_SECONDS", 0.05)
    yield tmp_path / "runs"
    for folder in (tmp_path / "runs", tmp_path / "other"):
        for job in jobs(folder):
            queue.kill(job)
        wait_for(lambda: not queue.has_worker(folder))  # noqa: B023 - called in this turn


BASE: dict[str, Any] = {"evaluation": {"eval_set": "eval_v1", "every_steps": 2}, "limits": {"steps": 8}}


def study(root: Path) -> list[optuna.trial.FrozenTrial]:
    """Read the trials of the scripted sweep from Optuna's journal."""
    backend = optuna.storages.journal.JournalFileBackend(str(root / SWEEPS / "scripted" / "journal.log"))
    return optuna.load_study(study_name="scripted", storage=optuna.storages.JournalStorage(backend)).trials


def results(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the trials of sweep.json without the names of their runs, which hold times."""
    return [{key: value for key, value in trial.items() if key != "run"} for trial in document["trials"]]


@pytest.fixture
def whole(root: Path) -> dict[str, Any]:
    """Run the sweep of six trials without interruption."""
    return scripted(root).run()


@pytest.mark.slow
def test_bad_trials_are_pruned_failed_ones_listed_and_optuna_says_the_same(root: Path, whole: dict[str, Any]) -> None:
    assert check_value("sweep", whole, file="sweep.json") == []
    assert json.loads((root / SWEEPS / "scripted" / "sweep.json").read_text("utf-8")) == whole
    states = {"succeeded": "COMPLETE", "pruned": "PRUNED", "failed": "FAIL"}
    for told, own in zip(study(root), whole["trials"], strict=True):
        assert (told.number, told.params, told.state.name) == (own["number"], own["settings"], states[own["state"]])
        assert told.value == own["value"]
    by_state = {state: [trial for trial in whole["trials"] if trial["state"] == state] for state in states}
    assert min(map(len, by_state.values())) > 0
    for trial in by_state["failed"]:
        assert trial["settings"]["method.rank"] == 8
        assert "no memory for rank 8" in trial["reason"]
    for trial in (*by_state["succeeded"], *by_state["pruned"]):
        loss = abs(trial["settings"]["optimizer.learning_rate"] - 0.02)
        assert trial["value"] == pytest.approx(loss + 1 / (trial["step"] or 8))
    losses = {trial["number"]: trial["value"] for trial in by_state["succeeded"]}
    best = whole["best"]
    assert (best["number"], best["of"]) == (min(losses, key=losses.__getitem__), 6)
    assert best["held_back"] is None  # a scripted run has no parameters
    assert best["reason"]
    folder, counts = root / SWEEPS / "scripted", whole["eval_set"]
    halves = [[json.loads(line) for line in (folder / name).read_text().splitlines()] for name in (CHOOSING, HELD_BACK)]
    assert halves == [*split_items(ITEMS)]
    assert (counts["choosing"], counts["held_back"]) == (10, 10)
    # Every trial is a job of its own.
    ended = {job.run: job.exit_code for job in jobs(root)}
    assert ended == {trial["run"]: ended[trial["run"]] for trial in whole["trials"]}
    assert {ended[trial["run"]] for trial in by_state["succeeded"]} == {0}
    # Rows decide: a trial that ends before it can be interrupted counts as pruned too.
    assert {ended[trial["run"]] for trial in by_state["pruned"]} <= {0, 5}
    # Once more with more trials: those that ended are kept.
    again = scripted(root, trials=7).run()
    assert again["trials"][:6] == whole["trials"]
    assert len(jobs(root)) == len(again["trials"]) == 7
    with pytest.raises(ProblemError, match="other settings"):
        scripted(root, seed=4)
    # The same seed and results give the same suggestions.
    assert results(scripted(root.with_name("other")).run()) == results(whole)


@pytest.mark.slow
@pytest.mark.parametrize("victims", ["the command", "everything"])
def test_a_killed_sweep_continues_and_trains_nothing_twice(root: Path, whole: dict[str, Any], victims: str) -> None:
    other = root.with_name("other")

    def ended() -> int:
        return sum(job.has_ended for job in jobs(other))

    moments: list[Callable[[], bool]] = [
        lambda: (other / SWEEPS / "scripted" / "journal.log").is_file(),
        lambda: any(job.state == "running" for job in jobs(other)),
        lambda: ended() >= 2,
        lambda: ended() >= 4,
    ]
    command = [sys.executable, scripted_sweep.__file__, str(other), "6"]
    for moment in moments:
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            wait_for(moment)
            process.send_signal(signal.SIGKILL)
        if victims == "everything":
            for job in jobs(other):
                queue.kill(job) if job.state == "running" else None
            worker = json.loads((launch_folder(other) / "worker.json").read_text()) if jobs(other) else None
            if worker is not None and psutil.pid_exists(worker["pid"]):
                psutil.Process(worker["pid"]).kill()
    document = scripted(other).run()
    found = [
        {key: value for key, value in trial.items() if key not in {"run", "reason"}} for trial in document["trials"]
    ]
    assert found == [{key: value for key, value in one.items() if key != "reason"} for one in results(whole)]
    if victims == "the command":
        assert len(jobs(other)) == 6


def test_equal_prompts_are_in_the_same_half_and_no_item_is_lost() -> None:
    first, second = split_items(ITEMS)
    assert (len(first), len(second)) == (10, 10)
    assert {item["prompt"] for item in first}.isdisjoint(item["prompt"] for item in second)
    assert sorted(item["id"] for item in (*first, *second)) == sorted(item["id"] for item in ITEMS)
    backwards = split_items(ITEMS[::-1])
    assert len(backwards[0]) == len(backwards[1])


@pytest.mark.parametrize(
    ("settings", "base", "pointer"),
    [
        ({"search": {}}, {}, "/search"),
        ({"search": {"batch.accumulation_steps": {"low": 2, "high": 1}}}, {}, "/search/batch.accumulation_steps"),
        ({"search": {"optimizer.beta1": {"low": 0, "high": 0.9, "log": True}}}, {}, "/search/optimizer.beta1"),
        ({"search": {"evaluation.max_new_tokens": [1, 2]}}, {}, "/search/evaluation.max_new_tokens"),
        ({}, {"evaluation": {"eval_set": None, "every_steps": 2}}, "/config"),
        ({"prune": None}, {"evaluation": {"eval_set": "eval_v1", "every_steps": 0}}, "/config"),
        ({"metric": "score"}, {"evaluation": {"eval_set": "eval_v1", "every_steps": 0}}, "/config"),
        ({"prune": {"min_steps": 8, "factor": 2}}, {}, "/prune/min_steps"),
    ],
)  # fmt: skip
def test_what_is_refused(settings: dict[str, Any], base: dict[str, Any], pointer: str) -> None:
    plain = {"search": {"method.rank": [4, 8]}, "prune": {"min_steps": 2, "factor": 2}}
    assert [at for at, _ in find_problems({**SETTINGS, **plain, **settings}, {**BASE, **base})] == [pointer]


def test_items_of_one_prompt_cannot_be_held_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripted_sweep, "ITEMS", ITEMS[:2])
    with pytest.raises(ProblemError, match="too few different items"):
        scripted(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_a_place_does_not_support_is_stated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local, remote = scripted(tmp_path, parallel=3), scripted(tmp_path, parallel=3, place="kaggle-tpu")
    assert (local.parallel, local.prunes, local.document["notes"]) == (1, True, ["local runs one trial at a time."])
    assert (remote.parallel, remote.prunes, len(remote.document["notes"])) == (3, False, 1)
    monkeypatch.setattr(Local, "has_own_queue", True)  # a place of several machines that write into the root
    several = scripted(tmp_path, parallel=3)
    assert (several.parallel, several.prunes, several.document["notes"]) == (3, True, [])
