"""What x86-64-v3 costs on a processor that has more: processor seconds of a train step and of compiling it.

    python benchmarks/processors.py

Each training runs natively and for x86-64-v3 in turn, each time in a process of its own: JAX reads the level once.
Nothing is taken from kept programs. A step is the median of those after the first three. Processor seconds are counted,
of all threads. Writes benchmarks/results/processors.json.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

RESULT = Path(__file__).parent / "results" / "processors.json"
LEVELS = ("native", "x86-64-v3")
ROUNDS = 3
SMOLLM2 = "HuggingFaceTB/SmolLM2-135M"
CASES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "demo, 8 × 64": ("demo", 40, {"batch": {"microbatch_size": 8}, "data": {"max_length": 64}}),
    "demo, 8 × 64, bfloat16": (
        "demo",
        40,
        {
            "batch": {"microbatch_size": 8},
            "data": {"max_length": 64},
            "precision": {"compute": "bfloat16"},
        },
    ),
    "SmolLM2-135M, adapters, 4 × 128": (
        SMOLLM2,
        6,
        {
            "batch": {"microbatch_size": 4},
            "data": {"max_length": 128},
            "method": {"kind": "lora", "rank": 16},
        },
    ),
}
"""By name: the model, steps, and settings."""


def measured(model: str, steps: int, settings: dict[str, Any], level: str) -> dict[str, float]:
    """Return processor seconds of compiling a train step and of one step, in this process."""
    import jax

    from trainer.config.tree import config_of
    from trainer.inputs import read_inputs
    from trainer.loop.mesh import batch_sharding
    from trainer.loop.programs import train_program
    from trainer.loop.state import initial_state
    from trainer.runtime import choose_devices, init_runtime

    own = {"model": {"name": model}, "mesh": {"device": "cpu", "devices": 1}, "evaluation": {"eval_set": None}}
    config = config_of(settings | own | {"precision": settings.get("precision", {}) | {"cpu_isa": level}})
    init_runtime(config)
    task, data = read_inputs(config, choose_devices("cpu", 1))
    began = time.process_time()
    program = train_program(task).compile()
    compiling = time.process_time() - began
    [state], frozen = initial_state(task)
    seconds = []
    for number in range(steps):
        batch = jax.device_put(data.source.batch(number), batch_sharding(task.mesh))
        began = time.process_time()
        state, _ = jax.block_until_ready(program.call(state, frozen, batch))
        seconds.append(time.process_time() - began)
    return {"compile": compiling, "step": median(seconds[3:])}


def in_process(*arguments: Any) -> dict[str, float]:
    """Return what `measured` returns in a process of its own."""
    environment = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false", "TRAINPROOF_CACHE_MIB": "0"}
    command = [sys.executable, __file__, json.dumps(arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure every case at both levels in turn, print ratios, write."""
    from observed_memory import model_files

    from trainer.recorder.environment import environment

    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        files = str(model_files(SMOLLM2, Path(scratch) / "model"))
        for name, (model, steps, settings) in CASES.items():
            rounds: dict[str, list[dict[str, float]]] = {level: [] for level in LEVELS}
            for _ in range(ROUNDS):
                for level in LEVELS:
                    rounds[level].append(in_process(files if model == SMOLLM2 else model, steps, settings, level))
            rows[name] = {
                what: {level: [round(each[what], 4) for each in rounds[level]] for level in LEVELS}
                | {
                    "ratio": round(
                        median(each[what] for each in rounds[LEVELS[1]])
                        / median(each[what] for each in rounds[LEVELS[0]]),
                        3,
                    )
                }
                for what in ("compile", "step")
            }
            print(name, json.dumps(rows[name]), flush=True)
            RESULT.write_text(json.dumps({"environment": environment(), "cases": rows}, indent=1) + "\n")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measured(*json.loads(sys.argv[1]))))
    else:
        main()
