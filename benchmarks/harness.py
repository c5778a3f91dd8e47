"""What the benchmarks share: processes to measure, their costs, and results.

`measure` times training loops in environments of their own, interleaved so that all see the same machine load. A loop
builds its step, takes two warm-up steps (the first one compiles) and prints its facts as a line of JSON. Then it reads
step counts from stdin and prints the cost of each. Only the standard library is imported here: a peer's environment
does not have trainproof.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

REPOSITORY = Path(__file__).parents[1]
RESULTS = REPOSITORY / "benchmarks" / "results"
WARMUP = 2
BATCHES = 16
"""Number of different batches; loops cycle through them."""

Costs = dict[str, dict[str, float]]
"""Cost per step by loop."""


def run_script(main: Callable[[], int | None], **parts: Callable[..., Any]) -> None:
    """Run `main`, or the part that `--part NAME ARGUMENTS` names, which a script runs in a process of its own."""
    if sys.argv[1:2] == ["--part"]:
        parts[sys.argv[2]](*sys.argv[3:])
    else:
        sys.exit(main())


def part(*arguments: str, packages: Sequence[str] = ()) -> list[str]:
    """Return the command for a part of this script, with `packages` in an environment of their own.

    uv makes the environment and keeps it; `UV_FIND_LINKS` names a folder with further wheels, such as torch for CPUs.
    """
    wanted = [word for name in packages for word in ("--with", name)]
    uv = [sys.executable, "-m", "uv", "run", "--quiet", "--no-project", "--python", sys.executable, *wanted, "python"]
    return [*(uv if packages else [sys.executable]), sys.argv[0], "--part", *arguments]


def read_printed(command: Sequence[str], **options: Any) -> Any:
    """Run a command and parse the JSON that it prints."""
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options).stdout)


def trainproof(*arguments: str, settings: Mapping[str, Any] | None = None) -> list[str]:
    """Return a command of trainproof, with `--set` for each setting."""
    changes = [f"--set={key}={json.dumps(value)}" for key, value in (settings or {}).items()]
    return [str(Path(sys.executable).parent / "trainproof"), *arguments, *changes]


def child_seconds() -> float:
    """Return the CPU seconds of all processes that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@dataclass(frozen=True, kw_only=True)
class Loop:
    """A loop to measure: a part of the script with its arguments."""

    arguments: tuple[str, ...]
    packages: tuple[str, ...] = ()
    """Packages of a peer, which get an environment of their own; without any, this script's own is used."""
    one_core: bool = False
    """Pin to one core. Waiting torch threads spin, which dominates their CPU time on a busy machine."""

    def start(self) -> tuple[subprocess.Popen[str], dict[str, Any]]:
        """Start the process and return it with its facts."""
        variables = {"PYTHONPATH": str(REPOSITORY), "JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1"}
        variables |= {"TRANSFORMERS_VERBOSITY": "error"} | ({"OMP_NUM_THREADS": "1"} if self.one_core else {})
        process = subprocess.Popen(
            [
                *(("taskset", "--cpu-list", "0") if self.one_core else ()),
                *part(*self.arguments, packages=self.packages),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | variables,
        )
        return process, read_answer(process)


def read_answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Read the next line of JSON from a loop."""
    assert process.stdout is not None
    if not (line := process.stdout.readline()):
        message = f"{process.args!r} exited with {process.wait()}"
        raise SystemExit(message)
    answer: dict[str, Any] = json.loads(line)
    return answer


def take_steps(process: subprocess.Popen[str], steps: int) -> dict[str, float]:
    """Have a loop take some steps and return the cost per step; `loss` and `peak_rss_mib` are the last values."""
    assert process.stdin is not None
    print(steps, file=process.stdin, flush=True)
    cost = read_answer(process)
    return {name: value if name in ("loss", "peak_rss_mib") else value / steps for name, value in cost.items()}


def measure(loops: Mapping[str, Loop], *, rounds: int, steps: int) -> tuple[dict[str, dict[str, Any]], list[Costs]]:
    """Measure all loops in every round, in alternating order; return the facts by loop, and the costs of each round."""
    started = {name: loop.start() for name, loop in loops.items()}
    measured: list[Costs] = []
    for number in range(rounds):
        names = list(loops) if number % 2 == 0 else list(loops)[::-1]
        measured.append({name: take_steps(started[name][0], steps) for name in names})
        figures = ", ".join(f"{name}: {measured[-1][name]['cpu']:.2f}" for name in loops)
        print(f"round {number + 1}/{rounds}, CPU seconds per step: {figures}", flush=True)
    for process, _ in started.values():
        process.communicate()
    return {name: facts for name, (_, facts) in started.items()}, measured


def requested_steps(facts: Mapping[str, Any]) -> Iterator[dict[str, float]]:
    """Yield before each step that the parent process requests, after the warm-up; exit at the end of stdin.

    Yields:
        Values to report with the cost of the requested steps. `facts` are printed after the warm-up.
    """
    output, sys.stdout = sys.stdout, sys.stderr  # libraries print too
    for _ in range(WARMUP):
        yield {}
    print(json.dumps(facts), file=output, flush=True)
    for line in sys.stdin:
        values: dict[str, float] = {}
        with timed(values):
            for _ in range(int(line)):
                yield values
        values["peak_rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps(values), file=output, flush=True)
    raise SystemExit(0)


@contextmanager
def timed(values: dict[str, float], prefix: str = "") -> Iterator[None]:
    """Add CPU seconds of all threads of this process, and wall seconds, of a block to `cpu` and `wall`."""
    cpu, wall = time.process_time(), time.perf_counter()
    yield
    for name, seconds in (("cpu", time.process_time() - cpu), ("wall", time.perf_counter() - wall)):
        values[prefix + name] = values.get(prefix + name, 0) + seconds


def serve(step: Callable[[int], float], **facts: Any) -> None:
    """Serve a step function that takes its number, counted from 0, and returns the loss when it is done."""
    for number, values in enumerate(requested_steps(facts)):
        values["loss"] = step(number)
        facts.setdefault("first_loss", values["loss"])


def serve_trainer(config: Any, batch: int, seq: int) -> None:
    """Serve this trainer's step, as a run calls it, on random tokens that are all learned."""
    import jax
    import numpy as np

    task, _, state, frozen, program = compile_step(config)
    batches, mask = random_batches(batch, seq, task.model.source.spec.vocab), np.ones((1, batch, seq), np.bool_)

    def step(number: int) -> float:
        tokens = batches[number % BATCHES][None]
        state[0], metrics = program.call(state[0], frozen, {"tokens": tokens, "loss_mask": mask})
        return float(metrics.loss)

    serve(
        step,
        parameters=sum(prod(shape.shape) for shape in task.model.shapes.values()),
        trained=sum(value.size for value in state[0].trained.values()),
        tokens_per_step=batch * seq,
        versions=installed("jax", "flax", "optax"),
        devices=str(jax.devices()),
    )


def serve_torch(model: Any, optimizer: Any, batch: int, seq: int, **facts: Any) -> None:
    """Serve a plain torch loop over a transformers model; gradients are clipped to `max_grad_norm` if it is given."""
    import torch

    parameters = list(model.parameters())
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    data = [torch.from_numpy(one).long() for one in random_batches(batch, seq, model.config.vocab_size)]

    def step(number: int) -> float:
        tokens = data[number % BATCHES]
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        if max_grad_norm := facts.get("max_grad_norm"):
            torch.nn.utils.clip_grad_norm_(trained, max_grad_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())

    serve(
        step,
        parameters=sum(parameter.numel() for parameter in parameters),
        trained=sum(parameter.numel() for parameter in trained),
        tokens_per_step=batch * seq,
        devices=f"{torch.get_num_threads()} threads, attention {model.config._attn_implementation}",
        **facts,
    )


def compile_step(config: Any) -> tuple[Any, ...]:
    """Return task, data, train state in a list, frozen parameters and the compiled step of a configuration."""
    from trainer.inputs import read_inputs
    from trainer.loop.programs import train_program
    from trainer.loop.state import initial_state
    from trainer.runtime import choose_devices

    task, data = read_inputs(config, choose_devices("cpu", 1))
    return task, data, *initial_state(task), train_program(task).compile()


def random_batches(batch: int, seq: int, vocab: int) -> list[Any]:
    """Return `BATCHES` arrays of random tokens `[batch seq]`, the same in every loop."""
    import numpy as np

    numbers = np.random.default_rng(0)
    return [numbers.integers(0, vocab, (batch, seq), dtype=np.int32) for _ in range(BATCHES)]


def write_model(folder: Path, config: Mapping[str, Any], dtype: str | None = None) -> Path:
    """Write a model folder with the built-in tokenizer, and with random weights if a dtype is given.

    Norms are 1; other weights have the standard deviation 0.02.
    """
    import numpy as np

    from trainer.config.tree import build_config
    from trainer.model.export import SHARD_BYTES, write_weights
    from trainer.model.model import build_model
    from trainer.model.source import BUILTIN_TOKENIZER as FOLDER
    from trainer.model.source import resolve

    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"), dirs_exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if dtype is not None:
        source, random = resolve(str(folder), with_weights=False), np.random.default_rng(0)
        shapes = build_model(build_config({"model": {"name": str(folder)}}), source).shapes
        params = {
            name: np.asarray(
                random.normal(0, 0.02, shape.shape) if len(shape.shape) > 1 else np.ones(shape.shape), shape.dtype
            )
            for name, shape in shapes.items()
        }
        write_weights(folder, params, source.family.links(source.spec), dtype, SHARD_BYTES, lambda: None)
    return folder


def installed(*names: str) -> dict[str, str]:
    """Return the versions of packages."""
    return {name: version(name) for name in names}


def read_config(name: str, *settings: str) -> Any:
    """Return the configuration of a model with settings, texts of `key=value` between spaces."""
    from trainer.config.load import parse_setting, set_path
    from trainer.config.tree import build_config

    document: dict[str, Any] = {"model": {"name": name}}
    for key, _, value in (text.partition("=") for text in " ".join(settings).split()):
        set_path(document, key, parse_setting(value))
    return build_config(document)


def build_parser(doc: str | None, parts: Iterable[str] = ()) -> argparse.ArgumentParser:
    """Return a parser whose help is the docstring of a script, with the options of a script that measures `parts`."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if names := list(parts):
        parser.add_argument("--only", nargs="+", choices=names, help="measure these alone")
        parser.add_argument("--rounds", type=int, default=5)
        parser.add_argument("--steps", type=int, default=1, help="steps of each loop in each round")
    return parser


def run_loops(
    args: argparse.Namespace, loops: Mapping[str, Loop]
) -> tuple[dict[str, dict[str, Any]], list[Costs], dict[str, Any]]:
    """Measure loops; return their facts, the costs of each round, and the conditions."""
    from trainer.recorder.environment import environment

    load = os.getloadavg()
    facts, rounds = measure(loops, rounds=args.rounds, steps=args.steps)
    about = {
        "machine": environment() | {"load_average_before": load, "load_average_after": os.getloadavg()},
        "rounds": args.rounds,
        "steps_a_round": args.steps,
    }
    return facts, rounds, about


def ratios(rounds: Sequence[Costs], first: str, second: str, *keys: str) -> dict[str, Any]:
    """Return the spread over rounds of the first loop's costs over the second's."""
    return {key: spread([costs[first][key] / costs[second][key] for costs in rounds]) for key in keys}


def spread(values: Sequence[float], digits: int = 4) -> dict[str, float]:
    """Return minimum, median and maximum."""
    figures = {"min": min(values), "median": median(values), "max": max(values)}
    return {name: round(value, digits) for name, value in figures.items()}


def write_json(path: str | Path, document: Any) -> None:
    """Write a result, to benchmarks/results if the path is a name."""
    (RESULTS / path).write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")
