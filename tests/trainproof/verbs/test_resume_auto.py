"""`trainproof train --resume auto`: which run it continues, and why it skips the others."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import train_request
from whole_runs import errors_of, logged, manifest_of, rows, saved_steps

from evidence import layout
from evidence.index import index
from evidence.lock import RunLock
from trainer.loop.session import StopRequest
from trainer.recorder.progress import Watch
from trainer.run import run_or_resume

TINY = """\
name: tiny
model: {name: tiny-gpt2}
data: {dataset: rows.jsonl, max_length: 128}
batch: {microbatch_size: 2}
mesh: {devices: 1}
evaluation: {eval_set: items.jsonl, max_new_tokens: 4, batch_size: 2, baseline: false}
checkpoint: {save_every_steps: 1, keep: 1}
limits: {steps: 3}
"""


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, where nothing is attached yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRAINPROOF_INPUT", str(tmp_path / "input"))
    (tmp_path / "rows.jsonl").write_text('{"prompt": "What is 2 + 2?", "completion": "4"}\n' * 4)
    (tmp_path / "items.jsonl").write_text('{"id": "a", "prompt": "2 + 2?", "expected": "4"}\n')
    (tmp_path / "config.yaml").write_text(TINY)
    return tmp_path


def trained(*, stopped_after: int | None = None, **flags) -> tuple[int, list[str]]:
    """Train with these options, and stop as at a time limit after so many steps."""
    request = train_request(**{"config": Path("config.yaml"), "device": "cpu", "output": Path("runs/full"), **flags})

    def limit(self, *, reserve_seconds: float = 0.0) -> str | None:
        done = sum(len(rows(folder)) for folder in Path("runs").glob("*") if (folder / layout.METRICS).is_file())
        return "limits.max_minutes=1 reached" if stopped_after is not None and done >= stopped_after else None

    printed: list[str] = []
    with pytest.MonkeyPatch.context() as patch, Watch(quiet=True) as watch:
        patch.setattr(StopRequest, "reason", limit)
        patch.setattr(watch, "say", printed.append)
        code = run_or_resume(request, watch)
    return code, printed


AUTO = {"resume": Path("auto")}


@pytest.mark.slow
def test_three_sessions_of_one_command_train_go_on_and_begin_anew(session: Path):
    code, printed = trained(**AUTO, stopped_after=1)
    assert code == 5
    assert "--resume auto: no run can be continued; starting at step 0" in printed
    # The next session has the output of the first attached, and nothing of its own.
    shutil.move(session / "runs", session / "input" / "earlier" / "runs")
    attached = session / "input" / "earlier" / "runs" / "full"
    before = {path: path.read_bytes() for path in attached.rglob("*") if path.is_file()}
    code, printed = trained(**AUTO)
    assert code == 0
    assert f"--resume auto: continues {attached}" in printed
    done = session / "runs" / "full"
    assert manifest_of(done)["parent"]["step"] == 1
    assert [row["step"] for row in rows(done)] == [2, 3]
    assert {path: path.read_bytes() for path in attached.rglob("*") if path.is_file()} == before
    # Both have ended: the one, and the one that was continued to its end.
    code, printed = trained(**AUTO)
    assert code == 0
    assert [line for line in printed if "continue" in line or "skipping" in line] == [
        "skipping runs/full: already complete",
        f"skipping {attached}: already resumed and completed",
        "--resume auto: no run can be continued; starting at step 0",
    ]
    assert manifest_of(session / "runs" / "full-2")["parent"] is None


@pytest.mark.slow
def test_every_run_that_is_not_continued_is_named_with_the_reason(session: Path):
    assert trained(stopped_after=1)[0] == 5
    full = session / "runs" / "full"

    def copied(name: str, minute: int, **stated) -> Path:
        folder = shutil.copytree(full, session / "runs" / name)
        started = {"run_id": name, "started_at": f"2030-01-01T10:{minute:02}:00+00:00"}
        (folder / layout.MANIFEST).write_text(json.dumps(manifest_of(folder) | started | stated))
        return folder

    ending = {"code": 4, "error": "non_finite_loss", "message": "the loss at step 2 is not finite"}
    copied("spoiled", 9, status="failed", exit=ending)
    shutil.rmtree(copied("bare", 8) / layout.CHECKPOINTS)
    (copied("torn", 7) / layout.CONFIG).write_text("{")
    changed = copied("changed", 6) / layout.CONFIG
    changed.write_text(changed.read_text().replace("seed: 0", "seed: 7"))
    saved = [path for path in (copied("damaged", 5) / layout.CHECKPOINTS / "1").rglob("*") if path.is_file()]
    largest = max(saved, key=lambda path: path.stat().st_size)
    content = largest.read_bytes()
    middle = len(content) // 2
    largest.write_bytes(
        content[:middle] + bytes(byte ^ 255 for byte in content[middle : middle + 64]) + content[middle + 64 :]
    )
    other = copied("other", 4) / layout.CONFIG
    other.write_text(other.read_text().replace("name: tiny\n", "name: another\n"))
    (copied("unsealed", 3) / layout.MANIFEST).write_text("{")
    written = copied("written", 2, status="running", exit=None)
    with RunLock(written):
        code, printed = trained(**AUTO)
    assert code == 0
    assert manifest_of(session / "runs" / "full-2")["parent"]["run_id"] == "full"
    named = [line for line in printed if "continue" in line or "skipping" in line]
    assert named[:6] == [
        "skipping runs/spoiled: it failed because of non-finite values, and would fail again",
        "skipping runs/bare: no complete checkpoint",
        named[2],
        "skipping runs/written: still running",
        "skipping runs/unsealed: its run_manifest.json is damaged",
        "skipping 1 run with another name or mode than tiny, full",
    ]
    assert named[2].startswith("skipping runs/torn: its configuration cannot be read: ")
    assert named[6] == "--resume auto: continues runs/changed"
    assert named[7].startswith("not continued: runs/changed: TP054: ")
    assert named[8] == "--resume auto: continues runs/damaged"
    assert named[9].startswith("not continued: runs/damaged: TP053: ")
    assert named[10:] == ["--resume auto: continues runs/full"]


def test_what_a_session_compiled_is_no_run(tmp_path: Path):
    for name in (layout.PROGRAMS, ".hidden", "full"):
        (tmp_path / name).mkdir()
    (tmp_path / "full" / layout.MANIFEST).write_text("{}")
    assert index.run_folders(tmp_path) == [tmp_path / "full"]
    assert index.run_names(tmp_path, follow_links=False) == ["full"]


def test_a_run_that_lacks_its_evaluation_is_given_that(session: Path):
    code, printed = trained(stopped_after=3)
    full = session / "runs" / "full"
    assert (code, saved_steps(full)) == (5, ["3"])
    assert manifest_of(full)["exit"]["message"].endswith("before the evaluation was complete")
    shutil.move(session / "runs", session / "input" / "runs")
    code, printed = trained(**AUTO)
    assert code == 0
    assert "all 3 steps of runs/full are done; evaluating it" in printed
    assert json.loads((full / layout.EVAL_SUMMARY).read_text())["checkpoint"]["step"] == 3
    assert errors_of(full) == []
    assert not (session / "input" / "runs" / "full" / layout.EVAL_SUMMARY).exists(), "what is attached stays"
    assert logged(full, "run_sealed")[-1]["message"] == "sealed again with its evaluation on 1 × cpu"
    # In place, where the folder is one's own; then there is nothing left.
    shutil.rmtree(session / "runs")
    shutil.move(session / "input" / "runs", session / "runs")
    assert trained(resume=Path("runs/full"), config=None)[0] == 0
    assert errors_of(full) == []
    assert "skipping runs/full: already complete" in trained(**AUTO)[1]


def train_in_process(folder: Path, steps: int) -> str:
    """Train up to a step as a session does, and return what was printed; JAX names what it finds in its cache."""
    unset = ("JAX_COMPILATION_CACHE_DIR", "TRAINPROOF_CACHE_MIB", "PYTEST_CURRENT_TEST")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {"TRAINPROOF_CACHE": str(folder / "cache"), "JAX_EXPLAIN_CACHE_MISSES": "1"}
    command = [sys.executable, "-m", "trainproof", "train", "--config", "config.yaml", "--device", "cpu"]
    command += ["--session", "kaggle-tpu", "--resume", "auto", "--output", "working/runs/full"]
    for setting in (f"limits.steps={steps}", "evaluation.eval_set=null", "optimizer.schedule=constant"):
        command += ["--set", setting]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_a_session_takes_what_the_one_before_it_compiled_and_says_so(session: Path):
    full = session / "working" / "runs" / "full"
    train_in_process(session, 1)
    assert manifest_of(full)["result"]["compiled_before"] == []
    assert not (session / "cache" / "programs").exists(), "what a session compiles is in its output"
    # The output is attached to the next session, on the same kind of machine.
    shutil.move(session / "working", session / "input")
    printed = train_in_process(session, 2)
    assert f"from {session / 'input' / 'runs' / 'compiled_programs'}" in printed
    assert f"continues {session / 'input' / 'runs' / 'full'}" in printed
    assert manifest_of(full)["result"]["compiled_before"] == ["train"]
    missed = {line.split("'")[1] for line in printed.splitlines() if "COMPILATION CACHE MISS" in line}
    assert missed <= {"jit__take_ownership"}, "copies of what was read, which a first run does not make"
    assert len(logged(full, "session")) == 1
