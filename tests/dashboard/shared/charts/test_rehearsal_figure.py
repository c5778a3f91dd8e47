"""The picture of a rehearsal: each row scaled to the full run, bands behind, what has no ratio has no point."""

from __future__ import annotations

import pytest

from dashboard.shared.charts.plan_figures import DARK, LIGHT, Palette
from dashboard.shared.charts.rehearsal_figure import describe, draw
from evidence.compare.smoke import FigureValue, SmokeFigure

FIGURES = (
    SmokeFigure(
        name="number types",
        band="must agree",
        smoke=FigureValue(number=None, text="float32"),
        full=FigureValue(number=None, text="float32"),
        agrees=True,
    ),
    SmokeFigure(
        name="parameters",
        band="must agree",
        smoke=FigureValue(number=5.0, text="5"),
        full=FigureValue(number=20.0, text="<b>20</b>"),
        agrees=False,
    ),
    SmokeFigure(
        name="memory",
        band="should scale",
        smoke=FigureValue(number=30.0, text="30 B", planned=(20.0, 40.0)),
        full=FigureValue(number=10.0, text="10 B", planned=(9.0, 12.0)),
    ),
    SmokeFigure(
        name="score",
        band="may differ",
        smoke=FigureValue(number=0.0, text="0 %"),
        full=FigureValue(number=0.9, text="90 %"),
    ),
)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_points_are_ratios_to_the_full_run(colours: Palette) -> None:
    full, smoke = draw(FIGURES, colours).data
    assert list(full.x) == [1, 1, 1]
    assert list(smoke.x) == [1, 0.25, 3], "types agree at 1; a score of zero has no ratio"
    good, bad = colours.tones["good"], colours.tones["bad"]
    assert list(full.marker.color) == [good, bad, colours.tones["fair"]]


def test_the_planned_bands_are_scaled_as_their_points() -> None:
    shapes = [shape for shape in draw(FIGURES, LIGHT).layout.shapes if shape.type == "rect"]
    assert [(shape.x0, shape.x1) for shape in shapes] == [(0.9, 1.2), (2, 4)]


def test_labels_have_both_values_and_no_markup_of_strangers() -> None:
    texts = draw(FIGURES, LIGHT).layout.yaxis.ticktext
    assert "<b>parameters</b><br>5 | &lt;b&gt;20&lt;/b&gt; ≠" in texts
    assert [text for text in texts if "AGREE" in text or "SCALE" in text or "DIFFER" in text] == [
        "<b>MUST AGREE</b>",
        "<b>SHOULD SCALE</b>",
        "<b>MAY DIFFER</b>",
    ]
    assert describe(FIGURES).startswith("number types (must agree): smoke float32, full float32 ✓; parameters")
