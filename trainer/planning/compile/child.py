"""The process that compiles programs for devices that are not here; its parent ends it when the answers are there.

Reads orders as lines of JSON from standard input. Each is carried out by a fork, since a compiler can be ended only
with its process; what all of them need is imported once. A fork writes what its compiler says into the order's folder,
where the compiler's reports go too. When it has ended, this process writes how. A line that follows, an empty one too,
ends a fork that still compiles; so does the end of standard input.
"""

from __future__ import annotations

import json
import os
import select
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
from trainer.data.answers import EvalShape
from trainer.loop.compilation import Program, jitted
from trainer.loop.mesh import build_mesh
from trainer.loop.programs import programs_of
from trainer.loop.task import Task
from trainer.model.source import resolve_for_planning
from trainer.planning.compile.ahead import ANSWER, ENDED, OUTPUT

ORDERS = 0
"""Standard input."""

FLAGS = "--xla_dump_to={} --xla_dump_hlo_as_text --xla_dump_hlo_pass_re="


def devices_of(machine: dict[str, Any]) -> list[Any]:
    """Return the devices of an order; those of other machines can be compiled for and nothing else."""
    if machine["platform"] == "cpu":
        return list(jax.devices("cpu"))
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
    source = resolve_for_planning(config.model.name, config.model.revision)
    if order["layers"]:
        spec = source.spec
        source = replace(source, spec=replace(spec, blocks=spec.blocks[: order["layers"]]))
    machine = order["machine"]
    mesh = build_mesh(devices_of(machine)[: machine["devices"]])
    return Task.of(config, source, mesh, platform=machine["platform"])


def beside(program: Program, occupied_bytes: int, task: Task) -> Program:
    """Return a program beside which so many bytes of each device are occupied, from its begin to its end."""
    rows = max(occupied_bytes // (4 * 1024), 1) * task.mesh.size
    sharding = NamedSharding(task.mesh, PartitionSpec(task.mesh.axis_names[0]))
    occupied = jax.ShapeDtypeStruct((rows, 1024), jnp.float32, sharding=sharding)

    def both(occupied: Any, *arguments: Any) -> Any:
        # Options of the compiler belong to the outermost function.
        return occupied, program.function.__wrapped__(*arguments, **program.settings)

    donated = tuple(number + 1 for number in program.donated)
    static = tuple(number + 1 for number in program.static)
    function = jitted(task, both, donate_argnums=(0, *donated), static_argnums=static, keep_unused=True)
    return replace(program, function=function, arguments=(occupied, *program.arguments), settings={})


def compile_ordered(order: dict[str, Any]) -> dict[str, Any]:
    """Compile the program of an order and return JAX's own figures of its memory."""
    task = task_of(order)
    asked = EvalShape(**order["asked"]) if order["asked"] else None
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
    os.environ["XLA_FLAGS"] = f"{order['machine'].get('flags', '')} {FLAGS.format(folder)}"
    try:
        answer = compile_ordered(order)
    except jax.errors.JaxRuntimeError as error:
        answer = {"refusal": str(error)}
    except BaseException:  # noqa: BLE001 - a fork must not go on in its parent's place, whatever happened
        answer = {"failure": traceback.format_exc()[-2000:]}
    write(folder / ANSWER, answer)
    os._exit(0)


def write(file: Path, document: dict[str, Any]) -> None:
    """Write a file that is whole as soon as it is there."""
    new = file.with_name(f"{file.name}.new")
    new.write_text(json.dumps(document))
    new.rename(file)


def watch(process: int) -> int:
    """Wait until a fork has ended, and return how, as `os.waitpid` does; it is ended where an order or the end comes.

    Nobody asks whether a process of this number exists: numbers are used again, and a process that has ended without an
    answer must not be taken for one that is about to give it.
    """
    ended = os.pidfd_open(process)
    waiting = select.poll()
    waiting.register(ended, select.POLLIN)
    waiting.register(ORDERS, select.POLLIN | select.POLLHUP)
    if ended not in dict(waiting.poll()):
        os.kill(process, signal.SIGKILL)
    os.close(ended)
    return os.waitpid(process, 0)[1]


def main(room: Path) -> None:
    """Fork for each order on standard input, until it ends: then whoever ordered is gone, and so is all of this.

    Args:
        room: the folder that all orders' folders lie in; removed at the end.
    """
    # Unbuffered: what has been read ahead would not be seen by whoever waits for the next line.
    with open(ORDERS, "rb", buffering=0, closefd=False) as orders:
        while line := orders.readline():
            if not line.strip():
                continue
            order = json.loads(line)
            if (process := os.fork()) == 0:
                carry_out(order)
            status = watch(process)
            by_signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
            write(Path(order["folder"]) / ENDED, {"signal": by_signal})
    shutil.rmtree(room, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
