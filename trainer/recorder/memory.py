"""The most memory that a run used: as the devices report it or, on a CPU, as the operating system does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any


def device_memory_bytes(devices: Sequence[Any]) -> int | None:
    """Return the peak bytes in use on the fullest device, None where devices report none (a CPU)."""
    peaks = [(device.memory_stats() or {}).get("peak_bytes_in_use") for device in devices]
    return max((int(peak) for peak in peaks if peak is not None), default=None)


def peak_memory_bytes(devices: Sequence[Any]) -> int | None:
    """Return the same or, on a CPU, the peak memory of this process."""
    reported = device_memory_bytes(devices)
    if reported is not None or any(device.platform != "cpu" for device in devices) or sys.platform == "win32":
        return reported
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
