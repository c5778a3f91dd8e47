"""Runs that are told to stop: by the end of a session, a signal or a closed terminal."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from model_folders import row_file
from refusals import catch_problems
from tasks import inputs_of, with_settings
from whole_runs import QUIET, errors_of, logged, manifest_of, rows, saved_steps

from evidence import layout
from evidence.run import read_run
from trainer.config.load import load_config
from trainer.config.tree import Config
from trainer.evaluation.evaluate import evaluate_run
from trainer.loop import session
from trainproof.cli.train import SessionName

PLAN = {
    "time": {
        "step_seconds": {"low": 60, "likely": 90, "high": 120},
        "session": [
            {"name": "save", "seconds": {"low": 1, "likely": 2, "high": 300}},
            {"name": "evaluate", "seconds": {"low": 60, "likely": 120, "high": 900}},
        ],
    }
}


def ending_in(seconds: float, name: str = "kaggle-tpu") -> session.SessionLimit:
    """Return a session that ends so long after now."""
    return session.SessionLimit(name=name, seconds=9 * 3600, ends=time.monotonic() + seconds - session.BUNDLE_SECONDS)


@pytest.mark.parametrize(("name", "hours"), [(SessionName.kaggle_tpu, 9), (SessionName.kaggle_gpu, 12)])
def test_hours_count_from_the_stated_start_or_that_of_the_process(name, hours, monkeypatch):
    monkeypatch.setenv(session.SESSION_STARTED, f"{time.time() - 3600:.3f}")
    assert session.session_limit(name).left_seconds == pytest.approx((hours - 1) * 3600 - session.BUNDLE_SECONDS, abs=5)
    monkeypatch.delenv(session.SESSION_STARTED)
    started = float(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
    lived = float(Path("/proc/uptime").read_text().split()[0]) - started
    left = hours * 3600 - lived - session.BUNDLE_SECONDS
    assert session.session_limit(name).left_seconds == pytest.approx(left, abs=5)


def test_the_time_left_is_described_with_whether_the_steps_fit():
    left = "--session kaggle-tpu: 8.0 h of 9 h left, 30 min reserved for the last save, the evaluation and the bundle"
    limit, then = ending_in(8 * 3600 + 1), "the next session continues with --resume auto"
    for steps, words in (
        (100, "training takes 1.7 h to 3.3 h, which fits"),
        (300, f"training takes 5.0 h to 10.0 h, which may fit; {then}"),
        (900, f"training takes 15.0 h to 30.0 h, which does not fit; {then}"),
    ):
        assert limit.describe(PLAN, steps=steps) == f"{left}; {words}"


def test_a_measured_evaluation_replaces_that_of_the_plan():
    assert session.closing_seconds(PLAN, evaluation_seconds=None) == 1200
    assert session.closing_seconds(PLAN, evaluation_seconds=40.0) == 340
    assert session.closing_seconds({}, evaluation_seconds=None) == 0


def test_a_step_does_not_begin_if_what_follows_it_would_not_end_in_time():
    stop = session.StopRequest(max_minutes=None, session=ending_in(session.BUNDLE_SECONDS + 1000))
    stop.closing_seconds = 600
    assert stop.reason(reserve_seconds=300) is None
    assert stop.reason(reserve_seconds=401) == "--session kaggle-tpu ends"
    stop.closing_seconds = 0
    assert stop.reason(reserve_seconds=401) is None
    limited = session.StopRequest(max_minutes=1, session=ending_in(9000))
    assert limited.reason(reserve_seconds=61) == "limits.max_minutes=1 reached"


@pytest.fixture
def asked(config, tmp_path) -> Config:
    """Three steps, and an item to answer."""
    items = row_file(tmp_path / "items.jsonl", {"id": "a", "prompt": "2 + 2?", "expected": "4"})
    return with_settings(config, evaluation={"eval_set": items}, limits={"steps": 3})


@pytest.mark.slow
def test_a_run_whose_session_ends_is_interrupted_and_evaluated_by_the_next(asked, train, monkeypatch):
    # After the baseline, which is evaluated, an evaluation takes longer than what the session has left.
    monkeypatch.setattr("trainer.run.closing_seconds", lambda plan, *, evaluation_seconds: 0.0)
    monkeypatch.setattr("trainer.evaluation.evaluate.ModelAnswers.seconds", 2000.0)
    first = train(asked, session=ending_in(session.BUNDLE_SECONDS + 1000), ends_with=5)
    manifest, message = manifest_of(first), "--session kaggle-tpu ends, before the evaluation was complete"
    assert [row["step"] for row in rows(first)] == [1, 2, 3]
    assert (manifest["status"], manifest["exit"]["message"]) == ("interrupted", message)
    [said] = logged(first, "evaluation_left")
    assert said["message"].endswith(f"To complete the evaluation: trainproof train --resume {first}")
    assert len(logged(first, "session")) == 1
    assert not (first / layout.EVAL_SUMMARY).exists()
    # No time for it in the second session either: nothing changes.
    catch_problems(lambda: evaluate_run(first, None, QUIET, session=ending_in(session.BUNDLE_SECONDS - 1)), exit_code=5)
    assert manifest_of(first) == manifest
    assert evaluate_run(first, None, QUIET, session=ending_in(9000))["checkpoint"]["step"] == 3
    assert errors_of(first) == []


def test_a_run_keeps_time_for_its_evaluation(asked, train, monkeypatch):
    """Training stops early, so that the evaluation has the time that the plan gives it."""
    monkeypatch.setattr("trainer.run.closing_seconds", lambda plan, *, evaluation_seconds: 2000.0)
    late = with_settings(asked, evaluation={"baseline": False})
    folder = train(late, session=ending_in(session.BUNDLE_SECONDS + 1000), ends_with=5)
    assert manifest_of(folder)["result"]["stopped_because"] == "--session kaggle-tpu ends before the first step"
    assert json.loads((folder / layout.EVAL_SUMMARY).read_text())["checkpoint"]["step"] == 0


TINY = """name: signals
model: {name: tiny-gpt2}
data: {max_length: 96}
optimizer: {learning_rate: 0.01}
batch: {microbatch_size: 4}
mesh: {device: cpu, devices: 1}
evaluation: {max_new_tokens: 4, batch_size: 50}
"""


# A shell in the background, or nohup, has its children ignore signals.
HEAR_SIGNALS = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def started(tmp_path) -> Iterator[Callable[..., subprocess.Popen]]:
    """Yield a function that starts a real training in `run`; none outlives its test."""
    processes = []

    def start(*arguments: str, before: tuple[str, ...] = ()) -> subprocess.Popen:
        (tmp_path / "tiny.yaml").write_text(TINY)
        flags = ["--config", str(tmp_path / "tiny.yaml"), "--output", str(tmp_path / "run"), *arguments]
        command = [*before, sys.executable, "-m", "trainproof", "train", *flags]
        hearing = [sys.executable, "-c", HEAR_SIGNALS, *command]
        process = subprocess.Popen(hearing, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def wait_for(process: subprocess.Popen, reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not reached():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_stopped_run_with_few_rows_counts_to_its_last_step(number, started, tmp_path):
    folder, chain = tmp_path / "run", tmp_path / "run" / layout.CHAIN
    sparse = "--set recording.log_every_steps=100000 --set recording.chain_every_steps=1 --set limits.steps=100000"
    process = started(*sparse.split())
    wait_for(process, lambda: chain.is_file() and chain.read_text().count("\n") > 3)
    process.send_signal(number)
    output, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (5, b"")
    assert b"checkpoint at step" in output
    manifest = manifest_of(folder)
    assert manifest["status"] == read_run(folder).status == "interrupted"
    done = manifest["training"]["steps_done"]
    assert manifest["result"]["stopped_because"] == f"signal {number.name}"
    _, data = inputs_of(load_config(folder / "config.yaml"))
    assert manifest["result"]["tokens_seen"] == data.source.tokens_before(done) < done * 4 * 96
    assert [row["step"] for row in rows(folder)] == [1, done]
    assert saved_steps(folder) == [str(done)]
    assert errors_of(folder) == []


@pytest.mark.slow
def test_an_ignored_hangup_stops_nothing(started, tmp_path):
    process = started("--set", "limits.steps=20", before=("sh", "-c", "trap '' HUP; exec \"$@\"", "sh"))
    wait_for(process, lambda: bool(logged(tmp_path / "run", "compiled")))
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=120)
    assert process.returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux tells what a process has loaded")
@pytest.mark.parametrize("library", ["libjax", "tokenizers"])
def test_ctrl_c_before_the_run_begins_writes_nothing(library, started, tmp_path):
    process = started("--set", "data.generated_rows=200000")  # takes seconds to generate
    wait_for(process, lambda: library in Path(f"/proc/{process.pid}/maps").read_text())
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert (process.returncode, output) == (130, b"")
    assert errors == b"train was stopped before it began; nothing was written.\n"
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_training_goes_on_when_its_output_is_closed(started, tmp_path):
    process = started("--set", "limits.steps=20")
    process.stdout.readline()
    process.stdout.close()
    with process.stderr as errors:
        assert errors.read() == b""
    assert process.wait(timeout=120) == 0
    assert manifest_of(tmp_path / "run")["status"] == "succeeded"
