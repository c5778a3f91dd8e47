"""Time training loops in processes and environments of their own, interleaved so that all see the same machine load.

A benchmark runs `SCRIPT --loop ARGUMENTS` for each loop, with the Python of the loop's environment. The loop builds its
step, takes two warm-up steps (the first one compiles) and prints its facts as a line of JSON. Then it reads step counts
from stdin and prints the cost of each. Only the standard library is imported here: a peer's environment does not have
trainproof.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results"
WARMUP = 2
BATCHES = 16
"""Number of different batches; loops cycle through them."""
ONE_CORE = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")

Costs = dict[str, dict[str, float]]
"""Cost per step by loop."""


@dataclass(frozen=True, kw_only=True)
class Loop:
    """A loop to measure: `script --loop arguments`."""

    script: str
    arguments: tuple[str, ...]
    environment: str | None = None
    """Name of the environment, or None for this script's own."""
    one_core: bool = False
    """Pin to one core. Waiting torch threads spin, which dominates their CPU time on a busy machine."""

    def start(self, environments: Path) -> tuple[subprocess.Popen[str], dict[str, Any]]:
        """Start the process and return it with its facts."""
        python = environments / self.environment / "bin" / "python" if self.environment else sys.executable
        command = [*(("taskset", "--cpu-list", "0") if self.one_core else ()), str(python), self.script, "--loop"]
        variables = {"PYTHONPATH": str(HERE.parent), "JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1"}
        variables |= dict.fromkeys(ONE_CORE, "1") if self.one_core else {}
        process = subprocess.Popen(
            [*command, *self.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TRANSFORMERS_VERBOSITY": "error", **variables},
        )
        return process, read_answer(process)


def read_answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Read the next line of JSON from a loop."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        message = f"{process.args!r} exited with {process.wait()}"
        raise SystemExit(message)
    answer: dict[str, Any] = json.loads(line)
    return answer


def take_steps(process: subprocess.Popen[str], steps: int) -> dict[str, float]:
    """Have a loop take some steps and return the cost per step; `loss` and `peak_rss_mib` are the last values."""
    assert process.stdin is not None
    process.stdin.write(f"{steps}\n")
    process.stdin.flush()
    cost = read_answer(process)
    return {name: value if name in ("loss", "peak_rss_mib") else value / steps for name, value in cost.items()}


def measure(
    loops: Mapping[str, Loop], environments: Path, *, rounds: int, steps: int
) -> tuple[dict[str, dict[str, Any]], list[Costs]]:
    """Measure all loops in every round, in alternating order; return the facts by loop, and the costs of each round."""
    started = {name: loop.start(environments) for name, loop in loops.items()}
    measured: list[Costs] = []
    for number in range(rounds):
        names = list(loops) if number % 2 == 0 else list(loops)[::-1]
        measured.append({name: take_steps(started[name][0], steps) for name in names})
        figures = ", ".join(f"{name}: {measured[-1][name]['cpu']:.2f}" for name in loops)
        print(f"round {number + 1}/{rounds}, CPU seconds per step: {figures}", flush=True)
    for process, _ in started.values():
        process.communicate()
    return {name: facts for name, (_, facts) in started.items()}, measured


class StepServer:
    """Take the steps that the parent process requests and report their cost; `facts` are printed after the warm-up."""

    def __init__(self, **facts: Any) -> None:
        self.facts = facts
        self.values: dict[str, float] = {}
        """Reported together with the cost of the requested steps."""
        self._done = self._left = 0
        self._began = 0.0, 0.0
        self._output, sys.stdout = sys.stdout, sys.stderr  # libraries print too

    def begin_step(self) -> None:
        """Wait until a step is requested; exit at the end of stdin."""
        if self._done >= WARMUP and self._left == 0:
            if self._done > WARMUP:
                cpu, wall = (end - began for end, began in zip(_clocks(), self._began, strict=True))
                memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                answer = {"cpu": cpu, "wall": wall, **self.values, "peak_rss_mib": memory}
            else:
                answer = self.facts
            print(json.dumps(answer), file=self._output, flush=True)
            if not (line := sys.stdin.readline()):
                raise SystemExit(0)
            self._left, self.values, self._began = int(line), {}, _clocks()
        self._done += 1
        self._left = max(0, self._left - 1)

    def add(self, name: str, value: float) -> None:
        """Add to a reported value."""
        self.values[name] = self.values.get(name, 0) + value

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Report the time of the block as `name_cpu` and `name_wall`."""
        began = _clocks()
        yield
        for clock, end, start in zip(("cpu", "wall"), _clocks(), began, strict=True):
            self.add(f"{name}_{clock}", end - start)


def serve(step: Callable[[int], float], **facts: Any) -> None:
    """Serve a step function that takes its number, counted from 0, and returns the loss when it is done."""
    server = StepServer(**facts)
    number = 0
    while True:
        server.begin_step()
        server.values["loss"] = step(number)
        server.facts.setdefault("first_loss", server.values["loss"])
        number += 1


def serve_trainer(config: Any, make_batches: Callable[[int], Sequence[Any]]) -> None:
    """Serve this trainer's step, as a run calls it, on batches of tokens that are made for a vocabulary size."""
    import jax

    task, _, state, frozen, program = compile_step(config)
    batches = make_batches(task.model.source.spec.vocab)

    def step(number: int) -> float:
        state[0], metrics = program.call(state[0], frozen, full_batch(batches[number % len(batches)]))
        return float(metrics.loss)

    serve(
        step,
        parameters=sum(prod(shape.shape) for shape in task.model.shapes.values()),
        trained=sum(value.size for value in state[0].trained.values()),
        tokens_per_step=batches[0].size,
        versions=installed("jax", "flax", "optax"),
        devices=str(jax.devices()),
    )


def compile_step(config: Any) -> tuple[Any, ...]:
    """Return task, data, train state in a list, frozen parameters and the compiled step of a configuration."""
    from trainer.inputs import read_inputs
    from trainer.loop.programs import train_program
    from trainer.loop.state import initial_state
    from trainer.runtime import choose_devices

    task, data = read_inputs(config, choose_devices("cpu", 1))
    return task, data, *initial_state(task), train_program(task).compile()


def copy_tokenizer(folder: str | Path) -> None:
    """Copy the built-in tokenizer into a model folder."""
    from trainer.model.tokenizer import FOLDER

    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"), dirs_exist_ok=True)


def _clocks() -> tuple[float, float]:
    """Return CPU seconds of all threads of this process, and wall seconds."""
    return time.process_time(), time.perf_counter()


def random_batches(batch: int, seq: int, vocab: int) -> list[Any]:
    """Return `BATCHES` arrays of random tokens `[batch seq]`, the same in every loop."""
    import numpy as np

    numbers = np.random.default_rng(0)
    return [numbers.integers(0, vocab, (batch, seq), dtype=np.int32) for _ in range(BATCHES)]


def full_batch(tokens: Any) -> dict[str, Any]:
    """Return a batch of this trainer with one microbatch, in which every token is learned."""
    import numpy as np

    return {"tokens": tokens[None], "loss_mask": np.ones((1, *tokens.shape), np.bool_)}


def installed(*names: str) -> dict[str, str]:
    """Return the versions of packages."""
    from importlib.metadata import version

    return {name: version(name) for name in names}


def describe_machine(*packages: str) -> dict[str, Any]:
    """Return system, Python, cores and versions of packages."""
    return {
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "cpu_count": os.cpu_count(),
        "packages": installed(*packages),
    }


def build_parser(doc: str, names: Sequence[str], *, rounds: int, steps: int) -> argparse.ArgumentParser:
    """Return a parser with the options of a comparison of loops."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=Path, required=True, help="folder for the peers' environments")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--steps", type=int, default=steps, help="steps of each loop in each round")
    parser.add_argument("--only", nargs="+", choices=names, help="measure these and write nothing")
    parser.add_argument("--find-links", type=Path, help="folder with further wheels, such as torch for CPUs")
    return parser


def make_environments(folder: Path, wanted: Mapping[str, Sequence[str]], wheels: Path | None) -> dict[str, str]:
    """Create missing environments with uv; return the error output by environment."""
    failed = {}
    for name, packages in sorted(wanted.items()):
        if (folder / name / "made").exists():
            continue
        links = () if wheels is None else ("--find-links", str(wheels))
        commands: Sequence[Sequence[str]] = (
            ("uv", "venv", "--quiet", "--clear", "--python", sys.executable, str(folder / name)),
            ("uv", "pip", "install", "--quiet", "--python", str(folder / name), *links, *packages),
        )
        for command in commands:
            done = subprocess.run((sys.executable, "-m", *command), capture_output=True, text=True, check=False)
            if done.returncode != 0:
                failed[name] = done.stderr.strip()[-500:]
                break
        else:
            (folder / name / "made").touch()
    return failed


def run_loops(
    args: argparse.Namespace, loops: Mapping[str, Loop], environments: Mapping[str, Sequence[str]]
) -> tuple[dict[str, dict[str, Any]], list[Costs], dict[str, Any]]:
    """Create environments, measure the loops that are installed, and return facts, costs and the conditions."""
    from trainer.recorder.environment import environment

    used = {loop.environment for loop in loops.values()}
    wanted = {name: packages for name, packages in environments.items() if name in used}
    missing = make_environments(args.environments, wanted, args.find_links)
    loops = {name: loop for name, loop in loops.items() if loop.environment not in missing}
    load = os.getloadavg()
    facts, rounds = measure(loops, args.environments, rounds=args.rounds, steps=args.steps)
    about = {
        "machine": environment() | {"load_average_before": load, "load_average_after": os.getloadavg()},
        "rounds": args.rounds,
        "steps_a_round": args.steps,
        "not_installed": missing,
    }
    return facts, rounds, about


def spread(values: Sequence[float], digits: int = 4) -> dict[str, float]:
    """Return minimum, median and maximum."""
    return {
        "min": round(min(values), digits),
        "median": round(median(values), digits),
        "max": round(max(values), digits),
    }


def write_json(path: Path, document: Any) -> None:
    """Write a result."""
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")
