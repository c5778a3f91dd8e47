"""The time that a step takes however small the model is: the host's work, and what a device waits for each operation.

A roofline knows arithmetic and bytes alone, so that a small model's step seems to take microseconds.
"""

from __future__ import annotations

HOST_STEP_SECONDS = 350e-6
"""The host sends a batch, calls the program with a state of AdamW, and fetches the loss. Measured on a CPU, in
processor seconds (`benchmarks/dispatch.py`); assumed of every host."""

LAUNCH_SECONDS = {"cpu": 0.0, "gpu": 2.6e-6, "tpu": 0.0}
"""Between two kernels. GPU: the bare call that launches one on a B200 (NVIDIA/cutlass issue 3418). The others run a
program as a whole."""

CALL_SECONDS = {"cpu": 0.0, "gpu": 0.0, "tpu": 150e-6}
"""A program's call beside its own time on the device. TPU: 273 µs of call and wait for 119 µs of program in a published
trace (ayaka14732.github.io/pallas-tpu-tutorial, chapter 3)."""

EXCHANGE_SECONDS = {"cpu": 0.0, "gpu": 0.0, "tpu": 5e-6}
"""The smallest exchange between devices. TPU: 4.5 to 5.9 µs on v5p and v6e (marin-community/marin issue 6736)."""

FORWARD_PRODUCTS = 9
"""Products of a layer: seven projections, scores, and their sum of values; each is at least one kernel."""


def dispatch_seconds(
    platform: str, *, layers: int, passes: int, microbatches: int = 1, gathers: int = 0, calls: int = 1
) -> float:
    """Return the seconds below which a step is not, whatever it computes.

    The demo's 4 layers on 8 chips: 350 µs of the host, 150 of the call, and 4 · (3 gathers + 1 sum) exchanges of 5 µs.

    >>> round(1e6 * dispatch_seconds("tpu", layers=4, passes=4, gathers=3))
    580

    On a card the host works beside 28 · 9 · 4 kernels of 2.6 µs: the longer of the two counts.

    >>> [round(1e6 * dispatch_seconds("gpu", layers=layers, passes=4)) for layers in (3, 28)]
    [350, 2621]

    Args:
        platform: of the device.
        layers: of the model.
        passes: over each layer in units of a forward pass: 4 with what is computed again, 3 without; 1 of decoding.
        microbatches: of a step.
        gathers: of each layer's parameters, where these are divided over devices.
        calls: of the program by the host. 0: a loop on the device calls.
    """
    launches = layers * FORWARD_PRODUCTS * passes * microbatches * LAUNCH_SECONDS[platform]
    exchanges = layers * (gathers * microbatches + 1) * EXCHANGE_SECONDS[platform] if gathers else 0.0
    return max(calls * HOST_STEP_SECONDS, launches) + calls * CALL_SECONDS[platform] + exchanges
