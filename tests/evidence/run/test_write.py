"""Writing that survives a kill, a full disk and its own mistakes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evidence.writing import RowWriter, write_json, write_text

WRITE_ROWS = """
import sys
from evidence.writing import RowWriter, write_json
folder = __import__("pathlib").Path(sys.argv[1])
with RowWriter(folder / "rows.jsonl") as rows:
    step = sum(1 for _ in (folder / "rows.jsonl").open("rb"))
    print("ready", flush=True)
    while True:
        step += 1
        rows.append({"step": step, "text": "x" * (step % 7) * 3000})
        write_json(folder / "document.json", {"step": step, "text": "y" * 50_000})
        (folder / "told").write_text(str(step))
"""


def test_document_is_indented_utf8_with_a_newline_and_nothing_is_left_over(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"b": "é", "a": [1]})
    assert (tmp_path / "a.json").read_bytes() == '{\n  "b": "é",\n  "a": [\n    1\n  ]\n}\n'.encode()
    write_text(tmp_path / "a.json", "new\r\n")
    assert (tmp_path / "a.json").read_bytes() == b"new\r\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_document_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"step": 1})
    with pytest.raises(ValueError, match="Out of range float values"):
        write_json(tmp_path / "a.json", {"loss": float("inf")})
    with pytest.raises(UnicodeEncodeError):
        write_json(tmp_path / "a.json", {"text": "\ud800"})
    assert json.loads((tmp_path / "a.json").read_text()) == {"step": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_rows_are_in_the_file_as_soon_as_they_are_appended(tmp_path: Path) -> None:
    rows = RowWriter(tmp_path / "rows.jsonl")
    rows.append({"text": "é\n"})
    assert (tmp_path / "rows.jsonl").read_bytes() == '{"text": "é\\n"}\n'.encode()
    with pytest.raises(ValueError, match="Out of range float values"):
        rows.append({"loss": float("nan")})
    rows.close()
    rows.close()
    assert (tmp_path / "rows.jsonl").read_bytes() == '{"text": "é\\n"}\n'.encode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"step": 1}\n{"step": 2', b'{"step": 1}\n'),
        (b'{"step": 1}\n', b'{"step": 1}\n'),
        (b'{"step": 1', b""),
        (b"", b""),
        (b'{"step": 1}\n' + b"x" * 200_000, b'{"step": 1}\n'),
    ],
)
def test_torn_tail_is_cut_off_on_opening(tmp_path: Path, before: bytes, after: bytes) -> None:
    (tmp_path / "rows.jsonl").write_bytes(before)
    with RowWriter(tmp_path / "rows.jsonl") as rows:
        rows.append({"step": 9})
    assert (tmp_path / "rows.jsonl").read_bytes() == after + b'{"step": 9}\n'


@pytest.mark.slow
def test_thirty_kills_lose_no_row_and_leave_no_unreadable_file(tmp_path: Path) -> None:
    chance = random.Random(0)
    for _ in range(30):
        writer = subprocess.Popen([sys.executable, "-c", WRITE_ROWS, str(tmp_path)], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        time.sleep(chance.uniform(0.0, 0.05))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        written = (tmp_path / "rows.jsonl").read_bytes()
        whole = written[: written.rfind(b"\n") + 1]
        steps = [json.loads(line)["step"] for line in whole.splitlines()]
        assert steps == list(range(1, len(steps) + 1))
        told = int((tmp_path / "told").read_text() or 0) if (tmp_path / "told").exists() else 0
        assert len(steps) >= told
        if (tmp_path / "document.json").exists():
            assert json.loads((tmp_path / "document.json").read_text())["step"] >= told
    assert len(steps) > 30


FILL_THE_DISK = """
import resource, signal, sys
from pathlib import Path
from evidence.writing import RowWriter, write_json
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
folder = Path(sys.argv[1])
with RowWriter(folder / "rows.jsonl") as rows:
    try:
        while True:
            rows.append({"text": "x" * 3000})
    except OSError as error:
        print("rows", error.errno)
    try:
        write_json(folder / "document.json", {"text": "y" * 30_000})
    except OSError as error:
        print("document", error.errno)
"""


def test_no_space_left_leaves_whole_rows_and_the_old_document(tmp_path: Path) -> None:
    write_json(tmp_path / "document.json", {"step": 1})
    done = subprocess.run(
        [sys.executable, "-c", FILL_THE_DISK, str(tmp_path)], capture_output=True, text=True, check=True
    )
    efbig = 27
    assert done.stdout.splitlines() == [f"rows {efbig}", f"document {efbig}"]
    rows = (tmp_path / "rows.jsonl").read_bytes()
    assert rows.endswith(b"\n")
    assert [len(json.loads(line)["text"]) for line in rows.splitlines()] == [3000] * 6
    assert json.loads((tmp_path / "document.json").read_text()) == {"step": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["document.json", "rows.jsonl"]


def test_rows_are_synced_every_few_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    synced = []
    monkeypatch.setattr("evidence.writing.time.monotonic", lambda: now)
    monkeypatch.setattr(os, "fsync", synced.append)
    rows = RowWriter(tmp_path / "rows.jsonl")
    rows.append({"step": 1})
    assert synced == []
    now = 103.5
    rows.append({"step": 2})
    assert len(synced) == 1
    rows.append({"step": 3})
    assert len(synced) == 1
    rows.close()
    assert len(synced) == 2
