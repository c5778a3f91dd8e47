from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pandas as pd
import pytest

from dashboard.shared.tables.query import parse

FIELDS = ("run", "grade", "mode", "model", "loss", "score", "steps", "status", "tag", "note", "started")
OTHERS = ("optimizer.learning_rate", "data.shuffle", "model.revision")
CELLS = {
    "run": "demo-1",
    "grade": "consistent",
    "mode": "full",
    "model": "google/gemma 2b",
    "loss": 1.15,
    "steps": 200,
    "score": 0.625,
    "status": None,
    "tag": ("baseline", "seed-3"),
    "note": "Look at the log, it's odd",
    "started": datetime(2026, 11, 20, 12, 0, tzinfo=UTC),
    "optimizer.learning_rate": 0.0003,
    "data.shuffle": True,
}


def finds(text: str, cells: Mapping[str, object] = CELLS) -> bool:
    words = " ".join(value for value in cells.values() if isinstance(value, str)).lower()
    found = parse(text, FIELDS, OTHERS).matches(
        pd.Series([words]), lambda key: pd.Series([cells.get(key)], dtype=object)
    )
    return bool(found.item())


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("", True),
        ("GEMMA demo", True),
        ("gemma llama", False),
        ('"google/gemma 2b"', True),
        ('"gemma 3b"', False),
        ('"loss<1"', False),
        ("grade:consistent", True),
        ("grade:measured,consistent", True),
        ("grade:partial", False),
        ("-grade:partial", True),
        ("-grade:consistent", False),
        ("model:gemma loss<1.2 mode:full", True),
        ("loss<1.15", False),
        ("score>60%", True),
        ("score>0.6", True),
        ("score>=62.5%", True),
        ("score:62.5%", True),
        ("score>62.5%", False),
        ("score>60", False),
        ("loss<=1.15", True),
        ("loss>1e0", True),
        ("steps:200", True),
        ("steps:2", False),
        ("model=gemma", False),
        ('model="google/gemma 2b"', True),
        ("status:failed", False),
        ("-status:failed", True),
        ("status<3", False),
        ('status=""', True),
        ('-status=""', False),
        ('run:"demo-1"', True),
        ('run:"demo', True),
        ("tag:baseline", True),
        ("tag=seed", False),
        ("tag:seed", True),
        ("-tag:baseline", False),
        ('tag=""', False),
        ("note:odd it's", True),
        ("started>2026-11-20", True),
        ("started>2026-11-21", False),
        ("started<2026-11-20T12:00:01+00:00", True),
        ("started:2026-11-20", True),
        ("started>5", False),
        ("loss>2026-11-20", False),
        ("optimizer.learning_rate<0.001", True),
        ("optimizer.learning_rate:3e-4", True),
        ('optimizer.learning_rate>"0.001"', False),
        ("data.shuffle:true", True),
        ("data.shuffle>0", False),
        ("model.revision:main", False),
    ],
)
def test_what_a_search_finds(text: str, holds: bool) -> None:
    assert parse(text, FIELDS, OTHERS).complaints == []
    assert finds(text) is holds


def test_invalid_parts_are_named_and_the_rest_still_counts() -> None:
    text = "colour:red loss<low optimizer.learnig_rate<1 gemma"
    assert parse(text, FIELDS, OTHERS).complaints == [
        (
            "Unknown field colour; the fields are grade, loss, mode, model, note, run, score, started, status, steps, "
            "tag, settings and figures."
        ),
        "loss< needs a number or a date, not low.",
        "Unknown field optimizer.learnig_rate; did you mean optimizer.learning_rate?",
    ]
    assert finds(text)


@pytest.mark.parametrize(
    "text",
    [
        *['"', "-", ":", "<", '"""', "a:", '-"', "\x00", "(" * 500, "-" * 500, 'x="' * 200],
        "@df.to_csv('x')",
        "__import__('os')",
    ],
)
def test_nothing_that_is_typed_breaks_it_or_is_evaluated(text: str) -> None:
    finds(text)
