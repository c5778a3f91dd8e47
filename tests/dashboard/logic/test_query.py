from __future__ import annotations

import pytest

from dashboard.logic.query import parse

FIELDS = ("run", "grade", "mode", "model", "loss", "steps", "status")
ROW = {
    "run": "demo-1",
    "grade": "verified",
    "mode": "full",
    "model": "google/gemma-2b",
    "loss": 1.15,
    "steps": 200,
    "status": None,
}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("", True),
        ("GEMMA demo", True),
        ("gemma llama", False),
        ("grade:verified", True),
        ("grade:measured,verified", True),
        ("grade:partial", False),
        ("-grade:partial", True),
        ("-grade:verified", False),
        ("model:gemma loss<1.2 mode:full", True),
        ("loss<1.15", False),
        ("loss<=1.15", True),
        ("loss>1e0", True),
        ("steps:200", True),
        ("steps:2", False),
        ("model=gemma", False),
        ("model=google/gemma-2b", True),
        ("status:failed", False),
        ("-status:failed", True),
        ("status<3", False),
        ('run:"demo-1"', True),
        ('run:"demo', False),
    ],
)
def test_what_a_search_finds(text: str, holds: bool) -> None:
    asked = parse(text, FIELDS)
    assert asked.complaints == ()
    assert asked.matches(ROW) is holds


def test_what_is_not_understood_is_named_and_the_rest_still_counts() -> None:
    asked = parse("colour:red loss<low gemma", FIELDS)
    assert asked.complaints == (
        "No field is called colour; there are grade, loss, mode, model, run, status, steps.",
        "loss< needs a number, not low.",
    )
    assert asked.matches(ROW)
