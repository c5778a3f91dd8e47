"""Violations in words: the verdict of two libraries, and the parts of a message that the cases do not show."""

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from referencing import Registry, Resource

from schemas.catalog import DOCUMENTS, is_rows, schema, schemas_of
from schemas.explain.validators import validator_of, whole_path
from schemas.explain.violations import violations
from schemas.problems.problem import unknown_lines
from schemas.reading.parse import parse_yaml
from schemas.validate import check_value, read_document, read_rows

CASES = Path(__file__).parents[2] / "cases" / "documents" / "valid"
REGISTRY = Registry().with_resources([(one["$id"], Resource.from_contents(one)) for one in schemas_of().values()])


def values() -> list[tuple[str, Any]]:
    """Return every valid value of the cases with its kind."""
    found = []
    for path in sorted(CASES.iterdir()):
        kind = path.name.partition(".")[0]
        read = read_rows(path, kind).values if is_rows(kind) else [read_document(path, kind).value]
        found += [(kind, value) for value in read]
    return found


VALUES = values()
JUNK = st.sampled_from(
    [None, True, False, 0, -1, 1, 0.5, 5.0, 1e9, 2**60, "", "a", "a\n", "1.0", "full", "/a", "0" * 64, [], [1], {}]
).map(copy.deepcopy)  # what is drawn is changed further


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return (container, key) of everything inside a value."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        one = waiting.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else ()
        found += [(one, key) for key in keys]
        waiting += [one[key] for key in keys]
    return found


@st.composite
def changed_values(draw: st.DrawFn) -> tuple[str, Any]:
    """Draw a valid document with up to three things changed: replaced, deleted, or added."""
    kind, value = draw(st.sampled_from(VALUES))
    value = copy.deepcopy(value)
    for _ in range(draw(st.integers(0, 3))):
        if not value:
            break
        container, key = draw(st.sampled_from(places(value)))
        change = draw(st.sampled_from(["replace", "delete", "add"]))
        if change == "replace":
            container[key] = draw(JUNK)
        elif change == "delete":
            container.pop(key)
        elif isinstance(container, dict):
            container[draw(st.sampled_from(["extra", "name", "messages", "completion", ""]))] = draw(JUNK)
    return kind, value


@cache
def python_validator(kind: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema(kind), registry=REGISTRY)


@settings(max_examples=500, deadline=None)
@given(changed_values())
def test_two_libraries_agree_and_every_violation_is_explained(changed):
    kind, value = changed
    right = python_validator(kind).is_valid(value)
    assert validator_of(kind).is_valid(value) == right
    found = violations(kind, value, file="x", lines=unknown_lines)
    assert (found == []) == right
    for problem in found:
        assert problem.what.endswith(".")
        assert problem.next.endswith((".", "?"))
    assert len({(problem.code, problem.pointer) for problem in found}) == len(found)


@settings(max_examples=300, deadline=None)
@given(changed_values())
def test_every_place_where_the_other_library_finds_fault_is_named(changed):
    kind, value = changed
    ours = {problem.pointer for problem in violations(kind, value, file="x", lines=unknown_lines)}
    for error in python_validator(kind).iter_errors(value):
        place = "".join(f"/{part}" for part in error.absolute_path)
        # An unknown key is named by its own place, which is one step further down.
        assert any(pointer == place or pointer.startswith(place + "/") for pointer in ours)


def words(kind: str, value: Any) -> list[str]:
    return [problem.what for problem in check_value(kind, value, file="x")]


def test_a_failing_branch_does_not_make_its_keys_unknown():
    # Strictly, a failed `then` evaluates nothing, and a validator may then call every key unexpected.
    row = {"messages": [{"role": "user", "content": ""}, {"role": "assistant", "content": "2"}], "meta": {}}
    assert words("dataset_row", row) == ["The text is empty."]
    assert words("dataset_row", {**row, "prompt": "x"}) == ["The text is empty.", 'The key "prompt" is unknown.']


def test_long_values_are_shortened():
    item = {"id": "x" * 600, "prompt": "p", "expected": "e"}
    shown = '"' + "x" * 59 + '…" (600 characters)'
    assert words("eval_item", item) == [f"{shown} does not have the required form."]


def test_values_of_python_that_json_lacks_are_named():
    item = {"id": "a", "prompt": "p", "expected": "e"}
    for value, what in [
        (float("nan"), "nan is not a JSON value."),
        (float("-inf"), "-inf is not a JSON value."),
        (10**400, "A whole number of more than 308 digits is not a JSON value."),
        (10**5000, "A whole number of more than 308 digits is not a JSON value."),
        (b"e", "A value of the Python type bytes is not a JSON value."),
        (("e",), "A value of the Python type tuple is not a JSON value."),
        (Path("e"), f"A value of the Python type {type(Path()).__name__} is not a JSON value."),
        ({1: 2}, "An object with keys that are not text is not a JSON value."),
        ("\ud800", "Text with half a surrogate pair is not a JSON value."),
    ]:
        found = check_value("eval_item", {**item, "expected": [{"a/b": value}]}, file="x")
        assert [(problem.code, problem.pointer, problem.what) for problem in found] == [
            ("TP127", "/expected/0/a~1b", what)
        ]


def test_a_number_of_numpy_is_no_json_value():
    numpy = pytest.importorskip("numpy")
    found = check_value("eval_item", {"id": numpy.float32(1)}, file="x")
    assert [problem.what for problem in found] == ["A value of the Python type float32 is not a JSON value."]


def test_the_version_is_looked_at_before_anything_else():
    for kind in DOCUMENTS:
        if "schema_version" in schema(kind)["required"]:
            assert [problem.code for problem in check_value(kind, {}, file="x")] == ["TP114"]
        for version in ("2.0", "1.3", "0.9", 1, None, [], "1"):
            found = check_value(kind, {"schema_version": version, "junk": 1}, file="x")
            assert [problem.code for problem in found] == ["TP115"]


def test_a_problem_carries_the_line_of_its_value_or_of_what_is_around_it():
    parsed = parse_yaml(b"model:\n  name: demo\noptimizer:\n\n  beta1: 1\nmesh: {devices: 0,\n  junk: 1}\n", file="c")
    found = check_value("train_config", parsed.value, file="c", lines=parsed.lines)
    assert {problem.pointer: problem.line for problem in found} == {
        "/optimizer/beta1": 5,
        "/mesh/devices": 6,
        "/mesh/junk": 7,
    }
    found = check_value("train_config", {"model": {}}, file="c", lines={"/model": 3}.get)
    assert [(problem.pointer, problem.line) for problem in found] == [("/model", 3)]


def test_a_file_that_is_not_there_is_a_problem(tmp_path):
    document = read_document(tmp_path / "plan.json", "plan")
    assert document.value is None
    assert [(problem.code, problem.what, problem.next) for problem in document.problems] == [
        ("TP101", "The file does not exist.", "Check the path, or write the file first.")
    ]


def test_a_document_with_problems_still_has_its_value(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"schema_version": "1.0", "forced": "yes"}))
    document = read_document(path, "plan")
    assert document.value == {"schema_version": "1.0", "forced": "yes"}
    assert [problem.code for problem in document.problems] == ["TP122", "TP120"]
    assert document.lines("/forced") == 1


def test_a_place_with_a_problem_of_the_text_is_reported_once(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("model: {name: demo}\nseed: .nan\nlimits: {steps: x, steps: y}\n")
    problems = read_document(path, "train_config").problems
    assert [(problem.code, problem.pointer) for problem in problems] == [("TP110", "/seed"), ("TP109", "/limits/steps")]


def test_a_value_under_an_empty_key_is_named_by_its_place():
    row = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "meta": {}}
    [problem] = violations("dataset_row", {**row, "": 1}, file="x", lines=unknown_lines)
    assert (problem.pointer, problem.what) == ("/", 'The key "" is unknown.')
    manifest = {"values": {"": True}}
    assert whole_path(manifest, ["values"], True) == ("values", "")
    assert whole_path(manifest, ["values"], {"": True}) == ("values",)
