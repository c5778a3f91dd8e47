import re
from pathlib import Path

from schemas.problems.rule import RULES

SOURCES = sorted(Path(__file__).parents[3].joinpath("schemas").glob("*.py"))
CASES = Path(__file__).parents[2] / "cases" / "documents" / "broken"


def codes_used() -> dict[str, str]:
    """Return each code that the package's source gives to a problem, with its severity."""
    found = {}
    for path in SOURCES:
        if path.name in {"rules.py", "names.py"}:  # What names.py says, the trainer says: its codes are the trainer's.
            continue
        text = path.read_text(encoding="utf-8")
        found |= dict.fromkeys(re.findall(r'"(TP\d{3})"', text), "error")
        found |= dict(re.findall(r'code="(TP\d{3})",\s+severity="(\w+)"', text))
    return found


def test_every_code_in_use_has_a_rule_of_that_severity_and_no_other_does():
    assert {rule.code: rule.severity for rule in RULES} == codes_used()


def test_codes_are_of_this_family_in_order_and_once():
    codes = [rule.code for rule in RULES]
    assert codes == sorted(set(codes))
    assert all(re.fullmatch(r"TP1\d\d", code) for code in codes)


def test_every_code_has_a_case_or_a_test_of_its_own():
    shown = set(re.findall(r"TP\d{3}", "".join(path.read_text(encoding="utf-8") for path in CASES.glob("*.txt"))))
    # No document holds these: a file that is not there, a Python value, hundreds of bad lines, what is too large.
    assert {rule.code for rule in RULES} - shown == {"TP101", "TP127", "TP132", "TP133", "TP134"}


def test_every_rule_speaks_in_sentences():
    for rule in RULES:
        assert re.fullmatch(r"[A-Z].*[^.]", rule.title)
        assert re.fullmatch(r"[A-Z0-9].*\.", rule.meaning)
        assert re.fullmatch(r"[A-Z].*\.", rule.fix)
