"""The Predictions tab: scores by group, filters, links to answers, and the parts of an output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pages import Open, said
from synthetic import write_rows, write_run

from dashboard.shared import state
from dashboard.views.run import predictions
from evidence.layout import ANSWERS_OVER_STEPS, PREDICTIONS
from evidence.run import read_run


def read_predictions(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / PREDICTIONS).read_text("utf-8").splitlines()]


def selection(*rows: int) -> dict[str, Any]:
    return {"selection": {"rows": list(rows), "columns": [], "cells": []}}


def test_predictions_are_filtered_by_outcome_group_and_words(tmp_path: Path) -> None:
    rows = read_run(write_run(tmp_path, "alpha", items=12)).rows(PREDICTIONS).values
    right = sum(row["correct"] for row in rows)
    assert predictions.group_values(rows)["difficulty"] == ["easy", "hard", "medium"]

    def count(outcome: str = "all", words: str = "", **chosen: list[str]) -> int:
        return len(predictions.filter_rows(rows, outcome=outcome, groups=chosen, words=words))

    assert (count(), count("right"), count("wrong"), count("error")) == (12, right, 12 - right, 0)
    assert count(difficulty=["easy"]) == 4
    assert count(difficulty=["easy", "hard"], section=["edge"]) == sum(
        row["difficulty"] != "medium" and row["section"] == "edge" for row in rows
    )
    assert count(words="item-0003 what") == 1
    assert list(predictions.answer_frame(rows)["Outcome"]).count("✓ right") == right
    found = predictions.filter_rows([{"error": "x"}, *rows], outcome="all", groups={}, words="")
    assert [row.get("correct") for row in found] == [None, *[False] * (12 - right), *[True] * right], "wrong ones first"


def test_scores_by_group_beside_the_untrained_model(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, "alpha", items=12, correct=1.0))
    assert run.eval_summary is not None
    frame = predictions.score_frame(run.eval_summary)
    assert frame.iloc[0].to_dict() == {
        "Group": "All items", "Value": "", "Items": 12, "Exact match": 100.0, "95 % interval": "75.8–100.0 %",
        "Untrained": 0.0, "Format": 100.0,
    }  # fmt: skip
    assert frame["Value"].tolist()[:3] == ["", "core", "edge"]
    assert frame["Value"].tolist()[-3:] == ["easy", "medium", "hard"]
    lenient = {"exact_match": {}, "lenient_match": {"value": 0.5}}
    frame = predictions.score_frame({"metrics": lenient, "baseline": {"metrics": lenient}})
    assert frame[["Lenient", "Untrained, lenient"]].to_numpy().tolist() == [[50.0, 50.0]]


def test_scores_of_a_contradictory_run_are_not_shown(opened: Open, root: Path) -> None:
    write_run(root, "beta", items=40, eval_summary={"metrics": {"exact_match": {"value": 0.99}}})
    app = opened(state.RUN, run="beta", view="Predictions")
    assert len(app.dataframe) == 1, "the answers alone"
    assert "99.0 %" not in said(app)


def test_an_answer_is_shown_beside_the_expected_one(opened: Open, root: Path) -> None:
    folder = write_run(root, "alpha", items=40)
    rows = read_predictions(folder)
    rows[3] |= {"expected": "118", "extracted_answer": "<u>181", "correct": False, "finish_reason": "length"}
    write_rows(folder / PREDICTIONS, rows)
    app = opened(state.RUN, run="alpha", view="Predictions", finish_reason="length")
    assert "1 of 40 items. Select a row to read its output." in said(app)
    assert [box.label for box in app.multiselect] == ["Section", "Category", "Difficulty", "Ended by"]
    text = said(opened(state.RUN, run="alpha", view="Predictions", item=rows[3]["id"]))
    assert ">118</td>" in text
    assert ">&lt;u&gt;181</td>" in text
    assert "<u>" not in text


def test_a_link_opens_the_page_of_its_answer_among_thousands(opened: Open, root: Path) -> None:
    folder = write_run(root, "alpha")
    row = read_predictions(folder)[0]
    write_rows(folder / PREDICTIONS, [row | {"id": f"q{n}", "output_text": f"said {n}"} for n in range(2500)])
    app = opened(state.RUN, run="alpha", view="Predictions", item="q1700")
    assert "items. The selected answer is shown below." in said(app)
    assert "said 1700</p>" in said(app)
    assert list(app.dataframe[-1].value["Item"])[:2] == ["q1000", "q1001"]
    app = opened(state.RUN, run="alpha", view="Predictions", item="no such item")
    assert not app.code
    assert app.dataframe[-1].value["Item"][0] == "q0"


@pytest.mark.parametrize(("item", "is_linked"), [("q1", True), ("q" * 201, False), ("q\u2028\u202e", False)])
def test_only_an_id_that_an_address_can_hold_is_put_there(opened: Open, root: Path, item: str, is_linked: bool) -> None:
    folder = write_run(root, "alpha")
    write_rows(folder / PREDICTIONS, [read_predictions(folder)[0] | {"id": item, "output_text": "the output"}])
    app = opened(state.RUN, run="alpha", view="Predictions")
    for rows in ([0], []):
        app.session_state[f"predictions_table {hash((item,))}"] = selection(*rows)
        app.run()
        assert not app.exception
        assert ("the output</p>" in said(app)) is bool(rows)
        assert ("item" in app.query_params) is (is_linked and bool(rows))


def test_answers_during_training_are_shown_at_the_chosen_step(opened: Open, root: Path) -> None:
    folder = write_run(root, "alpha")
    row = {"id": "q0", "prompt": "2 + 2?", "expected": "4", "error": None, "finish_reason": "stop", "output_tokens": 2}
    wrong = row | {"step": 10, "output_text": "It is 5", "extracted_answer": "5", "correct": False}
    right = row | {"step": 20, "output_text": "It is 4", "extracted_answer": "4", "correct": True}
    write_rows(folder / ANSWERS_OVER_STEPS, [wrong, right])
    app = opened(state.RUN, run="alpha", view="Predictions")
    assert "1 of 1 answer right after step 20." in said(app)
    app.select_slider[0].set_value(10).run()
    assert not app.exception
    assert app.dataframe[-1].value[["Outcome", "Output"]].to_numpy().tolist() == [["✕ wrong", "It is 5"]]


@pytest.mark.parametrize(
    ("text", "answer", "parts"),
    [
        ("<reasoning>4</reasoning>\n<answer>4</answer>", "4", ("<reasoning>4</reasoning>\n<answer>", "4", "</answer>")),
        ("nothing", None, ("", "", "nothing")),
        ("nothing", "4", ("", "", "nothing")),
    ],
)
def test_an_output_is_split_where_its_answer_was_read(
    text: str, answer: str | None, parts: tuple[str, str, str]
) -> None:
    assert predictions.split_at_answer({"output_text": text, "extracted_answer": answer}) == parts


def test_a_long_output_shows_its_beginning_and_its_end_with_secrets_masked_whole() -> None:
    text = "x" * 3990 + " hf_" + "A" * 40 + " y" * 5000 + " hf_" + "B" * 40 + " z" * 1990 + "."
    shown = "".join(predictions.split_at_answer({"output_text": text, "extracted_answer": "."}))
    assert (shown[:100], shown[-100:]) == (text[:100], text[-100:])
    assert len(shown) < 8100
    assert "characters left out" in shown
    assert "AAA" not in shown
    assert "BBB" not in shown
