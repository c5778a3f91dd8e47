"""JSON and YAML are read strictly: compared with Python's own reader, with each other, and with YAML 1.2."""

import json
import time

import pytest
import yaml
from effort import calls
from hypothesis import given
from hypothesis import strategies as st

from schemas.problems import pointer_to
from schemas.reading import MAX_CHARACTERS, MAX_LEVELS, parse_json, parse_yaml, read_json, scan, write_yaml

TEXT = st.text(st.characters(), max_size=6)  # with lone surrogates, which st.text() alone leaves out
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
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


def read(data: bytes):
    return parse_json(data, file="a.json")


def read_yaml(text: str):
    return parse_yaml(text.encode(), file="c.yaml")


def codes(parsed) -> list[str]:
    return [problem.code for problem in parsed.problems]


@given(JSON_VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_what_python_writes_is_read_back(value, ascii_only, indent):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    parsed = read(text.encode("utf-8", "surrogatepass"))
    if parsed.is_read:
        assert parsed.problems == ()
        assert parsed.value == value
    else:
        # Python writes half a surrogate pair without a word.
        assert codes(parsed) in (["TP105"], ["TP112"])
        with pytest.raises(UnicodeEncodeError):
            json.dumps(value, ensure_ascii=False).encode()


def places_of(value, path=()):
    """Yield the path of each value, in the order in which they stand in the text."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places_of(inner, (*path, key))
    if isinstance(value, list):
        for index, inner in enumerate(value):
            yield from places_of(inner, (*path, index))


@given(JSON_VALUES)
def test_lines_are_those_of_the_text(value):
    # With an indent, Python's writer puts each value on a line of its own, and closing brackets on others.
    text = json.dumps(value, indent=1)
    opening = [number for number, line in enumerate(text.split("\n"), 1) if line.strip() not in ("]", "],", "}", "},")]
    expected = {pointer_to(path): line for path, line in zip(places_of(value), opening, strict=True)}
    assert scan(text, file="a.json")[0] == expected


def test_every_key_that_stands_twice_is_named():
    parsed = read(b'{"a": {"b": 1,\n"b": 2,\n"\\u0062": 3}, "c": [{"d": 1, "d": 1}]}')
    assert parsed.value == {"a": {"b": 3}, "c": [{"d": 1}]}
    assert [(problem.code, problem.pointer, problem.line) for problem in parsed.problems] == [
        ("TP109", "/a/b", 2),
        ("TP109", "/a/b", 3),
        ("TP109", "/c/0/d", 3),
    ]


NOT_FINITE = ["NaN", "Infinity", "-Infinity", "1e999", "-1E+400", "9" * 309, "1" * 5000]
NOT_FINITE_YAML = [".nan", ".NaN", ".inf", "-.inf", "+.INF", "1e999", "9" * 400]


@pytest.mark.parametrize(
    ("parse", "literal"),
    [*((parse_json, each) for each in NOT_FINITE), *((parse_yaml, each) for each in NOT_FINITE_YAML)],
)
def test_numbers_that_are_not_finite_are_named_and_read_as_null(parse, literal):
    parsed = parse(f'{{"a": [0, {literal}]}}'.encode(), file="x")
    assert parsed.value == {"a": [0, None]}
    assert [(problem.code, problem.pointer) for problem in parsed.problems] == [("TP110", "/a/1")]


@pytest.mark.parametrize("literal", ["1e308", "-1.7976931348623157e308", "9" * 308, "1e-999", "-0", "0.1", "5.0"])
def test_finite_numbers_are_read_as_python_reads_them(literal):
    parsed = read(literal.encode())
    assert parsed.problems == ()
    assert repr(parsed.value) == repr(json.loads(literal))


@pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ('{"a": ', "}")])
@pytest.mark.parametrize("parse", [parse_json, parse_yaml])
def test_depth_has_a_limit(parse, opens, closes):
    for levels, expected in ((MAX_LEVELS, []), (MAX_LEVELS + 1, ["TP111"])):
        assert codes(parse((opens * levels + "1" + closes * levels).encode(), file="x")) == expected
    assert codes(parse((opens * 50_000).encode(), file="x")) == ["TP111"]
    assert codes(parse(json.dumps(["[" * 1000, '"{' * 1000]).encode(), file="x")) == [], "brackets in strings"


@pytest.mark.parametrize(
    ("code", "texts"),
    [
        ("TP102", [b"", b" \r\n\t"]),
        ("TP103", [b"\xef\xbb\xbf{}"]),
        ("TP104", [b"\xff\xfe{\x00}\x00", b"\xfe\xff\x00{\x00}", b"{\x00}\x00", b"\x00{\x00}"]),
        ("TP104", [b"\xff\xfe\x00\x00{\x00\x00\x00", b"{\x00\x00\x00}\x00\x00\x00", b"\x00\x00\x00{\x00\x00\x00}"]),
        ("TP105", [b'{"a": "\xe9"}', b'{"a": "\xed\xa0\x80"}', b'{"a": "\xc0\xaf"}']),
        ("TP106", [b"{}\x00", b"\x00\x00"]),
        ("TP107", [b"{", b"{}{}", b'{"a": 01}', b'{"a": "\x01"}']),
        ("TP112", [b'"\\ud800"', b'{"\\uDC00": 1}', b'"\\udc00\\ud800"']),
    ],
)
def test_each_fault_of_a_text_has_its_code(code, texts):
    assert [codes(read(data)) for data in texts] == [[code]] * len(texts)


@pytest.mark.parametrize(
    ("code", "texts"),
    [
        ("TP102", [b""]),
        ("TP104", ["a: 1".encode("utf-16"), "a: 1".encode("utf-16-le")]),
        ("TP105", [b"a: \xff"]),
        ("TP106", [b"a: \x00"]),
        ("TP112", [b'a: "\\ud800"', b'a: "\\UFFFFFFFF"']),
    ],
)
def test_encodings_of_yaml_have_the_codes_of_json(code, texts):
    assert [codes(parse_yaml(data, file="c.yaml")) for data in texts] == [[code]] * len(texts)


def test_after_a_byte_order_mark_which_yaml_allows_reading_goes_on():
    assert codes(read(b'\xef\xbb\xbf{"a": NaN}')) == ["TP103", "TP110"]
    parsed = parse_yaml(b"\xef\xbb\xbfa: 1", file="c.yaml")
    assert (parsed.value, parsed.problems, parsed.lines("/a")) == ({"a": 1}, (), 1)


@pytest.mark.parametrize(
    "text",
    ['"' + '\\"' * 200_000, '{"a":' + '"' * 200_001, "[" + '"\\\\' * 100_000, "[" * 63 + "1," * 200_000],
    ids=["escaped quotes", "quotes", "backslashes", "items"],
)
def test_hostile_text_is_refused_in_linear_time(text):
    started = time.process_time()
    assert read(text.encode()).problems
    assert time.process_time() - started < 20  # less than 1 s where this was written; squares would take hours


@pytest.mark.parametrize("lone", [r"\ud800", r"\uDC00", r"\ud800\ud801", r"\\\ud83d"])
def test_the_line_of_a_lone_surrogate_is_not_that_of_a_pair(lone):
    text = b'{"a": "\\ud83d\\ude00",\n "b": "\\\\ud800",\n "c": "' + lone.encode() + b'"}'
    (problem,) = read(text).problems
    assert (problem.code, problem.line) == ("TP112", 3)


@pytest.mark.parametrize("write", [json.dumps, write_yaml])
@given(value=CONFIG_VALUES)
def test_yaml_and_json_are_read_as_yaml(write, value):
    parsed = read_yaml(write(value))
    assert parsed.problems == ()
    assert (type(parsed.value), parsed.value) == (type(value), value)


@pytest.mark.parametrize(
    "text", ["1e-3", "0E0", "0o17", "no", "12:30", "null", "", "~", ".nan", "1_000", "a: b", "#", "x\ny"]
)
def test_text_that_looks_like_something_else_stays_text(text):
    assert read_yaml(write_yaml({text: text})).value == {text: text}
    # Readers of YAML 1.1 see the same.
    assert yaml.safe_load(write_yaml({text: text})) == {text: text}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((text, text) for text in ["no", "yes", "on", "1_000", "12:30", "2026-01-01", "1e"]),
        *zip(("true", "False", "~", "null", '"1"', "'true'"), (True, False, None, None, "1", "true"), strict=True),
        *zip(("1e-3", "1.", ".5", "1.0", "+20", "-0"), (0.001, 1.0, 0.5, 1.0, 20, 0), strict=True),
        *zip(("010", "0x1F", "0o17", "9" * 308), (10, 31, 15, int("9" * 308)), strict=True),
    ],
)
def test_plain_scalars_are_those_of_yaml_1_2(text, value):
    parsed = read_yaml(f"a: {text}\n")
    assert parsed.problems == ()
    assert repr(parsed.value) == repr({"a": value})


def test_lines_are_those_of_keys_and_items():
    parsed = read_yaml("# first\na:\n  b: 1\n  c:\n    - 2\n    - d: |\n        x\n'e/f': {g:\n 1}\n")
    where = {pointer: parsed.lines(pointer) for pointer in ("", "/a", "/a/b", "/a/c/0", "/a/c/1/d", "/e~1f/g", "/x")}
    assert where == {"": 2, "/a": 2, "/a/b": 3, "/a/c/0": 5, "/a/c/1/d": 6, "/e~1f/g": 8, "/x": None}


def test_a_key_that_stands_twice_has_its_last_value_and_a_problem():
    parsed = read_yaml("a: {b: 1, b: 2}\nc: 1\n'c': 2\n")
    assert parsed.value == {"a": {"b": 2}, "c": 2}
    assert [(problem.code, problem.pointer, problem.line) for problem in parsed.problems] == [
        ("TP109", "/a/b", 1),
        ("TP109", "/c", 3),
    ]


def test_aliases_cannot_blow_up():
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
    assert calls(lambda: read_yaml(bomb)) < 1000  # without a limit, 2 ** 60 values
    assert codes(read_yaml(bomb)) == ["TP108"]


def test_a_file_that_is_too_long_for_a_configuration_is_not_read():
    text = "a: 1\n" * (MAX_CHARACTERS // 5 + 1)
    assert [(problem.code, problem.what) for problem in read_yaml(text).problems] == [
        ("TP108", f"The file has {len(text):,} characters.")
    ]


@pytest.mark.parametrize("text", ['{"a": 1,\n}', "[1, 2 , ]"])
def test_a_trailing_comma_is_explained_alike_by_every_python(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.13 has a message of its own for it, at the place of the comma."""
    [found] = read_json(text, file="a.json").problems

    def refuse(*_: object, **__: object) -> None:
        raise json.JSONDecodeError("Illegal trailing comma before end of object", text, text.rindex(","))

    monkeypatch.setattr(json.JSONDecoder, "decode", refuse)
    assert read_json(text, file="a.json").problems == (found,)
