"""The strip of verdicts: where its dots, intervals and bands are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from synthetic import write_run

from dashboard.shared.charts.plan_figures import LIGHT
from dashboard.views.compare.logic import strip, tables
from evidence.compare.scores import PairVerdict, compare_runs, judge_pairs
from evidence.run import read_run


@pytest.fixture
def found(tmp_path: Path) -> tuple[PairVerdict, ...]:
    names = {"first": 0.5, "better": 1.0, "worse": 0.0, "unevaluated": 0.0}
    folders = [
        write_run(tmp_path, name, correct=correct, items=0 if name == "unevaluated" else 60)
        for name, correct in names.items()
    ]
    return judge_pairs(compare_runs([read_run(folder) for folder in folders]))


def test_each_dot_is_at_its_difference_with_its_interval_and_what_cannot_be_seen(
    found: tuple[PairVerdict, ...],
) -> None:
    picture = strip.draw(found, LIGHT)
    scores = [verdict.pair.score for verdict in found if verdict.pair.score]
    assert len(picture.data) == len(scores) == 2
    bands = [shape for shape in picture.layout.shapes if shape.type == "rect"]
    for dot, band, score in zip(picture.data, bands, scores, strict=True):
        assert dot.x[0] == pytest.approx(100 * score.difference)
        assert dot.x[0] + dot.error_x.array[0] == pytest.approx(100 * score.high)
        assert dot.x[0] - dot.error_x.arrayminus[0] == pytest.approx(100 * score.low)
        assert -band.x0 == band.x1 == pytest.approx(100 * (score.detectable_difference or 0))
        assert band.y0 < dot.y[0] < band.y1
    low, high = picture.layout.xaxis.range
    assert low == -high
    assert high > max(abs(value) for score in scores for value in (100 * score.low, 100 * score.high))


def test_words_are_written_beside_their_dots_and_names_hold_no_markup(found: tuple[PairVerdict, ...]) -> None:
    renamed = [replace(one, pair=replace(one.pair, first="<b>first")) for one in found]
    picture = strip.draw(renamed, LIGHT)
    assert [note.text for note in picture.layout.annotations] == ["<b>better</b>  ▲ better", "<b>worse</b>  ▼ worse"]
    assert picture.layout.title.text == "Difference from &lt;b&gt;first"
    assert [dot.marker.color for dot in picture.data] == [LIGHT.tones["good"], LIGHT.tones["bad"]]


def test_a_run_that_contradicts_itself_is_hollow_and_grey(found: tuple[PairVerdict, ...]) -> None:
    sound, doubtful = strip.draw(found, LIGHT, doubtful=["worse"]).data
    assert (sound.marker.symbol, doubtful.marker.symbol) == ("circle", "circle-open")
    assert doubtful.marker.color == LIGHT.tones["quiet"]


def test_costs_are_given_with_their_change(tmp_path: Path) -> None:
    slow = {"result": {"peak_memory_bytes": 2**30}}
    runs = [write_run(tmp_path, "a"), write_run(tmp_path, "b", manifest=slow)]
    (one,) = judge_pairs(compare_runs([read_run(run) for run in runs]))
    assert tables.costs_said(one) == "same loss · same time · memory 512.0 MiB → 1.00 GiB, whole process (+100 %)"
