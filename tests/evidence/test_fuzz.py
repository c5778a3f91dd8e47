"""Reading, checking, grading and listing a run folder never raises, whatever its files contain."""

import json
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from synthetic import seal, write_run

from evidence.grade import GRADES, check_run
from evidence.index.index import index_folder
from evidence.run import read_run
from schemas.render import render_text
from trainproof.cli.inspect import run_json, run_text, runs_json, runs_text

pytestmark = pytest.mark.slow

DOCUMENTS = ("run_manifest.json", "config.yaml", "plan.json", "first_examples.json", "eval_summary.json")
ROWS = ("metrics.jsonl", "log.jsonl", "predictions.jsonl", "baseline_predictions.jsonl")

UNHURRIED = settings(
    deadline=None, max_examples=120, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["2026-02-30T00:00:00Z", "0" * 64, "succeeded", "../x", "TBD", "<answer>"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def survives(folder: Path) -> None:
    run = read_run(folder)
    report = check_run(run)
    findings = report.findings
    assert report.grade.name in GRADES
    render_text(findings)
    run_text(run)
    json.dumps(run_json(run))
    summaries = index_folder(folder.parent)
    assert [summary.path for summary in summaries] == [folder]
    runs_text(summaries)
    json.dumps(runs_json(summaries))


@cache
def valid_files() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as root:
        folder = write_run(Path(root), "run", steps=3, items=3)
        return {path.name: path.read_bytes() for path in folder.iterdir()}


def write_folder(root: str, changes: dict[str, bytes], *, sealed: bool = False) -> Path:
    folder = Path(root) / "run"
    folder.mkdir()
    for name, content in (valid_files() | changes).items():
        (folder / name).write_bytes(content)
    if sealed:
        seal(folder)
    return folder


@UNHURRIED
@given(name=st.sampled_from([*DOCUMENTS, *ROWS]), content=st.binary(max_size=200))
def test_any_bytes(name: str, content: bytes) -> None:
    with tempfile.TemporaryDirectory() as root:
        survives(write_folder(root, {name: content}))


@UNHURRIED
@given(name=st.sampled_from([*DOCUMENTS, *ROWS]), data=st.data())
def test_some_bytes_flipped(name: str, data: st.DataObject) -> None:
    content = bytearray(valid_files()[name])
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as root:
        survives(write_folder(root, {name: bytes(content)}))


@UNHURRIED
@given(name=st.sampled_from(DOCUMENTS), value=json_values)
def test_any_value_as_a_document(name: str, value: Any) -> None:
    with tempfile.TemporaryDirectory() as root:
        survives(write_folder(root, {name: json.dumps(value).encode()}))


def iter_paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in members:
        yield (*path, key)
        yield from iter_paths(item, (*path, key))


def replaced(document: Any, path: tuple[Any, ...], value: Any) -> None:
    for key in path[:-1]:
        document = document[key]
    document[path[-1]] = value


@UNHURRIED
@given(name=st.sampled_from(DOCUMENTS), data=st.data())
def test_one_value_replaced_by_any_other(name: str, data: st.DataObject) -> None:
    text = valid_files()[name].decode()
    document = yaml.safe_load(text) if name.endswith(".yaml") else json.loads(text)
    replaced(document, data.draw(st.sampled_from(list(iter_paths(document)))), data.draw(json_values))
    with tempfile.TemporaryDirectory() as root:
        survives(write_folder(root, {name: json.dumps(document).encode()}))


@UNHURRIED
@given(name=st.sampled_from(ROWS), data=st.data())
def test_one_value_of_a_row_replaced_by_any_other(name: str, data: st.DataObject) -> None:
    rows = [json.loads(line) for line in valid_files()[name].splitlines()]
    row = data.draw(st.sampled_from(rows))
    row[data.draw(st.sampled_from(sorted(row)))] = data.draw(json_values)
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    with tempfile.TemporaryDirectory() as root:
        survives(write_folder(root, {name: content}, sealed=True))
