"""Memory is observed: a part's peak is what the system or an allocator counted, and nothing that a plan says."""

import mmap
from dataclasses import dataclass

import jax
import pytest

from trainer.recorder.memory import CLEAR_REFS, MemoryWatch

MIB = 2**20


def touched(size: int) -> mmap.mmap:
    """Return memory of the system that is really there: a byte of each page is written."""
    memory = mmap.mmap(-1, size)
    for at in range(0, size, mmap.PAGESIZE):
        memory[at] = 1
    return memory


@pytest.mark.skipif(not CLEAR_REFS.exists(), reason="only Linux keeps a peak that can begin anew")
def test_each_part_has_the_peak_of_its_own_time():
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
    """A device whose allocator counts."""

    peak: int
    platform: str = "gpu"

    def memory_stats(self) -> dict[str, int]:
        return {"peak_bytes_in_use": self.peak}


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


def test_nothing_is_observed_where_a_device_reports_nothing():
    watch = MemoryWatch([SilentChip()])
    assert (watch.document(), watch.peak_bytes()) == (None, None)


class SilentChip:
    """A device that reports no memory."""

    platform = "tpu"

    def memory_stats(self) -> None:
        return None
