"""Sample memory, processor load and GPU sensors into system.jsonl while a run trains, and measure its peak memory.

Peak memory is read from the device's allocator. On a CPU it is the growth of the process: peak resident memory minus
the one before the run's first array. Linux can reset the peak, so each phase of a run has its own (`man 5 proc`, VmHWM
and clear_refs); elsewhere there is one for the whole process.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import psutil

from evidence import layout
from evidence.writing import RowWriter
from trainer.recorder.recorder import Recorder, clock_seconds, now

Part = Literal["prepare", "start", "decode", "rollout", "train", "save"]
"""Phases of a run: reading and compiling, its programs by their names in plan.json, writing checkpoints."""

BY_DEVICE, BY_PROCESS = "device_allocator", "process_growth"
STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
SHORTEST_SECONDS = 0.5
"""Shortest time between the last two rows; the system reports a load of 0 over shorter ones."""
JOIN_SECONDS = 5.0
"""Longest wait for a sample in progress when the run ends."""
NOT_RECORDED = "GPU utilization, temperature and power are not recorded"

GPU_QUERIES: Mapping[str, Callable[[Any, Any], float]] = {
    "device_utilisation_percent": lambda nvml, card: nvml.nvmlDeviceGetUtilizationRates(card).gpu,
    "device_temperature_celsius": lambda nvml, card: nvml.nvmlDeviceGetTemperature(card, nvml.NVML_TEMPERATURE_GPU),
    "device_power_watts": lambda nvml, card: nvml.nvmlDeviceGetPowerUsage(card) / 1000,
}
"""Query of NVML for each field of system.jsonl."""


class GpuSensor:
    """Reads utilization, temperature and power of NVIDIA GPUs."""

    def __init__(self, devices: Sequence[Any]) -> None:
        """Find the cards of the run's JAX devices; `CUDA_VISIBLE_DEVICES` maps JAX's numbers to cards."""
        self.missing = ""
        """Why the figures are not available, as a sentence, or an empty string."""
        self._cards: list[Any] = []
        if devices[0].platform != "gpu":
            return
        try:
            nvml = self._nvml = import_module("pynvml")
        except ImportError:
            self.missing = f'{NOT_RECORDED}; run `pip install "trainproof[sensors]"`.'
            return
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        numbers = [device.local_hardware_id for device in devices]
        try:
            nvml.nvmlInit()
            names = [visible.split(",")[number].strip() if visible else str(number) for number in numbers]
            by_index, by_id = nvml.nvmlDeviceGetHandleByIndex, nvml.nvmlDeviceGetHandleByUUID
            self._cards = [by_index(int(name)) if name.isdigit() else by_id(name) for name in names]
        except (nvml.NVMLError, IndexError) as error:
            self.missing = f"{NOT_RECORDED}: NVML reports {error}."

    def read(self) -> dict[str, list[float | None]]:
        """Return the figures of each card; None if it lacks a sensor, and empty lists without NVML."""
        return {field: [self._query(query, card) for card in self._cards] for field, query in GPU_QUERIES.items()}

    def _query(self, query: Callable[[Any, Any], float], card: Any) -> float | None:
        try:
            return float(query(self._nvml, card))
        except self._nvml.NVMLError:
            return None


def read_host(process: psutil.Process) -> dict[str, float]:
    """Return memory in bytes, and load in percent since the last call; the process uses up to 100 % per core."""
    memory = psutil.virtual_memory()
    return {
        "host_memory_used_bytes": memory.total - memory.available,
        "host_memory_bytes": memory.total,
        "process_memory_bytes": process.memory_info().rss,
        "host_cpu_percent": min(psutil.cpu_percent(), 100.0),
        "process_cpu_percent": process.cpu_percent(),
    }


def read_device_memory(devices: Sequence[Any]) -> dict[str, list[float | None]]:
    """Return bytes in use and limit of each device as JAX reports them, or empty lists for CPUs."""
    stats = [device.memory_stats() or {} for device in devices]
    fields = {"device_memory_used_bytes": "bytes_in_use", "device_memory_limit_bytes": "bytes_limit"}
    return {field: [each.get(name) for each in stats] if any(stats) else [] for field, name in fields.items()}


@dataclass
class DataWait:
    """Time that the training thread waited for batches; the loop adds to it, the sampling thread reads it."""

    seconds: float = 0.0
    steps: int = 0

    def add(self, seconds: float) -> None:
        """Record the wait for the batch of one step."""
        self.seconds += seconds
        self.steps += 1


class SystemWatch:
    """Samples the machine in a thread from `start` to `stop`, at intervals and once at the end.

    The training thread never waits for it.
    """

    def __init__(self, folder: Path, *, every_seconds: float, devices: Sequence[Any], wait: DataWait) -> None:
        """Find the sensors of the run's JAX devices and read the counters for the first time."""
        self.error: OSError | None = None
        """Why the rows end early, or None."""
        self.sensor = GpuSensor(devices)
        self._every_seconds = every_seconds
        self._devices, self._wait = devices, wait
        self._process = psutil.Process()
        read_host(self._process)
        self._before = (time.monotonic(), wait.seconds, wait.steps)
        self._file = folder / layout.SYSTEM
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="system", daemon=True)

    def start(self) -> None:
        """Create the file and start sampling."""
        self._rows = RowWriter(self._file)
        self._thread.start()

    def stop(self) -> None:
        """Take the last sample and close the file; a second call does nothing."""
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join(JOIN_SECONDS)
            if not self._thread.is_alive():
                self._rows.close()

    def row(self) -> dict[str, Any]:
        """Return a row of system.jsonl; loads and fractions cover the time since the last row."""
        began, waited_before, steps_before = self._before
        at, waited, steps = self._before = (time.monotonic(), self._wait.seconds, self._wait.steps)
        is_training = steps > steps_before and at > began
        return {
            "time": now(),
            "clock_seconds": clock_seconds(),
            **read_host(self._process),
            **read_device_memory(self._devices),
            **self.sensor.read(),
            "data_wait_fraction": min((waited - waited_before) / (at - began), 1.0) if is_training else None,
        }

    def _sample(self) -> None:
        try:
            psutil.cpu_percent()  # it counts from the last call in the same thread, and the first one returns 0
            # Loads cover the time since the row before, so the first row comes after the first interval.
            is_empty = True
            while not self._ended.wait(self._every_seconds):
                self._rows.append(self.row())
                is_empty = False
            if is_empty or time.monotonic() - self._before[0] >= SHORTEST_SECONDS:
                self._rows.append(self.row())
        except OSError as error:
            self.error = error


def observe(recorder: Recorder, every_seconds: float | None, devices: Sequence[Any]) -> DataWait:
    """Start sampling until the run is sealed if an interval is set; return the counter for the loop's waits."""
    wait = DataWait()
    if every_seconds is None:
        return wait
    system = SystemWatch(recorder.folder, every_seconds=every_seconds, devices=devices, wait=wait)
    if system.sensor.missing:
        recorder.log("info", "sensors_missing", system.sensor.missing)

    def end() -> None:
        system.stop()
        if system.error is not None:
            recorder.log("warning", "system_not_written", f"{layout.SYSTEM} ends early: {system.error.strerror}")

    recorder.before_seal.append(end)
    system.start()
    return wait


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
