"""The process that compiles programs for devices that are not here.

It imports JAX and the trainer once. Each order, a line of JSON on standard input, is compiled in a fork, because a
compiler can only be stopped with its process. The fork ends as soon as XLA has written its memory reports, which takes
seconds; machine code would take minutes. Each order is answered with a line of JSON. The process ends with its input.
"""

from __future__ import annotations

import json
import os
import select
import signal
import tempfile
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax

from trainer.config.tree import build_config
from trainer.data.answers import EvalShape
from trainer.loop.programs import list_programs
from trainer.loop.task import Task, build_mesh
from trainer.model.source import resolve_for_planning
from trainer.planning.compile import cache
from trainer.planning.compile.buffers import is_complete, read_memory
from trainer.planning.out_of_memory import parse

OUTPUT, ANSWER, KEY = "output.txt", "answer.json", "key.txt"
"""Files of an order: what the compiler printed, the answer of the fork, and the key in the cache."""

FLAGS = "--xla_dump_to={} --xla_dump_hlo_as_text --xla_dump_hlo_pass_re="
POLL_SECONDS = 0.05


def list_devices(machine: dict[str, Any]) -> list[Any]:
    """Return the devices of a machine."""
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


def compile_order(order: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Lower the program of an order and compile it, unless the cache has its answer."""
    config, machine = build_config(order["config"]), order["machine"]
    source = resolve_for_planning(config.model.name, config.model.revision)
    task = Task.of(
        config, source, build_mesh(list_devices(machine)[: machine["devices"]]), platform=machine["platform"]
    )
    asked = EvalShape(**order["asked"]) if order["asked"] else None
    program = list_programs(task, asked=asked)[order["program"]]
    lowered = program.function.trace(*program.arguments, **program.settings).lower()
    key = cache.cache_key(lowered.as_text(), machine=machine, options=task.compiler_options)
    if (known := cache.load(key)) is not None:
        return {"answer": known}
    (folder / KEY).write_text(key)
    lowered.compile()
    return {"failure": "it compiled the program and wrote no reports of its memory"}


def run_fork(order: dict[str, Any], folder: Path) -> None:
    """Carry out an order in a fork; never returns."""
    try:
        output = os.open(folder / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(output, stream)
        os.environ["XLA_FLAGS"] = f"{order['machine'].get('flags', '')} {FLAGS.format(folder)}"
        answer = compile_order(order, folder)
    except jax.errors.JaxRuntimeError as error:
        answer = {"refusal": str(error)}
    except BaseException:  # noqa: BLE001 - a fork must not return into its parent's loop, whatever happened
        answer = {"failure": traceback.format_exc().strip().rpartition("\n")[2]}
    new = folder / f"{ANSWER}.new"
    new.write_text(json.dumps(answer))
    new.rename(folder / ANSWER)
    os._exit(0)


def carry_out(order: dict[str, Any], answers: int) -> dict[str, Any]:
    """Return the answer to an order, `{"answer": …}` or `{"failure": reason}`."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="trainproof-compile-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if (process := os.fork()) == 0:
            os.close(answers)  # else the pipe would stay open if this process is killed
            run_fork(order, folder)
        ended = status = 0
        complete = late = False
        while not (ended or complete or late):
            time.sleep(POLL_SECONDS)
            ended, status = os.waitpid(process, os.WNOHANG)
            complete = is_complete(folder)
            # Input during an order is its end: nobody waits for the answer any more.
            late = time.monotonic() - began > order["limit_seconds"] or bool(select.select([0], [], [], 0)[0])
        if not ended:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        seconds = time.monotonic() - began
        said = json.loads((folder / ANSWER).read_text()) if (folder / ANSWER).is_file() else {}
        if complete:
            in_one_piece = order["machine"]["platform"] != "tpu"
            try:
                memory = asdict(read_memory(folder))
            except ValueError as error:
                return {"failure": str(error)}
            answer = {"memory": memory, "need_bytes": None, "seconds": seconds, "in_one_piece": in_one_piece}
        elif (failure := parse(said.get("refusal", ""))) is not None and failure.need_bytes is not None:
            answer = {"memory": None, "need_bytes": failure.need_bytes, "seconds": seconds, "in_one_piece": False}
        elif said:
            why = " ".join(said.get("refusal", said.get("failure", "")).split())[-300:]
            return said if "answer" in said else {"failure": f"The compiler refused the program: {why}"}
        elif late:
            return {"failure": f"The compiler gave no answer within {order['limit_seconds']:.0f} s"}
        else:
            return {"failure": f"The compiler gave no answer: {last_words(folder, status)}"}
        if (folder / KEY).is_file():
            cache.save((folder / KEY).read_text(), answer)
        return {"answer": answer}


def last_words(folder: Path, status: int) -> str:
    """Describe the end of a fork that wrote no answer."""
    output = folder / OUTPUT
    said = output.read_text(encoding="utf-8", errors="replace") if output.is_file() else ""
    last = said.strip().rpartition("\n")[2][-300:]
    if not os.WIFSIGNALED(status):
        return last or "the compiler process exited without output"
    name = signal.Signals(os.WTERMSIG(status)).name
    cause = " (usually out of host memory)" if name == "SIGKILL" else ""
    return f"the compiler process was ended by {name}{cause}" + (f"; its last output: {last}" if last else "")


def main() -> None:
    """Answer orders until standard input ends."""
    answers = os.dup(1)
    os.dup2(2, 1)  # libraries print
    # Unbuffered, so that `select` sees the end of the input.
    with open(0, "rb", buffering=0, closefd=False) as orders:
        while line := orders.readline():
            os.write(answers, json.dumps(carry_out(json.loads(line), answers)).encode() + b"\n")


if __name__ == "__main__":
    main()
