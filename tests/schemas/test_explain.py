"""Explanations: the verdict of two libraries, every case of tests/cases/documents, and large documents.

A new case is a new file, named KIND.CASE.EXTENSION; a broken one has KIND.CASE.problem.txt beside it.
"""

import copy
import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from referencing import Registry, Resource

from schemas.catalog import DOCUMENTS, KINDS, all_schemas, is_rows, schema
from schemas.explain import MAX_PROBLEMS, compile_validator, explain_violations, restore_empty_keys
from schemas.problems import Problem, unknown_lines
from schemas.reading import parse_yaml, read_rows
from schemas.render import render_text
from schemas.validate import check_value, read_document

CASES = Path(__file__).parents[1] / "cases" / "documents"
REGISTRY = Registry().with_resources([(one["$id"], Resource.from_contents(one)) for one in all_schemas().values()])


def values() -> list[tuple[str, Any]]:
    found = []
    for path in sorted((CASES / "valid").iterdir()):
        kind = path.name.partition(".")[0]
        read = read_rows(path, kind).values if is_rows(kind) else [read_document(path, kind).value]
        found += [(kind, value) for value in read]
    return found


VALUES = values()
JUNK = st.sampled_from(
    [None, True, False, 0, -1, 1, 0.5, 5.0, 1e9, 2**60, "", "a", "a\n", "1.0", "full", "/a", "0" * 64, [], [1], {}]
).map(copy.deepcopy)  # what is drawn is changed further


def places(value: Any) -> list[tuple[Any, Any]]:
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
    assert compile_validator(kind).is_valid(value) == right
    found = explain_violations(kind, value, file="x", lines=unknown_lines)
    assert (found == []) == right
    for problem in found:
        assert problem.what.endswith(".")
        assert problem.next.endswith((".", "?"))
    assert len({(problem.code, problem.pointer) for problem in found}) == len(found)


@settings(max_examples=300, deadline=None)
@given(changed_values())
def test_every_place_where_the_other_library_finds_fault_is_named(changed):
    kind, value = changed
    ours = {problem.pointer for problem in explain_violations(kind, value, file="x", lines=unknown_lines)}
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
        (numpy.float32(1), "A value of the Python type float32 is not a JSON value."),
        (("e",), "A value of the Python type tuple is not a JSON value."),
        (Path("e"), f"A value of the Python type {type(Path()).__name__} is not a JSON value."),
        ({1: 2}, "An object with keys that are not text is not a JSON value."),
        ("\ud800", "Text with half a surrogate pair is not a JSON value."),
    ]:
        found = check_value("eval_item", {**item, "expected": [{"a/b": value}]}, file="x")
        assert [(problem.code, problem.pointer, problem.what) for problem in found] == [
            ("TP127", "/expected/0/a~1b", what)
        ]


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


def test_a_document_with_problems_still_has_its_value_and_a_place_is_reported_once(tmp_path):
    path = tmp_path / "plan.json"
    assert [problem.code for problem in read_document(path, "plan").problems] == ["TP101"]
    path.write_text(json.dumps({"schema_version": "1.0", "forced": "yes"}))
    document = read_document(path, "plan")
    assert document.value == {"schema_version": "1.0", "forced": "yes"}
    assert [problem.code for problem in document.problems] == ["TP122", "TP120"]
    assert document.lines("/forced") == 1
    path = tmp_path / "config.yaml"
    path.write_text("model: {name: demo}\nseed: .nan\nlimits: {steps: x, steps: y}\n")
    problems = read_document(path, "train_config").problems
    assert [(problem.code, problem.pointer) for problem in problems] == [("TP110", "/seed"), ("TP109", "/limits/steps")]


def test_a_value_under_an_empty_key_is_named_by_its_place():
    row = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "meta": {}}
    [problem] = explain_violations("dataset_row", {**row, "": 1}, file="x", lines=unknown_lines)
    assert (problem.pointer, problem.what) == ("/", 'The key "" is unknown.')
    manifest = {"values": {"": True}}
    assert restore_empty_keys(manifest, ["values"], True) == ("values", "")
    assert restore_empty_keys(manifest, ["values"], {"": True}) == ("values",)


BROKEN = sorted(path for path in (CASES / "broken").iterdir() if path.suffix != ".txt")


def problems_of(path: Path) -> tuple[Problem, ...]:
    kind = path.name.partition(".")[0]
    return read_rows(path, kind).problems if is_rows(kind) else read_document(path, kind).problems


@pytest.mark.parametrize("path", sorted((CASES / "valid").iterdir()), ids=lambda path: path.name)
def test_a_valid_document_has_no_problem(path):
    assert render_text(problems_of(path)) == ""


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.name)
def test_of_a_broken_document_exactly_this_is_said(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    assert render_text(problems_of(Path(path.name))) == path.with_suffix(".problem.txt").read_text(encoding="utf-8")


def test_there_are_cases_of_every_kind_and_each_text_has_its_document():
    for folder in ("valid", "broken"):
        assert {path.name.partition(".")[0] for path in (CASES / folder).iterdir()} == set(KINDS)
    assert [path.with_suffix(".problem.txt") for path in BROKEN] == sorted((CASES / "broken").glob("*.txt"))


WITHOUT = """
import sys
sys.modules["jsonschema_rs"] = None
from pathlib import Path
from schemas.catalog import is_rows
from schemas.explain import _PythonValidator, compile_validator
from schemas.reading import read_rows
from schemas.render import render_text
from schemas.validate import read_document

assert isinstance(compile_validator("plan"), _PythonValidator)
for path in sorted(Path().glob("*/*[!t]")):
    kind = path.name.partition(".")[0]
    read = read_rows if is_rows(kind) else read_document
    stated = path.with_suffix(".problem.txt")
    expected = stated.read_text(encoding="utf-8") if stated.exists() else ""
    if render_text(read(path, kind).problems).replace(f"{path.parent}/", "") != expected:
        print(path)
"""


def test_the_validator_that_is_everywhere_explains_each_case_alike():
    done = subprocess.run([sys.executable, "-c", WITHOUT], cwd=CASES, capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def first_examples(wrong_at: int, examples: int = 500, tokens: int = 20) -> dict:
    found = json.loads((CASES / "valid" / "first_examples.plain.json").read_text())
    example = found["examples"][0]
    token = {"id": 1, "text": "a", "supervised": True}
    found["examples"] = [{**example, "tokens": [token] * tokens} for _ in range(examples)]
    found["examples"][wrong_at] = {**example, "tokens": [{**token, "id": -1}]}
    return found


@pytest.mark.parametrize("wrong_at", [0, 499])
def test_of_a_large_document_the_first_wrong_value_is_found(wrong_at):
    problems = check_value("first_examples", first_examples(wrong_at), file="first_examples.json")
    assert [(problem.code, problem.pointer) for problem in problems] == [
        ("TP125", f"/examples/{wrong_at}/tokens/0/id"),
        ("TP134", None),
    ]


def test_commas_in_a_text_are_not_values():
    value = {"id": "a", "prompt": "1, 2, " * 20_000, "expected": 3, "more": 1}
    codes = [problem.code for problem in check_value("eval_item", value, file="set.jsonl")]
    assert sorted(codes) == ["TP120", "TP123"]


def test_a_value_that_is_nested_too_deep_is_refused():
    value: list = []
    for _ in range(100_000):
        value = [value]
    assert [problem.code for problem in check_value("eval_item", {"id": value}, file="set.jsonl")] == ["TP111"]


@pytest.mark.parametrize("keys", [100, 10_000])
def test_of_many_wrong_values_some_are_explained(keys):
    value = {**first_examples(0, examples=1), **{f"key{number}": [0] * 100 for number in range(keys)}}
    codes = [problem.code for problem in check_value("first_examples", value, file="first_examples.json")]
    assert codes[-1] == "TP134"
    assert len(codes) <= MAX_PROBLEMS + 1
