"""Every code has texts, and every text belongs to a code."""

import re
from pathlib import Path

from schemas.problems import all_rules

PACKAGES = ("schemas", "evidence", "trainer", "launch", "dashboard", "trainproof")


def codes_in_use() -> list[str]:
    paths = [path for package in PACKAGES for path in Path(package).rglob("*.py")]
    return [code for path in paths for code in re.findall(r'"(TP\d{3})"', path.read_text(encoding="utf-8"))]


def test_every_code_in_use_has_texts_and_every_text_is_used():
    assert set(codes_in_use()) == set(all_rules())


def test_texts_are_sentences():
    for rule in all_rules().values():
        assert rule.why.endswith("."), rule.code
        assert rule.fix.endswith("."), rule.code
