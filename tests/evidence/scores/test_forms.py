"""Numbers, boxes and choices in texts: against the verdicts of a careful reader, and those of earlier versions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evidence.rewards import Attempt, rewards_of
from evidence.scores.gain import form_of_run
from evidence.scores.reading import Scoring, last_boxed, last_number, same_number, scoring_of

FORMS = [json.loads(line) for line in Path("tests/cases/answer_forms.jsonl").read_text("utf-8").splitlines()]
MEASURED = json.loads(Path("benchmarks/results/answer_forms.json").read_text("utf-8"))
COMPARE = {"last_number": "numeric", "boxed": "numeric", "choice": "folded"}
NUMBERS = Scoring(answer="last_number", compare="numeric")
EARLIER = Scoring(answer="last_number", compare="numeric", version=1)


def test_the_reader_agrees_with_a_careful_one_but_for_the_forms_that_are_stated():
    missed: dict[str, list[str]] = {"false_accept": [], "false_reject": []}
    for form in FORMS:
        scoring = Scoring(answer=form["reader"], compare=COMPARE[form["reader"]])
        right = scoring.verdict(form["answer"], "stop", [form["expected"]])["correct"]
        if right != (form["verdict"] == "right"):
            missed["false_accept" if right else "false_reject"].append(f"{form['answer']} for {form['expected']}")
    stated = [MEASURED["ours"][kind] for kind in ("numbers", "choices")]
    assert missed == {kind: [form for of in stated for form in of[kind]["forms"]] for kind in missed}
    theirs = MEASURED["math_verify"]["numbers"]
    assert all(len(forms) < theirs[kind]["n"] for kind, forms in missed.items())
    assert len(FORMS) == sum(MEASURED["forms"].values())
    assert len(FORMS) >= 150


OF_STRANGERS = [
    ("It is \\boxed{\\frac{1}{2}}.", "2"),
    ("It is 2/3", "3"),
    ("It is (1,2)", "2"),
    ("It is 999999.", "1000000"),
    ("It is 20240101.", "20240102"),
    ("It is 123456789012345678901", "123456789012345678902"),
]


@pytest.mark.parametrize(("text", "expected"), OF_STRANGERS)
def test_parts_and_neighbours_are_neither_counted_nor_rewarded_nor_taken_leniently(text: str, expected: str):
    verdict = NUMBERS.verdict(text, "stop", [expected])
    assert (verdict["correct"], verdict["lenient_correct"]) == (False, False)
    attempt = Attempt(prompt="?", text=text, row={"prompt": "?", "final_answer": expected}, finished=True)
    assert [reward.score(attempt) for reward in rewards_of(["exact", "numeric"], NUMBERS, file="c")] == [0, 0]
    assert EARLIER.verdict(text, "stop", [expected])["correct"]  # as runs of that version state


def test_a_tolerance_is_for_numbers_written_in_two_ways_unless_it_is_set():
    assert same_number("999999.0", "1000000", 1e-6)
    assert not same_number("999999", "1000000", 1e-6)
    assert same_number("99", "100", 0.01)
    assert same_number("9" * 3000, "9" * 3000, 0)
    assert not same_number("9" * 3000, "9" * 2999 + "8", 1e-6)


def test_a_run_without_a_version_is_scored_as_it_was():
    stated = {"answer": "last_number", "answer_regex": None, "compare": "numeric", "tolerance": 1e-6}
    assert scoring_of({"scoring": stated}) == EARLIER
    assert EARLIER.stated() == stated
    assert scoring_of({"scoring": NUMBERS.stated()}) == NUMBERS
    texts = ("5-3", "1,2", "x2", "2^3", "(B) 7 %", "-$3.50")
    assert [EARLIER.read(text) for text in texts] == ["3", "2", "2", "3", "7", "3.50"]
    assert Scoring(answer="choice", version=1).read("B: Vitamin C") == "C"


@pytest.mark.parametrize(
    ("text", "box"),
    [
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{1} and \boxed {2}", "2"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{1", None),
        (r"\boxed{1} or \boxed{2", None),
        ("1", None),
    ],
)
def test_a_box_ends_at_its_own_brace(text: str, box: str | None):
    assert last_boxed(text) == box


def test_the_stop_text_is_no_part_of_an_answer():
    whole = Scoring(answer="whole")
    assert whole.verdict(" 3\nQ:", "stop", ["3"], stop="\nQ:")["correct"]
    assert not whole.verdict(" 3\nQ:", "stop", ["3"])["correct"]
    assert not Scoring(answer="whole", version=1).verdict(" 3\nQ:", "stop", ["3"], stop="\nQ:")["correct"]
    assert NUMBERS.verdict("3 END4", "stop", ["3"], stop="END4")["correct"]


@pytest.mark.parametrize("text", ["\\boxed{", "1 1/", "answer: ", "\\frac{", "(1, ", "x2 ", "= - ", "^{2}", "²", "1.5"])
def test_no_form_takes_long_to_read(text: str):
    long = text * 100_000
    assert last_number(long) is None or len(last_number(long) or "") < 10
    last_boxed(long)
    Scoring(answer="choice").verdict(long, "stop", ["B"])


def test_right_answers_of_another_form_are_said_with_what_to_change():
    def summary(strict: float, lenient: float) -> dict:
        metrics = {"exact_match": {"value": strict, "n": 10}, "lenient_match": {"value": lenient, "n": 10}}
        return {"metrics": metrics, "scoring": {"answer": "whole"}}

    [sentence] = form_of_run(summary(0.1, 0.9), ())
    assert sentence.startswith("9 of 10 answers are right leniently and only 1 as evaluation.answer whole reads them: ")
    assert form_of_run(summary(0.8, 0.9), ()) == form_of_run(summary(0.0, 0.1), ()) == form_of_run(None, None) == []
    log = [{"message": "TP087: rows.jsonl: None has one.", "fields": {"code": "TP087"}}, {"message": "", "fields": {}}]
    assert form_of_run(None, log) == ["rows.jsonl: None has one."]
