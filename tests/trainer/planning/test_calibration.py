"""Measured runs narrow the time of a step of other runs on the same device."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from configs import changed
from refusals import catch_problems

from evidence import layout
from evidence.targets import load_target
from trainer.config.load import config_text
from trainer.config.tree import Config, ModelConfig
from trainer.planning.duration import calibrate_from_run
from trainer.planning.plan import PlanOptions, plan_config
from trainer.runtime import this_machine
from trainproof.cli.plan import calibrate_plans, calibration_text

pytestmark = pytest.mark.slow

SMALL = changed(
    Config(name="measured", model=ModelConfig(name="tiny-gpt2")),
    data={"max_length": 64},
    batch={"microbatch_size": 2},
    mesh={"device": "cpu", "devices": 1},
    limits={"steps": 6},
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six steps on this CPU."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    config = folder.parent.with_suffix(".yaml")
    config.write_text(config_text(SMALL), "utf-8")
    command = [sys.executable, "-m", "trainproof", "train", "--config", str(config), "--output", str(folder)]
    subprocess.run(command, check=True)
    return folder


def likely_step(config: Config, ratio: float | None) -> float | None:
    plan = plan_config(config, this_machine(config), PlanOptions(quick=True, advice=False, step_ratio=ratio))
    return None if plan["time"] is None else plan["time"]["step_seconds"]["likely"]


def test_a_measured_run_gives_plans_of_this_machine_a_time(trained: Path):
    assert likely_step(SMALL, None) is None, "the speed of this CPU is unknown"
    used, skipped = calibrate_plans([trained.parent], this_machine(SMALL))
    assert [each.run for each in used] == ["first"]
    assert "first on " in calibration_text(used, skipped)
    ratio = used[0].step_ratio
    rows = [json.loads(line)["step_seconds"] for line in (trained / layout.METRICS).read_text().splitlines()]
    same = likely_step(SMALL, ratio)
    assert same == pytest.approx(sorted(rows[1:])[len(rows[1:]) // 2], rel=1e-3)
    longer = likely_step(changed(SMALL, batch={"microbatch_size": 4}), ratio)
    assert longer is not None
    assert 1.9 < longer / same < 2.2, "twice the tokens are twice the operations, or a little more"


def test_runs_of_another_device_are_refused_for_a_target(trained: Path):
    [problem] = catch_problems(calibrate_plans, [trained], load_target("t4"))
    assert problem.code == "TP747"


def test_a_contradictory_run_and_one_of_too_few_rows_are_not_used(trained: Path, tmp_path: Path):
    edited = tmp_path / "edited"
    shutil.copytree(trained, edited)
    rows = (edited / layout.METRICS).read_text().splitlines()
    slower = rows[-1].replace('"step_seconds": ', '"step_seconds": 9')
    (edited / layout.METRICS).write_text("\n".join([*rows[:-1], slower]))
    why = calibrate_from_run(edited)
    assert isinstance(why, str)
    assert why.startswith("its grade is contradictory: ")
    [problem] = catch_problems(calibrate_plans, [edited])
    assert "its grade is contradictory" in problem.what
