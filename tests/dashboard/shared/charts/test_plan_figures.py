"""The pictures that plans and runs share: programs and their parts side by side, a session against its limits."""

from __future__ import annotations

import doctest

import pytest
from plan_answers import GIB, band, part, plan_document, program

from dashboard.shared.charts import plan_figures
from dashboard.shared.charts.plan_figures import DARK, LIGHT, label
from dashboard.shared.charts.plan_memory import MOST_PARTS, deciding, kinds, memory, programs
from dashboard.shared.charts.plan_session import session
from dashboard.shared.tables import plan_time


def test_units_read_well() -> None:
    assert doctest.testmod(plan_figures).failed == 0


def test_parts_stand_side_by_side_below_their_program() -> None:
    plan = plan_document(programs=[program("train", "tight", [part("params", 4.0), part("logits", 2.0)])])
    figure = memory(programs(plan), LIGHT).to_plotly_json()
    whole, parts = figure["data"]
    assert list(whole["x"]) == [pytest.approx(6.0)]
    assert (list(parts["base"]), list(parts["x"])) == ([0.0, pytest.approx(4.0)], [pytest.approx(4.0), 2.0])
    assert list(parts["text"]) == ["parameters<br>4.00 GiB", "logits<br>2.00 GiB"]
    line = figure["layout"]["shapes"][0]
    assert (line["x0"], line["x1"]) == (pytest.approx(15.75), pytest.approx(15.75))
    said = [note["text"] for note in figure["layout"]["annotations"]]
    assert said == ["! tight, <b>6.00 GiB</b>", "usable 15.75 GiB"]


def test_a_limit_far_off_is_said_and_not_drawn() -> None:
    plan = plan_document(programs=[program("train", "fits", [part("params", 0.01)])])
    figure = memory(programs(plan), LIGHT).to_plotly_json()
    assert "shapes" not in figure["layout"]
    assert "usable 15.75 GiB" in [note["text"] for note in figure["layout"]["annotations"]]
    assert figure["layout"]["xaxis"]["title"]["text"] == "MiB on each device"


def test_a_plan_of_before_has_one_program_and_an_observed_peak_its_line() -> None:
    found = programs({"need_bytes": 4 * GIB, "available_bytes": 8 * GIB, "verdict": "fits", "parts": [part("x", 4)]})
    assert [(one.name, one.peak, one.limit) for one in found] == [("Train step", 4 * GIB, 8 * GIB)]
    layout = memory(found, DARK, observed=5.0 * GIB).to_plotly_json()["layout"]
    assert [line["x0"] for line in layout["shapes"]] == [8, 5]
    assert layout["annotations"][-1]["xanchor"] == "center"


def test_words_at_the_right_edge_end_at_their_line_and_no_line_passes_through_them() -> None:
    plan = plan_document(programs=[program("train", "fits", [part("params", 0.01)])])
    *_, limit, observed = memory(programs(plan), LIGHT, observed=0.01 * GIB).to_plotly_json()["layout"]["annotations"]
    assert (limit["text"], limit["bgcolor"]) == ("usable 15.75 GiB", LIGHT.paper)
    assert (observed["text"], observed["xanchor"]) == ("observed 10.2 MiB", "right")


def test_each_colour_has_one_name_in_the_legend_and_the_program_that_needs_most_is_known() -> None:
    found = programs(plan_document())
    assert kinds(found) == ["params", "opt_state", "activations", "logits", "cache"]
    inside = [part("layer_inside", 2), part("layer_inputs", 1), part("gathered_weights", 1)]
    assert kinds(programs(plan_document(programs=[program("train", "fits", inside)]))) == ["activations", "other"]
    most = deciding(found)
    assert most is not None
    assert (most.name, most.because) == ("Train step", "compiled for a v5e chip")
    assert deciding([]) is None


def test_many_parts_end_in_one() -> None:
    [one] = programs(plan_document(programs=[program("train", "fits", [part("a", 1)] * 40)]))
    assert len(one.segments) == MOST_PARTS + 1
    assert one.segments[-1].bytes == (40 - MOST_PARTS) * GIB


def test_words_of_a_document_are_no_markup() -> None:
    assert label('<a href="https://x">y</a> & z') == '&lt;a href="https://x"&gt;y&lt;/a&gt; &amp; z'


def test_a_session_is_stacked_and_its_limits_are_drawn_where_they_are_near() -> None:
    plan = plan_document()
    figure = session(plan_time.parts(plan), plan_time.limits(plan), LIGHT).to_plotly_json()
    bars = [one for one in figure["data"] if one["type"] == "bar"]
    ends = [one["base"][0] + one["x"][0] for one in bars]
    assert [one["base"][0] for one in bars[1:]] == pytest.approx(ends[:-1])
    assert ends[-1] == pytest.approx(4.5 + 2220 / 3600)
    assert [line["x0"] for line in figure["layout"]["shapes"]] == [9, 20]


def test_a_run_that_takes_little_of_its_session_has_its_parts_enlarged_above_the_limits() -> None:
    whole = plan_time.Estimate(low=300, likely=600, high=1200)
    found = [
        plan_time.TimePart(name="install", seconds=whole, because=""),
        plan_time.TimePart(name="train", seconds=whole, because=""),
    ]
    figure = session(found, [plan_time.Limit(name="session", seconds=32400)], LIGHT).to_plotly_json()
    install, train, run, band = figure["data"]
    assert [one.get("xaxis", "x") for one in (install, train, run, band)] == ["x", "x", "x2", "x2"]
    layout = figure["layout"]
    assert (layout["xaxis"]["title"]["text"], list(layout["xaxis"]["range"])) == ("minutes, by part", [0, 20])
    assert (run["x"][0], layout["xaxis2"]["title"]["text"]) == (pytest.approx(1 / 3), "hours")
    [line] = layout["shapes"]
    assert (line["x0"], line["xref"], line["yref"]) == (9, "x2", "y2")
    assert layout["yaxis"]["domain"][0] > layout["yaxis2"]["domain"][1]


def test_what_is_a_sliver_of_a_session_is_drawn_without_its_limit() -> None:
    found = [plan_time.TimePart(name="train", seconds=plan_time.Estimate(low=1, likely=2, high=4), because="")]
    figure = session(found, [plan_time.Limit(name="session", seconds=32400)], LIGHT).to_plotly_json()
    assert "shapes" not in figure["layout"]
    assert figure["layout"]["xaxis"]["title"]["text"] == "seconds"


@pytest.mark.parametrize(
    "bad", [None, 7, band(3, 2, 1), band(-1, 0, 1), {"low": 1}, {"low": 1, "likely": 2, "high": 1e99}]
)
def test_what_is_no_band_is_none(bad: object) -> None:
    assert plan_time.band_at({"seconds": bad}, "seconds") is None


def test_a_share_is_said_with_its_band() -> None:
    share = plan_time.Estimate(low=0.29, likely=0.58, high=1.16)
    assert plan_time.share_in_words(share, "session", 32400) == "58 % of a session of 9 h (29 to 116 %)"
    assert plan_time.share_in_words(None, "week", 1.0) == ""
