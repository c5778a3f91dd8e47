"""The most memory that a run took: what a device's allocator reports, or how far the process grew on a CPU.

An accelerator counts its own peak. On a CPU no one counts arrays, so the process is observed: the peak of its resident
memory, less what it held before the run's first array (Python and the libraries). Linux keeps that peak and begins it
anew on request, so that each part of a run has its own; elsewhere there is one peak for the whole process.
Source of the Linux counters: `man 5 proc`, VmRSS and VmHWM of /proc/self/status, and /proc/self/clear_refs.
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
"""Parts of a run: reading and compiling; then its programs, by their names in plan.json; writing checkpoints and
parameters."""

BY_DEVICE = "device_allocator"
BY_PROCESS = "process_growth"

STATUS = Path("/proc/self/status")
CLEAR_REFS = Path("/proc/self/clear_refs")
BEGIN_PEAK_ANEW = "5"
"""What Linux reads from clear_refs as: the peak of resident memory is what it is now."""


class MemoryWatch:
    """The peak of a run's memory by parts of the run, from the moment when this is made."""

    def __init__(self, devices: Sequence[Any]) -> None:
        """Begin with the part `prepare`.

        Args:
            devices: of the run; the fullest counts.
        """
        self._devices = list(devices)
        self._on_cpu = all(device.platform == "cpu" for device in self._devices)
        if self._on_cpu:
            return_freed_memory()
        self._held_before = resident_bytes() if self._on_cpu else 0
        self._peaks: dict[Part, int] = {}
        self._part: Part = "prepare"
        self._highest = 0
        self._has_parts = not self._on_cpu or begin_peak_anew()

    def begins(self, part: Part) -> None:
        """Note the peak of the part that ends, and begin another, without the memory that was freed before."""
        self._note()
        if self._on_cpu:
            return_freed_memory()
            begin_peak_anew()
        self._part = part

    @contextmanager
    def during(self, part: Part) -> Iterator[None]:
        """Count the block as a part; the one around it goes on afterwards."""
        around = self._part
        self.begins(part)
        try:
            yield
        finally:
            self.begins(around)

    def peak_bytes(self) -> int | None:
        """Return the peak so far on the fullest device, on a CPU of the whole process; None if nothing reports it."""
        self._note()
        return self._highest or None

    def document(self) -> dict[str, Any] | None:
        """Return the manifest's `result.observed_memory`, or None if nothing reports memory."""
        self._note()
        if not self._peaks:
            return None
        part = max(self._peaks, key=lambda name: self._peaks[name])
        grown = {name: max(peak - self._held_before, 0) for name, peak in self._peaks.items()}
        return {
            "bytes": grown[part],
            "part": part if self._has_parts else None,
            "source": BY_PROCESS if self._on_cpu else BY_DEVICE,
            "held_before_bytes": self._held_before if self._on_cpu else None,
            "parts": [{"name": name, "bytes": size} for name, size in grown.items()] if self._has_parts else [],
        }

    def _note(self) -> None:
        """Count the peak since the last look for the present part."""
        peak = process_peak_bytes() if self._on_cpu else device_memory_bytes(self._devices)
        if peak is None:
            return
        # An allocator's peak only grows: it is of the present part only if it grew in it.
        if self._on_cpu or peak > self._highest:
            self._peaks[self._part] = max(self._peaks.get(self._part, 0), peak)
        self._highest = max(self._highest, peak)
        if self._on_cpu and self._has_parts:
            begin_peak_anew()


def device_memory_bytes(devices: Sequence[Any]) -> int | None:
    """Return the peak bytes in use on the fullest device, or None if they report none (a CPU)."""
    peaks = [(device.memory_stats() or {}).get("peak_bytes_in_use") for device in devices]
    return max((int(peak) for peak in peaks if peak is not None), default=None)


def resident_bytes() -> int:
    """Return the bytes of this process that are in memory now."""
    return int(psutil.Process().memory_info().rss)


def process_peak_bytes() -> int | None:
    """Return the most bytes of this process that were in memory at once, or None if the system does not count them."""
    if STATUS.is_file():
        lines = STATUS.read_text(encoding="ascii", errors="replace").splitlines()
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), None)
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def begin_peak_anew() -> bool:
    """Let the peak of this process begin at what it holds now, and return whether the system does that."""
    try:
        CLEAR_REFS.write_text(BEGIN_PEAK_ANEW, encoding="ascii")
    except OSError:
        return False
    return True


def return_freed_memory() -> None:
    """Give memory that was freed back to the system; a compiler leaves much of it, which a run would count as its own.

    glibc keeps what was freed for its next allocations (`man 3 malloc_trim`); other C libraries have no such call.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
