"""The typed decoders are a fast yes: whatever they accept, the schema accepts, with the same value.

Rows are made from the schemas, then changed in their text: as a whole, in a value, in a key, byte by byte.
"""

import json
import re
from functools import cache
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from referencing import Registry, Resource

from schemas.catalog import ROWS, resolve_node, schema, schemas_of, types_of
from schemas.reading.fast_json import quotation_marks
from schemas.reading.json_text import read_json
from schemas.reading.limits import MOST_DIGITS, MOST_LEVELS
from schemas.reading.row_types import decoder_of
from schemas.validate import read_rows

pytestmark = pytest.mark.slow

TYPED = ("metric_row", "log_record", "prediction_row", "eval_item")
REGISTRY = Registry().with_resources([(one["$id"], Resource.from_contents(one)) for one in schemas_of().values()])

TEXT = st.text(st.characters(), max_size=8) | st.sampled_from(
    ['"', '\\"', "}", '", "a": "', "\\u0022", "\n", "a\n", ""]
)
TIMES = st.sampled_from(
    ["2026-10-11T12:34:56Z", "2026-10-11T12:34:56.123456+00:00", "2026-10-11", "2026-10-11T12:34:56Z\n"]
)
NUMBERS = (
    st.integers(-2, 4)
    | st.sampled_from([2**53 - 1, 2**53, -(2**53), 2**63, 2**64, 10**308, 10**309, -(10**400)])
    | st.floats()
    | st.sampled_from([0.0, -0.0, 5.0, 1e6, 1.000001e6, 1e12, 1.1e12, 1e15, 1e16, 1e308, 5e-324])
)
ANY_VALUE = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
RIGHT_TEXT = st.text(max_size=8) | st.sampled_from(['"', '\\"', "}", '", "a": "', "\\u0022", "\n"])
EXAMPLES = ["run_started", "a", "1 + 1", "5 17", "2026-10-11T12:34:56Z", "2026-10-11T23:59:60.123456789-05:30"]
RIGHT_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | RIGHT_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(RIGHT_TEXT, inner, max_size=3),
    max_leaves=6,
)


def right_values_of(node: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return values that a schema node accepts, up to its very limits."""
    if "enum" in node:
        return st.sampled_from(node["enum"])
    low, high = node.get("minimum"), node.get("maximum")
    by_type = {
        "null": lambda: st.none(),
        "boolean": lambda: st.booleans(),
        "integer": lambda: st.integers(low, high) | st.sampled_from([low, high, 5.0]),
        "number": lambda: st.floats(low, high) | whole_numbers(low, high) | st.sampled_from([low, high]),
        "string": lambda: right_texts_of(node),
        "array": lambda: st.lists(right_values_of(node["items"]), min_size=node.get("minItems", 0), max_size=3),
        "object": lambda: (
            right_objects_of(node) if "properties" in node else st.dictionaries(RIGHT_TEXT, RIGHT_VALUE, max_size=3)
        ),
    }
    return st.one_of([by_type[name]() for name in types_of(node)])


def whole_numbers(low: float, high: float) -> st.SearchStrategy[int]:
    # Whole numbers of more digits are refused by the strict reader before a schema is asked.
    most = 10**MOST_DIGITS - 1
    return st.integers(max(int(low), -most), min(int(high), most))


def right_texts_of(node: dict[str, Any]) -> st.SearchStrategy[str]:
    def is_right(text: str) -> bool:
        return len(text) >= node.get("minLength", 0) and re.search(node.get("pattern", ""), text) is not None

    examples = st.sampled_from([text for text in EXAMPLES if is_right(text)])
    # Hardly any text is a time by chance; nearly any is a name.
    return examples | RIGHT_TEXT.filter(is_right) if is_right("1 + 1") else examples


def whole(node: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """Return a node with what it refers to, that of a list and of members included."""
    node = resolve_node(node, document)
    if "items" in node:
        node = node | {"items": whole(node["items"], document)}
    if "properties" in node:
        node = node | {"properties": {key: whole(member, document) for key, member in node["properties"].items()}}
    return node


def rows_of(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    return right_objects_of(whole(schema(kind), schema(kind)))


def right_objects_of(node: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    fields = {name: right_values_of(member) for name, member in node["properties"].items()}
    needed = {name: fields.pop(name) for name in node["required"]}
    return st.fixed_dictionaries(needed, optional=fields)


@st.composite
def changed_texts(draw: st.DrawFn, kind: str) -> str:
    """Draw the text of a row with one thing changed: a value, a key, a member more, or some characters."""
    row = draw(rows_of(kind))
    key = draw(st.sampled_from(list(row)))
    members = [(json.dumps(name), json.dumps(value, ensure_ascii=draw(st.booleans()))) for name, value in row.items()]
    change = draw(
        st.sampled_from(["nothing", "nothing", "value", "edge", "drop", "twice", "unknown", "escape", "literal", "cut"])
    )
    if change == "value":
        members = [(name, json.dumps(draw(ANY_VALUE)) if name == json.dumps(key) else text) for name, text in members]
    elif change == "edge":
        edge = json.dumps(draw(NUMBERS | TIMES))
        members = [(name, edge if name == json.dumps(key) else text) for name, text in members]
    elif change == "drop":
        members = [(name, text) for name, text in members if name != json.dumps(key)]
    elif change == "twice":
        members.insert(draw(st.integers(0, len(members))), (json.dumps(key), json.dumps(draw(ANY_VALUE))))
    elif change == "unknown":
        members.append((json.dumps(draw(TEXT)), json.dumps(draw(ANY_VALUE))))
    elif change == "escape":
        first = f'"\\u{ord(key[0]):04x}{key[1:]}"'
        members.insert(draw(st.integers(0, len(members))), (first, draw(st.sampled_from(["1", "null", '"\\u0022"']))))
    elif change == "literal":
        literal = draw(
            st.sampled_from(["NaN", "1e999", "01", "5.0", "5e0", "-0", "1.", "true", "'a'", '"\\u0022\\u0022"'])
        )
        members = [(name, literal if name == json.dumps(key) else text) for name, text in members]
    text = "{" + draw(st.sampled_from([", ", ",", " ,\t"])).join(f"{name}: {value}" for name, value in members) + "}"
    if change == "cut":
        start, length = draw(st.integers(0, len(text))), draw(st.integers(0, 12))
        text = text[:start] + draw(TEXT) + text[start + length :]
    return text


@cache
def python_validator(kind: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema(kind), registry=REGISTRY)


def slow_verdict(kind: str, text: str) -> tuple[bool, Any]:
    """Return whether a line is right, and its row, by the strict reader and the `jsonschema` package."""
    parsed = read_json(text, file="x")
    if parsed.problems or not parsed.is_read:
        return False, None
    right = isinstance(parsed.value, dict) and python_validator(kind).is_valid(parsed.value)
    return right, parsed.value if right else None


def same(first: Any, second: Any) -> bool:
    """Return whether two rows are equal down to the type and the sign of each number."""
    return repr(first) == repr(second)


@pytest.mark.parametrize("kind", TYPED)
def test_the_fast_yes_is_the_schema_s_yes(kind):
    @settings(max_examples=150, deadline=None)
    @given(changed_texts(kind))
    def check(text):
        data = text.encode("utf-8", "surrogatepass")
        row = decoder_of(kind)(data)
        if row is not None:
            right, expected = slow_verdict(kind, text)
            assert right
            assert same({key: row[key] for key in expected}, expected)
            assert len(row) == len(expected)

    check()


@pytest.mark.parametrize("kind", TYPED)
def test_both_libraries_and_the_reader_of_rows_give_one_verdict(kind, tmp_path):
    path = tmp_path / "rows.jsonl"

    @settings(max_examples=150, deadline=None)
    @given(changed_texts(kind))
    def check(text):
        data = text.encode("utf-8", "surrogatepass").replace(b"\n", b" ")
        path.write_bytes(data + b"\n" + b"{}\n")
        rows = read_rows(path, kind)
        right, expected = slow_verdict(kind, data.decode("utf-8", "surrogatepass"))
        assert rows.values == ([expected] if right else [])
        assert bool([problem for problem in rows.problems if problem.line == 1]) == (not right)

    check()


@pytest.mark.parametrize("kind", TYPED)
def test_right_rows_are_right_and_ordinary_ones_take_the_fast_path(kind):
    @settings(max_examples=100, deadline=None)
    @given(rows_of(kind))
    def check(row):
        text = json.dumps(row, ensure_ascii=False)
        assert slow_verdict(kind, text) == (True, row)
        fast = decoder_of(kind)(text.encode())
        # What goes the slow way on purpose is not what a run writes.
        unusual = "\\u0022" in text or 5.0 in row.values() or is_large(row)
        assert unusual or same({key: fast[key] for key in row}, row)

    check()


def is_large(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(is_large(one) for one in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, int | float) and abs(value) >= 2**53 - 1


def test_what_open_fields_may_not_hold_takes_the_slow_way():
    line = '{"time": "2026-10-11T12:34:56Z", "level": "info", "event": "a", "message": "", "fields": {"a": %s}}'
    decode = decoder_of("log_record")
    for value, is_sure in [
        ("9" * MOST_DIGITS, True),
        ("1" + "0" * MOST_DIGITS, False),
        ("1e999", False),
        ("[" * (MOST_LEVELS - 2) + "]" * (MOST_LEVELS - 2), True),
        ("[" * (MOST_LEVELS - 1) + "]" * (MOST_LEVELS - 1), False),
        ("[" * 100_000, False),
    ]:
        assert (decode((line % value).encode()) is not None) == is_sure
        assert slow_verdict("log_record", line % value)[0] == is_sure


def test_kinds_with_several_shapes_have_no_typed_decoder():
    assert [kind for kind in ROWS if decoder_of(kind) is None] == ["dataset_row"]


@given(ANY_VALUE)
def test_quotation_marks_are_counted_as_they_are_written(value):
    text = json.dumps(value, ensure_ascii=False)
    assert quotation_marks(value) == text.count('"')


@pytest.mark.parametrize("kind", TYPED)
def test_a_key_that_stands_twice_never_passes(kind):
    @settings(max_examples=100, deadline=None)
    @given(rows_of(kind), st.data())
    def check(row, data):
        key = data.draw(st.sampled_from(list(row)))
        again = f"{json.dumps(key)}: {json.dumps(row[key])}"
        assert decoder_of(kind)(("{" + again + ", " + json.dumps(row)[1:]).encode()) is None

    check()


def test_a_key_twice_inside_open_fields_never_passes():
    line = '{"time": "2026-10-11T12:34:56Z", "level": "info", "event": "a", "message": "", "fields": %s}'
    decode = decoder_of("log_record")
    assert decode((line % '{"a": {"b": 1}}').encode()) is not None
    for fields in (
        '{"a": {"b": 1, "b": 2}}',
        '{"a": 1, "a": 1}',
        '{"b": "\\u0022\\u0022", "a": 1, "a": null}',
        '[{"a": 1, "a": 1}]',
    ):
        assert decode((line % fields).encode()) is None
