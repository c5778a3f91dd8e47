"""The process that compiles one program for a TPU that is not here; its parent ends it when the answer is there.

Reads an order as JSON from standard input and writes one line of JSON. The compiler's reports go where XLA_FLAGS says.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import jax

from trainer.config.tree import config_of
from trainer.data.prompts import Asked
from trainer.loop.mesh import build_mesh
from trainer.loop.program import programs_of
from trainer.loop.task import Task
from trainer.methods.model import model_of
from trainer.model.files.source import resolve
from trainer.objectives import objective_of


def chips(name: str, chips_per_host: list[int] | None) -> list[Any]:
    """Return the chips that libtpu knows under a name such as `v5e:2x4`, as devices that can be compiled for."""
    from jax.experimental import topologies

    options: dict[str, Any] = {} if chips_per_host is None else {"chips_per_host_bounds": tuple(chips_per_host)}
    return list(topologies.get_topology_desc(name, "tpu", **options).devices)


def compile_ordered(order: dict[str, Any]) -> dict[str, Any]:
    """Compile the program of an order and return JAX's own figures of its memory."""
    config = config_of(order["config"])
    source = resolve(config.model.name, config.model.revision, with_weights=False)
    task = Task(
        config=config,
        model=model_of(config, source),
        objective=objective_of(config),
        mesh=build_mesh(chips(order["topology"], order["chips_per_host"])[: order["devices"]]),
    )
    asked = Asked(**order["asked"]) if order["asked"] else None
    analysis = programs_of(task, asked=asked)[order["program"]].compile().executable.memory_analysis()
    return {
        "peak_bytes": analysis.peak_memory_in_bytes,
        "allocated_bytes": analysis.argument_size_in_bytes
        + analysis.output_size_in_bytes
        + analysis.temp_size_in_bytes
        - analysis.alias_size_in_bytes,
        "arguments_bytes": analysis.argument_size_in_bytes,
    }


def main() -> None:
    """Compile what standard input orders; say what came of it on standard output."""
    try:
        answer = compile_ordered(json.load(sys.stdin))
    except jax.errors.JaxRuntimeError as error:
        answer = {"refusal": str(error)}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
