"""What can be measured of a machine: memory, processors, accelerators. A sensor that is missing gives None, by name.

NVIDIA's figures come from NVML (nvidia-ml-py, the extra `sensors`), a TPU's duty cycle from libtpu's monitoring library
(docs.cloud.google.com/tpu/docs/tpu-monitoring-library), memory of both from JAX. Nothing here touches an array.

It reads counters and writes a file of its own; the training thread never waits for it. What is written stays when the
run is killed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import psutil

from evidence import layout
from evidence.writing import RowWriter
from trainer.recorder.recorder import Recorder, clock_seconds, now

NVML, LIBTPU = "pynvml", "libtpu.sdk.tpumonitoring"
VISIBLE = "CUDA_VISIBLE_DEVICES"
Figures = dict[str, list[float | None]]

UTILISATION, TEMPERATURE, POWER = "device_utilisation_percent", "device_temperature_celsius", "device_power_watts"


class Sensor(Protocol):
    """Tells figures of the devices, one for each, in their order."""

    not_told: str
    """What it cannot measure, and why, as a sentence; may be empty."""

    def read(self) -> Figures:
        """Return the figures by their names in a row of system.jsonl; an empty list where none is measured."""


class HostSensor:
    """Load of the processors since the last reading, and memory of the host and of this process."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        psutil.cpu_percent()
        self._process.cpu_percent()

    def read(self) -> dict[str, float]:
        """Return memory in bytes and load in percent; of the process it is of one processor."""
        memory = psutil.virtual_memory()
        return {
            "host_memory_used_bytes": memory.total - memory.available,
            "host_memory_bytes": memory.total,
            "process_memory_bytes": self._process.memory_info().rss,
            "host_cpu_percent": min(psutil.cpu_percent(), 100.0),
            "process_cpu_percent": self._process.cpu_percent(),
        }


class NoSensor:
    """Nothing measures utilisation, temperature and power."""

    def __init__(self, not_told: str) -> None:
        self.not_told = not_told

    def read(self) -> Figures:
        """Return empty lists."""
        return {UTILISATION: [], TEMPERATURE: [], POWER: []}


class Nvidia:
    """NVIDIA's cards by NVML."""

    not_told = ""

    def __init__(self, nvml: ModuleType, numbers: Sequence[int], visible: str | None) -> None:
        """Find the cards.

        Args:
            nvml: the module pynvml, initialised.
            numbers: of the devices as JAX counts those that it sees.
            visible: what CUDA_VISIBLE_DEVICES states; numbers or ids of cards. None: all are seen.
        """
        self._nvml = nvml
        names = visible.split(",") if visible else [str(number) for number in range(max(numbers, default=0) + 1)]
        self._cards = [self._card(names[number].strip()) for number in numbers]

    def read(self) -> Figures:
        """Return utilisation in percent, temperature in degrees Celsius, power in watts."""
        nvml = self._nvml
        return {
            UTILISATION: [
                self._asked(lambda card: nvml.nvmlDeviceGetUtilizationRates(card).gpu, c) for c in self._cards
            ],
            TEMPERATURE: [
                self._asked(lambda card: nvml.nvmlDeviceGetTemperature(card, nvml.NVML_TEMPERATURE_GPU), c)
                for c in self._cards
            ],
            POWER: [self._asked(lambda card: nvml.nvmlDeviceGetPowerUsage(card) / 1000, c) for c in self._cards],
        }

    def _card(self, name: str) -> Any:
        by_id = not name.isdigit()
        return self._nvml.nvmlDeviceGetHandleByUUID(name) if by_id else self._nvml.nvmlDeviceGetHandleByIndex(int(name))

    def _asked(self, ask: Any, card: Any) -> float | None:
        try:
            return float(ask(card))
        except self._nvml.NVMLError:
            return None  # this card has no such sensor


class Tpu:
    """A TPU's chips by libtpu's monitoring library; it does not measure temperature and power."""

    not_told = "Temperature and power of a TPU are not told: libtpu has no such figures."

    def __init__(self, monitoring: ModuleType, count: int) -> None:
        self._monitoring = monitoring
        self._count = count

    def read(self) -> Figures:
        """Return the share of time in which each chip worked, in percent."""
        try:
            told = [float(value) for value in self._monitoring.get_metric("duty_cycle_pct").data()]
        except (RuntimeError, ValueError):
            told = []
        return {UTILISATION: list(told) if len(told) == self._count else [], TEMPERATURE: [], POWER: []}


def sensor_of(devices: Sequence[Any], environment: Mapping[str, str] = os.environ) -> Sensor:
    """Return what measures utilisation, temperature and power of these devices."""
    platform = devices[0].platform
    if platform == "cpu":
        return NoSensor("")
    if platform == "tpu":
        monitoring = _module(LIBTPU)
        if monitoring is None:
            return NoSensor("Utilisation of the TPU is not told: this libtpu has no monitoring library.")
        return Tpu(monitoring, len(devices))
    nvml = _module(NVML)
    if nvml is None:
        return NoSensor(
            'Utilisation, temperature, power of the GPU are not told; `pip install "trainproof[sensors]"` is for them.'
        )
    try:
        nvml.nvmlInit()
        return Nvidia(nvml, [device.local_hardware_id for device in devices], environment.get(VISIBLE))
    except (nvml.NVMLError, IndexError) as error:
        return NoSensor(f"Utilisation, temperature and power of the GPU are not told: NVML says {error}.")


def device_memory(devices: Sequence[Any]) -> Figures:
    """Return the bytes in use and the limit of each device, as JAX reports them; of a CPU empty lists."""
    stats = [device.memory_stats() or {} for device in devices]
    if not any(stats):
        return {"device_memory_used_bytes": [], "device_memory_limit_bytes": []}
    return {
        "device_memory_used_bytes": [each.get("bytes_in_use") for each in stats],
        "device_memory_limit_bytes": [each.get("bytes_limit") for each in stats],
    }


def _module(name: str) -> ModuleType | None:
    try:
        return import_module(name)
    except ImportError:
        return None


JOIN_SECONDS = 5.0
"""Longest wait for a reading that is under way when the run ends."""


class DataWait:
    """How long the training thread has waited for batches; the loop adds, the sampling thread reads."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.steps = 0

    def add(self, seconds: float) -> None:
        """Count the wait for the batch of one step."""
        self.seconds += seconds
        self.steps += 1


class SystemWatch:
    """Samples from `start` to `stop`, at intervals and at the end."""

    def __init__(
        self,
        folder: Path,
        *,
        every_seconds: float,
        devices: Sequence[Any],
        sensor: Sensor,
        wait: DataWait,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the counters for the first time.

        Args:
            folder: of the run.
            every_seconds: between rows.
            devices: of the run.
            sensor: of these devices.
            wait: for batches.
            clock: in seconds; shares are of its time.
        """
        self.error: OSError | None = None
        """Why no further row could be written. None: all were."""
        self._every_seconds = every_seconds
        self._devices, self._sensor, self._wait, self._clock = devices, sensor, wait, clock
        self._processors = HostSensor()
        self._before = (clock(), wait.seconds, wait.steps)
        self._file = folder / layout.SYSTEM
        self._rows: RowWriter
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="system", daemon=True)

    def start(self) -> None:
        """Make the file and begin to sample in a thread."""
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
        """Return the sensors' figures now; loads and shares are since the last row."""
        at, waited, steps = self._clock(), self._wait.seconds, self._wait.steps
        began, waited_before, steps_before = self._before
        self._before = (at, waited, steps)
        is_training = steps > steps_before and at > began
        return {
            "time": now(),
            "clock_seconds": clock_seconds(),
            **self._processors.read(),
            **device_memory(self._devices),
            **self._sensor.read(),
            "data_wait_fraction": min((waited - waited_before) / (at - began), 1.0) if is_training else None,
        }

    def _sample(self) -> None:
        try:
            # Loads are since the row before, so the first row comes with the first interval, or with the end.
            while not self._ended.wait(self._every_seconds):
                self._rows.append(self.row())
            self._rows.append(self.row())
        except OSError as error:
            self.error = error


def observe(recorder: Recorder, every_seconds: float | None, devices: Sequence[Any]) -> DataWait:
    """Begin to watch the machine until the run is sealed, and return what the loop counts its waiting in.

    Args:
        recorder: of the run; its log states what no sensor measures.
        every_seconds: between rows. None: nothing is watched.
        devices: of the run.
    """
    wait = DataWait()
    if every_seconds is None:
        return wait
    sensor = sensor_of(devices)
    if sensor.not_told:
        recorder.log("info", "not_told", sensor.not_told)
    system = SystemWatch(recorder.folder, every_seconds=every_seconds, devices=devices, sensor=sensor, wait=wait)

    def end() -> None:
        system.stop()
        if system.error is not None:
            recorder.log("warning", "system_not_written", f"{layout.SYSTEM} ends early: {system.error.strerror}")

    recorder.before_seal.append(end)
    system.start()
    return wait
