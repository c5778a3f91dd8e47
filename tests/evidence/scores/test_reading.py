"""Reading and comparing answers: by hand, against Python's `re`, and against the verdicts of a careful reader."""

import json
import random
import re
import time
import warnings
from pathlib import Path

import pytest
import yaml

from evidence.rewards import Attempt, build_rewards
from evidence.scores.forms import last_number, parse_number, same_number
from evidence.scores.reading import (
    PatternError,
    Scoring,
    accepted_answers,
    can_capture,
    compile_pattern,
    expected_line,
    extract_answer,
    find_last_match,
    is_right_leniently,
    last_boxed,
    read_scoring,
)

CASES = yaml.safe_load(Path("tests/cases/scores/answers.yaml").read_text("utf-8"))

TEXTS = (
    "So it is 12.\n#### 1,234",
    "#### 4\n#### 5\n",
    "Answer: (B). Not C.",
    "the answer is \\boxed{3x+1} or \\boxed{42}",
    "aXbx aab abab -3.5 +7\n\tünder_score",
    "",
)


def by_re(pattern: str, text: str) -> str | None:
    """Return the same by the standard library: the independent truth."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [match for match in re.finditer(pattern, text) if match[0]]
    if not found:
        return None
    return found[-1][1] if found[-1].re.groups and found[-1][1] is not None else found[-1][0]


@pytest.mark.parametrize("pattern", CASES["patterns"])
@pytest.mark.parametrize("text", TEXTS)
def test_the_last_match_is_that_of_re(pattern: str, text: str) -> None:
    assert find_last_match(pattern, text) == by_re(pattern, text)


def written(choice: random.Random, depth: int) -> str:
    """Return a random pattern of few letters, so that it often matches."""
    atoms = ["a", "b", ".", "[ab]", "[^a]", r"\w", r"\b", "^", "$"]
    parts = []
    for _ in range(choice.randint(1, 3)):
        part = choice.choice(atoms)
        if depth and choice.random() < 0.4:
            inner = "|".join(written(choice, depth - 1) for _ in range(choice.randint(1, 2)))
            part = f"{choice.choice(['(', '(?:'])}{inner})"
        # Of a group that may be empty, libraries repeat what is empty differently.
        if part not in ("^", "$", r"\b") and re.match(part, "") is None:
            part += choice.choice(["", "", "", "*", "+", "?", "{2}", "{1,2}", "*?", "+?", "??"])
        parts.append(part)
    return "".join(parts)


def test_random_patterns_find_what_re_finds() -> None:
    choice, compared = random.Random(4711), 0
    for _ in range(1500):
        pattern, text = written(choice, 2), "".join(choice.choices("ab \n", k=choice.randint(0, 9))).rstrip("\n")
        try:
            compile_pattern(pattern)
        except PatternError:
            continue
        if any(not match[0] for match in re.finditer(pattern, text)):
            continue  # where empty matches lie, libraries differ
        compared += 1
        assert find_last_match(pattern, text) == by_re(pattern, text), (pattern, text)
    assert compared > 400


@pytest.mark.parametrize("pattern", [r"(?:a+)+b", r"(a|aa)+b", "a?" * 40 + "a{40}b"])
def test_what_never_ends_in_re_ends_here(pattern: str) -> None:
    """Thirty letters take `re` minutes with the first; twenty thousand take a bounded number of steps here."""
    before = time.process_time()
    assert find_last_match(pattern, "a" * 20_000) is None
    assert time.process_time() - before < 10


def test_a_search_beyond_its_limits_finds_nothing() -> None:
    assert find_last_match("a", "a" * 4_000) == "a"
    assert find_last_match("x.{100}z|[xa]", "xa" * 10_000) is None  # quadratic: each match reads up to the end
    assert find_last_match("#### (\\d)", "#### 7" + "x" * 20_000) is None
    assert find_last_match("#### (\\d)", "x" * 30_000 + "#### 7") == "7"
    assert find_last_match("#### (.*)", "\ud800\n#### 4") == "4"


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(a", "missing ): (a"),
        ("", "the pattern matches the empty string"),
        ("a*", "the pattern matches the empty string"),
        (r"(a)\1", r"invalid escape sequence: \1"),
        ("(?=a)a", "invalid perl operator: (?= (RE2 syntax: no look-around, no back-references)"),
        ("(?<!a)b", "invalid perl operator: (?<"),
        ("a{1001}", "invalid repetition size: {1001}"),
        (r"\pL{3}", "the pattern is too large; use fewer or smaller repetitions"),
        ("a" * 201, "the pattern has 201 characters, and at most 200 are allowed"),
        ("\ud800", "it is not valid Unicode"),
    ],
)
def test_an_unsupported_pattern_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(PatternError) as caught:
        compile_pattern(pattern)
    assert str(caught.value).startswith(why)


@pytest.mark.parametrize(("pattern", "text", "could"), CASES["captures"])
def test_what_a_pattern_can_capture_is_what_it_captures_in_some_output(pattern: str, text: str, could: bool) -> None:
    outputs = [text, f"#### {text}", f"answer: {text}", f"answer:{text}"]
    found = [match for output in outputs for match in re.finditer(pattern, output)]
    read = {(match[0] if not match.re.groups or match[1] is None else match[1]).strip() for match in found}
    assert (text in read) is could is can_capture(pattern, text)


@pytest.mark.parametrize(("text", "answer"), CASES["tags"])
def test_answer_is_what_stands_in_the_last_block(text: str, answer: str | None) -> None:
    assert extract_answer(text) == answer


GOOD = "<reasoning>\n2 and 2\n</reasoning>\n<answer>4</answer>"


@pytest.mark.parametrize(
    ("text", "finish_reason", "ok"),
    [
        (GOOD, "stop", True),
        ("<reasoning></reasoning>\n<answer></answer>", "stop", True),
        (GOOD, "length", False),
        (GOOD, "error", False),
        (" " + GOOD, "stop", False),
        (GOOD.replace("</reasoning>\n", "</reasoning>\n\n"), "stop", False),
        ("<reasoning><answer>4</answer></reasoning>\n<answer>4</answer>", "stop", False),
        ("<answer>4</answer>", "stop", False),
    ],
)
def test_form_is_exact(text: str, finish_reason: str, ok: bool) -> None:
    assert Scoring().verdict(text, finish_reason, ["4"])["format_ok"] is ok


def test_the_form_is_a_readable_answer_without_tags() -> None:
    whole, number = Scoring(answer="whole"), Scoring(answer="whole", compare="numeric")
    verdicts = [(whole, "Bob", "stop"), (whole, "Bob", "length"), (number, "Bob", "stop"), (NUMBERS, "4 m", "stop")]
    found = [scoring.verdict(text, finish, ["4"])["format_ok"] for scoring, text, finish in verdicts]
    assert found == [True, False, False, True]


@pytest.mark.parametrize(("answer", "text", "read"), CASES["readers"])
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
    ],
)
def test_what_counts_as_right(scoring: Scoring, text: str, accepted: list[str], correct: bool) -> None:
    assert scoring.verdict(text, "stop", accepted)["correct"] is correct


@pytest.mark.parametrize(("text", "expected", "right"), CASES["lenient"])
def test_the_end_of_an_output_is_taken_leniently(text: str, expected: str, right: bool) -> None:
    assert is_right_leniently(text, expected) is right


@pytest.mark.parametrize(("text", "number"), CASES["last_number"])
def test_the_last_number_of_a_text(text: str, number: str | None) -> None:
    assert last_number(text) == number


def test_several_expected_answers() -> None:
    item, row = {"expected": ["4", "four"]}, {"expected": "4", "also_expected": ["four"]}
    assert accepted_answers(item) == accepted_answers(row) == ("4", "four")
    assert expected_line(item) == expected_line(row) == '["4", "four"]'
    assert expected_line({"expected": "4"}) == "4"


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


OF_STRANGERS = CASES["parts_and_neighbours"]


@pytest.mark.parametrize(("text", "expected"), OF_STRANGERS)
def test_parts_and_neighbours_are_neither_counted_nor_rewarded_nor_taken_leniently(text: str, expected: str):
    verdict = NUMBERS.verdict(text, "stop", [expected])
    assert (verdict["correct"], verdict["lenient_correct"]) == (False, False)
    attempt = Attempt(prompt="?", text=text, row={"prompt": "?", "final_answer": expected}, finished=True)
    assert [reward.score(attempt) for reward in build_rewards(["exact", "numeric"], NUMBERS, file="c")] == [0, 0]
    assert EARLIER.verdict(text, "stop", [expected])["correct"]  # as runs of that version state


def test_a_tolerance_is_for_numbers_written_in_two_ways_unless_it_is_set():
    assert same_number("999999.0", "1000000", 1e-6)
    assert not same_number("999999", "1000000", 1e-6)
    assert same_number("99", "100", 0.01)
    assert parse_number("1e999") is parse_number("9" * 5000) is None
    assert same_number("9" * 3000, "9" * 3000, 0)
    assert not same_number("9" * 3000, "9" * 2999 + "8", 1e-6)


def test_a_run_without_a_version_is_scored_as_it_was():
    stated = {"answer": "last_number", "answer_regex": None, "compare": "numeric", "tolerance": 1e-6}
    assert read_scoring({"scoring": stated}) == EARLIER
    assert EARLIER.document() == stated
    assert read_scoring({"scoring": NUMBERS.document()}) == NUMBERS
    texts = ("5-3", "1,2", "x2", "2^3", "(B) 7 %", "-$3.50")
    assert [EARLIER.read(text) for text in texts] == ["3", "2", "2", "3", "7", "3.50"]
    assert Scoring(answer="choice", version=1).read("B: Vitamin C") == "C"


def test_the_stop_text_is_no_part_of_an_answer():
    whole = Scoring(answer="whole")
    assert whole.verdict(" 3\nQ:", "stop", ["3"], stop="\nQ:")["correct"]
    assert not whole.verdict(" 3\nQ:", "stop", ["3"])["correct"]
    assert not Scoring(answer="whole", version=1).verdict(" 3\nQ:", "stop", ["3"], stop="\nQ:")["correct"]
    assert NUMBERS.verdict("3 END4", "stop", ["3"], stop="END4")["correct"]


LONG = ["9", "1,", "a", "A ", "-", "\\boxed{", "1 1/", "answer: ", "\\frac{", "(1, ", "x2 ", "= - ", "^{2}", "²", "1.5"]


@pytest.mark.parametrize("text", LONG)
def test_reading_is_linear(text: str):
    """A quadratic pattern would take minutes."""
    long = text * 100_000
    assert last_number(long) is None or len(last_number(long) or "") < 10
    last_boxed(long)
    Scoring(answer="choice").verdict(long, "stop", ["B", "4", "word"])
