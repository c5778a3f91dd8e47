"""The fast reader of our own configurations against the YAML reader: what it takes, both read alike."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemas.reading.fast_yaml import LONGEST, read_plain
from schemas.reading.yaml_text import read_yaml, write_yaml

ROOT = Path(__file__).parents[3]
KEY = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True)
SCALAR = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(
        ["1e-3", "no", "yes", "~", "-", "12:30", "null", "", " ", "a b", "it's", "x # y", "0x10", ".5", "é"]
    ),
    st.text(max_size=8),
)
VALUE = st.recursive(
    SCALAR, lambda inner: st.one_of(st.dictionaries(KEY, inner, max_size=3), st.lists(inner, max_size=2)), max_leaves=8
)


def agree(text: str) -> bool:
    """Assert that the fast reader gives nothing or what the YAML reader gives; return whether it gave something."""
    fast = read_plain(text)
    if fast is None:
        return False
    slow = read_yaml(text, file="config.yaml")
    assert slow.is_read
    assert slow.problems == ()
    value, lines = fast
    assert repr(value) == repr(slow.value)
    assert lines == {pointer: slow.lines(pointer) for pointer in lines}
    return True


def test_a_recorded_configuration_takes_the_fast_way():
    recorded = sorted(ROOT.glob("submission_runs/*/config.yaml"))
    assert recorded
    assert all(agree(path.read_text("utf-8")) for path in recorded)


@given(st.dictionaries(KEY, VALUE, max_size=4))
def test_what_is_written_is_read_alike(value):
    agree(write_yaml(value))


LINES = [
    "a: 1",
    "b:",
    "  c: x",
    "    d: 2",
    "  e:",
    "f: 'q'",
    "",
    "# c",
    "- 1",
    "a: 1:2",
    "a:1",
    " a: 1",
    "---",
    "...",
    "g: -",
    "h: --1",
]


@given(st.lists(st.sampled_from(LINES), max_size=6).map("\n".join))
@example("b:\n    c: 1\n  d: 2\n")
@example("a: 1\n  b: 2\n")
@example("b:\n\n  c: 1\n")
@example("a: ...\n")
@example("a: .nan\n")
@example("a: 1e999\n")
def test_lines_in_any_order_are_read_alike(text):
    agree(text)


@given(st.text(alphabet="ab:- \n'\"#{}[]&*!|>%@`1.e+\t\r", max_size=24))
def test_any_text_is_read_alike(text):
    agree(text)


@pytest.mark.parametrize(
    "text", ["", "\n", "a", "a: 1\na: 2\n", "a: 1 \n", "a: [1]\n", "a: 'it''s'\n", "é: 1\n", "a: 1\r\n"]
)
def test_other_text_is_left_to_the_yaml_reader(text: str):
    assert read_plain(text) is None


def test_long_text_is_left_to_the_yaml_reader():
    text = "".join(f"k{number}: 1\n" for number in range(LONGEST // 4))
    assert len(text) > LONGEST
    assert read_plain(text) is None
