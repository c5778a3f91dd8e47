"""The scatter plot: its axes, points and colours, and how selected runs are opened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pages import Open, labels, said
from streamlit.testing.v1 import AppTest

from dashboard.shared import state
from dashboard.views.compare import scatter
from evidence.index.summary import RunSummary


def run(name: str, **more) -> RunSummary:
    return RunSummary(**({"path": Path(name), "run_id": name, "grade": "consistent", "reasons": ()} | more))


def select(app: AppTest, places: list[int]) -> list[str]:
    """Select rows of the table, and return the names of all its runs."""
    names = list(app.dataframe[0].value["run"])
    key = f"scatter_runs {hash(tuple(names))}"
    app.session_state[key] = {"selection": {"rows": places, "columns": [], "cells": []}}
    app.run()
    return names


def test_any_number_of_runs_is_drawn(opened: Open, sweep: list[str]) -> None:
    app = opened(state.COMPARE, part="Scatter")
    assert [box.value for box in app.selectbox] == ["optimizer.weight_decay", "score", None]
    assert len(app.get("plotly_chart")) == 1
    assert app.dataframe[0].value.shape == (23, 3)
    assert opened(state.COMPARE, part="Scatter", runs=sweep[:22]).dataframe[0].value.shape[0] == 22


@pytest.mark.parametrize("given", [0, 3, 22])
def test_up_to_twenty_selected_runs_go_side_by_side(opened: Open, sweep: list[str], given: int) -> None:
    app = opened(state.COMPARE, part="Scatter", runs=sweep[:given])
    for too_few_or_many in ([0], list(range(21)) if given != 3 else []):
        select(app, too_few_or_many)
        assert "Side by side" not in labels(app)
    names = select(app, [0, 1])
    button = next(button for button in app.button if button.label == "Side by side")
    text = said(button.click().run())
    assert not app.exception
    assert app.query_params["runs"] == names[:2]
    assert app.query_params.get("part", ["Side by side"]) == ["Side by side"]
    assert "exact McNemar, p" in text


def test_an_axis_that_spans_a_decade_is_logarithmic_unless_the_address_says_otherwise(
    opened: Open, sweep: list[str]
) -> None:
    def axis(**address: str | list[str]) -> str | None:
        (picture,) = opened(state.COMPARE, part="Scatter", **address).get("plotly_chart")
        return json.loads(picture.proto.spec)["layout"]["xaxis"].get("type")

    assert axis() == "log"
    assert axis(x_scale="linear") is None
    assert axis(runs=sweep[3:]) is None


RUNS = (
    run("a", settings={"optimizer.beta1": 0.9, "optimizer.name": "adamw", "seed": 1}, last_loss=1.5, score=0.5),
    run("b", settings={"optimizer.beta1": 0.8, "optimizer.name": "<i>", "seed": 2}, last_loss=0.0, score=0.7),
    run("c", settings={}, figures={"result.mean_loss": 2.0}),
    run("d", settings={"optimizer.beta1": 0.7, "seed": 3}, last_loss=1.0, score=0.9, grade="contradictory"),
)


def test_values_are_numbers_or_text() -> None:
    frame = scatter.values_frame(RUNS, ["run", "loss", "optimizer.name"])
    assert frame["loss"].tolist()[:2] == [1.5, 0.0]
    assert frame["optimizer.name"].tolist()[:2] == ["adamw", "<i>"]
    mixed = scatter.values_frame([run(str(n), settings={"x": x}) for n, x in enumerate((3, "auto", True))], ["x"])
    assert mixed["x"].tolist() == ["3", "auto", "true"]
    names = scatter.value_names(RUNS)
    assert names.index("score") < names.index("optimizer.beta1") < names.index("result.mean_loss")


def test_only_complete_sound_and_positive_runs_have_a_point() -> None:
    frame = scatter.values_frame(RUNS, ["run", "optimizer.beta1", "loss"])
    axes = ["optimizer.beta1", "loss"]
    assert scatter.is_drawable(frame, RUNS, axes, set()).tolist() == [True, True, False, False]
    assert scatter.is_drawable(frame, RUNS, axes, {"loss"}).tolist() == [True, False, False, False]


def test_points_have_names_and_groups_and_no_markup_of_a_run() -> None:
    several = [run(f"<b>{n}", score=0.1 * n, settings={"x": n, "group": f"g{n % 2}<"}) for n in range(4)]
    frame = scatter.values_frame(several, ["run", "x", "score", "group"])
    figure = scatter.scatter_figure(frame.loc[[1, 2, 3]], "x", "score", "group", {"x"})
    assert figure.layout.xaxis.type == "log"
    assert [(trace.name, trace.marker.symbol, list(trace.hovertext)) for trace in figure.data] == [
        ("g0&lt;", "circle", ["&lt;b&gt;2"]), ("g1&lt;", "diamond", ["&lt;b&gt;1", "&lt;b&gt;3"]),
    ]  # fmt: skip
    odd = scatter.scatter_figure(frame.rename(columns={"x": "<b>x"}), "<b>x", "score", None, set())
    assert odd.layout.xaxis.title.text == "&lt;b&gt;x"


def test_many_numbers_make_a_colour_scale_and_many_words_share_a_group() -> None:
    several = [run(str(n), score=0.1, settings={"x": n, "word": f"w{n:02}"}) for n in range(15)]
    frame = scatter.values_frame(several, ["run", "x", "score", "word"])
    (points,) = scatter.scatter_figure(frame, "x", "score", "x", set()).data
    assert list(points.marker.color) == list(range(15))
    assert [trace.name for trace in scatter.scatter_figure(frame, "x", "score", "word", set()).data][-1] == "other"
    numbers = scatter.scatter_figure(frame[frame["x"] < 3], "score", "score", "x", set())
    assert [trace.name for trace in numbers.data] == ["0", "1", "2"]


def test_the_first_axes_are_a_number_that_was_varied_and_a_result() -> None:
    assert scatter.default_axes(RUNS[:2]) == ("optimizer.beta1", "score")
    assert scatter.default_axes([run("a"), run("b")]) == ("model", "score")
