"""Sample memory, processor load and GPU sensors of the machine into system.jsonl while a run trains.

NVIDIA's figures come from NVML (`nvidia-ml-py`, the extra `sensors`), device memory from JAX. A background thread takes
the samples; the training thread never waits for it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil

from evidence import layout
from evidence.writing import RowWriter
from trainer.recorder.recorder import Recorder, clock_seconds, now

JOIN_SECONDS = 5.0
"""Longest wait for a sample in progress when the run ends."""

Figures = dict[str, list[float | None]]
"""One figure per device by field of system.jsonl; an empty list if it is not measured."""

NO_FIGURES: Figures = {
    "device_utilisation_percent": [],
    "device_temperature_celsius": [],
    "device_power_watts": [],
}


class HostSensor:
    """Measures memory of host and process, and processor load since the last reading."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        psutil.cpu_percent()
        self._process.cpu_percent()

    def read(self) -> dict[str, float]:
        """Return memory in bytes and load in percent; the load of the process is relative to one core."""
        memory = psutil.virtual_memory()
        return {
            "host_memory_used_bytes": memory.total - memory.available,
            "host_memory_bytes": memory.total,
            "process_memory_bytes": self._process.memory_info().rss,
            "host_cpu_percent": min(psutil.cpu_percent(), 100.0),
            "process_cpu_percent": self._process.cpu_percent(),
        }


class GpuSensor:
    """Reads utilization, temperature and power of NVIDIA GPUs; without NVML it returns empty lists.

    Attributes:
        missing: Why the figures are not available, as a sentence, or an empty string.
    """

    def __init__(self, devices: Sequence[Any], environment: Mapping[str, str] = os.environ) -> None:
        """Find the GPUs.

        Args:
            devices: JAX devices of the run.
            environment: Environment variables; `CUDA_VISIBLE_DEVICES` maps JAX's numbers to cards.
        """
        self.missing = ""
        self._cards: list[Any] = []
        if devices[0].platform != "gpu":
            return
        try:
            self._nvml = import_module("pynvml")
        except ImportError:
            self.missing = (
                'GPU utilization, temperature and power are not recorded; run `pip install "trainproof[sensors]"`.'
            )
            return
        numbers = [device.local_hardware_id for device in devices]
        visible = environment.get("CUDA_VISIBLE_DEVICES")
        names = visible.split(",") if visible else [str(number) for number in range(max(numbers) + 1)]
        try:
            self._nvml.nvmlInit()
            self._cards = [self._card(names[number].strip()) for number in numbers]
        except (self._nvml.NVMLError, IndexError) as error:
            self.missing = f"GPU utilization, temperature and power are not recorded: NVML reports {error}."

    def read(self) -> Figures:
        """Return utilization in percent, temperature in degrees Celsius and power in watts."""
        if not self._cards:
            return dict(NO_FIGURES)
        nvml = self._nvml
        queries: tuple[Callable[[Any], float], ...] = (
            lambda card: nvml.nvmlDeviceGetUtilizationRates(card).gpu,
            lambda card: nvml.nvmlDeviceGetTemperature(card, nvml.NVML_TEMPERATURE_GPU),
            lambda card: nvml.nvmlDeviceGetPowerUsage(card) / 1000,
        )
        return {
            name: [self._query(query, card) for card in self._cards]
            for name, query in zip(NO_FIGURES, queries, strict=True)
        }

    def _card(self, name: str) -> Any:
        if name.isdigit():
            return self._nvml.nvmlDeviceGetHandleByIndex(int(name))
        return self._nvml.nvmlDeviceGetHandleByUUID(name)

    def _query(self, query: Callable[[Any], float], card: Any) -> float | None:
        try:
            return float(query(card))
        except self._nvml.NVMLError:
            return None  # this card lacks the sensor


def device_memory(devices: Sequence[Any]) -> Figures:
    """Return bytes in use and limit of each device as JAX reports them, or empty lists for CPUs."""
    stats = [device.memory_stats() or {} for device in devices]
    return {
        "device_memory_used_bytes": [each.get("bytes_in_use") for each in stats] if any(stats) else [],
        "device_memory_limit_bytes": [each.get("bytes_limit") for each in stats] if any(stats) else [],
    }


class DataWait:
    """Time that the training thread waited for batches; the loop adds to it, the sampling thread reads it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.steps = 0

    def add(self, seconds: float) -> None:
        """Record the wait for the batch of one step."""
        self.seconds += seconds
        self.steps += 1


class SystemWatch:
    """Samples the machine in a thread from `start` to `stop`, at intervals and once at the end."""

    def __init__(
        self,
        folder: Path,
        *,
        every_seconds: float,
        devices: Sequence[Any],
        sensor: GpuSensor,
        wait: DataWait,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the counters for the first time.

        Args:
            folder: Run folder.
            every_seconds: Interval between rows.
            devices: JAX devices of the run.
            sensor: Sensor of these devices.
            wait: Waiting time of the training thread.
            clock: Clock in seconds.
        """
        self.error: OSError | None = None
        """Why the rows end early, or None."""
        self._every_seconds = every_seconds
        self._devices, self._sensor, self._wait, self._clock = devices, sensor, wait, clock
        self._host = HostSensor()
        self._before = (clock(), wait.seconds, wait.steps)
        self._file = folder / layout.SYSTEM
        self._rows: RowWriter
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="system", daemon=True)

    def start(self) -> None:
        """Create the file and start sampling."""
        self._rows = RowWriter(self._file)
        self._thread.start()

    def stop(self) -> None:
        """Take the last sample and close the file; a second call does nothing."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._thread.join(JOIN_SECONDS)
        if not self._thread.is_alive():
            self._rows.close()

    def row(self) -> dict[str, Any]:
        """Return a row of system.jsonl; loads and fractions cover the time since the last row."""
        at, waited, steps = self._clock(), self._wait.seconds, self._wait.steps
        began, waited_before, steps_before = self._before
        self._before = (at, waited, steps)
        is_training = steps > steps_before and at > began
        return {
            "time": now(),
            "clock_seconds": clock_seconds(),
            **self._host.read(),
            **device_memory(self._devices),
            **self._sensor.read(),
            "data_wait_fraction": min((waited - waited_before) / (at - began), 1.0) if is_training else None,
        }

    def _sample(self) -> None:
        try:
            # Loads cover the time since the row before, so the first row comes after the first interval.
            while not self._ended.wait(self._every_seconds):
                self._rows.append(self.row())
            self._rows.append(self.row())
        except OSError as error:
            self.error = error


def observe(recorder: Recorder, every_seconds: float | None, devices: Sequence[Any]) -> DataWait:
    """Start sampling until the run is sealed, and return the counter for the loop's waiting time.

    Args:
        recorder: Recorder of the run.
        every_seconds: Interval between rows, or None to record no samples.
        devices: JAX devices of the run.
    """
    wait = DataWait()
    if every_seconds is None:
        return wait
    sensor = GpuSensor(devices)
    if sensor.missing:
        recorder.log("info", "not_told", sensor.missing)
    system = SystemWatch(recorder.folder, every_seconds=every_seconds, devices=devices, sensor=sensor, wait=wait)

    def end() -> None:
        system.stop()
        if system.error is not None:
            recorder.log("warning", "system_not_written", f"{layout.SYSTEM} ends early: {system.error.strerror}")

    recorder.before_seal.append(end)
    system.start()
    return wait
