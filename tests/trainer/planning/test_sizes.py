"""Where sums send the compiler: to the line between what fits and what does not, corrected by its own answers."""

from dataclasses import replace

from trainer.planning.extrapolate import expected, ratios_of
from trainer.planning.program_memory import ProgramMemory
from trainer.planning.sizes import open_cell

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
