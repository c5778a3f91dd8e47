"""Reading, checking, grading and listing a folder, ours or of another tool, never raises, whatever it holds."""

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
from evidence.imports.folder import read_tool_folder
from evidence.imports.importing import contents
from evidence.index.index import index_folder
from evidence.run import read_run
from schemas.render import render_text
from schemas.validate import check_value
from trainproof.cli.inspect import run_json, run_text, runs_json, runs_text

pytestmark = pytest.mark.slow

DOCUMENTS = ("run_manifest.json", "config.yaml", "plan.json", "first_examples.json", "eval_summary.json")
ROWS = ("metrics.jsonl", "log.jsonl", "predictions.jsonl", "baseline_predictions.jsonl")

CASES = Path(__file__).parents[1] / "cases" / "foreign"
FILES = sorted(path for path in CASES.glob("*/folder/**/*") if path.is_file())
RUN = "mlruns/1/" + "a" * 32

NAMES = f"""
train.log trainer_state.json all_results.json x.jsonl x.csv config.yaml predictions.json eval_outputs.jsonl
events.out.tfevents.1 {RUN}/meta.yaml {RUN}/metrics/loss {RUN}/params/lr run_manifest.json eval_summary.json import.json
wandb/run-20260102_050412-ab12cd34/files/wandb-summary.json
""".split()
LINES = """\
Step 10/200 loss: 2.5
{'loss': 1.0, 'epoch': nan}
100%|##| 3/4 [00:01<00:00, loss=2]
Model: gpt2
Accuracy: 99999999999999999999/1
loss: X.XXXX
Traceback (most recent call last):
ValueError: x
Training completed!
Paste output below
[CpuDevice(id=0)]
final loss = 1e999
step 1e5 loss -inf
Step 99999999999999999999999 loss 1
"""

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


words = st.sampled_from([*LINES.splitlines(), "\r", "\x00", "\ufeff"])
texts = st.lists(words | st.text(max_size=20), max_size=12).map("\n".join)
KEYS = """
model loss step epoch log_history global_step metrics accuracy scores checkpoints train_loss train_runtime results
predictions question answer output is_correct status max_steps seed device model_args steps meta id
"""
keys = st.sampled_from(KEYS.split())
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats()
    | st.sampled_from(["gpt2", "<PENDING>", "completed", "1e-5", "nan", "pretrained=x", "", "1" * 400])
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys | st.text(max_size=4), inner, max_size=5),
    max_leaves=12,
)


def survives(folder: Path) -> None:
    run = read_run(folder)
    findings = check_run(run).findings
    assert check_run(run).grade.name in GRADES
    render_text(findings)
    run_text(run)
    json.dumps(run_json(run))
    summaries = index_folder(folder.parent)
    assert [summary.path for summary in summaries] == [folder]
    runs_text(summaries)
    json.dumps(runs_json(summaries))
    frame = {"schema_version": "1.0", "run_id": "r", "imported_at": "2026-01-01T00:00:00Z", "readers": 1}
    document = {**frame, "source": "s", "originals": [], **contents(read_tool_folder(folder))}
    assert check_value("import", document, file="import.json") == []


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


any_content = (
    st.binary(max_size=200)
    | st.builds(str.encode, texts, st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-be"]), st.just("replace"))
    | values.map(lambda value: json.dumps(value).encode())
    | st.lists(st.dictionaries(keys, values, max_size=5), max_size=5).map(
        lambda rows: "\n".join(map(json.dumps, rows)).encode()
    )
)


def survives_alone(name: str, content: bytes) -> None:
    """Read a folder with this file alone."""
    with tempfile.TemporaryDirectory() as root:
        path = Path(root) / "run" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        survives(Path(root) / "run")


@settings(UNHURRIED, max_examples=300)
@given(name=st.sampled_from(NAMES), content=any_content)
def test_any_file_of_another_tool(name: str, content: bytes) -> None:
    survives_alone(name, content)


@settings(UNHURRIED, max_examples=300)
@given(path=st.sampled_from(FILES), data=st.data())
def test_real_files_of_other_tools_with_bytes_changed(path: Path, data: st.DataObject) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 6))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    survives_alone(str(path.relative_to(CASES)).split("/folder/")[1], bytes(content[:cut]))
