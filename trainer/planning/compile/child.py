"""The process that compiles programs for devices that are not here; its parent ends it when the answers are there.

Reads orders as lines of JSON from standard input. Each is carried out by a fork, since a compiler can be ended only
with its process; what all of them need is imported once. A fork writes its own process id, then what its compiler says,
into the order's folder, where the compiler's reports go too.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from trainer.config.tree import config_of
from trainer.data.prompts import Asked
from trainer.loop.mesh import build_mesh
from trainer.loop.program import Program, programs_of
from trainer.loop.task import Task
from trainer.methods.model import model_of
from trainer.model.files.known import planned_source
from trainer.objectives import objective_of

OUTPUT = "output.txt"
PROCESS_ID = "pid"

FLAGS = "--xla_dump_to={} --xla_dump_hlo_as_text --xla_dump_hlo_pass_re="


def devices_of(machine: dict[str, Any]) -> list[Any]:
    """Return the devices of an order, which can be compiled for and nothing else."""
    from jax.experimental import topologies

    if machine["platform"] == "gpu":
        topology = f"1x1x{machine['devices']}"
        found = topologies.get_topology_desc("g", "cuda", target_config=machine["description"], topology=topology)
        return list(found.devices)
    options: dict[str, Any] = {}
    if machine["chips_per_host"] is not None:
        options["chips_per_host_bounds"] = tuple(machine["chips_per_host"])
    if machine["chip_config"] is not None:
        options["chip_config_name"] = machine["chip_config"]
    return list(topologies.get_topology_desc(machine["topology"], "tpu", **options).devices)


def task_of(order: dict[str, Any]) -> Task:
    """Return the task of an order; of its model as many layers as are asked for."""
    config = config_of(order["config"])
    source = planned_source(config.model.name, config.model.revision)
    if order["layers"]:
        spec = source.spec
        source = replace(source, spec=replace(spec, blocks=spec.blocks[: order["layers"]]))
    return Task(
        config=config,
        model=model_of(config, source),
        objective=objective_of(config),
        mesh=build_mesh(devices_of(order["machine"])[: order["machine"]["devices"]]),
    )


def beside(program: Program, occupied_bytes: int, task: Task) -> Program:
    """Return a program beside which so many bytes of each device are occupied, from its begin to its end."""
    rows = max(occupied_bytes // (4 * 1024), 1) * task.mesh.size
    sharding = NamedSharding(task.mesh, PartitionSpec(task.mesh.axis_names[0]))
    occupied = jax.ShapeDtypeStruct((rows, 1024), jnp.float32, sharding=sharding)

    def both(occupied: Any, *arguments: Any) -> Any:
        return occupied, program.function(*arguments, **program.settings)

    donated = tuple(number + 1 for number in program.donated)
    static = tuple(number + 1 for number in program.static)
    function = jax.jit(both, donate_argnums=(0, *donated), static_argnums=static)
    return replace(program, function=function, arguments=(occupied, *program.arguments), settings={})


def compile_ordered(order: dict[str, Any]) -> dict[str, Any]:
    """Compile the program of an order and return JAX's own figures of its memory."""
    task = task_of(order)
    asked = Asked(**order["asked"]) if order["asked"] else None
    program = programs_of(task, asked=asked)[order["program"]]
    if order["occupied_bytes"]:
        program = beside(program, order["occupied_bytes"], task)
    analysis = program.compile().executable.memory_analysis()
    return {"peak_bytes": analysis.peak_memory_in_bytes}


def carry_out(order: dict[str, Any]) -> None:
    """Compile what is ordered and write what came of it; never returns to the orders."""
    folder = Path(order["folder"])
    output = os.open(folder / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.environ["XLA_FLAGS"] = FLAGS.format(folder)
    code = 1
    try:
        answer = compile_ordered(order)
        code = 0
    except jax.errors.JaxRuntimeError as error:
        answer = {"refusal": str(error)}
    except BaseException:  # noqa: BLE001 - a fork must not go on in its parent's place, whatever happened
        answer = {"failure": traceback.format_exc()[-2000:]}
    os.write(1, ("\n" + json.dumps(answer) + "\n").encode())
    os._exit(code)


def main() -> None:
    """Fork for each order on standard input, until it ends: then whoever ordered is gone, and so is all of this."""
    # What has ended leaves nothing behind.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    room = None
    for line in sys.stdin:
        order = json.loads(line)
        room = Path(order["folder"]).parent
        if (process := os.fork()) == 0:
            carry_out(order)
        written = Path(order["folder"]) / f"{PROCESS_ID}.new"
        written.write_text(str(process))
        written.rename(written.with_name(PROCESS_ID))
    if room is not None:
        shutil.rmtree(room, ignore_errors=True)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main()
