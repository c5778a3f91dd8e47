"""`trainproof plan`: exit codes, output, and nothing left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from trainproof.cli.plan import GIB, grid_text, phases_text, target_title, where_text

CONFIG = """model: {name: HuggingFaceTB/SmolLM2-135M}
optimizer: {name: adafactor}
batch: {microbatch_size: 2}
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINPROOF_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "run.yaml"
    path.write_text(CONFIG)
    return path


def command(config: Path, *flags: str) -> list[str]:
    return [sys.executable, "-m", "trainproof", "plan", "--config", str(config), *flags]


def test_a_plan_says_whether_it_fits_and_how_long_it_takes(run, config: Path):
    asked = ("plan", "--config", config, "--on", "kaggle-tpu-v5e-8", "--quick")
    code, out, _ = run(*asked)
    assert code == 0
    assert out.startswith("Kaggle, TPU v5e-8 (8 × TPU v5 lite): needs about ")
    assert "of a 9-hour session" in out
    assert "of the weekly 20-hour quota" in out
    as_json = json.loads(run(*asked, "--json")[1])
    parameters = 134_515_008  # as its model card counts them; Adafactor's state is a few rows and columns beside them
    assert as_json["host"]["available_bytes"] == 396 * 10**9
    assert 4 * parameters <= as_json["host"]["need_bytes"] <= 4.1 * parameters
    assert "of 368.80 GiB: the copy of the state that is saved." in out


FOUR_PHASES = """
name: reasoner
config:
  model: {name: Qwen/Qwen3-0.6B}  # the nearest Qwen3 to the 0.8B of the founding document
  method: {kind: lora, rank: 16}
  data: {max_length: 1024, packing: true}
  batch: {microbatch_size: 4}
  precision: {params: bfloat16, compute: bfloat16}
  limits: {steps: 700}
phases:
  code: {}
  math: {parent: code, set: {limits.steps: 1400}}
  chat: {}
  style: {parent: chat, set: {data.max_length: 2048}}
merge: {weights: {math: 0.6, style: 0.4}}
"""


@pytest.mark.slow
def test_four_phases_of_a_small_qwen_are_planned_whole(run, tmp_path: Path):
    (tmp_path / "phases.yaml").write_text(FOUR_PHASES)
    asked = ("plan", "--phases", tmp_path / "phases.yaml", "--on", "kaggle-tpu-v5e-8", "--quick", "--json")
    code, out, err = run(*asked)
    assert code == 0, err
    plans = json.loads(out)["phases"]
    lines = phases_text(plans).splitlines()
    assert [line.split()[0] for line in lines[1:5]] == ["code", "math", "chat", "style"]
    assert all("of 15.75 GiB" in line for line in lines[1:5])
    hours = {name: plan["time"]["hours"] for name, plan in plans.items()}
    assert hours["math"]["low"] > hours["code"]["low"] == hours["chat"]["low"]
    total = [sum(each[end] for each in hours.values()) for end in ("low", "high")]
    assert lines[5].startswith(f"All phases: {total[0]:.2g}–{total[1]:.2g} hours")
    assert f"{total[1] / 20:.0%} of 20 h a week" in lines[5]


def test_measured_runs_are_compared_with_their_plans(run):
    code, out, err = run("plan", "--calibrate", "submission_runs/demo-full", "--json")
    assert (code, [each["run"] for each in json.loads(out)["used"]], err) == (0, ["demo-full"], "")


@pytest.mark.slow
def test_what_fits_nowhere_ends_with_3(run, config: Path):
    code, out, _ = run("plan", "--config", config, "--on", "t4", "--quick", "--set", "batch.microbatch_size=4096")
    assert code == 3
    assert "it does not fit" in out
    assert "Changes, each planned for this target:" in out


def test_one_configuration_is_shown_on_all_targets(run, config: Path):
    code, out, _ = run("plan", "--config", config, "--where", "--quick")
    lines = out.splitlines()
    assert (code, len(lines)) == (0, 19)
    assert [line.split()[0] for line in lines[1:3]] == ["kaggle-tpu-v5e-8", "tpu-v5e-1"]
    assert max(map(len, lines[:18])) <= 80
    assert lines[18].startswith("Hours and tokens")


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        (("--on", "kaggle-tpu"), "Did you mean kaggle-tpu-v5e-8"),
        (("--on", "t4", "--quick", "--set", "model.name=nobody/nothing"), "nobody/nothing"),
        (
            ("--on", "t4", "--quick", "--set", "data.max_length=100000"),
            "data.max_length is 100000; HuggingFaceTB/SmolLM2-135M has 8192 positions.",
        ),
        (("--exact", "--quick"), "--exact compiles every program, --quick compiles nothing"),
        (("--phases", "phases.yaml"), "omit config"),
        (("--where", "--grid", "--on", "t4"), "--where plans for every machine, --on and --grid for one"),
    ],
)
def test_what_cannot_be_planned_is_refused_in_words(run, config: Path, flags: tuple[str, ...], what: str):
    code, out, err = run("plan", "--config", config, *flags)
    assert (code, out) == (2, "")
    assert what in " ".join(err.split())
    assert "Traceback" not in err


def test_a_cache_that_is_a_file_keeps_nothing_and_stops_nothing(run, config: Path):
    (config.parent / "cache").write_text("")
    assert run("plan", "--config", config, "--on", "t4", "--quick")[0] == 0


def cell(size: int, need: float, verdict: str, method: str = "closed_form") -> dict[str, Any]:
    size_and_need = {"microbatch_size": size, "max_length": 128, "need_bytes": round(need * GIB)}
    return size_and_need | {"verdict": verdict, "method": method}


def test_a_size_that_was_compiled_has_a_star():
    cells = [cell(1, 9.5, "fits"), cell(2, 15, "fits", "compiler"), cell(4, 30.25, "does_not_fit")]
    assert grid_text({"microbatch_sizes": [1, 2, 4], "max_lengths": [128], "cells": cells}) == (
        "Need in GiB by microbatch (across) and length (down):\n"
        "+ fits, ~ tight, - does not fit; * compiled, others estimated\n"
        "           1       2      4\n"
        "  128  9.50+  *15.0+  30.2-\n"
    )


def test_hours_of_more_devices_are_of_more_tokens():
    def row(target: str, tokens: int, devices: int = 1) -> dict[str, Any]:
        time = {name: {"low": 0.25, "likely": 0.5, "high": 1.1} for name in ("hours", "session_fraction")}
        memory = {"need_bytes": 12 * GIB, "available_bytes": 16 * GIB, "verdict": "fits"}
        return {"target": target, "devices": devices, "tokens": tokens, **time, **memory}

    assert where_text([row("kaggle-tpu-v5e-8", 52_428_800, 8), row("l4", 6_553_600)]) == (
        "target            ×  verdict    GiB     of     hours  session  tokens\n"
        "kaggle-tpu-v5e-8  8  fits     12.00  16.00  0.25–1.1      50%  52.4 M\n"
        "l4                1  fits     12.00  16.00  0.25–1.1      50%  6.55 M\n"
        "Hours and tokens (padded) are of all steps; with more devices (×), a step has more tokens.\n"
    )
    assert "Hours" not in where_text([row("l4", 800), row("t4", 800)])


def test_this_machine_is_named_once():
    assert target_title({"title": "this machine, 1 × cpu", "name": "cpu", "devices": 1}) == "this machine, 1 × cpu"
    assert target_title({"title": "one T4", "name": "Tesla T4", "devices": 1}) == "one T4 (1 × Tesla T4)"


@pytest.mark.compiler("tpu")
def test_one_core_is_enough_for_a_compiler(config: Path):
    one_core = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
    asked = [*one_core, *command(config, "--on", "tpu-v5e-1", "--set", "model.name=tiny-gpt2", "--exact", "--json")]
    env = {**os.environ, "JAX_PLATFORMS": "cpu"}
    answer = subprocess.run(asked, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert answer.returncode == 0
    plan = json.loads(answer.stdout)
    assert {each["name"]: each["method"] for each in plan["programs"]}["train"] == "compiler"


@pytest.mark.compiler("tpu")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_plan_that_is_ended_leaves_no_process_behind(config: Path, how: signal.Signals):
    env = {**os.environ, "TMPDIR": str(config.parent)}
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
