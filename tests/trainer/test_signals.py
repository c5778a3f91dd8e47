"""Trainings in a process of their own that are told to stop, or whose terminal has gone."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tasks import inputs_of
from whole_runs import errors_of, logged, manifest_of, rows, saved_steps

from evidence import layout
from evidence.run import read_run
from trainer.config.load import load_config

pytestmark = pytest.mark.slow

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
        command = [
            *(*before, sys.executable, "-m", "trainproof", "train"),
            *("--config", str(tmp_path / "tiny.yaml"), "--output", str(tmp_path / "run"), *arguments),
        ]
        command = [sys.executable, "-c", HEAR_SIGNALS, *command]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_stopped_run_with_few_rows_counts_to_its_last_step(number, started, tmp_path):
    folder, chain = tmp_path / "run", tmp_path / "run" / layout.CHAIN
    sparse = ("recording.log_every_steps=100000", "recording.chain_every_steps=1", "limits.steps=100000")
    process = started(*(each for setting in sparse for each in ("--set", setting)))
    wait_for(process, lambda: chain.is_file() and chain.read_text().count("\n") > 3)
    process.send_signal(number)
    output, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (5, b"")
    assert b"checkpoint at step" in output
    manifest = manifest_of(folder)
    assert manifest["status"] == read_run(folder).status == "interrupted"
    done = manifest["training"]["steps_done"]
    assert done > 2
    assert manifest["result"]["stopped_because"] == f"signal {number.name}"
    _, data = inputs_of(load_config(folder / "config.yaml"))
    assert manifest["result"]["tokens_seen"] == data.source.tokens_before(done) < done * 4 * 96
    assert [row["step"] for row in rows(folder)] == [1, done]
    assert saved_steps(folder) == [str(done)]
    assert errors_of(folder) == []


def test_an_ignored_hangup_stops_nothing(started, tmp_path):
    process = started("--set", "limits.steps=20", before=("sh", "-c", "trap '' HUP; exec \"$@\"", "sh"))
    wait_for(process, lambda: bool(logged(tmp_path / "run", "compiled")))
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=120)
    assert process.returncode == 0


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


def test_training_goes_on_when_its_output_is_closed(started, tmp_path):
    process = started("--set", "limits.steps=20")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr as errors:
        assert errors.read() == b""
    assert process.wait(timeout=120) == 0
    assert manifest_of(tmp_path / "run")["status"] == "succeeded"
