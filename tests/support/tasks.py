"""A run's task, data and first state, without a run."""

from typing import Any

from configs import changed

from trainer.config.tree import Config
from trainer.inputs import read_inputs
from trainer.loop.state import initial_state
from trainer.loop.step import TrainState
from trainer.loop.task import Task
from trainer.objectives.data import Data
from trainer.planning.plan import PlanOptions, plan_config
from trainer.runtime import choose_devices, this_machine

with_settings = changed


def inputs_of(config: Config) -> tuple[Task, Data]:
    return read_inputs(config, choose_devices(config.mesh.device, config.mesh.devices))


def task_of(config: Config) -> Task:
    return inputs_of(config)[0]


def plan_of(config: Config) -> dict[str, Any]:
    return plan_config(config, this_machine(config), PlanOptions(quick=True, advice=False))


def first_state_of(config: Config) -> TrainState:
    [state], _ = initial_state(task_of(config))
    return state
