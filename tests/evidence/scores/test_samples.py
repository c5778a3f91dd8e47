"""Several samples of each item: pass@k against every choice of tries, the majority, intervals clustered by item."""

from itertools import combinations
from typing import Any

import pytest

from evidence.scores.clusters import clustered_error
from evidence.scores.reading import Scoring
from evidence.scores.recompute import scores_of
from evidence.scores.samples import answers_in, majority_fields, majority_of, pass_at, sampled_scores


@pytest.mark.parametrize("samples", range(1, 8))
def test_pass_at_k_is_the_share_of_all_choices_of_tries_that_hold_a_right_one(samples: int):
    for right in range(samples + 1):
        answers = [True] * right + [False] * (samples - right)
        for tries in range(1, samples + 1):
            chosen = list(combinations(answers, tries))
            assert pass_at(samples, right, tries) == pytest.approx(sum(map(any, chosen)) / len(chosen), abs=1e-12)


def test_the_majority_is_the_earliest_of_the_most_frequent_answers():
    exact, numbers = Scoring(answer="whole"), Scoring(answer="whole", compare="numeric")
    assert majority_of(["7", "8", "8.0"], exact) == "7"
    assert majority_of(["7", "8", "8.0"], numbers) == "8"
    assert majority_of([None, None, "3"], exact) == "3"
    assert majority_of([None, None], exact) is None
    assert majority_fields(["2", "2", "3"], exact, ("3",)) == {"majority_answer": "2", "majority_correct": False}


def row(name: str, verdicts: str, *, majority: bool, **more: Any) -> dict[str, Any]:
    """Return a row whose samples are right where `verdicts` has a plus."""
    first, *others = ({"correct": one == "+", "format_ok": True, "lenient_correct": one == "+"} for one in verdicts)
    told = {"id": name, "error": None, "expected": "1", "more_samples": others, "majority_correct": majority}
    return told | first | more


def test_scores_are_of_all_samples_and_those_of_the_first_stay_beside_them():
    rows = [row("a", "+++-", majority=True), row("b", "-+--", majority=False), row("c", "----", majority=False)]
    scores = scores_of(rows, 4)
    assert scores["metrics"]["exact_match"]["value"] == pytest.approx(1 / 3)
    sampled = scores["sampled"]
    assert [each["tries"] for each in sampled["pass_at"]] == [1, 2, 4]
    # Two tries of four: all six pairs of a hold a right one, three of b's, none of c's.
    assert [each["value"] for each in sampled["pass_at"]] == pytest.approx([1 / 3, (1 + 1 / 2) / 3, 2 / 3])
    assert sampled["majority"]["value"] == pytest.approx(1 / 3)
    assert "sampled" not in scores_of(rows)
    assert [each["tries"] for each in sampled_scores(rows[:0], 6)["pass_at"]] == [1, 2, 4, 6]


def test_an_item_is_one_piece_however_often_it_is_answered():
    rows = [row(f"q{n}", "++++" if n % 2 else "----", majority=bool(n % 2)) for n in range(20)]
    one = sampled_scores(rows, 4)["pass_at"][0]
    error, groups = clustered_error([float(n % 2) for n in range(20) for _ in range(4)], [n // 4 for n in range(80)])
    assert (one["standard_error"], groups) == (pytest.approx(error), 20)
    # Four equal answers are worth one: as wide as that of 20 items, not of 80 answers.
    assert one["interval"]["high"] - one["interval"]["low"] > 0.35
    together = [each | {"group": "all of one"} for each in rows]
    assert (
        sampled_scores(together, 4)["majority"]["interval"] | {"low": 0.0, "high": 1.0}
        == (sampled_scores(together, 4)["majority"]["interval"])
    )


def test_an_item_without_an_output_has_no_right_answer():
    failed = {"id": "x", "error": "no room", "correct": False, "format_ok": False, "lenient_correct": False}
    sampled = sampled_scores([row("a", "++", majority=True), failed], 2)
    assert [each["value"] for each in (*sampled["pass_at"], sampled["majority"])] == [0.5, 0.5, 0.5]


def test_each_answer_stands_as_a_row():
    first, second = answers_in(row("a", "+-", majority=True))
    assert (first["correct"], second["correct"], second["id"], second["error"]) == (True, False, "a", None)
    assert "more_samples" not in first
