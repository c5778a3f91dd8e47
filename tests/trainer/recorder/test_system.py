"""Samples of the machine (the system's own figures, a fake NVML), and the peak memory of each phase."""

import mmap
import sys
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import jax
import psutil
import pytest
from tasks import with_settings
from whole_runs import manifest_of, rows

from evidence import layout
from evidence.writing import RowWriter
from schemas.reading import read_rows
from trainer.recorder.sensors import CLEAR_REFS, DataWait, GpuSensor, MemoryWatch, SystemWatch, read_host


def fake_nvml(cards: dict[str, tuple[int, int, int | None]]) -> SimpleNamespace:
    """Return a module like pynvml: by number or id of a card its utilization, temperature and milliwatts."""
    milliwatts = {card: figures[2] for card, figures in cards.items() if figures[2] is not None}
    return SimpleNamespace(
        NVMLError=KeyError,
        NVML_TEMPERATURE_GPU=0,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=str,
        nvmlDeviceGetHandleByUUID=str,
        nvmlDeviceGetUtilizationRates=lambda card: SimpleNamespace(gpu=cards[card][0], memory=1),
        nvmlDeviceGetTemperature=lambda card, kind: cards[card][1],
        nvmlDeviceGetPowerUsage=milliwatts.__getitem__,
    )


def gpus(*numbers: int) -> list[SimpleNamespace]:
    return [SimpleNamespace(platform="gpu", local_hardware_id=number) for number in numbers]


def test_cards_are_those_that_cuda_shows(monkeypatch):
    nvml = fake_nvml({"0": (1, 2, 3000), "2": (97, 61, 70_500), "GPU-7": (50, 40, None)})
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert GpuSensor(gpus(0, 2)).read()["device_utilisation_percent"] == [1.0, 97.0]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, GPU-7")
    assert GpuSensor(gpus(0, 1)).read() == {
        "device_utilisation_percent": [97.0, 50.0],
        "device_temperature_celsius": [61.0, 40.0],
        "device_power_watts": [70.5, None],
    }
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    assert "NVML reports" in GpuSensor(gpus(0, 1)).missing


def test_a_run_without_nvml_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    sensor = GpuSensor(gpus(0))
    assert 'pip install "trainproof[sensors]"' in sensor.missing
    assert sensor.read()["device_power_watts"] == []
    assert GpuSensor([SimpleNamespace(platform="tpu")]).missing == ""


def test_the_memory_of_a_sample():
    host = read_host(psutil.Process())
    kib = next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in line)
    assert host["process_memory_bytes"] == pytest.approx(kib * 1024, rel=0.02)
    total = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    assert host["host_memory_bytes"] == total
    assert 0 < host["host_memory_used_bytes"] < total


def watching(folder: Path, **fields) -> SystemWatch:
    return SystemWatch(folder, **{"every_seconds": 0.1, "devices": jax.devices()[:1], "wait": DataWait()} | fields)


def test_the_share_of_waiting_by_hand(tmp_path, monkeypatch):
    """Of 10 seconds, 2 steps waited 1 and 1.5: a quarter. Then no step; then more than all is all."""
    clock, wait = iter([0.0, 10.0, 20.0, 30.0]), DataWait()
    monkeypatch.setattr("trainer.recorder.sensors.time", SimpleNamespace(monotonic=lambda: next(clock)))
    watch = watching(tmp_path, wait=wait)
    wait.add(1.0)
    wait.add(1.5)
    assert watch.row()["data_wait_fraction"] == 0.25
    assert watch.row()["data_wait_fraction"] is None
    wait.add(11.0)
    assert watch.row()["data_wait_fraction"] == 1.0


def test_rows_are_valid_and_on_disk_before_the_end(tmp_path):
    watch = watching(tmp_path)
    watch.start()
    file = tmp_path / layout.SYSTEM
    until = time.monotonic() + 20
    while len(file.read_bytes().splitlines()) < 2 and time.monotonic() < until:
        time.sleep(0.02)
    read = read_rows(file, "system_row")
    assert (read.problems, len(read.values) >= 2) == ((), True)
    watch.stop()
    watch.stop()
    written = [row["clock_seconds"] for row in read_rows(file, "system_row").values]
    assert len(written) >= len(read.values)
    # The load over some milliseconds would be 0.
    assert min(late - early for early, late in pairwise(written)) > 0.01


def test_a_full_disk_ends_the_rows_and_not_the_run(tmp_path, monkeypatch):
    watch = watching(tmp_path)
    monkeypatch.setattr(RowWriter, "append", Mock(side_effect=OSError(28, "No space left on device")))
    watch.start()
    watch.stop()
    assert watch.error.strerror == "No space left on device"


@pytest.mark.slow
def test_samples_do_not_change_the_bits_of_a_run(config, train):
    chains = []
    for name, every in (("with", 0.1), ("without", None)):
        folder = train(with_settings(config, recording={"system_every_seconds": every}), name)
        waited = [row["data_wait_fraction"] for row in rows(folder, layout.SYSTEM)] if every else [0.0]
        assert any(each is not None for each in waited)
        listed = [each["role"] for each in manifest_of(folder)["artifacts"] if each["path"] == layout.SYSTEM]
        assert listed == (["system"] if every else [])
        chains.append([row["state_sha256"] for row in rows(folder, layout.CHAIN)])
    assert chains[0] == chains[1]


MIB = 2**20


def touched(size: int) -> mmap.mmap:
    """Return resident memory: a byte of each page is written."""
    memory = mmap.mmap(-1, size)
    for at in range(0, size, mmap.PAGESIZE):
        memory[at] = 1
    return memory


@pytest.mark.skipif(not CLEAR_REFS.exists(), reason="only Linux can reset the peak")
def test_each_part_has_its_own_peak():
    watch = MemoryWatch(jax.devices("cpu")[:1])
    with watch.during("save"):
        touched(96 * MIB).close()
    watch.begins("train")
    kept = touched(32 * MIB)
    document = watch.document()
    kept.close()
    parts = {each["name"]: each["bytes"] for each in document["parts"]}
    assert document["part"] == "save"
    assert parts["save"] == pytest.approx(96 * MIB, abs=16 * MIB)
    assert parts["train"] == pytest.approx(32 * MIB, abs=16 * MIB)
    assert parts["prepare"] < 16 * MIB
    assert watch.peak_bytes() == pytest.approx(document["held_before_bytes"] + parts["save"], abs=MIB)


def test_an_allocators_peak_belongs_to_the_part_in_which_it_grew():
    stats = [{"peak_bytes_in_use": 10}, {"peak_bytes_in_use": 20}]
    watch = MemoryWatch([SimpleNamespace(platform="gpu", memory_stats=each.copy) for each in stats])
    watch.begins("train")
    stats[0]["peak_bytes_in_use"] = 50
    watch.begins("save")
    assert watch.document() == {
        "bytes": 50,
        "part": "train",
        "source": "device_allocator",
        "held_before_bytes": None,
        "parts": [{"name": "prepare", "bytes": 20}, {"name": "train", "bytes": 50}],
    }
    assert watch.peak_bytes() == 50
    silent = MemoryWatch([SimpleNamespace(platform="tpu", memory_stats=lambda: None)])
    assert (silent.document(), silent.peak_bytes()) == (None, None)
