"""Planned against observed peak on this CPU: one configuration, planned from its compiled programs and then run.

    python -m plan_accuracy_parts.on_this_cpu '{"model": {"name": "demo"}}'

Two observations, neither the plan's: the arrays that exist while the program runs with what it adds, as a run counts
them; and how far the process's resident memory grew from the moment before the first array, as Linux measures it, which
knows nothing of the compiler (temporaries that were never touched are not in it, the libraries' scratch memory is).
Parameters are zeros, so that no weights need be there and drawing them costs nothing.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp

from trainer.config.tree import Config, config_of
from trainer.loop.mesh import build_mesh
from trainer.loop.program import start_program
from trainer.loop.run_programs import Beginning, RunPrograms
from trainer.loop.state import placed
from trainer.loop.steps import compiled_steps
from trainer.loop.task import Task
from trainer.methods.method import split
from trainer.methods.model import model_of
from trainer.model.files.known import planned_source
from trainer.objectives import objective_of
from trainer.planning.advice import deciding
from trainer.planning.compiled_answers import compiled_answers, summed_answers
from trainer.planning.devices import choose_devices
from trainer.recorder.memory import PeakArrays

STEPS = 2


def main() -> None:
    """Plan and run the configuration of the command line; print what came of it as a line of JSON."""
    config = config_of(json.loads(sys.argv[1]))
    devices = choose_devices("cpu", 1)
    task = task_of(config, devices.list)
    start = start_program(task).compile()
    programs = RunPrograms(
        beginning=Beginning(draw=None, start=start), steps=compiled_steps(task, [config.data.max_length]), decode=None
    )
    summed = [each for each in summed_answers(task, devices, asked=None) if each.name in programs.by_name]
    planned = deciding(compiled_answers(summed, programs, task))
    peak = PeakArrays(devices.list)
    before = resident()
    Path("/proc/self/clear_refs").write_text("5")  # the highest resident size begins anew
    run(programs.observed_by(peak), task)
    observed = peak.document()
    assert observed is not None, "programs have run"
    said = {
        "planned_bytes": planned.peak_bytes,
        "closed_form_bytes": deciding(summed).peak_bytes,
        "observed_bytes": observed["bytes"],
        "program": observed["program"],
        "resident_growth_bytes": highest() - before,
        "verdict": planned.verdict,
        "layers": task.model.source.spec.layers,
    }
    print(json.dumps(said))


def task_of(config: Config, devices: tuple[Any, ...]) -> Task:
    """Return the task of a configuration on devices; of its model only the shapes are needed."""
    model = model_of(config, planned_source(config.model.name))
    return Task(config=config, model=model, objective=objective_of(config), mesh=build_mesh(devices))


def run(programs: RunPrograms, task: Task) -> None:
    """Make a state of zeros and take steps."""
    assert programs.beginning is not None, "the state is made here"
    shapes = placed(task.model.shapes, task)
    params = {name: jnp.zeros(shape.shape, shape.dtype, device=shape.sharding) for name, shape in shapes.items()}
    trained, frozen = split(task.model.method, params)
    params.clear()
    described = task.objective.described(task.config.batch.microbatch_size)
    states = [programs.beginning.start.call(trained)]
    del trained
    for _ in range(STEPS):
        batch = {name: jnp.ones((1, *each.shape), each.dtype) for name, each in described.items()}
        state, metrics = programs.steps(states.pop(), frozen, batch)
        jax.block_until_ready(metrics.loss)
        states.append(state)


def resident() -> int:
    """Return the bytes of this process in memory now."""
    return _status("VmRSS")


def highest() -> int:
    """Return the most bytes of it since the count began anew."""
    return _status("VmHWM")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


if __name__ == "__main__":
    main()
