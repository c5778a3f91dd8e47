from __future__ import annotations

from difflib import SequenceMatcher

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.shared.parts.markup import Safe, changes
from dashboard.shared.words.difference import LONGEST, difference


@given(st.text(max_size=30), st.text(max_size=30))
def test_the_pieces_give_both_texts_back(expected: str, got: str) -> None:
    pieces = list(difference(expected, got))
    assert "".join(text for kind, text in pieces if kind != "added") == expected
    assert "".join(text for kind, text in pieces if kind != "missing") == got


def test_what_differs_is_named_letter_by_letter() -> None:
    assert list(difference("118 km", "181 km")) == [("missing", "1"), ("same", "18"), ("added", "1"), ("same", " km")]
    assert list(difference("a", "a")) == [("same", "a")]


def test_long_texts_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SequenceMatcher, "get_opcodes", lambda self: pytest.fail("compared"))
    long = "a" * (LONGEST + 1)
    assert list(difference(long, "b")) == [("missing", long), ("added", "b")]


def test_the_marking_escapes_what_a_model_wrote() -> None:
    found = changes("<b>1</b>", "<script>1</script>")
    assert isinstance(found, Safe)
    assert "<script" not in found
    assert "<b>" not in found
    assert found.count("<del>") + found.count("<ins>") > 0
