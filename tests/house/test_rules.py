"""Every code has one explanation, every code in use is explained, and the page is current."""

import importlib.util
import re
from pathlib import Path

import pytest

from schemas.problems import all_rules

PACKAGES = ("schemas", "foreign", "evidence", "trainer", "launch", "dashboard", "trainproof")


@pytest.fixture(scope="module")
def made():
    spec = importlib.util.spec_from_file_location("make_rules", "docs/make_rules.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def codes_in_use() -> list[str]:
    paths = [path for package in PACKAGES for path in Path(package).rglob("*.py")]
    return [code for path in paths for code in re.findall(r'"(TP\d{3})"', path.read_text(encoding="utf-8"))]


def test_the_page_is_current(made):
    assert Path("docs/rules.md").read_text(encoding="utf-8") == made.page(), "run: python docs/make_rules.py"


def test_every_code_in_use_has_texts_and_every_text_is_used():
    assert set(codes_in_use()) == set(all_rules())


def test_texts_are_sentences():
    for rule in all_rules().values():
        assert rule.why.endswith("."), rule.code
        assert rule.fix.endswith("."), rule.code
