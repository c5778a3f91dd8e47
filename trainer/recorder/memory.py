"""The most memory that a run used: of its arrays, as the devices report it, and on a CPU of the whole process."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

REPORTED = "reported by the device"
COUNTED = "arrays that exist, and what the running program adds to them"


class PeakArrays:
    """The most bytes of arrays on the fullest device at one time, those of a running program among them.

    An accelerator counts them itself. A CPU does not: there the arrays that exist are counted when a program begins,
    and what it takes besides its arguments is added, as the runtime sets it aside.
    """

    def __init__(self, devices: Sequence[Any]) -> None:
        """Begin with nothing observed.

        Args:
            devices: of the run.
        """
        self._devices = list(devices)
        self._bytes = 0
        self._program: str | None = None
        self._running: str | None = None

    def begins(self, program: str, *, added_bytes: int | None) -> None:
        """Look at the memory at the begin of a program.

        Args:
            program: its name in the plan.
            added_bytes: what it takes besides its arguments on each device. None: not known, so it is not counted.
        """
        reported = device_memory_bytes(self._devices)
        if reported is not None:
            self._note(self._running or program, reported)  # the peak so far is that of the programs before
        elif added_bytes is not None:
            self._note(program, live_bytes(self._devices) + added_bytes)
        self._running = program

    def document(self) -> dict[str, Any] | None:
        """Return the manifest's `result.peak_arrays`; None: nothing was observed."""
        reported = device_memory_bytes(self._devices)
        if reported is not None and self._running is not None:
            self._note(self._running, reported)
        if self._program is None:
            return None
        return {"bytes": self._bytes, "program": self._program, "source": COUNTED if reported is None else REPORTED}

    def _note(self, program: str, used: int) -> None:
        if used > self._bytes:
            self._bytes, self._program = used, program


def live_bytes(devices: Sequence[Any]) -> int:
    """Return the bytes of all arrays that exist, on the one of these devices that has most of them.

    Arrays that share a buffer, as an array and its part on a device do, count once.
    """
    held: dict[tuple[Any, int], int] = {}
    for array in jax.live_arrays():
        for shard in array.addressable_shards:
            part = shard.data
            held[shard.device, part.unsafe_buffer_pointer()] = part.size * bits_of(part) // 8
    on_each = Counter[Any]()
    for (device, _), count in held.items():
        on_each[device] += count
    return max((on_each[device] for device in devices), default=0)


def bits_of(array: jax.Array) -> int:
    """Return the bits of one element: two 4-bit numbers share a byte, whatever NumPy makes of them."""
    is_whole = jnp.issubdtype(array.dtype, jnp.integer)
    return int(jnp.iinfo(array.dtype).bits) if is_whole else int(array.dtype.itemsize) * 8


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
