"""A plan: its figure of memory by program with its limit, and its sentences; labels without markup."""

from __future__ import annotations

import doctest
from typing import Any

import pytest
from plan_answers import GIB, band, part, plan_document, program

from dashboard.shared.charts import theme
from dashboard.shared.charts.plan import memory
from dashboard.shared.charts.theme import DARK, LIGHT, Palette, label
from dashboard.shared.tables import planned


def memory_of(plan: dict[str, Any], colours: Palette = LIGHT, **more: float) -> Any:
    return memory(planned.memory_parts(plan), colours, **more)


def lines(figure: Any) -> dict[str, float]:
    return {line.name: line.x0 for line in figure.layout.shapes}


def test_examples_of_units() -> None:
    assert doctest.testmod(theme).failed == 0


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_parts_are_stacked_in_the_bar_of_their_program(colours: Palette) -> None:
    figure = memory_of(plan_document(programs=[program("train", "tight", [part("params", 4), part("x", 2)])]), colours)
    assert {bar.name: (list(bar.x), list(bar.y)) for bar in figure.data} == {
        "parameters": ([4.0], ["Train step<br>! 6.00 GiB"]),
        "other": ([2.0], ["Train step<br>! 6.00 GiB"]),
    }
    assert figure.data[0].marker.color == colours.parts["parameters"]
    assert lines(figure) == {"usable 15.75 GiB": pytest.approx(15.75)}
    assert figure.layout.xaxis.range[1] > 15.75


def test_a_limit_far_off_is_not_drawn() -> None:
    figure = memory_of(plan_document(programs=[program("train", "fits", [part("params", 0.01)])]))
    assert lines(figure) == {}
    assert figure.layout.xaxis.title.text == "MiB per device"


def test_a_plan_of_an_earlier_version_has_one_program_and_an_observed_peak_a_line() -> None:
    plan = {"need_bytes": 4 * GIB, "available_bytes": 8 * GIB, "verdict": "fits", "parts": [part("x", 4)]}
    assert {one.program for one in planned.memory_parts(plan)} == {"Train step"}
    assert lines(memory_of(plan, observed=5.0 * GIB)) == {"usable 8.00 GiB": 8, "observed 5.00 GiB": 5}


def test_labels_have_no_markup() -> None:
    assert label('<a href="https://x">y</a> & z') == '&lt;a href="https://x"&gt;y&lt;/a&gt; &amp; z'
    hostile = program("<b>x</b>", "fits", [part("<i>", 1, "<a href=x>")])
    text = memory_of(plan_document(programs=[hostile])).to_json()
    assert "<b>" not in text.lower()
    assert "<a" not in text


@pytest.mark.parametrize(
    "bad", [None, 7, band(3, 2, 1), band(-1, 0, 1), {"low": 1}, {"low": 1, "likely": 2, "high": 1e99}]
)
def test_an_impossible_estimate_is_none(bad: object) -> None:
    assert planned.get_band({"seconds": bad}, "seconds") is None


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"sessions": [1, 3, None], "weeks": 2}, "3 sessions in 2 weeks"),
        ({"sessions": [None, None, None]}, "cannot finish in any number of sessions"),
    ],
)
def test_a_run_longer_than_a_session_names_their_number(changed: dict[str, Any], text: str) -> None:
    plan = plan_document()
    plan["time"] |= changed
    assert any(text in line for line in planned.details(plan))


def test_a_formula_is_named_with_the_reason_why_nothing_was_compiled() -> None:
    train = program("train", "fits", [part("params", 4)], because="estimated by formula: the compiler is not installed")
    details = planned.details(plan_document(method="closed_form", programs=[train]))
    assert details[0] == "Memory on 8 × TPU v5 lite ± 3 %, estimated by formula: the compiler is not installed."
