"""Where sums send the compiler: to the line between what fits and what does not, corrected by its own answers."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from evidence.targets import load_target
from trainer.config.tree import BatchConfig, Config, ModelConfig
from trainer.data.answers import EvalShape
from trainer.loop.task import Task
from trainer.planning.compile.machines import V5E_1
from trainer.planning.estimator import Estimator
from trainer.planning.extrapolate import expected, ratios_of
from trainer.planning.program_memory import ProgramMemory
from trainer.planning.sizes import largest_microbatch, open_cell
from trainer.planning.subject import Subject, subject_of
from trainproof.terminal.plans import largest_in_words

SUMMED = ProgramMemory(
    name="train",
    way="closed_form",
    peak_bytes=50,
    available_bytes=100,
    error_fraction=0.1,
    because="added up",
    seconds=None,
    parts=(),
)


def test_a_sum_is_multiplied_by_what_the_compiler_said_of_the_same_program():
    compiled = replace(SUMMED, way="compiler", peak_bytes=60)
    ratios = ratios_of([compiled, replace(SUMMED, name="start")], [SUMMED, replace(SUMMED, name="start")])
    assert ratios == {"train": 1.2}
    larger = [replace(SUMMED, peak_bytes=80), replace(SUMMED, name="start", peak_bytes=80)]
    assert [each.peak_bytes for each in expected(larger, ratios)] == [96, 80]
    assert [each.verdict for each in expected(larger, ratios)] == ["tight", "fits"]
    assert [each.verdict for each in expected(larger, ratios, error_fraction=0.02)] == ["fits", "fits"]


def test_of_each_length_the_largest_size_that_fits_is_asked_about_then_the_next_that_is_tight():
    needs = {(128, 1): 40, (128, 2): 80, (128, 4): 95, (256, 1): 80, (256, 2): 200}
    found = {cell: replace(SUMMED, peak_bytes=need) for cell, need in needs.items()}
    asked: set[tuple[int, int]] = set()
    order = []
    while (cell := open_cell(found, asked)) is not None:
        asked.add(cell)
        order.append(cell)
    assert order == [(128, 2), (256, 1), (128, 4)]


def test_where_the_compiler_refuses_a_size_the_next_smaller_is_open():
    found = {(128, size): replace(SUMMED, peak_bytes=40 * size) for size in (1, 2, 4)}
    assert open_cell(found, set()) == (128, 2)
    found[128, 2] = replace(SUMMED, way="compiler", peak_bytes=120)
    assert open_cell(found, {(128, 2)}) == (128, 1)
    assert open_cell(found, {(128, 2), (128, 1)}) is None


@dataclass(frozen=True, kw_only=True)
class Needing(Estimator):
    """An estimator whose sums say a unit a sequence, and whose compiler says what it is given."""

    compiled: Callable[[int], int]
    asked: list[int] = field(default_factory=list)

    def programs(self, task: Task, asked: EvalShape | None) -> list[ProgramMemory]:
        size = task.config.batch.microbatch_size
        if self.machine is None:
            return [replace(SUMMED, peak_bytes=size, available_bytes=self.available_bytes)]
        self.asked.append(size)
        found = replace(SUMMED, way="compiler", peak_bytes=self.compiled(size), error_fraction=self.compiled_error)
        return [replace(found, available_bytes=self.available_bytes)]


@pytest.fixture(scope="module")
def demo() -> Subject:
    return subject_of(Config(model=ModelConfig(name="demo")), load_target("tpu-v5e-1"))


def searched(
    demo: Subject, compiled: Callable[[int], int], *, size: int, platform: str = "gpu", memory: int | None = 100
) -> tuple[dict[str, Any] | None, list[int]]:
    run = demo.changed(replace(demo.task.config, batch=BatchConfig(microbatch_size=size)))
    asking = Needing(platform=platform, available_bytes=memory, machine=V5E_1, compiled=compiled)
    programs = asking.programs(run.task, None)
    asking.asked.clear()
    return largest_microbatch(run, asking, programs=programs, say=lambda line: None), asking.asked


def test_the_search_looks_with_the_error_that_answers_are_judged_with(demo: Subject):
    """A card's answer may be off by 5 %: of 100 units 95 sequences are the most."""
    most, asked = searched(demo, lambda size: size, size=64)
    assert most is not None
    assert (most["microbatch_size"], most["need_bytes"], asked[0]) == (95, 95, 95)


def test_after_a_refusal_the_search_halves_and_falls_back_on_the_configured_size(demo: Subject):
    """A compiler that needs half as much again from 65 sequences on; the sums expect 95 of them to fit."""
    most, asked = searched(demo, lambda size: size if size <= 64 else size + size // 2, size=48)
    assert asked == [95, 71, 59, 65]
    assert most is not None
    assert (most["microbatch_size"], most["method"]) == (59, "compiler")
    nothing_larger, _ = searched(demo, lambda size: size if size == 48 else 1000, size=48)
    assert nothing_larger is not None
    assert nothing_larger["microbatch_size"] == 48


def test_a_search_that_finds_nothing_ends_at_one_sequence_and_says_so(demo: Subject):
    most, asked = searched(demo, lambda size: 1000, size=64)
    assert most is None
    assert asked[-1] == 1
    answer = {"max_batch": most, "available_bytes": 100}
    assert largest_in_words(answer) == "not even the smallest fits at this length."
    unknown, asked = searched(demo, lambda size: 1, size=64, memory=None)
    assert (unknown, asked) == (None, [])
    assert largest_in_words({"max_batch": None, "available_bytes": None}) == "the device's memory is not known."
    found = {"max_batch": {"microbatch_size": 95, "max_length": 128}, "available_bytes": 100}
    assert largest_in_words(found) == "95 × 128 tokens on each device."
