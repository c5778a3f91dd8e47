"""The configuration for Kaggle's two T4s: what its comments state is what the plan says."""

import json
from pathlib import Path

import pytest

from evidence.targets import load_target
from trainer.config.load import load_config
from trainer.config.tree import Config
from trainer.data.answers import EvalShape
from trainer.loop.checkpoints import max_checkpoints
from trainer.loop.mesh import shapes_mesh
from trainer.loop.task import Task
from trainer.model.source import resolve
from trainer.planning.duration.roofline import floor_seconds
from trainer.planning.estimate.part import total_bytes
from trainer.planning.estimate.programs import estimate
from trainer.planning.spending_rules import Band, RunFigures, findings

GIB = 2**30
HOUR = 3600.0
T4X2 = load_target("kaggle-t4x2")
PARAMETERS = 2_506_172_416


@pytest.fixture(scope="module")
def config() -> Config:
    return load_config(Path("trainer/configs/kaggle_t4x2.yaml"))


@pytest.fixture(scope="module")
def task(config: Config, tmp_path_factory: pytest.TempPathFactory) -> Task:
    folder = tmp_path_factory.mktemp("gemma-2b")
    (folder / "config.json").write_text(json.dumps(json.loads(Path("benchmarks/models.json").read_text())["gemma-2b"]))
    return Task.of(config, resolve(str(folder), with_weights=False), shapes_mesh(2))


def test_it_fits_with_room_for_what_no_formula_knows(task: Task):
    need = total_bytes(estimate(task, platform="gpu", asked=EvalShape(prompts=100, longest_tokens=128)))
    assert need == pytest.approx(10.66 * GIB, rel=0.04)  # 10.66: compiled whole for two T4s
    assert need < 0.75 * (T4X2.memory_bytes or 0)


def test_a_step_has_the_tokens_that_the_stated_hours_rest_on(task: Task, config: Config):
    assert task.tokens_per_step == 32_768
    operations = 6 * PARAMETERS * task.tokens_per_step / 2
    floor = floor_seconds(flops=operations, peak_flops=T4X2.peak_flops["float16"])
    assert (floor / 0.5, floor / 0.2) == (pytest.approx(7.6, rel=0.02), pytest.approx(19, rel=0.02))
    hours = [config.limits.steps * floor / efficiency / HOUR for efficiency in (0.5, 0.2)]
    assert hours == [pytest.approx(0.84, abs=0.05), pytest.approx(2.1, abs=0.05)]


def test_its_session_has_no_finding(task: Task, config: Config):
    """Checkpoints in time, hours, disk and element type: nothing of it is spent badly."""
    adapters = sum(int(shape.size) for shape in task.model.trained.values())
    checkpoint = 12 * adapters
    assert checkpoint == pytest.approx(235e6, rel=0.01)
    step = Band(low=7.6, likely=12, high=19)
    run = RunFigures(
        file="trainer/configs/kaggle_t4x2.yaml",
        steps=config.limits.steps,
        save_every_steps=config.checkpoint.save_every_steps,
        step_seconds=step,
        run_seconds=step.times(config.limits.steps).plus(Band(low=900, likely=1500, high=3000)),
        compute_type=config.precision.compute,
        checkpoint_bytes=checkpoint,
        checkpoints_on_disk=max_checkpoints(config),
    )
    assert findings(run, T4X2) == ()
    assert config.limits.max_minutes is not None
    assert config.limits.max_minutes * 60 < (T4X2.session_seconds or 0)
