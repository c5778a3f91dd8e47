"""YAML read strictly: held against JSON, which is a part of it, and against the core schema of YAML 1.2."""

import json

import pytest
import yaml
from effort import calls
from hypothesis import given
from hypothesis import strategies as st

from schemas.reading.limits import MOST_LEVELS
from schemas.reading.parse import parse_json, parse_yaml
from schemas.reading.yaml_text import MOST_CHARACTERS, write_yaml

PRINTABLE = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=6)
CONFIG_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False, allow_infinity=False)
    | PRINTABLE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PRINTABLE, inner, max_size=3),
    max_leaves=8,
)


def read(text: str):
    return parse_yaml(text.encode(), file="c.yaml")


@given(CONFIG_VALUES)
def test_json_is_yaml(value):
    parsed = read(json.dumps(value))
    assert parsed.problems == ()
    assert parsed.value == value
    assert [type(parsed.value)] == [type(value)]


@given(CONFIG_VALUES)
def test_what_is_written_is_read_back(value):
    parsed = read(write_yaml(value))
    assert parsed.problems == ()
    assert parsed.value == value


@pytest.mark.parametrize(
    "text", ["1e-3", "0E0", "0o17", "no", "12:30", "null", "", "~", ".nan", "1_000", "a: b", "#", "x\ny"]
)
def test_text_that_looks_like_something_else_stays_text(text):
    assert read(write_yaml({text: text})).value == {text: text}
    # Readers of YAML 1.1 see the same.
    assert yaml.safe_load(write_yaml({text: text})) == {text: text}


def test_writing_keeps_order_and_plain_words_plain():
    written = write_yaml({"name": "run", "model": {"name": "demo", "é": 1e-8}, "a": None, "list": [True, "1"]})
    assert written == "name: run\nmodel:\n  name: demo\n  é: 1.0e-08\na: null\nlist:\n- true\n- '1'\n"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("1e-3", 0.001),
        ("1.", 1.0),
        (".5", 0.5),
        ("+20", 20),
        ("-0", 0),
        ("010", 10),
        ("0x1F", 31),
        ("0o17", 15),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2026-01-01", "2026-01-01"),
        ("1.0", 1.0),
        ('"1"', "1"),
        ("'true'", "true"),
        ("1e", "1e"),
        ("9" * 308, int("9" * 308)),
    ],
)
def test_plain_scalars_are_those_of_yaml_1_2(text, value):
    parsed = read(f"a: {text}\n")
    assert parsed.problems == ()
    assert repr(parsed.value) == repr({"a": value})


def test_lines_are_those_of_keys_and_items():
    parsed = read("# first\na:\n  b: 1\n  c:\n    - 2\n    - d: |\n        x\n'e/f': {g:\n 1}\n")
    where = {pointer: parsed.lines(pointer) for pointer in ("", "/a", "/a/b", "/a/c/0", "/a/c/1/d", "/e~1f/g", "/x")}
    assert where == {"": 2, "/a": 2, "/a/b": 3, "/a/c/0": 5, "/a/c/1/d": 6, "/e~1f/g": 8, "/x": None}


def test_a_key_that_stands_twice_has_its_last_value_and_a_problem():
    parsed = read("a: {b: 1, b: 2}\nc: 1\n'c': 2\n")
    assert parsed.value == {"a": {"b": 2}, "c": 2}
    assert [(problem.code, problem.pointer, problem.line) for problem in parsed.problems] == [
        ("TP109", "/a/b", 1),
        ("TP109", "/c", 3),
    ]


@pytest.mark.parametrize("literal", [".nan", ".NaN", ".inf", "-.inf", "+.INF", "1e999", "9" * 400])
def test_numbers_that_are_not_finite_are_named_and_read_as_null(literal):
    parsed = read(f"a: [0, {literal}]")
    assert parsed.value == {"a": [0, None]}
    assert [(problem.code, problem.pointer) for problem in parsed.problems] == [("TP110", "/a/1")]


@pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ("{a: ", "}")])
def test_depth_has_the_limit_of_json(opens, closes):
    assert read(opens * MOST_LEVELS + "1" + closes * MOST_LEVELS).problems == ()
    deeper = MOST_LEVELS + 1
    assert [problem.code for problem in read(opens * deeper + "1" + closes * deeper).problems] == ["TP111"]
    assert [problem.code for problem in read(opens * 50_000).problems] == ["TP111"]


def test_aliases_cannot_blow_up():
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
    assert calls(lambda: read(bomb)) < 1000  # without a limit, 2 ** 60 values
    assert [problem.code for problem in read(bomb).problems] == ["TP108"]


def test_a_file_that_is_no_configuration_is_not_read():
    text = "a: 1\n" * (MOST_CHARACTERS // 5 + 1)
    assert [(problem.code, problem.what) for problem in read(text).problems] == [
        ("TP108", f"The file has {len(text):,} characters.")
    ]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "TP102"),
        ("a: 1".encode("utf-16"), "TP104"),
        ("a: 1".encode("utf-16-le"), "TP104"),
        (b"a: \xff", "TP105"),
        (b"a: \x00", "TP106"),
        (b'a: "\\ud800"', "TP112"),
        (b'a: "\\UFFFFFFFF"', "TP112"),
    ],
)
def test_encodings_are_handled_as_in_json(data, code):
    assert [problem.code for problem in parse_yaml(data, file="c.yaml").problems] == [code]


def test_a_byte_order_mark_is_allowed_in_yaml():
    parsed = parse_yaml(b"\xef\xbb\xbfa: 1", file="c.yaml")
    assert (parsed.value, parsed.problems, parsed.lines("/a")) == ({"a": 1}, (), 1)


def test_json_and_yaml_agree_on_a_configuration_in_json():
    text = '{"model": {"name": "demo"}, "limits": {"steps": 20, "max_minutes": 1.5e-3}}'
    assert read(text).value == parse_json(text.encode(), file="c.json").value
