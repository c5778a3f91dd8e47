import re
from pathlib import Path

from schemas.problems.problem import Problem
from schemas.problems.rule import all_rules, first_few, problem_of

CASES = Path(__file__).parents[2] / "cases" / "documents" / "broken"
SOURCES = "".join(path.read_text(encoding="utf-8") for path in Path("schemas").rglob("*.py"))
RULES = [rule for rule in all_rules().values() if f'"{rule.code}"' in SOURCES and "TP100" <= rule.code < "TP150"]
"""Of this package; those behind them are the trainer's."""


def test_a_problem_has_the_words_of_its_rule_where_it_says_nothing_else():
    rule = "TP113"
    assert problem_of(rule, file="a.json", what="It is empty.") == Problem(
        code="TP113",
        severity="error",
        file="a.json",
        what="It is empty.",
        why="The document is a list, a text, a number, a truth value or null.",
        next="Put the values under their keys.",
    )
    other = problem_of(rule, file="", what="It is empty.", why=None, next="Fill it.", severity="note")
    assert (other.why, other.next, other.severity) == (None, "Fill it.", "note")


def test_many_problems_of_one_kind_are_counted_after_the_first_few():
    problems = [problem_of("TP113", file="", what=f"{number}.") for number in range(8)]
    few = list(first_few(iter(problems), 3))
    assert [problem.what for problem in few] == ["0.", "1.", "2. There are 5 more like it."]
    assert list(first_few(problems[:3], 3)) == problems[:3]


def test_codes_are_of_this_family_in_order_and_once():
    codes = [rule.code for rule in RULES]
    assert codes == sorted(set(codes))
    assert len(codes) > 20
    assert all(re.fullmatch(r"TP1\d\d", code) for code in codes)


def test_every_code_has_a_case_or_a_test_of_its_own():
    shown = set(re.findall(r"TP\d{3}", "".join(path.read_text(encoding="utf-8") for path in CASES.glob("*.txt"))))
    # No document holds these: a file that is not there, a Python value, hundreds of bad lines, what is too large.
    assert {rule.code for rule in RULES} - shown == {"TP101", "TP127", "TP132", "TP133", "TP134"}


def test_every_rule_speaks_in_sentences():
    for rule in RULES:
        assert re.fullmatch(r"[A-Z].*[^.]", rule.title)
        assert re.fullmatch(r"[A-Z0-9].*\.", rule.why)
        assert re.fullmatch(r"[A-Z].*\.", rule.fix)
