"""The compare page with two, three and many runs."""

from __future__ import annotations

import csv
import json
import shutil
from html import escape
from pathlib import Path

import pytest
from pages import Open, labels, said
from streamlit.testing.v1 import AppTest
from synthetic import write_run

from dashboard.shared.session import reading, state
from dashboard.views.compare.logic import tables
from evidence import layout
from evidence.compare.scores import compare_runs
from evidence.layout import MANIFEST
from evidence.run import read_run

FOREIGN = Path(__file__).parents[3] / "cases" / "foreign"


@pytest.fixture
def sweep(root: Path) -> list[str]:
    names = [f"run-{number:02}" for number in range(23)]
    for number, name in enumerate(names):
        rate = 0.001 * (1 + number)
        write_run(root, name, steps=4, items=6, seed=number, config={"optimizer": {"learning_rate": rate}})
    return names


def test_any_number_of_runs_is_drawn_in_one_picture(opened: Open, sweep: list[str]) -> None:
    app = opened(state.COMPARE, part="Scatter")
    assert [box.value for box in app.selectbox] == ["optimizer.learning_rate", "exact match", None]
    assert len(app.get("plotly_chart")) == 1
    assert app.dataframe[0].value.shape == (23, 3)
    app = opened(state.COMPARE, part="Parallel", runs=sweep[:22])
    assert "22 runs. Side by side shows the first 20; pictures show all of them." in said(app)
    assert app.dataframe[0].value.shape[0] == 22


def test_pictures_show_what_a_search_leaves(opened: Open, sweep: list[str]) -> None:
    app = opened(state.COMPARE, part="Scatter", match="optimizer.learning_rate<0.0055")
    assert app.dataframe[0].value.shape[0] == 5
    assert "No run matches" in said(opened(state.COMPARE, part="Parallel", match="nothing-like-it"))
    assert "Unknown field colour" in said(opened(state.COMPARE, part="Parallel", match="colour:red"))


def test_a_tick_below_a_scatter_is_not_handed_to_another_run(opened: Open, sweep: list[str]) -> None:
    app = opened(state.COMPARE, part="Scatter")
    names = tuple(app.dataframe[0].value["run"])
    app.session_state[f"related_runs {hash(names)}"] = {"selection": {"rows": [0], "columns": [], "cells": []}}
    assert f"1 run chosen of {len(names)}." in said(app.run())
    app.text_input(key="match").set_value("run-0")
    text = said(app.run())
    assert names[0] not in app.dataframe[0].value["run"].tolist()
    assert "0 runs chosen of 10." in text


@pytest.mark.parametrize("given", [0, 3, 22])
def test_runs_ticked_below_a_scatter_go_side_by_side(opened: Open, sweep: list[str], given: int) -> None:
    app = opened(state.COMPARE, part="Scatter", runs=sweep[:given])
    names = tuple(app.dataframe[0].value["run"])
    app.session_state[f"related_runs {hash(names)}"] = {"selection": {"rows": [0, 1], "columns": [], "cells": []}}
    button = next(button for button in app.run().button if button.label == "Side by side")
    text = said(button.click().run())
    assert not app.exception
    assert app.query_params["runs"] == list(names[:2])
    assert app.query_params.get("part", ["Side by side"]) == ["Side by side"]
    assert "exact McNemar, p" in text


@pytest.mark.parametrize(("ticked", "allowed"), [(1, False), (20, True), (21, False)])
def test_no_more_go_side_by_side_than_are_held_against_each_other(
    opened: Open, sweep: list[str], ticked: int, allowed: bool
) -> None:
    app = opened(state.COMPARE, part="Scatter")
    rows = {"selection": {"rows": list(range(ticked)), "columns": [], "cells": []}}
    app.session_state[f"related_runs {hash(tuple(app.dataframe[0].value['run']))}"] = rows
    assert ("Side by side" in labels(app.run())) is allowed


def test_instead_of_many_runs_others_can_be_chosen(opened: Open, sweep: list[str]) -> None:
    app = opened(state.COMPARE, runs=sweep[:22])
    app = next(button for button in app.button if button.label == "Choose others").click().run()
    assert not app.exception
    assert app.multiselect[0].value == []


def test_a_scatter_says_which_runs_have_no_point(opened: Open, sweep: list[str]) -> None:
    axes = {"across": "optimizer.learning_rate", "up": "seed"}
    app = opened(state.COMPARE, part="Scatter", **axes, up_scale="log")
    assert "1 run has no place on a logarithmic axis: a value is zero or below." in said(app)
    assert len(app.get("plotly_chart")) == 1
    app = opened(state.COMPARE, part="Scatter", **axes, up_scale="log", match="run-00")
    assert "No run has a point" in said(app)
    assert not app.get("plotly_chart")
    assert "no place" not in said(opened(state.COMPARE, part="Scatter", **axes))


def test_a_rate_over_a_decade_lies_on_a_logarithmic_axis_unless_the_reader_says_otherwise(
    opened: Open, sweep: list[str]
) -> None:
    def axis(**address: str) -> str:
        (picture,) = opened(state.COMPARE, part="Scatter", **address).get("plotly_chart")
        return str(json.loads(picture.proto.spec)["layout"]["xaxis"]["type"])

    assert axis() == "log"
    assert axis(across_scale="linear") == "linear"
    assert axis(match="optimizer.learning_rate>0.0025") == "linear"


def test_statistics_stay_with_twenty_runs_and_are_one_table(opened: Open, sweep: list[str]) -> None:
    text = said(opened(state.COMPARE, runs=sweep))
    assert text.count("exact McNemar, p") == 19
    assert "run-19" in text
    assert "run-20" not in text


def test_twenty_runs_are_not_read_again_at_each_click(
    opened: Open, sweep: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = opened(state.COMPARE, runs=sweep[:20])
    again: list[Path] = []
    monkeypatch.setattr(reading, "read_run", lambda folder: again.append(folder) or read_run(folder))
    app.run()
    assert again == []


def test_the_button_of_the_runs_says_how_many_are_compared(opened: Open, sweep: list[str]) -> None:
    def shown(app: AppTest) -> str:
        return next(block.proto.popover.label for block in app.get("popover"))

    assert shown(opened(state.COMPARE)) == "Choose runs"
    app = opened(state.COMPARE, runs=[*sweep[:3], "gone"])
    assert shown(app) == "Runs: 3"
    app.multiselect(key="runs").set_value(sweep[:2]).run()
    assert shown(app) == "Runs: 2"


def test_a_run_that_is_gone_is_said_where_it_is_seen(opened: Open, root: Path, sweep: list[str]) -> None:
    app = opened(state.COMPARE, runs=[*sweep[:2], "gone"])
    (menu, *_) = app.get("popover")
    assert f"There is no run gone in {root}." in said(app)
    assert not menu.get("html")


def test_each_table_of_a_comparison_is_taken_as_csv_from_one_menu(opened: Open, sweep: list[str]) -> None:
    def taken(**address: str | list[str]) -> list[str]:
        return [button.proto.label for button in opened(state.COMPARE, **address).get("download_button")]

    assert taken(runs=sweep[:3])[:3] == ["Figures", "Settings", "Differences in score"]
    assert "Figures" not in taken(runs=sweep[:3], part="Scatter")
    assert "Figures" not in taken(runs=sweep[:1])


def test_a_table_as_csv_is_the_table_that_is_shown(sweep: list[str], root: Path) -> None:
    compared = compare_runs([read_run(root / name) for name in sweep[:3]])
    for head, rows in (tables.headlines(compared), tables.settings(compared), tables.differences(compared)):
        assert len({len(head), *map(len, rows)}) == 1
        taken = csv.reader(tables.as_csv(head, rows).splitlines())
        # A leading sign could begin a formula, so such a cell is written as text.
        assert [tuple(cell.removeprefix("'") for cell in row) for row in taken] == [head, *rows]
    assert [row[0] for row in tables.differences(compared)[1]] == sweep[1:3]


def curves_legend(app) -> dict[str, dict]:
    """Return the strokes of the runs in the curves, by name."""
    (chart,) = (one.proto for one in app.get("plotly_chart") if one.proto.alt.startswith("Training curves"))
    return {trace["name"]: trace["line"] for trace in json.loads(chart.spec)["data"] if trace["showlegend"]}


def test_more_runs_than_colours_are_told_apart_by_their_strokes(opened: Open, root: Path) -> None:
    names = [f"run-{number:02}" for number in range(20)]
    for number, name in enumerate(names):
        write_run(root, name, steps=2, seed=number, config={"optimizer": {"weight_decay": 0.01 * number}})
    lines = curves_legend(opened(state.COMPARE, runs=names)).values()
    signs = [(line["color"], line["dash"]) for line in lines]
    assert len(signs) == len(set(signs)) == 20
    assert {dash for _, dash in signs[:8]} == {"solid"}


def test_seeds_are_drawn_as_their_mean_and_a_run_that_contradicts_itself_grey_and_without_its_score(
    opened: Open, root: Path
) -> None:
    for seed in (1, 2):
        write_run(root, f"seed-{seed}", seed=seed)
    manifest = write_run(root, "forged", seed=3) / MANIFEST
    stated = json.loads(manifest.read_text("utf-8"))
    stated["result"]["last_loss"] += 1.0
    manifest.write_text(json.dumps(stated), "utf-8")
    app = opened(state.COMPARE, runs=["seed-1", "seed-2", "forged"])
    legend = curves_legend(app)
    assert list(legend) == ["seed-1", "seed-2", "forged", "mean of 2 seeds of seed-1"]
    assert legend["forged"]["dash"] == "3px,4px"
    assert "forged: This run is contradictory" in said(app)


def test_another_tools_run_stands_with_its_figures_and_where_they_stand(opened: Open, root: Path) -> None:
    write_run(root, "ours", steps=4, items=6)
    shutil.copytree(FOREIGN / "per_checkpoint" / "folder", root / "theirs")
    text = said(opened(state.COMPARE, runs=["ours", "theirs"]))
    assert (
        "theirs is another tool&#x27;s run: its figures are as the files state them. Sources, on the page of such a "
        "run, has the file and line of each, and its settings. No score of it was computed again here."
    ) in text
    assert '<td class="tp-word">last loss</td>' in text
    assert '<td class="tp-number">1.7000</td>' in text
    assert "No setting that every run states differs." in text
    assert "theirs: Read from eval_results.json, lines 20 to 25." in text
    assert "theirs is imported from another tool and has not been scored." in text
    assert "eval_results.json at /checkpoints/0/accuracy (line 7)" in text


def test_runs_that_state_nothing_leave_the_pictures_empty(opened: Open, root: Path) -> None:
    for name in ("one", "other"):
        (root / name).mkdir(parents=True)
        (root / name / "run_manifest.json").write_text("{}")
    assert "These runs state no figure and no setting that can be read." in said(opened(state.COMPARE, part="Scatter"))
    assert "Choose two axes or more" in said(opened(state.COMPARE, part="Parallel"))
    opened(state.COMPARE, runs=["one", "other"])


def test_a_figure_that_an_error_concerns_is_withheld_in_both_places_with_a_word(opened: Open, root: Path) -> None:
    write_run(root, "alpha", seed=1)
    manifest = write_run(root, "beta", seed=2) / MANIFEST
    stated = json.loads(manifest.read_text("utf-8"))
    stated["result"]["last_loss"] += 1.0
    manifest.write_text(json.dumps(stated), "utf-8")
    text = said(opened(state.COMPARE, runs=["alpha", "beta"]))
    assert "beta: last_loss is not shown, because run_manifest.json contradicts the rows." in text
    assert "alpha: " not in text
    page = said(opened(state.RUN, run="beta"))
    assert "<dt>Last loss</dt><dd>–" in page
    assert "last_loss is not shown, because run_manifest.json contradicts the rows." in page


def test_the_verdict_stands_above_curves_and_curves_above_tables(opened: Open, root: Path) -> None:
    # All 40 right against none: p is 2^-39, all are fixed, and the lower end is 40/42 - z sqrt(42 - 1600/42) / 42.
    write_run(root, "before", items=40, correct=0.0, config={"optimizer": {"weight_decay": 0.0}})
    write_run(root, "after", items=40, correct=1.0, config={"optimizer": {"weight_decay": 0.2}})
    app = opened(state.COMPARE, runs=["before", "after"])
    text = said(app)
    assert "▲</span>better" in text
    assert "+100.0 points" in text
    assert "of 40 items 40 fixed, 0 broken" in text
    assert '<span class="tp-chip">weight_decay 0.0 → 0.2</span>' in text
    picture, _ = app.get("plotly_chart")
    assert picture.proto.alt.endswith("after against before: +100.0 points (+86.0 points to +100.0 points), better")
    assert "p &lt; 0.001" in text
    assert text.index("▲</span>better") < text.index('<td class="tp-word">last loss</td>')
    assert [header.value for header in app.header] == [
        "Curves", "Figures", "Settings that differ", "Items that flipped",
    ]  # fmt: skip


def test_a_run_whose_manifest_is_cut_off_is_named_above_and_its_score_is_not_compared(opened: Open, root: Path) -> None:
    write_run(root, "whole")
    manifest = write_run(root, "cut", seed=2) / MANIFEST
    manifest.write_text(manifest.read_text("utf-8")[:500], "utf-8")
    app = opened(state.COMPARE, runs=["whole", "cut"])
    text = said(app)
    assert "run_manifest.json: This is not JSON: it ends in the middle" in text
    assert "cut has no valid run_manifest.json" in text
    assert [chart.key for chart in app.get("plotly_chart")] == ["compare_curves"]
    assert "Items that flipped" not in [header.value for header in app.header]


def test_both_outputs_to_a_flipped_item_are_read_whole_and_broken_ones_come_first(opened: Open, root: Path) -> None:
    write_run(root, "one", items=30, correct=0.5, seed=1)
    folder = write_run(root, "other", items=30, correct=0.5, seed=2)
    compared = compare_runs([read_run(root / "one"), read_run(folder)])
    flips = compared.pairs[0].score.flips if compared.pairs[0].score else ()
    outputs = {row["id"]: row["output_text"] for row in read_run(folder).rows(layout.PREDICTIONS).values}
    items = said(opened(state.COMPARE, runs=["one", "other"])).split('<div class="tp-item">')[1:]
    assert len(items) == 10 < len(flips)
    for html, flip in zip(items, flips, strict=False):
        assert f"<b>{flip.id}</b>" in html
        assert flip.kind in html
        assert f'aria-label="Output of other">{escape(outputs[flip.id])}</pre>' in html
    assert flips[0].kind == "broken"


def test_a_root_without_runs_does_not_speak_of_another_one(opened: Open, root: Path) -> None:
    assert "There is no run yet. Start two, one after the other; a smoke run takes seconds." in said(
        opened(state.COMPARE)
    )
    write_run(root, "only")
    assert "Start another run; a smoke run takes seconds." in said(opened(state.COMPARE))
