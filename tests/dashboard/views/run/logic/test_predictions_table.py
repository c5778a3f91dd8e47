"""The answers of a run: filters, the scores by group as a table and as a picture, and an output in its pieces."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import write_run

from dashboard.shared.charts import scores_figure
from dashboard.shared.charts.plan_figures import LIGHT
from dashboard.shared.charts.scores_figure import ItemScore
from dashboard.views.run.logic import predictions_table
from evidence import layout
from evidence.run import read_run


def test_predictions_are_filtered_by_outcome_group_and_words(tmp_path: Path) -> None:
    rows = read_run(write_run(tmp_path, "alpha", items=12)).rows(layout.PREDICTIONS).values
    right = sum(row["correct"] for row in rows)
    groups = predictions_table.groups(rows)
    assert groups["difficulty"] == ["easy", "hard", "medium"]

    def count(outcome: str = "all", words: str = "", **chosen: list[str]) -> int:
        return len(predictions_table.filter_rows(rows, outcome=outcome, groups=chosen, words=words))

    assert (count(), count("right"), count("wrong"), count("error")) == (12, right, 12 - right, 0)
    assert count(difficulty=["easy"]) == 4
    assert count(difficulty=["easy", "hard"], section=["edge"]) == sum(
        row["difficulty"] != "medium" and row["section"] == "edge" for row in rows
    )
    assert count(words="item-0003 what") == 1
    assert predictions_table.table(rows)["outcome"].to_pylist().count("✓ right") == right
    found = predictions_table.filter_rows([{"error": "x"}, *rows], outcome="all", groups={}, words="")
    assert [row.get("correct") for row in found] == [None, *[False] * (12 - right), *[True] * right], "wrong ones first"


def test_scores_by_group_beside_the_untrained_model(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, "alpha", items=12, correct=1.0))
    assert run.eval_summary is not None
    rows = predictions_table.score_rows(run.eval_summary)
    assert rows[0] == (
        "all items",
        "",
        "12",
        "100.0 %",
        "75.8–100.0 %",
        "100.0 %",
        "0.0 %",
        "–",
        "–",
    )
    lenient = {"exact_match": {}, "lenient_match": {"value": 0.5}}
    [whole] = predictions_table.score_rows({"metrics": lenient, "baseline": {"metrics": lenient}})
    assert whole[-2:] == ("50.0 %", "50.0 %")
    assert [row[:3] for row in rows[1:3]] == [("section", "core", "9"), ("section", "edge", "3")]


def test_the_scores_of_each_group_as_a_picture(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, "alpha", items=12, correct=1.0))
    assert run.eval_summary is not None
    found = predictions_table.scores_of(run.eval_summary)
    assert {group: [(one.name, one.items) for one in scores] for group, scores in found.items()} == {
        "": [("all items", 12)],
        "section": [("core", 9), ("edge", 3)],
        "category": [("arithmetic", 6), ("comparison", 6)],
        "difficulty": [("easy", 4), ("medium", 4), ("hard", 4)],
    }
    assert predictions_table.headline(found[""][0]) == "100.0 % of 12 items are right (75.8–100.0 %). Untrained: 0.0 %."
    assert predictions_table.scores_of({"metrics": {"exact_match": {"value": None, "n": 3}}, "groups": []}) == {}


def test_a_dot_its_interval_and_the_untrained_dot_lie_where_the_scores_are() -> None:
    half = ItemScore(name="<b>", items=10, value=0.5, low=0.25, high=0.875, untrained=0.125)
    bare = ItemScore(name="bare", items=1, value=1.0, low=None, high=None, untrained=None)
    untrained, ours = scores_figure.draw([half, bare], LIGHT, overall=0.6, chosen=["bare"]).data
    assert (list(ours.x), list(ours.y), list(ours.customdata)) == ([50.0, 100.0], [1, 0], ["<b>", "bare"])
    assert (list(ours.error_x.arrayminus), list(ours.error_x.array)) == ([25.0, 0.0], [37.5, 0.0])
    assert (list(untrained.x), list(ours.marker.opacity)) == ([12.5], [0.35, 1.0])
    picture = scores_figure.draw([half, bare], LIGHT, overall=0.6)
    assert list(picture.layout.yaxis.ticktext) == ["&lt;b&gt; <i>10</i>", "bare <i>1</i>"]
    assert picture.layout.shapes[0].x0 == 60.0
    assert scores_figure.describe([half]) == "<b>: 50.0 % (25.0–87.5 %) of 10, untrained 12.5 %"


@pytest.mark.parametrize(
    ("text", "answer", "pieces"),
    [
        (
            "<reasoning>4</reasoning>\n<answer>4</answer>",
            "4",
            "t<reasoning>|4|t</reasoning>|\n|t<answer>|a4|t</answer>",
        ),
        ("no tags, 7", "7", "no tags, |a7"),
        ("nothing", None, "nothing"),
        ("", "4", ""),
    ],
)
def test_an_output_is_marked_where_its_answer_was_read(text: str, answer: str | None, pieces: str) -> None:
    found = predictions_table.parts_of_output({"output_text": text, "extracted_answer": answer})
    assert "|".join(kind[:1] + piece for kind, piece in found) == pieces
    assert "".join(piece for _, piece in found) == text


@pytest.mark.parametrize(
    ("before", "answer", "after", "left_out"),
    [
        ("I think again. " * 1300 + "The answer is ", "11", ".", "11,517"),
        ("So ", "11", " is the answer. " + "I think again. " * 1300, "11,521"),
        ("I think. " * 3000, "eleven", " Or not." * 3000 + " The end", None),
        ("", "whole " * 5000, "", "22,000"),
        ("", "whole " * 1200, "", None),
    ],
)
def test_a_long_output_shows_its_beginning_its_answer_and_its_end(
    before: str, answer: str, after: str, left_out: str | None
) -> None:
    text = before + answer + after
    found = predictions_table.parts_of_output({"output_text": text, "extracted_answer": answer})
    shown = "".join(piece for _, piece in found)
    assert (shown[:100], shown[-100:]) == (text[:100], text[-100:])
    assert len(shown) < 8100
    (read,) = (piece for kind, piece in found if kind == "answer")
    assert (read[:100], read[-100:]) == (answer[:100], answer[-100:])
    assert len(text) > 8000 or shown == text
    if left_out is not None:
        assert shown.count(f"… {left_out} characters left out …") == 1


def test_a_secret_at_a_cut_is_hidden_whole() -> None:
    text = "x" * 3990 + " hf_" + "A" * 40 + " y" * 5000 + " hf_" + "B" * 40 + " z" * 1990 + "."
    shown = "".join(piece for _, piece in predictions_table.parts_of_output({"output_text": text}))
    assert "AAA" not in shown
    assert "BBB" not in shown
