"""Answers and forms, each case written out by hand."""

from __future__ import annotations

import pytest

from evidence.scores.reading import extract_answer, format_ok, is_correct


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>42</answer>", "42"),
        ("<answer> 4 2\n</answer> and more", "4 2"),
        ("<answer>1</answer> no, <answer>2</answer>", "2"),
        ("<answer>1</answer><answer>2", None),
        ("<answer></answer>", ""),
        ("answer: 42", None),
        ("</answer>42<answer>", None),
        ("<ANSWER>42</ANSWER>", None),
        ("", None),
    ],
)
def test_answer_is_what_stands_in_the_last_block(text: str, answer: str | None) -> None:
    assert extract_answer(text) == answer


@pytest.mark.parametrize(
    ("extracted", "expected", "correct"),
    [
        ("42", "42", True),
        (" 42\n", "42 ", True),
        ("42.0", "42", False),
        ("Paris", "paris", False),
        ("", "", True),
        (None, "", False),
        (None, "None", False),
    ],
)
def test_correct_is_letter_for_letter(extracted: str | None, expected: str, correct: bool) -> None:
    assert is_correct(extracted, expected) is correct


GOOD = "<reasoning>\n2 and 2\n</reasoning>\n<answer>4</answer>"


@pytest.mark.parametrize(
    ("text", "finish_reason", "ok"),
    [
        (GOOD, "stop", True),
        ("<reasoning></reasoning>\n<answer></answer>", "stop", True),
        (GOOD, "length", False),
        (GOOD, "error", False),
        (GOOD + "\n", "stop", False),
        (" " + GOOD, "stop", False),
        (GOOD.replace("</reasoning>\n", "</reasoning>"), "stop", False),
        (GOOD.replace("</reasoning>\n", "</reasoning>\n\n"), "stop", False),
        (GOOD + GOOD, "stop", False),
        ("<reasoning><answer>4</answer></reasoning>\n<answer>4</answer>", "stop", False),
        ("<answer>4</answer>\n<reasoning>2 and 2</reasoning>", "stop", False),
        ("<answer>4</answer>", "stop", False),
        ("", "stop", False),
    ],
)
def test_form_is_exact(text: str, finish_reason: str, ok: bool) -> None:
    assert format_ok(text, finish_reason) is ok
