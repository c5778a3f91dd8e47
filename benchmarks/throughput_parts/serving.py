"""What every loop has in common: the shapes, the tokens, and how steps are asked for and timed. Needs numpy alone.

A loop is a process: it makes its model, takes two steps that count for nothing (one of them compiles), and says so.
Then it reads numbers of steps from its standard input and answers each with the seconds that they took.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

SHAPE = {"embed": 256, "layers": 4, "heads": 4, "head_dim": 64, "mlp": 1024, "vocab": 32_000, "seq": 256, "batch": 8}
"""Of every loop: 12.4 million parameters, the token table tied to the head, no grouped queries."""
ADAMW = {"learning_rate": 1e-3, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.01}
"""At a constant rate, gradients not clipped, everything in float32."""
KINDS = 16
"""Different batches, taken in turn."""


def batches(shape: Mapping[str, int] = SHAPE) -> list[NDArray[np.int32]]:
    """Return batches of random tokens `[batch seq]`, the same in every loop."""
    numbers = np.random.default_rng(0)
    size = (shape["batch"], shape["seq"])
    return [numbers.integers(0, shape["vocab"], size, dtype=np.int32) for _ in range(KINDS)]


def serve(step: Callable[[int], float], **facts: Any) -> None:
    """Take the steps that are asked for until the input ends.

    Args:
        step: takes the step of this number, counted from 0, and returns its loss when it is done.
        facts: what is said of the loop, such as versions and parameters.
    """
    first, _ = step(0), step(1)
    say({**facts, "first_loss": first})
    done = 2
    for line in sys.stdin:
        loss, steps = first, int(line)
        cpu, wall = time.process_time(), time.perf_counter()
        for number in range(done, done + steps):
            loss = step(number)
        found = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall, "loss": loss}
        done += steps
        say({**found, "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024})


def say(value: dict[str, Any]) -> None:
    """Write a line of JSON."""
    print(json.dumps(value), flush=True)
