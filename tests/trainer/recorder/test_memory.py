"""Peak memory of each phase, as the system or a device's allocator counts it."""

import mmap
from dataclasses import dataclass

import jax
import pytest

from trainer.recorder.sensors import CLEAR_REFS, MemoryWatch

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
    assert document is not None
    parts = {each["name"]: each["bytes"] for each in document["parts"]}
    assert document["part"] == "save"
    assert parts["save"] == pytest.approx(96 * MIB, abs=16 * MIB)
    assert parts["train"] == pytest.approx(32 * MIB, abs=16 * MIB)
    assert parts["prepare"] < 16 * MIB
    assert watch.peak_bytes() == pytest.approx(document["held_before_bytes"] + parts["save"], abs=MIB)


@dataclass
class Card:
    """A device whose allocator reports a peak, or nothing."""

    peak: int | None
    platform: str = "gpu"

    def memory_stats(self) -> dict[str, int] | None:
        return None if self.peak is None else {"peak_bytes_in_use": self.peak}


def test_an_allocators_peak_belongs_to_the_part_in_which_it_grew():
    cards = [Card(peak=10), Card(peak=20)]
    watch = MemoryWatch(cards)
    watch.begins("train")
    cards[0].peak = 50
    watch.begins("save")
    assert watch.document() == {
        "bytes": 50,
        "part": "train",
        "source": "device_allocator",
        "held_before_bytes": None,
        "parts": [{"name": "prepare", "bytes": 20}, {"name": "train", "bytes": 50}],
    }
    assert watch.peak_bytes() == 50
    silent = MemoryWatch([Card(peak=None, platform="tpu")])
    assert (silent.document(), silent.peak_bytes()) == (None, None)
