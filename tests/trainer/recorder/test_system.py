"""What is sampled of the machine: held against the system's own words, a stand-in for NVML, and the bits of a run.

NVML is stood in for by a module with the functions of nvidia-ml-py that are used; no card is asked here.
"""

import json
import resource
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest
from whole_runs import carried_out

from evidence import layout
from evidence.run import read_run
from evidence.writing import RowWriter
from schemas.reading import read_rows
from trainer.loop.stopwatch import TimedSource
from trainer.recorder import sensors
from trainer.recorder.sensors import DataWait, HostSensor, NoSensor, Nvidia, SystemWatch, Tpu, sensor_of


class NoAnswerError(Exception):
    """As pynvml.NVMLError."""


def nvml_of(cards: dict[str, tuple[int, int, int | None]]) -> SimpleNamespace:
    """Return a module like pynvml: by number or id of a card its utilisation, temperature and milliwatts."""

    def power(card: str) -> int:
        milliwatts = cards[card][2]
        if milliwatts is None:
            raise NoAnswerError
        return milliwatts

    return SimpleNamespace(
        NVMLError=NoAnswerError,
        NVML_TEMPERATURE_GPU=0,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=str,
        nvmlDeviceGetHandleByUUID=lambda name: name,
        nvmlDeviceGetUtilizationRates=lambda card: SimpleNamespace(gpu=cards[card][0], memory=1),
        nvmlDeviceGetTemperature=lambda card, kind: cards[card][1],
        nvmlDeviceGetPowerUsage=power,
    )


def test_cards_are_those_that_cuda_shows(monkeypatch: pytest.MonkeyPatch):
    nvml = nvml_of({"0": (1, 2, 3000), "2": (97, 61, 70_500), "GPU-7": (50, 40, None)})
    monkeypatch.setattr(sensors, "_module", lambda name: nvml)
    devices = [SimpleNamespace(platform="gpu", local_hardware_id=number) for number in (0, 1)]
    told = sensor_of(devices, {"CUDA_VISIBLE_DEVICES": "2, GPU-7"}).read()
    assert told == {
        "device_utilisation_percent": [97.0, 50.0],
        "device_temperature_celsius": [61.0, 40.0],
        "device_power_watts": [70.5, None],
    }
    assert Nvidia(nvml, [0, 2], None).read()["device_utilisation_percent"] == [1.0, 97.0]


def test_without_nvml_a_run_says_what_is_not_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sensors, "_module", lambda name: None)
    gpu = sensor_of([SimpleNamespace(platform="gpu", local_hardware_id=0)], {})
    tpu = sensor_of([SimpleNamespace(platform="tpu")], {})
    assert gpu.not_told == (
        'Utilisation, temperature, power of the GPU are not told; `pip install "trainproof[sensors]"` is for them.'
    )
    assert tpu.not_told == "Utilisation of the TPU is not told: this libtpu has no monitoring library."
    assert gpu.read()["device_power_watts"] == []


def test_a_tpu_tells_the_duty_cycle_of_each_chip():
    told = SimpleNamespace(
        get_metric=lambda name: SimpleNamespace(data=lambda: {"duty_cycle_pct": ["45.5", "0"]}[name])
    )
    assert Tpu(told, 2).read()["device_utilisation_percent"] == [45.5, 0.0]
    assert Tpu(told, 8).read()["device_utilisation_percent"] == []


def test_memory_of_the_process_is_what_the_system_says():
    told = HostSensor().read()
    kib = next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in line)
    assert told["process_memory_bytes"] == pytest.approx(kib * 1024, rel=0.02)
    total = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    assert told["host_memory_bytes"] == total
    assert 0 < told["host_memory_used_bytes"] < total


def test_the_share_of_waiting_by_hand(tmp_path: Path):
    """Of 10 seconds, 2 steps waited 1 and 1.5: a quarter. Then no step; then more than all is all."""
    clock, wait = iter([0.0, 10.0, 20.0, 30.0]), DataWait()
    watch = SystemWatch(
        tmp_path,
        every_seconds=5,
        devices=jax.devices()[:1],
        sensor=NoSensor(""),
        wait=wait,
        clock=lambda: next(clock),
    )
    wait.add(1.0)
    wait.add(1.5)
    assert watch.row()["data_wait_fraction"] == 0.25
    assert watch.row()["data_wait_fraction"] is None
    wait.add(11.0)
    assert watch.row()["data_wait_fraction"] == 1.0


def test_waiting_is_counted_and_batches_are_the_same():
    wait = DataWait()
    source = SimpleNamespace(batch=lambda step: time.sleep(0.02) or {"step": step}, tokens_before=lambda step: 7 * step)
    waited = TimedSource(source, wait)
    assert [waited.batch(step)["step"] for step in range(3)] == [0, 1, 2]
    assert waited.tokens_before(2) == 14
    assert wait.steps == 3
    assert wait.seconds >= 0.06


def test_rows_are_valid_and_stay_when_nobody_ends_them(tmp_path: Path):
    watch = SystemWatch(tmp_path, every_seconds=0.1, devices=jax.devices()[:1], sensor=NoSensor(""), wait=DataWait())
    watch.start()
    file = tmp_path / layout.SYSTEM
    until = time.monotonic() + 20
    while len(file.read_bytes().splitlines()) < 2 and time.monotonic() < until:
        time.sleep(0.02)
    read = read_rows(file, "system_row")
    assert (read.problems, len(read.values) >= 2) == ((), True)
    watch.stop()
    watch.stop()
    assert len(read_rows(file, "system_row").values) > len(read.values)


def test_a_full_disk_ends_the_rows_and_not_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    watch = SystemWatch(tmp_path, every_seconds=0.1, devices=jax.devices()[:1], sensor=NoSensor(""), wait=DataWait())

    def full(self: RowWriter, row: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RowWriter, "append", full)
    watch.start()
    watch.stop()
    assert watch.error is not None
    assert watch.error.strerror == "No space left on device"


@pytest.mark.slow
def test_a_run_has_the_same_bits_with_and_without(config, order_of):
    chains = []
    for name, every in (("with", 0.1), ("without", None)):
        changed = replace(config, recording=replace(config.recording, system_every_seconds=every))
        order = order_of(changed, name)
        assert carried_out(order) == 0
        assert ((order.folder / layout.SYSTEM).exists()) is (every is not None)
        rows = [json.loads(line) for line in (order.folder / layout.CHAIN).read_text().splitlines()]
        chains.append([row["state_sha256"] for row in rows])
    assert chains[0] == chains[1]
    listed = (read_run(order.folder.parent / "with").manifest or {})["artifacts"]
    assert [each["role"] for each in listed if each["path"] == layout.SYSTEM] == ["system"]


def test_a_sample_costs_little_processor_time():
    """At one sample in five seconds half a percent of a processor is 25 ms; it takes less than a fifth of that."""
    processors, began = HostSensor(), resource.getrusage(resource.RUSAGE_THREAD)
    for _ in range(20):
        processors.read()
    ended = resource.getrusage(resource.RUSAGE_THREAD)
    assert (ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime) / 20 < 0.005
