"""Every code has one explanation, every code in use is explained, and the page is current."""

import importlib.util
import re
from collections import Counter
from pathlib import Path

import pytest

PACKAGES = ("schemas", "foreign", "evidence", "trainer", "launch", "dashboard", "trainproof")


@pytest.fixture(scope="module")
def made():
    spec = importlib.util.spec_from_file_location("make_rules", "docs/make_rules.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


STATED_ONCE = ("schemas", "foreign", "evidence", "trainer", "launch", "dashboard", "trainproof")
"""Packages in which each code is a literal once: in its `Rule`, beside the check that uses it."""


def codes_in_use() -> list[str]:
    paths = [path for package in PACKAGES for path in Path(package).rglob("*.py")]
    return [code for path in paths for code in re.findall(r'"(TP\d{3})"', path.read_text(encoding="utf-8"))]


def test_no_code_is_a_literal_twice():
    paths = [path for package in STATED_ONCE for path in Path(package).rglob("*.py")]
    codes = [code for path in paths for code in re.findall(r'"(TP\d{3})"', path.read_text(encoding="utf-8"))]
    assert [code for code, times in Counter(codes).items() if times > 1] == []


def test_the_page_is_current(made):
    assert Path("docs/rules.md").read_text(encoding="utf-8") == made.page(), "run: python docs/make_rules.py"


def test_every_code_in_use_is_explained(made):
    assert set(codes_in_use()) <= {rule.code for rule in made.all_rules()}


def test_explanations_are_sentences(made):
    for rule in made.all_rules():
        assert rule.meaning.endswith("."), rule.code
        assert rule.fix.endswith("."), rule.code
