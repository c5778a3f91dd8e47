"""Every document in tests/cases/documents: the valid say nothing, the broken say exactly the text beside them.

A new case is a new file, named KIND.CASE.EXTENSION; a broken one has KIND.CASE.problem.txt beside it.
"""

from pathlib import Path

import pytest

from schemas.catalog import KINDS, is_rows
from schemas.problems.problem import Problem
from schemas.problems.render import as_text
from schemas.validate import read_document, read_rows

CASES = Path(__file__).parents[1] / "cases" / "documents"
VALID = sorted((CASES / "valid").iterdir())
BROKEN = sorted(path for path in (CASES / "broken").iterdir() if path.suffix != ".txt")
TEXTS = sorted((CASES / "broken").glob("*.txt"))


def text_beside(path: Path) -> Path:
    return path.with_suffix(".problem.txt")


def problems_of(path: Path) -> tuple[Problem, ...]:
    kind = path.name.partition(".")[0]
    assert kind in KINDS
    return read_rows(path, kind).problems if is_rows(kind) else read_document(path, kind).problems


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.name)
def test_nothing_is_said_of_a_valid_document(path):
    assert as_text(problems_of(path)) == ""


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.name)
def test_of_a_broken_document_exactly_this_is_said(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    assert as_text(problems_of(Path(path.name))) == text_beside(path).read_text(encoding="utf-8")


def test_every_text_has_its_document():
    assert [text_beside(path) for path in BROKEN] == TEXTS


def test_there_are_cases_of_every_kind():
    for folder in (VALID, BROKEN):
        assert {path.name.partition(".")[0] for path in folder} == set(KINDS)
    assert len(BROKEN) >= 100


def test_the_words_of_a_library_are_never_shown():
    # Words that only jsonschema-rs, json, msgspec and PyYAML use.
    foreign = ["Expecting", "is not of type", "does not match", "required property", "unexpected", "Expected `"]
    foreign += ["could not find", "found character", "block mapping", "Traceback", "Error"]
    for path in TEXTS:
        text = path.read_text(encoding="utf-8")
        assert [words for words in foreign if words in text] == []
