"""Runs of two processes on this machine, each with one device of its own, beside one process with two devices."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from commands import run_command
from compiled import QUICK
from model_folders import row_file
from tasks import with_settings
from whole_runs import error_codes, manifest_of, refusal, rows, saved_steps

from evidence import layout
from trainer.config.load import config_text
from trainer.config.tree import Config

EXACT = ("step", "tokens_seen", "loss", "grad_norm", "held_out_loss", "held_out_score", "reward_margin")
COMMAND = (sys.executable, "-m", "trainproof", "train")
SECONDS = 300
LEARNED_ITEMS = {"TP408"}


def free_port() -> int:
    with socket.socket() as each:
        each.bind(("127.0.0.1", 0))
        return int(each.getsockname()[1])


def start(arguments: Sequence[object], *, devices: int, code: str | None = None) -> subprocess.Popen[str]:
    flags = f"--xla_force_host_platform_device_count={devices} --xla_cpu_max_isa=AVX2 {QUICK}"
    command = COMMAND if code is None else (sys.executable, "-c", code, "train")
    return subprocess.Popen(
        [*command, *map(str, arguments)],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "XLA_FLAGS": flags},
    )


def start_two(arguments: Sequence[object], *others: object) -> list[subprocess.Popen[str]]:
    """Start two processes, the second one with other arguments if there are any."""
    port = free_port()
    together = ["--coordinator", f"127.0.0.1:{port}", "--processes", 2, "--process"]
    return [start([*each, *together, n], devices=1) for n, each in enumerate((arguments, others or arguments))]


def ended(*processes: subprocess.Popen[str]) -> list[tuple[int, str]]:
    """Wait for processes and return exit code and output of each."""
    outputs = [process.communicate(timeout=SECONDS)[0] for process in processes]
    return [(process.returncode, output) for process, output in zip(processes, outputs, strict=True)]


def wait_until(condition: Callable[[], bool], *processes: subprocess.Popen[str]) -> None:
    while not condition():
        assert all(process.poll() is None for process in processes), ended(*processes)
        time.sleep(0.02)


def exact(folder: Path) -> list[list[object]]:
    return [[row.get(key) for key in EXACT] for row in rows(folder)]


def states(folder: Path) -> list[tuple[int, str, int]]:
    return [(row["step"], row["state_sha256"], row["data_position"]) for row in rows(folder, layout.CHAIN)]


@pytest.fixture
def written(config: Config, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a configuration of two devices, with accumulation and without evaluation."""

    def write(name: str = "config", **changes) -> Path:
        two = {"mesh": {"device": "cpu", "devices": 2}, "batch": {"microbatch_size": 1, "accumulation_steps": 2}}
        often = {"recording": {"log_every_steps": 1}, "limits": {"steps": 6}}
        file = tmp_path / f"{name}.yaml"
        file.write_text(config_text(with_settings(config, **two | often | changes)))
        return file

    return write


def held_out(tmp_path: Path) -> dict:
    """Return settings of an evaluation by three samples, and of answers during training that choose a checkpoint."""
    items = [{"id": f"{n}", "prompt": f"{n} + 1?", "expected": f"{n + 1}"} for n in range(5)]
    file = row_file(tmp_path / "items.jsonl", *({**each, "category": "sum", "difficulty": "easy"} for each in items))
    evaluation = {"eval_set": file, "every_steps": 2, "during_items": 3, "samples": 3, "temperature": 1.0}
    return {"evaluation": evaluation, "checkpoint": {"keep_best": "held_out_loss"}}


def pairs(tmp_path: Path) -> dict:
    found = [{"prompt": f"{n} + 1?", "chosen": f"It is {n + 1}.", "rejected": "I do not know."} for n in range(9)]
    data = {"dataset": row_file(tmp_path / "pairs.jsonl", *found), "max_length": 64}
    batch = {"microbatch_size": 2, "accumulation_steps": 2}
    return {"data": data, "objective": {"kind": "dpo", "beta": 0.3}, "batch": batch}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["full", "lora", "dpo"])
def test_two_processes_give_the_bits_of_one_with_two_devices(kind, written, tmp_path):
    method = {"method": {"kind": "lora", "rank": 2, "dropout": 0.1}}
    changes = {
        "full": held_out(tmp_path),
        "lora": method | {"precision": {"compute": "bfloat16"}},
        "dpo": pairs(tmp_path),
    }
    config, one, two = written(**changes[kind]), tmp_path / "one", tmp_path / "two"
    processes = start_two(["--config", config, "--output", two])
    [(code, _), (other, printed)] = ended(*processes)
    assert (code, other) == (0, 0), printed
    assert not [line for line in printed.splitlines() if not line.startswith("[Gloo]")]
    assert ended(start(["--config", config, "--output", one], devices=2))[0][0] == 0
    assert exact(two) == exact(one)
    assert states(two) == states(one)
    for name in (layout.TRAINED_PARAMS, layout.PREDICTIONS, layout.ANSWERS_OVER_STEPS):
        files = [folder / name for folder in (one, two)]
        assert len({each.read_bytes() if each.exists() else None for each in files}) == 1, name
    listed = [{each["path"] for each in manifest_of(folder)["artifacts"]} for folder in (one, two)]
    assert listed[0] == listed[1]
    assert saved_steps(two) == saved_steps(one)
    devices = manifest_of(two)["devices"]
    assert (devices["count"], devices["processes"], manifest_of(one)["devices"].get("processes")) == (2, 2, None)
    assert error_codes(two) <= LEARNED_ITEMS


@pytest.mark.slow
def test_a_killed_process_ends_the_run_which_resumes_bit_for_bit(written, tmp_path):
    config = written(limits={"steps": 24}, checkpoint={"save_every_steps": 3})
    whole, killed, rest = (tmp_path / name for name in ("whole", "killed", "rest"))
    assert ended(start(["--config", config, "--output", whole], devices=2))[0][0] == 0
    processes = start_two(["--config", config, "--output", killed])
    metrics = killed / layout.METRICS
    wait_until(lambda: metrics.is_file() and metrics.read_text().count("\n") > 4, *processes)
    processes[1].kill()
    [(code, printed), (other, _)] = ended(*processes)
    assert (code != 0, other) == (True, -signal.SIGKILL)
    # A process that waits for a checkpoint is ended by JAX, after half a minute.
    assert "TP783" in printed if code == 4 else "another task died" in printed
    assert error_codes(killed) <= LEARNED_ITEMS
    assert manifest_of(killed)["status"] == ("failed" if code == 4 else "running")
    assert [code for code, _ in ended(*start_two(["--resume", killed, "--output", rest]))] == [0, 0]
    assert exact(rest) == exact(whole)[-len(rows(rest)) :]
    assert len(rows(rest)) < 24
    assert states(rest)[-1] == states(whole)[-1]


@pytest.mark.slow
def test_a_signal_to_one_process_stops_all_and_one_process_resumes(written, tmp_path):
    config = written(limits={"steps": 24})
    whole, stopped, rest = (tmp_path / name for name in ("whole", "stopped", "rest"))
    assert ended(start(["--config", config, "--output", whole], devices=2))[0][0] == 0
    processes = start_two(["--config", config, "--output", stopped])
    wait_until(lambda: (stopped / layout.METRICS).is_file() and rows(stopped) != [], *processes)
    processes[1].send_signal(signal.SIGTERM)
    assert [code for code, _ in ended(*processes)] == [5, 5]
    assert manifest_of(stopped)["result"]["stopped_because"] == "signal SIGTERM"
    assert ended(start(["--resume", stopped, "--output", rest], devices=2))[0][0] == 0
    assert exact(stopped) + exact(rest) == exact(whole)
    assert states(rest)[-1] == states(whole)[-1]


@pytest.mark.slow
def test_what_cannot_work_is_refused_in_every_process(written, tmp_path):
    config, taken = written(), tmp_path / "taken"
    taken.mkdir()
    (taken / "file").touch()
    found = ended(*start_two(["--config", config, "--output", taken]))
    assert [code for code, _ in found] == [2, 2]
    assert "error TP031" in found[0][1]
    assert "Process 0 ended: The folder is not empty" in found[1][1]
    folder = tmp_path / "differ"
    arguments = ["--config", config, "--output", folder]
    found = ended(*start_two(arguments, *arguments, "--seed", 7))
    assert [(code, "error TP782" in printed) for code, printed in found] == [(2, True), (2, True)]
    assert not folder.exists()
    found = ended(*start_two([*arguments, "--set", "mesh.devices=1"]))
    assert [(code, "error TP702" in printed) for code, printed in found] == [(3, True), (3, True)]


@pytest.mark.slow
def test_an_unreachable_coordinator_is_named_in_bounded_time(written):
    code = "import trainer.distributed as d; d.JOIN_SECONDS = 2; from trainproof.cli.app import main; main()"
    arguments = ["--config", written(), "--coordinator", f"127.0.0.1:{free_port()}", "--processes", 2, "--process", 1]
    [(code, printed)] = ended(start(arguments, devices=1, code=code))
    assert (code, "error TP780: --distributed: Not all processes met at 127.0.0.1:" in printed) == (3, True)


def test_options_that_belong_together_are_refused_alone(capsys):
    for flags in (["--coordinator", "host:1"], ["--processes", 2], ["--coordinator", "host:1", "--process", 0]):
        code, _, said = run_command(capsys, "train", "--config", "trainer/configs/tiny.yaml", *flags)
        assert (code, "--coordinator HOST:PORT, --processes N and --process I" in said) == (2, True)


def test_another_number_of_processes_than_declared_is_refused(order_of, config, monkeypatch):
    monkeypatch.setenv("TRAINPROOF_PROCESSES", "2")
    code, said = refusal(order_of(config))
    assert (code, said.startswith("error TP781: ")) == (3, True)
    assert "2 processes are declared, but JAX sees 1." in said
