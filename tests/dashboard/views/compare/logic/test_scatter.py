"""A scatter: which runs have a point, in which group, and which of them a reader has chosen."""

from __future__ import annotations

from dashboard.views.compare.logic.relation import Scale
from dashboard.views.compare.logic.scatter import SYMBOLS, drawing, scatter, symbol_of

LOSS = Scale(name="last loss", places=(1.5, 0.0, None, 1.25, 2.0), words=())
RATE = Scale(name="rate", places=(0.1, 0.2, 0.3, 0.4, 0.5), words=())
MODEL = Scale(name="model", places=(1.0, 0.0, 0.0, None, 1.0), words=("gemma", "tiny-gpt2"))
STEPS = Scale(name="steps", places=(1000.0, 20.0, 20.0, 1000.0, 0.5), words=())


def test_only_a_run_with_a_place_on_both_axes_has_a_point() -> None:
    assert scatter(RATE, LOSS, None).members == (("", (0, 1, 3, 4)),)
    assert scatter(MODEL, LOSS, None).members == (("", (0, 1, 4)),)


def test_zero_has_no_place_on_a_logarithmic_axis_and_words_have_none() -> None:
    logarithmic = scatter(RATE, LOSS, None, logarithmic=frozenset({"last loss"}))
    assert (logarithmic.members, logarithmic.beyond) == ((("", (0, 3, 4)),), (1,))
    assert scatter(RATE, LOSS, None).beyond == ()
    assert scatter(MODEL, LOSS, None, logarithmic=frozenset({"model"})).members == (("", (0, 1, 4)),)


def test_groups_stand_in_the_order_of_their_values() -> None:
    assert scatter(RATE, LOSS, MODEL).members == (("gemma", (1,)), ("tiny-gpt2", (0, 4)), ("–", (3,)))
    assert scatter(RATE, LOSS, STEPS).members == (("0.5", (4,)), ("20", (1,)), ("1000", (0, 3)))


def test_a_model_that_is_called_as_nothing_is_shown_stays_a_group_of_its_own() -> None:
    odd = Scale(name="model", places=(0.0, 0.0, 0.0, None, 0.0), words=("–",))
    assert scatter(RATE, LOSS, odd).members == (("–", (0, 1, 4)), ("–", (3,)))


def test_chosen_points_are_runs_whatever_their_group() -> None:
    shown = scatter(RATE, LOSS, MODEL)
    chosen = [{"series_index": 2, "data_indices": [0]}, {"series_index": 1, "data_indices": [1]}]
    assert shown.runs_at(chosen) == [3, 4]
    assert shown.runs_at([]) == []


def test_groups_differ_by_colour_and_by_symbol() -> None:
    names = ["a", "b", "c", "d", "<e>"]
    option = drawing(scatter(RATE, LOSS, MODEL), names, ["#111", "#222", "#333"], ink="#000", words="#333")
    assert [
        (one["name"], one["symbol"], one["itemStyle"]["color"], one["data"], one["select"]["itemStyle"]["borderColor"])
        for one in option["series"]
    ] == [
        ("model: gemma", "circle", "#111", [[0.2, 0.0, "b"]], "#000"),
        ("model: tiny-gpt2", "diamond", "#222", [[0.1, 1.5, "a"], [0.5, 2.0, "<e>"]], "#000"),
        ("model: –", "rect", "#333", [[0.4, 1.25, "d"]], "#000"),
    ]
    assert option["legend"]["show"]


def test_groups_beyond_the_eighth_have_another_symbol_where_the_colour_comes_again() -> None:
    signs = [(number % 8, symbol_of(number)) for number in range(64)]
    assert len(set(signs)) == 64
    assert [symbol for _, symbol in signs[:9]] == [*SYMBOLS, "diamond"]


def test_one_can_zoom_into_both_axes() -> None:
    option = drawing(scatter(RATE, LOSS, None), list("abcde"), ["#111"], ink="#000", words="#333")
    assert [(zoom["type"], zoom["zoomOnMouseWheel"]) for zoom in option["dataZoom"]] == [("inside", "ctrl")] * 2
    assert "dataZoom" in option["toolbox"]["feature"]


def test_axes_are_linear_logarithmic_or_of_words() -> None:
    names = list("abcde")
    plain = drawing(scatter(RATE, LOSS, None), names, ["#111"], ink="#000", words="#333")
    assert (plain["xAxis"]["type"], plain["yAxis"]["type"], plain["legend"]["show"]) == ("value", "value", False)
    logs = drawing(
        scatter(RATE, LOSS, None, logarithmic=frozenset({"rate"})), names, ["#111"], ink="#000", words="#333"
    )
    assert (logs["xAxis"]["type"], logs["yAxis"]["type"]) == ("log", "value")
    words = drawing(scatter(RATE, MODEL, None), names, ["#111"], ink="#000", words="#333")
    assert (words["yAxis"]["type"], words["yAxis"]["data"]) == ("category", ["gemma", "tiny-gpt2"])
