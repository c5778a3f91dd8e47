"""`trainproof plan` as a user meets it: exit codes, words, and nothing left behind.

A process is started where it matters: what it loads, how it is ended.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from trainproof.cli.app import main

CONFIG = """model: {name: HuggingFaceTB/SmolLM2-135M}
optimizer: {name: adafactor}
batch: {microbatch_size: 2}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(CONFIG)
    return path


def command(config: Path, *flags: str) -> list[str]:
    return [sys.executable, "-m", "trainproof", "plan", "--config", str(config), *flags]


class Ran(NamedTuple):
    """What a command left behind, named as `subprocess` names it."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Ask for a plan in this process: one that imports JAX anew takes seconds for it."""

    def run(config: Path, *flags: str) -> Ran:
        monkeypatch.setenv("TRAINPROOF_CACHE", str(config.parent / "cache"))
        with pytest.raises(SystemExit) as ended:
            main(command(config, *flags)[3:])
        said = capsys.readouterr()
        return Ran(int(ended.value.code or 0), said.out, said.err)

    return run


def test_an_unknown_target_is_answered_with_the_nearest_names(ran: Callable[..., Ran], config: Path):
    answer = ran(config, "--on", "kaggle-tpu")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "There is no target 'kaggle-tpu'." in answer.stderr
    assert "Did you mean kaggle-tpu-v5e-8" in answer.stderr


def test_a_plan_says_whether_it_fits_and_how_long_it_takes(ran: Callable[..., Ran], config: Path):
    first = ran(config, "--on", "kaggle-tpu-v5e-8", "--quick")
    assert first.returncode == 0
    assert first.stdout.startswith("Kaggle, TPU v5e-8 (8 × TPU v5 lite): needs about ")
    assert "of a session of 9 h" in first.stdout
    assert "of the 20 h of a week" in first.stdout
    as_json = json.loads(ran(config, "--on", "kaggle-tpu-v5e-8", "--quick", "--json").stdout)
    parameters = 134_515_008  # as its model card counts them; Adafactor's state is a few rows and columns beside them
    assert as_json["host"]["available_bytes"] == 396 * 10**9
    assert 4 * parameters <= as_json["host"]["need_bytes"] <= 4.1 * parameters
    assert "of 368.80 GiB: the copy of the state that is saved." in first.stdout


def test_measured_runs_are_compared_with_their_plans(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--calibrate", "submission_runs/demo-full", "--json"])
    assert (ended.value.code, capsys.readouterr().err) == (0, "")


@pytest.mark.slow
def test_what_fits_nowhere_ends_with_3(ran: Callable[..., Ran], config: Path):
    answer = ran(config, "--on", "t4", "--quick", "--set", "batch.microbatch_size=4096")
    assert answer.returncode == 3
    assert "it does not fit" in answer.stdout
    assert "Changes, each planned for this target:" in answer.stdout


def test_one_configuration_is_shown_on_all_targets(ran: Callable[..., Ran], config: Path):
    answer = ran(config, "--where", "--quick")
    assert answer.returncode == 0
    assert [line.split()[0] for line in answer.stdout.splitlines()[1:3]] == ["kaggle-tpu-v5e-8", "tpu-v5e-1"]
    assert len(answer.stdout.splitlines()) == 19
    assert max(map(len, answer.stdout.splitlines()[:18])) <= 80
    assert answer.stdout.splitlines()[18].startswith("Hours are of all steps")


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        (("--set", "model.name=nobody/nothing"), "nobody/nothing"),
        (
            ("--set", "data.max_length=100000"),
            "data.max_length is 100000; HuggingFaceTB/SmolLM2-135M has 8192 positions.",
        ),
    ],
)
def test_a_configuration_that_cannot_be_built_is_refused_in_words(
    ran: Callable[..., Ran], config: Path, flags: tuple[str, ...], what: str
):
    answer = ran(config, "--on", "t4", "--quick", *flags)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "error TP" in answer.stderr
    assert what in answer.stderr
    assert "Next: " in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        (("--exact", "--quick"), "--exact compiles every program and --quick none"),
        (("--where", "--grid", "--on", "t4"), "--where plans for every machine, --on and --grid for one"),
    ],
)
def test_flags_of_which_one_would_be_left_out_are_refused(
    ran: Callable[..., Ran], config: Path, flags: tuple[str, ...], what: str
):
    answer = ran(config, *flags)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert what in " ".join(answer.stderr.split())


def test_a_cache_that_is_a_file_keeps_nothing_and_stops_nothing(ran: Callable[..., Ran], config: Path):
    (config.parent / "cache").write_text("")
    assert ran(config, "--on", "t4", "--quick").returncode == 0


@pytest.mark.compiler("tpu")
def test_one_core_is_enough_for_a_compiler(config: Path):
    one_core = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
    asked = [*one_core, *command(config, "--on", "tpu-v5e-1", "--set", "model.name=tiny-gpt2", "--exact", "--json")]
    env = {**os.environ, "TRAINPROOF_CACHE": str(config.parent / "cache"), "JAX_PLATFORMS": "cpu"}
    answer = subprocess.run(asked, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert answer.returncode == 0
    plan = json.loads(answer.stdout)
    assert {each["name"]: each["method"] for each in plan["programs"]}["train"] == "compiler"


@pytest.mark.compiler("tpu")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_plan_that_is_ended_leaves_no_process_behind(config: Path, how: signal.Signals):
    env = {**os.environ, "TRAINPROOF_CACHE": str(config.parent / "cache"), "TMPDIR": str(config.parent)}
    started = subprocess.Popen(
        command(config, "--on", "tpu-v5e-1", "--exact"),
        env=env,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert started.stderr is not None
    with started.stderr:
        assert any("compiling start" in line for line in iter(started.stderr.readline, ""))
        while not (children := psutil.Process(started.pid).children()):
            os.sched_yield()
        started.send_signal(how)
        assert started.wait(60) != 0
    assert psutil.wait_procs(children, timeout=60)[1] == []
    deadline = time.monotonic() + 20
    while list(config.parent.glob("trainproof-compile-*")) and time.monotonic() < deadline:
        os.sched_yield()
    assert list(config.parent.glob("trainproof-compile-*")) == []
