"""How long a step takes, from what it computes and moves: the roofline (Williams et al., CACM 52(4), 2009).

A step cannot be faster than its arithmetic at the device's peak, nor than its bytes at the device's bandwidth; the
slower of the two is the floor. Real steps take longer, so a step is stated as a band until measured steps narrow it.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from evidence.rules.spending.band import Band

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
