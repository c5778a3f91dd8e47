"""Fuzzing: reading and checking any folder gives problems, never an exception."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evidence.grade import GRADES, check_run
from evidence.imports.folder import read_tool_folder
from evidence.imports.importing import contents
from evidence.index.index import read_entry
from evidence.run import read_run
from schemas.render import render_text
from schemas.validate import check_value
from trainproof.cli.inspect import run_json, run_text

pytestmark = pytest.mark.slow

CASES = Path(__file__).parents[2] / "cases" / "foreign"
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
    deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
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


def survives(name: str, content: bytes) -> None:
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "run"
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(content)
        run = read_run(folder)
        report = check_run(run)
        assert report.grade.name in GRADES
        render_text(report.findings)
        run_text(run)
        json.dumps(run_json(run))
        read_entry(folder)
        document = contents(read_tool_folder(folder))
        frame = {"schema_version": "1.0", "run_id": "r", "imported_at": "2026-01-01T00:00:00Z", "readers": 1}
        assert check_value("import", {**frame, "source": "s", "originals": [], **document}, file="import.json") == []


contents_of_files = (
    st.binary(max_size=200)
    | st.builds(str.encode, texts, st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-be"]), st.just("replace"))
    | values.map(lambda value: json.dumps(value).encode())
    | st.lists(st.dictionaries(keys, values, max_size=5), max_size=5).map(
        lambda rows: "\n".join(map(json.dumps, rows)).encode()
    )
)


@UNHURRIED
@given(name=st.sampled_from(NAMES), content=contents_of_files)
def test_any_content(name: str, content: bytes) -> None:
    survives(name, content)


@UNHURRIED
@given(path=st.sampled_from(FILES), data=st.data())
def test_real_files_with_bytes_changed(path: Path, data: st.DataObject) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 6))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    survives(str(path.relative_to(CASES)).split("/folder/")[1], bytes(content[:cut]))
