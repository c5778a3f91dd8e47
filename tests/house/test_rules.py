"""Every code has one explanation, every code in use is explained, and the page is current."""

import importlib.util
import re
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def made():
    spec = importlib.util.spec_from_file_location("make_rules", "docs/make_rules.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def codes_in_use() -> set[str]:
    found: set[str] = set()
    for package in ("schemas", "evidence", "trainer", "dashboard"):
        for path in Path(package).rglob("*.py"):
            if path.name != "rules.py":
                found |= set(re.findall(r'"(TP\d{3})"', path.read_text()))
    return found


def test_the_page_is_current(made):
    assert Path("docs/rules.md").read_text(encoding="utf-8") == made.page(), "run: python docs/make_rules.py"


def test_a_code_is_explained_once(made):
    codes = [rule.code for rule in made.all_rules()]
    assert len(codes) == len(set(codes))


def test_every_code_in_use_is_explained(made):
    assert codes_in_use() <= {rule.code for rule in made.all_rules()}


def test_explanations_are_sentences(made):
    for rule in made.all_rules():
        assert rule.meaning.endswith("."), rule.code
        assert rule.fix.endswith("."), rule.code
