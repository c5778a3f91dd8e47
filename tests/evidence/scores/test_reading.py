"""What each reader takes for the answer, what counts as right, and what is right whatever its form: by hand."""

from __future__ import annotations

import pytest

from evidence.scores.gain import Right, gain_of_form
from evidence.scores.reading import (
    Scoring,
    accepted_of,
    expected_line,
    extract_answer,
    format_ok,
    is_correct,
    is_right_leniently,
    last_choice,
    last_number,
    number_of,
    same_number,
    scoring_of,
)
from evidence.scores.recompute import scores_of


@pytest.mark.parametrize(
    ("answer", "text", "read"),
    [
        ("tags", "<answer>4</answer>", "4"),
        ("tags", "4", None),
        ("whole", " 5\n", "5"),
        ("whole", " \n", None),
        ("whole", "The answer is 5.", "The answer is 5."),
        ("last_number", "3 + 4 = 7", "7"),
        ("last_number", "none at all", None),
        ("last_line", "Think.\n\n Bob \n\n", "Bob"),
        ("last_line", "", None),
        ("choice", "I think it is (B).", "B"),
        ("choice", "b", "B"),
        ("choice", "A man and a dog.", None),
        ("choice", "I say C because A is wrong", "A"),
        ("regex", "x\n#### 42 \n", "42"),
        ("regex", "42", None),
    ],
)
def test_the_answer_of_each_reader(answer: str, text: str, read: str | None) -> None:
    assert Scoring(answer=answer, answer_regex="#### (.*)" if answer == "regex" else None).read(text) == read


@pytest.mark.parametrize(
    ("scoring", "text", "accepted", "correct"),
    [
        (Scoring(answer="whole"), "Husband", ["husband"], False),
        (Scoring(answer="whole", compare="folded"), "Husband  of Ann", ["husband of ann"], True),
        (Scoring(answer="whole", compare="numeric"), "1,000.0", ["1000"], True),
        (Scoring(answer="whole", compare="numeric"), "about 1000", ["1000"], False),
        (Scoring(answer="last_number", compare="numeric", tolerance=0.01), "so 99", ["100"], True),
        (Scoring(answer="last_number", compare="numeric", tolerance=0.001), "so 99", ["100"], False),
        (Scoring(answer="whole"), "Bob", ["Ann", "Bob"], True),
        (Scoring(answer="choice", compare="folded"), "(b)", ["B"], True),
        (Scoring(), "<answer>4</answer>", ["4"], True),
        (Scoring(), "4", ["4"], False),
    ],
)
def test_what_counts_as_right(scoring: Scoring, text: str, accepted: list[str], correct: bool) -> None:
    assert scoring.verdict(text, "stop", accepted)["correct"] is correct


@pytest.mark.parametrize(
    ("scoring", "text", "finish", "ok"),
    [
        (Scoring(answer="whole"), "Bob", "stop", True),
        (Scoring(answer="whole"), "Bob", "length", False),
        (Scoring(answer="whole", compare="numeric"), "Bob", "stop", False),
        (Scoring(answer="last_number", compare="numeric"), "so 4 apples", "stop", True),
        (Scoring(), "<reasoning>r</reasoning>\n<answer>4</answer>", "stop", True),
        (Scoring(), "<answer>4</answer>", "stop", False),
    ],
)
def test_the_form_is_that_of_the_reader(scoring: Scoring, text: str, finish: str, ok: bool) -> None:
    assert scoring.verdict(text, finish, ["4"])["format_ok"] is ok


@pytest.mark.parametrize(
    ("text", "expected", "right"),
    [
        ("The answer is 4.", "4", True),
        ("4 apples and 5 pears", "4", False),
        ("<answer>1,234</answer>", "1234", True),
        ("So the answer is (B).", "B", True),
        ("He is her Husband!", "husband", True),
        ("husband, I think", "husband", False),
        ("Her name is Ann Lee", "ann lee", True),
        ("a + b", "+", False),
        ("it is +", "+", True),
        ("so 2 * (10+1)", "2*(10+1)", True),
        ("2+10*1", "2*(10+1)", False),
        ("12*(10+1)", "2*(10+1)", False),
        ("", "4", False),
    ],
)
def test_the_end_of_an_output_is_taken_leniently(text: str, expected: str, right: bool) -> None:
    assert is_right_leniently(text, expected) is right


def test_what_is_right_strictly_is_right_leniently() -> None:
    verdict = Scoring().verdict("<answer>4</answer> of 5 apples", "stop", ["4"])
    assert (verdict["correct"], verdict["lenient_correct"]) == (True, True)


def test_without_a_statement_answers_are_read_as_earlier_versions_did() -> None:
    """The functions of version 1.1 are the truth."""
    scoring = scoring_of({"metrics": {}})
    for text in ("<answer> 4 </answer>", "4", "<reasoning>r</reasoning>\n<answer>4</answer>", "<answer></answer>"):
        answer = extract_answer(text)
        verdict = scoring.verdict(text, "stop", ["4"])
        assert verdict["extracted_answer"] == answer
        assert verdict["correct"] == is_correct(answer, "4")
        assert verdict["format_ok"] == format_ok(text, "stop")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5-3", None),
        ("x = -3.50", "-3.50"),
        ("x = −2", "-2"),
        ("$1,234.50.", "1,234.50"),
        ("1,2", None),
        ("3.14.", "3.14"),
        ("1e3 m", "1e3"),
        (".5", ".5"),
        ("", None),
    ],
)
def test_the_last_number_of_a_text(text: str, number: str | None) -> None:
    assert last_number(text) == number


def test_numbers_that_no_float_holds_are_none() -> None:
    assert number_of("1e999") is None
    assert number_of("9" * 5000) is None
    assert same_number("12345678901234567890", "12345678901234567890.0", 0)


def test_several_expected_answers() -> None:
    item, row = {"expected": ["4", "four"]}, {"expected": "4", "also_expected": ["four"]}
    assert accepted_of(item) == accepted_of(row) == ("4", "four")
    assert expected_line(item) == expected_line(row) == '["4", "four"]'
    assert expected_line({"expected": "4"}) == "4"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ((0, 4), (2, 2), "the gain is form: strict 0 → 2 of 60, lenient 4 → 2"),
        ((0, 2), (2, 2), "the gain is form: strict 0 → 2 of 60, lenient 2 → 2"),
        ((0, 30), (40, 42), "a part of the gain is form: strict 0 → 40 of 60, lenient 30 → 42"),
        ((10, 12), (40, 42), None),
        ((0, 0), (2, 2), None),
        ((2, 2), (2, 4), None),
        ((2, 2), (0, 0), None),
    ],
)
def test_a_gain_of_form_is_said(before: tuple[int, int], after: tuple[int, int], said: str | None) -> None:
    def right(counts: tuple[int, int]) -> Right:
        return Right(strict=counts[0], lenient=counts[1], n=60)

    assert gain_of_form(right(before), right(after)) == said
    assert gain_of_form(None, right(after)) is None


def test_the_lenient_score_is_counted_where_rows_say_it() -> None:
    row = {"id": "1", "error": None, "correct": False, "format_ok": True}
    rows = [row | {"id": str(n), "lenient_correct": n < 3} for n in range(4)]
    assert scores_of(rows)["metrics"]["lenient_match"]["value"] == 0.75
    assert "lenient_match" not in scores_of([row])["metrics"]
    unanswered = row | {"error": "too long", "lenient_correct": True}
    assert scores_of([unanswered])["metrics"]["lenient_match"]["value"] == 0


@pytest.mark.parametrize("text", ["9" * 200_000, "1," * 100_000, "a" * 200_000, "A " * 100_000, "-" * 200_000])
def test_no_output_takes_long_to_read(text: str) -> None:
    """Each is read by every fixed pattern; a quadratic one would take minutes."""
    last_number(text)
    last_choice(text)
    is_right_leniently(text, "4")
    is_right_leniently(text, "B")
    is_right_leniently(text, "word")
