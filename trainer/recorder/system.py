"""The machine at work: a thread that appends the sensors' figures to system.jsonl, every few seconds.

It reads counters and writes a file of its own; the training thread never waits for it. What is written stays when the
run is killed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from evidence.run import layout
from evidence.run.write import RowWriter
from trainer.recorder.recorder import Recorder, clock_seconds, now
from trainer.recorder.sensors import HostSensor, Sensor, device_memory, sensor_of

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
