"""The record file of an offline W&B run: what wandb itself wrote, what is damaged, and long records over blocks."""

from __future__ import annotations

import json
import shutil
import struct
import zipfile
import zlib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from event_files import block, varint

from evidence.records.foreign_run import read_foreign
from evidence.records.importing import import_run
from foreign.readers.wandb_records import HEADER, read_wandb_records, records
from schemas.problems import ProblemError

WRITTEN_BY_WANDB = Path(__file__).parents[2] / "cases" / "trackers" / "run-wcdioqcw.wandb"
NOW = datetime(2026, 11, 26, tzinfo=UTC)


def items(number: int, values: dict[str, object], *, key: int = 1) -> bytes:
    """Return the items of a message of the record file."""
    return b"".join(
        block(number, block(key, name.encode()) + block(16, json.dumps(value).encode()))
        for name, value in values.items()
    )


def chunked(messages: list[bytes]) -> bytes:
    """Return a record file of LevelDB chunks; no chunk crosses a block of 32 KiB."""
    out = bytearray(HEADER)
    for message in messages:
        rest, is_first = message, True
        while is_first or rest:
            left = 32768 - len(out) % 32768
            if left < 7:
                out += bytes(left)
                continue
            part, rest = rest[: left - 7], rest[left - 7 :]
            kind = {(True, True): 1, (True, False): 2, (False, False): 3, (False, True): 4}[is_first, not rest]
            out += struct.pack("<IHB", zlib.crc32(bytes([kind]) + part), len(part), kind) + part
            is_first = False
    return bytes(out)


def run_file() -> bytes:
    run = (
        block(1, b"ab12")
        + block(4, items(1, {"learning_rate": 0.5, "_wandb": {}}))
        + block(17, b"\x08" + varint(1_795_708_282))
    )
    rows = [
        items(1, {"train/loss": 3.0 - step, "note": "x" * 50_000}, key=2) + block(2, b"\x08" + varint(step))
        for step in range(3)
    ]
    return chunked([block(17, run), *(block(2, row) for row in rows), block(3, items(1, {"train/loss": 1.0}))])


def test_what_wandb_wrote_offline_is_imported_with_rows_settings_and_last_values(tmp_path: Path):
    folder = tmp_path / "offline-run-20261126_155121-wcdioqcw"
    folder.mkdir()
    shutil.copy(WRITTEN_BY_WANDB, folder)
    result = import_run(folder, name="x", root=tmp_path / "runs", now=NOW)
    facts = {fact.name: fact.value for fact in result.view.facts}
    assert list(result.view.tools) == ["Weights & Biases"]
    assert (facts["run.id"], facts["training.learning_rate"], facts["result.last_loss"]) == ("wcdioqcw", 0.0001, 1.2)
    assert [(row.values["step"], row.values["loss"]) for row in result.view.metrics] == [
        (0, 2),
        (1, 1.8),
        (2, 1.6),
        (3, 1.4),
        (4, 1.2),
    ]
    assert [str(score.source) for score in result.view.scores] == ["run-wcdioqcw.wandb at /eval~1accuracy"]


def test_long_records_are_put_together_over_blocks():
    data = run_file()
    assert max(map(len, records(data))) > 32768
    reading = read_wandb_records(data, "run-ab12.wandb", "run-ab12.wandb")
    assert [(row.values["step"], row.values["loss"], str(row.source)) for row in reading.metrics] == [
        (0, 3.0, "run-ab12.wandb at row 1"),
        (1, 2.0, "run-ab12.wandb at row 2"),
        (2, 1.0, "run-ab12.wandb at row 3"),
    ]
    assert {fact.name: fact.value for fact in reading.facts} == {
        "run.id": "ab12",
        "run.started_at": "2026-11-26T15:51:22+00:00",
        "training.learning_rate": 0.5,
        "result.last_loss": 1.0,
    }
    assert reading.problems == ()


def test_what_is_damaged_ends_the_reading_and_is_named():
    data = run_file()
    for changed in (data[:-3], data[:-20] + b"?" + data[-19:], data[: len(data) // 2]):
        reading = read_wandb_records(changed, "run-ab12.wandb", "run-ab12.wandb")
        (problem,) = reading.problems
        assert problem.code == "TP521"
        assert "is cut off or damaged" in problem.what
        assert "wandb sync" in problem.next
        assert reading.tool == "Weights & Biases"
    nothing = read_wandb_records(b"no records", "x.wandb", "x.wandb")
    assert (nothing.tool, nothing.metrics) == (None, ())


def test_a_synced_run_is_read_from_its_own_files(tmp_path: Path):
    folder = tmp_path / "wandb" / "run-20261126_155121-ab12"
    (folder / "files").mkdir(parents=True)
    (folder / "run-ab12.wandb").write_bytes(run_file())
    assert len(read_foreign(tmp_path).metrics) == 3
    (folder / "files" / "wandb-summary.json").write_text('{"train/loss": 1.0, "_step": 2}')
    view = read_foreign(tmp_path)
    assert view.metrics == ()
    assert [fact.source.file for fact in view.facts_named("result.last_loss")] == [
        "wandb/run-20261126_155121-ab12/files/wandb-summary.json"
    ]


@pytest.mark.parametrize(
    ("file", "content", "what", "then"),
    [
        ("run-x.wandb", b"damaged", "a W&B run that was never synced", "wandb sync"),
        (
            "mlflow.db",
            b"SQLite format 3\0 CREATE TABLE latest_metrics",
            "a database of MLflow",
            "mlflow experiments csv",
        ),
        (".aim/meta/index", b"", "an Aim repository", "as CSV"),
        ("my-project.db", b"SQLite format 3\0 CREATE TABLE system_metrics", "a database of Trackio", "as CSV"),
        (".cometml-runs/0a.zip", "experiment.json", "an offline experiment of Comet", "comet upload"),
        ("offline-1.zip", "task.json", "an offline task of ClearML", "import_offline_session"),
        (".neptune/offline/data-1.log", b"", "an offline run of Neptune", "neptune sync"),
    ],
)
def test_the_store_of_another_tracker_is_named(
    file: str, content: bytes | str, what: str, then: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "given" / file
    path.parent.mkdir(parents=True)
    if isinstance(content, str):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("padding.txt", "x" * 3_000_000)
            archive.writestr(content, "{}")
    else:
        path.write_bytes(content)
    for given, named in ((tmp_path / "given", file), (path, path.name)):
        with pytest.raises(ProblemError) as refused:
            import_run(given, name="x", root=tmp_path / "runs", now=NOW)
        (problem,) = refused.value.problems
        assert problem.what == f"{named} is {what}, which trainproof cannot read."
        assert then in problem.next
    assert not (tmp_path / "runs").exists() or list((tmp_path / "runs").iterdir()) == []
