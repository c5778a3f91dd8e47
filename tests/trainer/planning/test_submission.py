"""The configuration for Kaggle's TPU: what its comments state is what the plan says."""

import json
import re
from pathlib import Path

import pytest

from evidence.targets import load_target
from trainer.config.load import load_config
from trainer.loop.checkpoints import max_checkpoints
from trainer.loop.mesh import shapes_mesh
from trainer.loop.task import Task
from trainer.model.source import resolve
from trainer.planning.estimate.part import ERROR_FRACTION, total_bytes
from trainer.planning.estimate.programs import estimate
from trainer.planning.plan import PlanOptions, plan_for
from trainer.planning.program_memory import verdict

GIB = 2**30
CHIP_BYTES = int(15.75 * GIB)
KAGGLE_WORKING_BYTES = 19_500_000_000
PRECISION = "optimizer.name=adafactor precision.compute=bfloat16 precision.params=bfloat16"
CASE = f"gemma-2b train v5e:2x4: {PRECISION} data.max_length=128 batch.microbatch_size=256"
"""The same run in benchmarks/memory_estimate.py."""


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    folder = tmp_path_factory.mktemp("gemma-2b")
    (folder / "config.json").write_text(json.dumps(json.loads(Path("benchmarks/models.json").read_text())["gemma-2b"]))
    config = load_config(Path("trainer/configs/submission_tpu.yaml"))
    return Task.of(config, resolve(str(folder), with_weights=False), shapes_mesh(8))


def test_it_fits_and_uses_most_of_a_chip(task: Task):
    need = total_bytes(estimate(task, platform="tpu"))
    assert verdict(need, CHIP_BYTES, ERROR_FRACTION) == "fits"
    assert need == pytest.approx(12.6 * GIB, rel=0.01)


def test_its_checkpoints_fit_on_kaggles_disk(task: Task):
    state_bytes = 8 * sum(part.bytes for part in estimate(task, platform="tpu") if part.name in ("params", "opt_state"))
    assert state_bytes == pytest.approx(5.0e9, rel=0.01)
    assert max_checkpoints(task.config) * state_bytes < KAGGLE_WORKING_BYTES


def test_a_step_has_the_tokens_that_the_stated_hours_rest_on(task: Task):
    assert task.tokens_per_step == 262_144


def test_the_readme_says_what_the_plan_says():
    """Memory, hours and share of the week; a plan from a few compiled layers takes the sum too, since it is more."""
    config = load_config(Path("trainer/configs/submission_tpu.yaml"))
    plan = plan_for(config, load_target("kaggle-tpu-v5e-8"), PlanOptions(quick=True, advice=False))
    said = " ".join(Path("README.md").read_text("utf-8").split())
    stated = re.search(
        r"about ([\d.]+) of the ([\d.]+) GiB on each of the eight chips and takes ([\d.]+) to ([\d.]+) hours, or "
        r"(\d+) to (\d+) % of the weekly (\d+)-hour quota",
        said,
    )
    assert stated is not None
    need, usable, least, most, low, high, week = map(float, stated.groups())
    hours, share = plan["time"]["hours"], plan["time"]["week_fraction"]
    assert (least, most) == (pytest.approx(hours["low"], rel=0.05), pytest.approx(hours["high"], rel=0.05))
    assert (low, high) == (round(100 * share["low"]), round(100 * share["high"]))
    assert week * 3600 == plan["time"]["week_seconds"]
    assert usable * GIB == plan["available_bytes"]
    assert need == round(plan["need_bytes"] / GIB, 1)
    assert plan["findings"] == [], "nothing of it is spent badly"


def test_what_is_compiled_whole_is_quoted():
    cases = json.loads(Path("benchmarks/results/memory_estimate.json").read_text())["cases"]
    [case] = [each for each in cases if each["case"] == CASE]
    stated = f"{case['compiled_bytes'] / GIB:.1f} GiB"
    assert f"Compiling it completely (`--exact`) gives {stated}" in Path("README.md").read_text("utf-8")
    assert stated in Path("trainer/configs/submission_tpu.yaml").read_text("utf-8")
