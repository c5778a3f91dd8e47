"""Measure the peak memory of a run: reported by the device's allocator, or the growth of the process on a CPU.

Growth is the peak resident memory minus that before the run's first array. Linux can reset the peak, so each phase of a
run has its own (`man 5 proc`, VmHWM and clear_refs); elsewhere there is one for the whole process.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import psutil

Part = Literal["prepare", "start", "decode", "rollout", "train", "save"]
"""Phases of a run: reading and compiling, its programs by their names in plan.json, writing checkpoints."""

BY_DEVICE = "device_allocator"
BY_PROCESS = "process_growth"

STATUS = Path("/proc/self/status")
CLEAR_REFS = Path("/proc/self/clear_refs")


class MemoryWatch:
    """Measures the peak memory of each phase of a run."""

    def __init__(self, devices: Sequence[Any]) -> None:
        """Start with the phase `prepare`; the fullest of several devices counts."""
        self._devices = list(devices)
        self._on_cpu = all(device.platform == "cpu" for device in self._devices)
        if self._on_cpu:
            return_freed_memory()
        self._bytes_before = int(psutil.Process().memory_info().rss) if self._on_cpu else 0
        self._peaks: dict[Part, int] = {}
        self._part: Part = "prepare"
        self._highest = 0
        self._has_parts = not self._on_cpu or reset_peak()

    def begins(self, part: Part) -> None:
        """Start another phase, without the memory that was freed before."""
        self._note()
        if self._on_cpu:
            return_freed_memory()
            reset_peak()
        self._part = part

    @contextmanager
    def during(self, part: Part) -> Iterator[None]:
        """Measure a block as a phase, then continue the phase before."""
        before = self._part
        self.begins(part)
        try:
            yield
        finally:
            self.begins(before)

    def peak_bytes(self) -> int | None:
        """Return the peak on the fullest device, or of the whole process on a CPU, or None if it is not reported."""
        self._note()
        return self._highest or None

    def document(self) -> dict[str, Any] | None:
        """Return the manifest's `result.observed_memory`, or None if memory is not reported."""
        self._note()
        if not self._peaks:
            return None
        grown = {name: max(peak - self._bytes_before, 0) for name, peak in self._peaks.items()}
        fullest = max(grown, key=lambda name: grown[name])
        return {
            "bytes": grown[fullest],
            "part": fullest if self._has_parts else None,
            "source": BY_PROCESS if self._on_cpu else BY_DEVICE,
            "held_before_bytes": self._bytes_before if self._on_cpu else None,
            "parts": [{"name": name, "bytes": size} for name, size in grown.items()] if self._has_parts else [],
        }

    def _note(self) -> None:
        """Add the peak since the last call to the current phase."""
        peak = process_peak_bytes() if self._on_cpu else device_memory_bytes(self._devices)
        if peak is None:
            return
        # An allocator's peak never shrinks: it belongs to this phase only if it grew.
        if self._on_cpu or peak > self._highest:
            self._peaks[self._part] = max(self._peaks.get(self._part, 0), peak)
        self._highest = max(self._highest, peak)


def device_memory_bytes(devices: Sequence[Any]) -> int | None:
    """Return the peak bytes in use on the fullest device, or None if they report none (a CPU)."""
    peaks = [(device.memory_stats() or {}).get("peak_bytes_in_use") for device in devices]
    return max((int(peak) for peak in peaks if peak is not None), default=None)


def process_peak_bytes() -> int | None:
    """Return the peak resident memory of this process, or None if the system does not count it."""
    if STATUS.is_file():
        lines = STATUS.read_text(encoding="ascii", errors="replace").splitlines()
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), None)
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def reset_peak() -> bool:
    """Reset the peak resident memory of this process and return whether the system supports that."""
    try:
        CLEAR_REFS.write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def return_freed_memory() -> None:
    """Return freed memory to the system (`man 3 malloc_trim`, glibc only); compilers free much at the end."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
