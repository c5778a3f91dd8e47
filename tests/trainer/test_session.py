"""A run in a session that ends: what is left for it, what it keeps for its end, and what the next session does."""

import json
import os
import time
from pathlib import Path

import pytest
from model_folders import row_file
from refusals import catch_problems
from tasks import with_settings
from whole_runs import errors_of, logged, manifest_of, rows

from evidence import layout
from evidence.targets import targets
from trainer.config.tree import Config
from trainer.evaluation.evaluate import evaluate_run
from trainer.loop.session import (
    BUNDLE_SECONDS,
    SESSION_STARTED,
    SESSIONS,
    SessionLimit,
    StopRequest,
    closing_seconds,
    session_limit,
)
from trainer.recorder.progress import Watch
from trainproof.cli.train import SessionName

QUIET = Watch(quiet=True)
PLAN = {
    "time": {
        "step_seconds": {"low": 60, "likely": 90, "high": 120},
        "session": [
            {"name": "save", "seconds": {"low": 1, "likely": 2, "high": 300}},
            {"name": "evaluate", "seconds": {"low": 60, "likely": 120, "high": 900}},
        ],
    }
}


def ending_in(seconds: float, name: str = "kaggle-tpu") -> SessionLimit:
    """Return a session that ends so long after now."""
    return SessionLimit(name=name, seconds=9 * 3600, ends=time.monotonic() + seconds - BUNDLE_SECONDS)


@pytest.mark.parametrize(("name", "hours"), [("kaggle-tpu", 9), ("kaggle-gpu", 12)])
def test_hours_count_from_the_stated_start_or_that_of_the_process(name, hours, monkeypatch):
    monkeypatch.setenv(SESSION_STARTED, f"{time.time() - 3600:.3f}")
    assert session_limit(name).left_seconds == pytest.approx((hours - 1) * 3600 - BUNDLE_SECONDS, abs=5)
    monkeypatch.delenv(SESSION_STARTED)
    started = float(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
    lived = float(Path("/proc/uptime").read_text().split()[0]) - started
    assert session_limit(name).left_seconds == pytest.approx(hours * 3600 - lived - BUNDLE_SECONDS, abs=5)


def test_the_command_accepts_every_session():
    assert [str(name) for name in SessionName] == list(SESSIONS)
    assert [targets()[target].title for target in SESSIONS.values()] == ["Kaggle, TPU v5e-8", "Kaggle, two T4"]


def test_the_time_left_is_described_with_whether_the_steps_fit():
    for steps, words in (
        (100, "training takes 1.7 h to 3.3 h, which fits"),
        (300, "training takes 5.0 h to 10.0 h, which may fit; the next session continues with --resume auto"),
        (900, "training takes 15.0 h to 30.0 h, which does not fit; the next session continues with --resume auto"),
    ):
        assert ending_in(8 * 3600 + 1).describe(PLAN, steps=steps) == (
            "--session kaggle-tpu: 8.0 h of 9 h left, 30 min reserved for the last save, the evaluation and the "
            f"bundle; {words}"
        )


def test_a_measured_evaluation_replaces_that_of_the_plan():
    assert closing_seconds(PLAN, evaluation_seconds=None) == 1200
    assert closing_seconds(PLAN, evaluation_seconds=40.0) == 340
    assert closing_seconds({}, evaluation_seconds=None) == 0


def test_a_step_does_not_begin_if_what_follows_it_would_not_end_in_time():
    stop = StopRequest(max_minutes=None, session=ending_in(BUNDLE_SECONDS + 1000))
    stop.closing_seconds = 600
    assert stop.reason(reserve_seconds=300) is None
    assert stop.reason(reserve_seconds=401) == "--session kaggle-tpu ends"
    stop.closing_seconds = 0
    assert stop.reason(reserve_seconds=401) is None
    assert StopRequest(max_minutes=1, session=ending_in(9000)).reason(reserve_seconds=61) == (
        "limits.max_minutes=1 reached"
    )


@pytest.fixture
def asked(config: Config, tmp_path: Path) -> Config:
    """Three steps, and two items to answer."""
    items = ({"id": name, "prompt": "2 + 2?", "expected": "4"} for name in "ab")
    evaluation = {"eval_set": row_file(tmp_path / "items.jsonl", *items), "batch_size": 2}
    return with_settings(config, evaluation=evaluation, limits={"steps": 3})


@pytest.mark.slow
def test_a_run_whose_session_ends_is_interrupted_and_evaluated_by_the_next(asked, train, monkeypatch):
    # After the baseline, which is evaluated, an evaluation takes longer than what the session has left.
    monkeypatch.setattr("trainer.run.closing_seconds", lambda plan, *, evaluation_seconds: 0.0)
    monkeypatch.setattr("trainer.evaluation.evaluate.ModelAnswers.seconds", 2000.0)
    first = train(asked, session=ending_in(BUNDLE_SECONDS + 1000), ends_with=5)
    manifest = manifest_of(first)
    assert [row["step"] for row in rows(first)] == [1, 2, 3]
    assert manifest["status"] == "interrupted"
    assert manifest["exit"]["message"] == "--session kaggle-tpu ends, before the evaluation was complete"
    [said] = logged(first, "evaluation_left")
    assert said["message"].endswith(f"To complete the evaluation: trainproof train --resume {first}")
    assert len(logged(first, "session")) == 1
    assert not (first / layout.EVAL_SUMMARY).exists()
    assert errors_of(first) == []
    # No time for it in the second session either: nothing changes.
    catch_problems(lambda: evaluate_run(first, None, QUIET, session=ending_in(BUNDLE_SECONDS - 1)), exit_code=5)
    assert manifest_of(first) == manifest
    assert evaluate_run(first, None, QUIET, session=ending_in(9000))["checkpoint"]["step"] == 3
    assert errors_of(first) == []


def test_a_run_keeps_time_for_its_evaluation(asked, train, monkeypatch):
    """Training stops while the time that the plan gives the evaluation is left, and the evaluation is made in it."""
    monkeypatch.setattr("trainer.run.closing_seconds", lambda plan, *, evaluation_seconds: 2000.0)
    late = with_settings(asked, evaluation={"baseline": False})
    folder = train(late, session=ending_in(BUNDLE_SECONDS + 1000), ends_with=5)
    assert manifest_of(folder)["result"]["stopped_because"] == "--session kaggle-tpu ends before the first step"
    assert json.loads((folder / layout.EVAL_SUMMARY).read_text())["checkpoint"]["step"] == 0
    assert errors_of(folder) == []
