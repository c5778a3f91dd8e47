"""The time of a step from what it computes, moves and sends: the roofline (Williams et al., CACM 52(4), 2009).

A step cannot be faster than its arithmetic at the device's peak, nor than its bytes at the device's bandwidth, nor than
what the host and the device take to start it. Real steps take longer, so a step is a band until some are measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from trainer.planning.spending_rules import Band

LIKELY_EFFICIENCY = 0.4
"""Share of the floor's speed that a step is likely to reach.

Published fine-tuning and training steps reach 37 % (GPT-J on TPU v3-8) and 61 to 67 % (MaxText, 16B and 32B on v5e) of
peak where batches are filled, and 8 % where they are not (LLaMA-7B on v3-8, EasyLM issue 61).
"""

LIKELY_WITHIN = 2.0
"""Until a step has been measured on the device, it may take half as long as what is likely, or twice as long."""

MEASURED_WITHIN = 0.1
"""Another run of the same program is this near to the ones that were measured."""


def floor_seconds(
    *,
    flops: float,
    peak_flops: float,
    moved_bytes: float = 0.0,
    bandwidth: float | None = None,
    linked_bytes: float = 0.0,
    link_bandwidth: float | None = None,
) -> float:
    """Return the seconds below which no step of one device can be.

    The three limits overlap in time, so the largest counts: arithmetic, main memory, the link between devices.

    A TPU v5e chip (197e12 FLOP/s, 819e9 bytes/s) with 6 · 2.5e9 · 512 = 7.68e12 operations and 20e9 bytes:

    >>> round(floor_seconds(flops=7.68e12, peak_flops=197e12, moved_bytes=20e9, bandwidth=819e9), 4)
    0.039

    The same operations on 10 times the bytes wait for memory:

    >>> round(floor_seconds(flops=7.68e12, peak_flops=197e12, moved_bytes=200e9, bandwidth=819e9), 4)
    0.2442

    Args:
        flops: floating-point operations of the step on one device.
        peak_flops: what one device can do of them a second, in the element type that is computed in.
        moved_bytes: read from and written to main memory.
        bandwidth: of main memory, in bytes a second. None: not known, so it limits nothing.
        linked_bytes: received from other devices.
        link_bandwidth: of that link, in bytes a second. None: not known.
    """
    limits = [flops / peak_flops]
    if bandwidth is not None:
        limits.append(moved_bytes / bandwidth)
    if link_bandwidth is not None:
        limits.append(linked_bytes / link_bandwidth)
    return max(limits)


def step_band(floor: float) -> Band:
    """Return how long a step with this floor takes while none has been measured.

    >>> step_band(0.5)
    Band(low=0.625, likely=1.25, high=2.5)
    """
    likely = floor / LIKELY_EFFICIENCY
    return Band(low=likely / LIKELY_WITHIN, likely=likely, high=likely * LIKELY_WITHIN)


def band_document(band: Band) -> dict[str, float]:
    """Return a band as plan.json has it, with four digits."""
    return {name: _short(value) for name, value in (("low", band.low), ("likely", band.likely), ("high", band.high))}


def _short(value: float) -> float:
    """Return a number with four digits: what is not known better is not written longer."""
    return 0.0 if value == 0 else round(value, 3 - math.floor(math.log10(abs(value))))


def at_least(band: Band, seconds: float) -> Band:
    """Return a band no end of which is below a time.

    >>> at_least(Band(low=1, likely=2, high=4), 3)
    Band(low=3, likely=3, high=4)
    """
    return Band(low=max(band.low, seconds), likely=max(band.likely, seconds), high=max(band.high, seconds))


def narrowed(band: Band, ratios: Sequence[float]) -> Band:
    """Return a band narrowed by runs that were measured on the same kind of device.

    >>> narrowed(Band(low=5, likely=10, high=20), [0.8, 1.0, 1.2])
    Band(low=7.2, likely=10.0, high=13.2)

    Args:
        band: what was predicted.
        ratios: of each measured run, the observed step over the likely one of its own prediction. None measured: the
            band stays as it is.
    """
    if not ratios:
        return band
    return Band(
        low=round(band.likely * min(ratios) * (1 - MEASURED_WITHIN), 12),
        likely=band.likely * median(ratios),
        high=round(band.likely * max(ratios) * (1 + MEASURED_WITHIN), 12),
    )


def ridge(peak_flops: float, bandwidth: float) -> float:
    """Return the operations for each byte from which on a device computes instead of waiting for its memory.

    >>> round(ridge(197e12, 819e9))
    241
    """
    return peak_flops / bandwidth


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


GATHERS = 3
"""Each layer's parameters are gathered for the forward pass, for its repetition and for the backward pass."""


def exchanged_bytes(
    *,
    weights_bytes: float,
    gradients_bytes: float,
    devices: int,
    microbatches: int = 1,
    divided: bool,
    gathers: int = GATHERS,
) -> float:
    """Return the bytes that one device receives from the others in one optimizer step.

    Of what is divided over n devices each has 1/n and receives the rest, (n − 1)/n, for every gather; gradients are
    added up and divided in one pass (reduce-scatter). What is repeated on every device is never gathered; its gradients
    are added up and handed back (all-reduce, twice (n − 1)/n; Patarasuk and Yuan, JPDC 69(2), 2009).

    Gemma-2B in half precision, 5.0 GB, divided over two cards: 3 · 2.5 gathered and 2.5 of gradients.

    >>> exchanged_bytes(weights_bytes=5e9, gradients_bytes=5e9, devices=2, divided=True) / 1e9
    10.0

    Its adapters alone, 78 MB in float32, beside a whole model on each card:

    >>> exchanged_bytes(weights_bytes=5e9, gradients_bytes=78e6, devices=2, divided=False) / 1e6
    78.0

    Args:
        weights_bytes: of all parameters, in the type that they are sent in.
        gradients_bytes: of all gradients, of those that learn.
        devices: that share the work.
        microbatches: of a step; parameters are gathered for each, gradients are exchanged once.
        divided: whether parameters are (mesh.shard_params).
        gathers: of each parameter and microbatch; 2 where layers are not recomputed.
    """
    if devices == 1:
        return 0.0
    others = (devices - 1) / devices
    if divided:
        return others * (gathers * microbatches * weights_bytes + gradients_bytes)
    return 2 * others * gradients_bytes
