"""What the fast reader of documents is sure of, the strict one reads the same; what is odd, it leaves to that one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.reading.fast_json import UNSURE, sure
from schemas.reading.json_text import _read_strictly, read_json
from schemas.reading.limits import MOST_DIGITS, MOST_LEVELS

KEYS = st.text(max_size=4) | st.sampled_from(['"', "\\", '\\"', '", "a": "', "\\u0022", "\ud800"])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | KEYS | st.just(10 ** (MOST_DIGITS + 1))
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


def levels(count: int) -> str:
    return "[" * count + "]" * count


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 2}',
        '{"a": {"b": 1, "b": 1}}',
        '{"a\\u0022": 1}',
        "NaN",
        "[-Infinity]",
        "1e999",
        "-" + "9" * (MOST_DIGITS + 1),
        '"\\ud800"',
        '"\ud800"',
        levels(MOST_LEVELS + 1),
        levels(100_000),
        f'{{"a": {levels(MOST_LEVELS + 1)}, "a": 1}}',
        '{"a": 1',
        "{'a': 1}",
        "",
        "\ufeff1",
    ],
    ids=lambda text: ascii(text)[:30],
)
def test_what_is_odd_is_left_to_the_strict_reader(text: str) -> None:
    assert sure(text) is UNSURE


@pytest.mark.parametrize(
    "text", [levels(MOST_LEVELS), f"[{'[],' * 99}[]]", "-0", "-0.0", " 1\n", "9" * MOST_DIGITS, '{"\\u0061": "\\/"}']
)
def test_what_is_plain_is_read_as_python_reads_it(text: str) -> None:
    assert repr(sure(text)) == repr(json.loads(text))


@settings(max_examples=400)
@given(VALUES, st.booleans(), st.data())
def test_both_readers_say_the_same_of_any_text(value: object, ascii_only: bool, data: st.DataObject) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    if data.draw(st.booleans()):
        place, other = data.draw(st.integers(0, len(text))), data.draw(st.sampled_from(['"', "{", "}", ",", "0", "\\"]))
        text = text[:place] + other + text[place + data.draw(st.integers(0, 1)) :]
    quick, strict = read_json(text, file="a.json"), _read_strictly(text, file="a.json")
    assert (repr(quick.value), quick.is_read, quick.problems) == (repr(strict.value), strict.is_read, strict.problems)


def test_documents_of_the_cases_are_read_without_the_strict_reader() -> None:
    valid = Path(__file__).parents[2] / "cases" / "runs" / "valid"
    documents = sorted(valid.rglob("*.json"))
    assert documents
    assert not [path for path in documents if sure(path.read_text("utf-8")) is UNSURE]
