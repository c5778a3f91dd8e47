"""Targets side by side: their order, bars that are in percent of each one's own limit, words beside them."""

from __future__ import annotations

import pytest
from plan_answers import place, where_document

from dashboard.shared.charts.plan_figures import LIGHT
from dashboard.views.plan.logic import where


def answer(*places: dict) -> dict:
    return {"where": list(places)}


THREE = answer(
    place("large", "does_not_fit", 30.0, 15.0, 4.0),
    place("full", "fits", 12.0, 16.0, 0.5),
    place("kaggle-empty", "fits", 8.0, 80.0, 6.0),
    place("absent", "unsupported", 20.0, 16.0, None),
)


def test_those_that_can_run_it_come_first_and_of_these_the_emptiest() -> None:
    assert [one.name for one in where.places(THREE)] == ["kaggle-empty", "full", "large", "absent"]


def test_bars_are_in_percent_of_what_is_usable_and_verdicts_differ_in_pattern_and_word() -> None:
    figure = where.bars(where.places(THREE), LIGHT, chosen="full").to_plotly_json()
    bar = figure["data"][0]
    assert list(bar["x"]) == [pytest.approx(10), pytest.approx(75), pytest.approx(200), pytest.approx(125)]
    assert list(bar["y"]) == [-1, -2, -4, -6]
    assert list(bar["marker"]["pattern"]["shape"]) == ["", "", "x", "."]
    assert len(set(bar["marker"]["color"])) == 3
    said = [note["text"] for note in figure["layout"]["annotations"]]
    assert {"<b>✓ fits</b> (2)", "<b>✕ does not fit</b> (1)", "<b>∅ unsupported</b> (1)"} <= set(said)
    assert {"8.00 / 80.00", "6.0 h", "12.00 / 16.00", "30 min", "30.00 / 15.00"} <= set(said)
    assert "4.0 h" not in said, "nobody waits for what does not fit"
    line = figure["layout"]["shapes"][0]
    assert (line["x0"], line["x1"]) == (100, 100)
    assert list(figure["layout"]["yaxis"]["ticktext"]) == ["kaggle-empty", "<b>full</b>", "large", "absent"]


def test_the_columns_of_need_and_time_are_headed_within_the_axis() -> None:
    layout = where.bars(where.places(THREE), LIGHT).to_plotly_json()["layout"]
    heads = [note for note in layout["annotations"] if note["text"] in {"GiB", "time"}]
    assert len(heads) == 2
    assert all(note["y"] < layout["yaxis"]["range"][1] for note in heads), "Plotly drops words beyond the range"


def test_the_axis_ends_near_the_limit_where_nothing_goes_beyond_it() -> None:
    small = where.bars(where.places(answer(place("a", "fits", 4, 16, 1))), LIGHT).to_plotly_json()
    assert list(small["layout"]["xaxis"]["range"]) == [0, 120]
    large = where.bars(where.places(answer(place("a", "does_not_fit", 40, 16, 1))), LIGHT).to_plotly_json()
    assert list(large["layout"]["xaxis"]["range"]) == [0, 200]


def test_why_a_target_is_unsupported_is_said_once_for_all_of_them() -> None:
    rows = [
        place(name, "unsupported", None, 16, None)
        | {"because": f"precision.params is bfloat16, which {name} does not have."}
        for name in ("t4", "kaggle-t4x2")
    ]
    found = where.places(answer(*rows, place("a", "fits", 4, 16, 1)))
    assert where.why_unsupported(found) == ["t4, kaggle-t4x2: precision.params is bfloat16, which it does not have."]


def test_the_sentence_counts_and_names_what_is_free() -> None:
    assert where.in_one_sentence(where.places(THREE)) == (
        "It fits on 2 of 4 targets. Free within a weekly quota: kaggle-empty."
    )
    nowhere = where.places(answer(place("a", "does_not_fit", 9, 1, 1), place("b", "tight", 1, 1, 1)))
    assert where.in_one_sentence(nowhere) == "It fits on none of 2 targets. It is tight on b."


def test_the_table_says_the_same_with_units() -> None:
    rows = where.rows(where.places(THREE))
    assert rows[1][:5] == ("✓ fits", "full", "12.00 GiB", "16.00 GiB", "about 30 min 00 s")
    assert rows[0][5:7] == ("20 %", "10 %")
    assert len(rows[0]) == len(where.HEAD)


def test_a_document_of_a_stranger_is_drawn_as_words() -> None:
    hostile = place('<a href="https://evil.example">x</a>', "fits", 1e30, -4, None) | {"hours": "soon", "title": 7}
    found = where.places({"where": [hostile, "no target", None]})
    figure = where.bars(found, LIGHT).to_plotly_json()
    assert figure["layout"]["yaxis"]["ticktext"][0].startswith("&lt;a href=")
    assert found[0].need is None
    assert found[0].hours is None


def test_of_a_thousand_targets_some_are_drawn() -> None:
    assert len(where.places(answer(*[place(f"t{number}", "fits", 1, 2, 3) for number in range(1000)]))) == (
        where.MOST_TARGETS
    )


def test_the_whole_table_is_drawn() -> None:
    found = where.places(where_document())
    assert len(where.bars(found, LIGHT).data[0].x) == len(found) == 18


def test_a_plan_takes_the_place_of_its_row_and_one_for_an_own_machine_gets_a_row() -> None:
    plan = {"verdict": "tight", "need_bytes": 9 * where.GIB, "available_bytes": 9 * where.GIB, "method": "compiler"}
    plan["time"] = {"hours": {"low": 1, "likely": 2, "high": 3}}
    found = {one.name: one for one in where.places(THREE, plan=plan, chosen="full")}
    assert len(found) == 4
    assert (found["full"].verdict, found["full"].fraction) == ("tight", 1.0)
    assert found["full"].hours is not None
    assert found["full"].hours.likely == 2
    assert [one.name for one in where.places(THREE, plan=plan, chosen="mine")].count("mine") == 1
    assert len(where.places(THREE, plan={"time": "soon"}, chosen="mine")) == 5


def test_a_plan_that_knows_no_need_leaves_the_row_with_its_reason() -> None:
    unsupported = place("t4", "unsupported", None, 16, None) | {"because": "no bfloat16"}
    [found] = where.places(answer(unsupported), plan={"verdict": "unsupported", "need_bytes": 0}, chosen="t4")
    assert (found.because, found.need) == ("no bfloat16", None)
    figure = where.bars([found], LIGHT).to_plotly_json()
    assert not [note for note in figure["layout"]["annotations"] if "0.00" in note["text"]]


def test_a_run_of_seconds_takes_seconds() -> None:
    figure = where.bars(where.places(answer(place("a", "fits", 4, 16, 6 / 3600))), LIGHT).to_plotly_json()
    assert "6 s" in [note["text"] for note in figure["layout"]["annotations"]]


def test_how_needs_are_known_is_said_of_all_and_of_the_chosen_one() -> None:
    rows = {"where": [{"target": name, "method": "closed_form"} for name in ("a", "b")]}
    assert where.known_by(where.places(rows), "a") == "Estimated by formula."
    compiled = where.places(rows, plan={"method": "compiler"}, chosen="a")
    assert where.known_by(compiled, "a") == "Estimated by formula; a: read from the compiled program."
    assert where.known_by(where.places({"where": [{"target": "a"}]}), "a") == ""
