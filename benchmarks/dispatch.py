"""What the host does for each step however small the model is: the batch sent, the program called, the loss fetched.

The program takes and gives the demo's state and computes next to nothing, so what is left is the host's work. Processor
seconds, which a busy machine does not change. `trainer/planning/duration/roofline.py` states the figure.

    python benchmarks/dispatch.py            # prints the figures and writes benchmarks/results/dispatch.json
"""

from __future__ import annotations

import json
import platform
import sys
import time
from pathlib import Path
from statistics import median

import jax
import jax.numpy as jnp
import numpy as np

from trainer.config.load import load_config
from trainer.model.model import build_model
from trainer.model.source import resolve

RESULT = Path(__file__).parent / "results" / "dispatch.json"
CALLS, ROUNDS = 200, 15
MOMENTS = 2
"""Arrays of AdamW beside each parameter."""


def call_seconds() -> list[float]:
    """Return the processor seconds of a call, a round each."""
    config = load_config(Path("trainer/configs/demo.yaml"))
    shapes = build_model(config, resolve(config.model.name)).shapes
    state = {f"{name} {copy}": jnp.zeros((1,)) for name in shapes for copy in range(1 + MOMENTS)}
    batch = {name: np.zeros((1, config.batch.microbatch_size, config.data.max_length), np.int32) for name in "abc"}

    def step(state: dict[str, jax.Array], batch: dict[str, jax.Array]) -> tuple[dict[str, jax.Array], jax.Array]:
        return state, batch["a"][0, 0, 0].astype(jnp.float32)

    program = jax.jit(step, donate_argnums=0)
    found = []
    for _ in range(ROUNDS + 1):
        began = time.process_time()
        for _ in range(CALLS):
            state, loss = program(state, jax.device_put(batch))
            float(loss)
        found.append((time.process_time() - began) / CALLS)
    return found[1:]  # the first round compiles


def main() -> None:
    """Measure, print and write."""
    seconds = call_seconds()
    found = {
        "machine": f"{platform.machine()}, {jax.devices()[0].device_kind}",
        "calls": CALLS * ROUNDS,
        "host_microseconds_a_step": {
            "least": round(1e6 * min(seconds), 1),
            "median": round(1e6 * median(seconds), 1),
            "most": round(1e6 * max(seconds), 1),
        },
    }
    text = json.dumps(found, indent=2) + "\n"
    RESULT.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
