"""What counts as a template that was never filled in, and what only looks like it."""

from __future__ import annotations

import pytest

from evidence.rules.placeholders import _is_placeholder


@pytest.mark.parametrize(
    "text",
    [
        "<PENDING>",
        "< todo: the score>",
        "name: <Fill-in>",
        "<your model>",
        "TBD",
        "the loss is TODO",
        "FIXME: measure it",
        "X.XX",
        "XX.XXX %",
        "Paste your output here",
        "PASTE THE LOGS HERE",
        "paſte outputs here",  # A long s is an s in other cases.
    ],
)
def test_a_template_that_was_never_filled_in(text: str) -> None:
    assert _is_placeholder(text)


@pytest.mark.parametrize(
    "text", ["", "a < b", "<bos>", "tbd", "todo list", "X.X", "TBDX", "copy and paste", "<yours>", "outputs here"]
)
def test_what_only_looks_like_one(text: str) -> None:
    assert not _is_placeholder(text)
