"""The tabs Predictions and Roll-outs: scores by group, filters, links to answers, parts of an output; solved groups."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import Open, said, select
from rewarded import solution, write_rewarded_run
from synthetic import read_rows, write_rows, write_run

from dashboard.shared import state
from dashboard.views.run import answers
from evidence.layout import ANSWERS_OVER_STEPS, PREDICTIONS, ROLLOUTS
from evidence.run import read_run


def test_predictions_are_filtered_by_outcome_group_and_words(tmp_path: Path) -> None:
    rows = read_rows(write_run(tmp_path, "alpha", items=12) / PREDICTIONS)
    right = sum(row["correct"] for row in rows)
    assert answers.group_values(rows)["difficulty"] == ["easy", "hard", "medium"]

    def count(outcome: str = "all", words: str = "", **chosen: list[str]) -> int:
        return len(answers.filter_rows(rows, outcome=outcome, groups=chosen, words=words))

    assert (count(), count("right"), count("wrong"), count("error")) == (12, right, 12 - right, 0)
    assert count(difficulty=["easy"]) == 4
    assert count(difficulty=["easy", "hard"], section=["edge"]) == sum(
        row["difficulty"] != "medium" and row["section"] == "edge" for row in rows
    )
    assert count(words="item-0003 what") == 1
    assert list(answers.answer_frame(rows)["Outcome"]).count("✓ right") == right
    found = answers.filter_rows([{"error": "x"}, *rows], outcome="all", groups={}, words="")
    assert [row.get("correct") for row in found] == [None, *[False] * (12 - right), *[True] * right], "wrong ones first"


def test_scores_by_group_beside_the_untrained_model(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, "alpha", items=12, correct=1.0))
    assert run.eval_summary is not None
    frame = answers.score_frame(run.eval_summary)
    assert frame.iloc[0].to_dict() == {
        "Group": "All items", "Value": "", "Items": 12, "Exact match": 100.0, "95 % interval": "75.8–100.0 %",
        "Untrained": 0.0, "Format": 100.0,
    }  # fmt: skip
    assert frame["Value"].tolist()[:3] == ["", "core", "edge"]
    assert frame["Value"].tolist()[-3:] == ["easy", "medium", "hard"]
    lenient = {"exact_match": {}, "lenient_match": {"value": 0.5}}
    frame = answers.score_frame({"metrics": lenient, "baseline": {"metrics": lenient}})
    assert frame[["Lenient", "Untrained, lenient"]].to_numpy().tolist() == [[50.0, 50.0]]


def test_scores_of_a_contradictory_run_are_not_shown(opened: Open, root: Path) -> None:
    write_run(root, "beta", items=40, eval_summary={"metrics": {"exact_match": {"value": 0.99}}})
    app = opened(state.RUN, run="beta", view="Predictions")
    assert len(app.dataframe) == 1, "the answers alone"
    assert "99.0 %" not in said(app)


def test_an_answer_is_shown_beside_the_expected_one(opened: Open, root: Path) -> None:
    folder = write_run(root, "alpha", items=40)
    rows = read_rows(folder / PREDICTIONS)
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
    row = read_rows(folder / PREDICTIONS)[0]
    write_rows(folder / PREDICTIONS, [row | {"id": f"q{n}", "output_text": f"said {n}"} for n in range(2500)])
    app = opened(state.RUN, run="alpha", view="Predictions", item="q1700")
    assert "items. The selected answer is shown below." in said(app)
    assert "said 1700</p>" in said(app)
    assert list(app.dataframe[-1].value["Item"])[:2] == ["q1000", "q1001"]
    app = opened(state.RUN, run="alpha", view="Predictions", item="no such item")
    assert not app.code
    assert app.dataframe[-1].value["Item"][0] == "q0"


def test_the_chosen_answer_stays_as_long_as_the_filters_let_it(opened: Open, root: Path) -> None:
    wrong = next(row for row in read_rows(write_run(root, "alpha") / PREDICTIONS) if not row["correct"])
    app = opened(state.RUN, run="alpha", view="Predictions", item=wrong["id"])
    for outcome, is_shown in (("wrong", True), ("right", False)):
        next(one for one in app.button_group if one.key == "outcome").set_value(outcome).run()
        assert (wrong["prompt"] in [block.value for block in app.code]) is is_shown


@pytest.mark.parametrize(("item", "is_linked"), [("q1", True), ("q" * 201, False), ("q\u2028\u202e", False)])
def test_only_an_id_that_an_address_can_hold_is_put_there(opened: Open, root: Path, item: str, is_linked: bool) -> None:
    path = write_run(root, "alpha") / PREDICTIONS
    write_rows(path, [read_rows(path)[0] | {"id": item, "output_text": "the output"}])
    app = opened(state.RUN, run="alpha", view="Predictions")
    for rows in ([0], []):
        select(app, f"predictions_table {hash((item,))}", *rows)
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


def test_an_output_is_split_where_its_answer_was_read() -> None:
    text = "<reasoning>4</reasoning>\n<answer>4</answer>"
    for answer, parts in {"4": (text[:-10], "4", "</answer>"), None: ("", "", text), "5": ("", "", text)}.items():
        assert answers.split_at_answer({"output_text": text, "extracted_answer": answer}) == parts


def test_a_long_output_shows_its_beginning_and_its_end_with_secrets_masked_whole() -> None:
    text = "x" * 3990 + " hf_" + "A" * 40 + " y" * 5000 + " hf_" + "B" * 40 + " z" * 1990 + "."
    shown = "".join(answers.split_at_answer({"output_text": text, "extracted_answer": "."}))
    assert (shown[:100], shown[-100:]) == (text[:100], text[-100:])
    assert len(shown) < 8100
    assert "characters left out" in shown
    assert "AAA" not in shown
    assert "BBB" not in shown


@pytest.fixture
def folder(root: Path) -> Path:
    """Return a run of two steps with four groups: none is solved by every completion at step 1, two are at step 2."""
    solved = {1: [0, 1, 0, 0], 2: [2, 2, 1, 0]}
    return write_rewarded_run(
        root,
        "alpha",
        write=lambda step, group, sample, row: (
            (solution(row), 1.0, True) if sample < solved[step][group] else (f"text {sample}", 0.0, True)
        ),
        steps=2,
        groups=4,
        size=2,
    )


def test_groups_are_listed_from_the_last_step_with_the_share_of_solved_completions(folder: Path) -> None:
    frame = answers.group_frame(read_rows(folder / ROLLOUTS))
    assert frame[["Step", "Group"]].to_numpy().tolist() == [[step, group] for step in (2, 1) for group in (1, 2, 3, 4)]
    assert frame["Solved"].tolist() == [100, 100, 50, 0, 0, 50, 0, 0]
    shares = answers.solved_shares(frame)
    assert list(shares.index) == [1, 2]
    assert shares.to_numpy().tolist() == [[0, 0.25, 0.75], [0.5, 0.25, 0.25]]


def test_the_selected_group_has_its_best_completion_first_and_a_link(opened: Open, folder: Path) -> None:
    app = opened(state.RUN, run="alpha", view="Roll-outs")
    assert app.query_params["rollout"] == "2-1"
    assert "Step 1: 0.0 % of the groups are solved by every completion, 75.0 % by none." in said(app)
    row = read_rows(folder / ROLLOUTS)[8]
    assert f"Prompt: {row['prompt'].splitlines()[0][:20]}" in said(app)
    assert "the model learns nothing from this group" in said(app)
    app = opened(state.RUN, run="alpha", view="Roll-outs", rollout="2-3")
    completions = app.dataframe[-1].value
    assert completions[["countdown", "Ended"]].to_numpy().tolist() == [[1.0, "stop token"], [0.0, "stop token"]]
    assert completions["Completion"][1] == "text 1"
