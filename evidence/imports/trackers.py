"""Read MLflow's file store and the files of W&B runs, and choose among several runs in one folder."""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evidence.imports.huggingface import MEAN_NOTE
from evidence.imports.keys import TEXT_FACTS, fact_name, is_score, metric_name, plain
from evidence.imports.run import MLFLOW, TRAINER, WANDB, Citation, Fact, FileReading, MetricRow, Score, are_nested
from evidence.imports.tables import parse_json, read_rows, read_value
from evidence.imports.text import Text, finite, parse_number, to_number
from schemas.formats import join_words
from schemas.problems import Lines, Problem, problem_of, unknown_lines

_YEAR_2100 = 4_102_444_800
_END_BYTES = 1 << 20

_STORES = (
    (r"\.wandb$", b"", "a damaged W&B run", " after `wandb sync`, or download its config.yaml and wandb-summary.json"),
    (r"(^|/)\.aim/|run_metadata\.sqlite$", b"", "an Aim repository", ""),
    (r"\.(db|sqlite3?)$", b"latest_metrics", "an MLflow database", " with `mlflow experiments csv`"),
    (r"\.db$", b"system_metrics", "a Trackio database", ""),
    (r"\.zip$", b"experiment.json", "an offline experiment of Comet", " after `comet upload`"),
    (r"\.zip$", b"task.json", "an offline task of ClearML", " after `Task.import_offline_session`"),
    (r"(^|/)\.neptune/", b"", "an offline run of Neptune", " after `neptune sync`"),
)
"""Stores of trackers that are not read: path, content, name, and how to export it."""


def name_store(path: Path) -> tuple[str, str] | None:
    """Return name and way of export of a tracker's store that cannot be read, or None for any other file."""
    matching = [store for store in _STORES if re.search(store[0], path.as_posix())]
    content = b""
    if any(store[1] for store in matching):
        with path.open("rb") as file:
            content = file.read(_END_BYTES)
            # A zip has its list of names at the end.
            file.seek(max(len(content), path.stat().st_size - _END_BYTES))
            content += file.read()
    return next(((what, how) for _, mark, what, how in matching if mark in content), None)


_MLFLOW_FILE = re.compile(
    r"^(?P<run>(?:.*/)?(?P<id>[0-9a-f]{32}))/(?P<part>metrics|params|tags|meta\.yaml)(?:/(?P<name>.+))?$"
)
_MLFLOW_STATUS = {"1": "running", "2": "scheduled", "3": "finished", "4": "failed", "5": "killed"}


def is_mlflow_file(file: str) -> bool:
    """Return whether a file is part of an MLflow run, by its path inside the folder."""
    return _MLFLOW_FILE.match(file) is not None


def read_mlflow(text: Text, file: str) -> FileReading:
    """Read one file of an MLflow run: `meta.yaml`, a metric, a parameter or a tag."""
    match = _MLFLOW_FILE.match(file)
    assert match is not None
    part, name = match.group("part"), match.group("name") or ""
    if part == "metrics":
        return _read_metric(text, file, name)
    if part == "meta.yaml":
        return FileReading(tool=MLFLOW, facts=tuple(_meta_facts(text, file)))
    value, fact = text.text.strip(), fact_name(name.removeprefix("mlflow.source.") if part == "tags" else name)
    given = value if fact in TEXT_FACTS and "\n" not in value and value != "None" else to_number(value)
    if fact is None or not value or given is None:
        return FileReading(tool=MLFLOW)
    return FileReading(tool=MLFLOW, facts=(Fact(name=fact, value=given, source=Citation(file=file, line=1)),))


def _meta_facts(text: Text, file: str) -> Iterator[Fact]:
    for line in text.lines():
        key, _, value = line.text.partition(":")
        value, source = value.strip().strip("'\""), Citation(file=file, line=line.number)
        if key == "status" and value:
            yield Fact(name="run.status", value=_MLFLOW_STATUS.get(value, value.lower()), source=source)
        elif key == "run_name" and value:
            yield Fact(name="run.id", value=value, source=source)
        elif key in ("start_time", "end_time") and (time := _time(to_number(value), 1000)):
            name = "run.started_at" if key == "start_time" else "run.finished_at"
            yield Fact(name=name, value=time, source=source, note="Milliseconds in the source.")


def _read_metric(text: Text, file: str, name: str) -> FileReading:
    """Read a metric's file, whose lines are `milliseconds value step`."""
    rows, scores = [], []
    for line in text.lines():
        numbers = [parse_number(part) for part in line.text.split()[:3]]
        if len(numbers) < 2 or numbers[1] is None:
            continue
        value, source = finite(numbers[1]), Citation(file=file, line=line.number)
        step = numbers[2] if len(numbers) > 2 and isinstance(numbers[2], int) else None
        if is_score(name.rpartition("/")[2]) and value is not None:
            scores = [Score(name=plain(name), value=value, source=source, checkpoint=f"step {step}")]
        if step is not None:
            rows.append(MetricRow(values={"step": step, metric_name(name): value}, source=source))
    fact, value = fact_name(name), rows[0].values.get(metric_name(name)) if len(rows) == 1 else None
    if value is not None and plain(name) != "loss" and fact in ("result.train_seconds", "result.loss"):
        # A duration, or the mean that a trainer logs once at its end.
        return FileReading(tool=MLFLOW, facts=(Fact(name=fact, value=value, source=rows[0].source),))
    return FileReading(tool=MLFLOW, metrics=tuple(rows), scores=tuple(scores))


def read_wandb_summary(text: Text, file: str, where: str) -> FileReading:
    """Read a wandb-summary.json."""
    parsed = parse_json(text.text, where)
    if not isinstance(parsed.value, dict) or not parsed.is_read:
        return FileReading(problems=parsed.problems)
    reading = _read_summary(parsed.value, parsed.lines, file, where)
    return replace(reading, problems=(*parsed.problems, *reading.problems))


def _read_summary(summary: dict[str, Any], lines: Lines, file: str, where: str) -> FileReading:
    """Read the last value of each metric: the last loss, but neither the peak learning rate nor the last step."""
    reading = read_value(summary, lines, file, where)
    facts = [fact for fact in reading.facts if not fact.name.startswith(("training.", "result.loss", "result.mean"))]
    for key, value in summary.items():
        is_mean = key == "train/train_loss" or (key == "train_loss" and "train/loss" in summary)
        number, pointer = to_number(value), "/" + key.replace("~", "~0").replace("/", "~1")
        if number is not None and (is_mean or (metric_name(key) == "loss" and key != "train_loss")):
            name = "result.mean_loss" if is_mean else "result.last_loss"
            note = MEAN_NOTE if is_mean else "W&B's summary keeps the last value of each metric."
            source = Citation.at(file, lines, pointer)
            facts.append(Fact(name=name, value=number, source=source, how="inferred", note=note))
    return replace(reading, tool=WANDB, facts=tuple(facts))


# The record file `run-ID.wandb` is a LevelDB log of protobuf messages behind a header of seven bytes. Since 0.19 an
# offline run leaves nothing else. Sources: wandb/sdk/internal/datastore.py, wandb/proto/wandb_internal.proto.
WANDB_HEADER = b":W&B\xe1\xbe\x00"
_BLOCK_BYTES, _CHUNK = 1 << 15, struct.Struct("<IHB")
_FULL, _FIRST, _LAST = 1, 2, 4
_HISTORY, _SUMMARY, _CONFIG, _RUN = 2, 3, 5, 17
_RUN_ID, _RUN_CONFIG, _RUN_NAME, _RUN_START = 1, 4, 6, 17
_KEY, _NESTED_KEY, _JSON = 1, 2, 16


def read_wandb_records(data: bytes, file: str, where: str) -> FileReading:
    """Read the settings, rows and last values of a W&B record file; a damaged record ends the reading."""
    config: dict[str, Any] = {}
    summary: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    facts: list[Fact] = []
    problems = []
    try:
        for record in wandb_records(data):
            for number, content in _fields(record):
                if not isinstance(content, bytes):
                    continue
                parts = dict(_fields(content)) if number in (_HISTORY, _RUN) else {}
                if number == _HISTORY:
                    step = {"_step": _first_number(parts[2])} if 2 in parts else {}
                    rows.append(step | _items(content))
                elif number == _SUMMARY:
                    summary |= _items(content)
                elif number == _CONFIG:
                    config |= _items(content)
                elif number == _RUN:
                    config |= _items(parts.get(_RUN_CONFIG, b""))
                    facts += _run_facts(parts, file)
    except (ValueError, RecursionError) as error:
        what = f"The records of this W&B run cannot be read to the end ({error}); those before it were read."
        then = "Sync the run with `wandb sync`, download its config.yaml and wandb-summary.json, and import those."
        problems.append(problem_of("TP521", file=where, what=what, next=then))
    config.pop("_wandb", None)
    last = _read_summary(summary, unknown_lines, file, where)
    facts += (*read_value(config, unknown_lines, file, where).facts, *last.facts)
    metrics = read_rows(list(enumerate(rows, start=1)), file).metrics
    return FileReading(
        tool=WANDB if rows or config or summary or facts else None,
        facts=tuple(facts),
        metrics=tuple(replace(row, source=Citation(file=file, pointer=f"row {row.source.line}")) for row in metrics),
        scores=last.scores,
        problems=tuple(problems),
    )


def wandb_records(data: bytes) -> Iterator[bytes]:
    """Yield each record, joined from its chunks.

    Raises:
        ValueError: The file is not a record file, or a chunk is cut off or damaged.
    """
    if not data.startswith(WANDB_HEADER):
        message = "it does not begin as the record file of a W&B run"
        raise ValueError(message)
    place, record = len(WANDB_HEADER), b""
    while place < len(data):
        if (left := _BLOCK_BYTES - place % _BLOCK_BYTES) < _CHUNK.size:
            place += left
            continue
        chunk = data[place : place + _CHUNK.size]
        crc, length, kind = _CHUNK.unpack(chunk) if len(chunk) == _CHUNK.size else (0, len(data), 0)
        content = data[place + _CHUNK.size : place + _CHUNK.size + length]
        if len(content) < length or zlib.crc32(bytes([kind]) + content) != crc:
            message = f"the record at byte {place:,} is cut off or damaged"
            raise ValueError(message)
        place += _CHUNK.size + length
        record = content if kind in (_FULL, _FIRST) else record + content
        if kind in (_FULL, _LAST):
            yield record


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field of a protobuf message.

    Raises:
        ValueError: The message is damaged.
    """
    place = 0

    def varint() -> int:
        nonlocal place
        value = 0
        for shift in range(0, 70, 7):
            byte = message[place]
            place += 1
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                break
        return value

    try:
        while place < len(message):
            key = varint()
            if key & 7 == 0:
                yield key >> 3, varint()
                continue
            length = {1: 8, 2: None, 5: 4}[key & 7] or varint()
            content, place = message[place : place + length], place + length
            if place > len(message):
                break
            yield key >> 3, content
    except (IndexError, KeyError):
        place = -1
    if place != len(message):
        error = "a message is damaged"
        raise ValueError(error)


def _items(message: int | bytes) -> dict[str, Any]:
    """Return the keys and values of a message; nested keys are joined by slashes."""
    values: dict[str, Any] = {}
    for number, content in _fields(message) if isinstance(message, bytes) else ():
        if number == 1 and isinstance(content, bytes):
            parts = [(part, text) for part, text in _fields(content) if isinstance(text, bytes)]
            keys = [text.decode("utf-8", "replace") for part, text in parts if part in (_KEY, _NESTED_KEY)]
            values["/".join(keys)] = next((json.loads(text) for part, text in parts if part == _JSON), None)
    return values


def _first_number(message: int | bytes) -> int:
    """Return the whole number in the first field of a message; zero is not written."""
    fields = dict(_fields(message)) if isinstance(message, bytes) else {}
    return value if isinstance(value := fields.get(1, 0), int) else 0


def _run_facts(parts: Mapping[int, int | bytes], file: str) -> Iterator[Fact]:
    name = parts.get(_RUN_NAME) or parts.get(_RUN_ID)
    if isinstance(name, bytes):
        yield Fact(name="run.id", value=name.decode("utf-8", "replace"), source=Citation(file=file))
    if time := _time(_first_number(parts.get(_RUN_START, b"")), 1):
        yield Fact(name="run.started_at", value=time, source=Citation(file=file))


def _time(number: float | None, per_second: int) -> str | None:
    if number is None or not 0 < number < _YEAR_2100 * per_second:
        return None
    return datetime.fromtimestamp(number / per_second, UTC).isoformat(
        timespec="auto" if per_second == 1 else "milliseconds"
    )


_RUN_FOLDERS = {
    MLFLOW: _MLFLOW_FILE,
    WANDB: re.compile(r"^(?P<run>(?:.*/)?(?:offline-)?run-\d{8}_\d{6}-\w+)/"),
    TRAINER: re.compile(r"^(?P<run>.*?)(?:^|/)(?:checkpoint-\d+/)?trainer_state\.json$"),
}


def superseded_files(readings: Mapping[str, FileReading], folder: Path) -> tuple[set[str], list[Problem]]:
    """Return the files of older runs and older copies, and a warning about each tool with several runs.

    Of several runs of a tool, only the one that started last is read, and of the Hugging Face Trainer the one with the
    most steps.
    """
    # A synced W&B run has the contents of its record file in files of its own.
    synced = {name.removesuffix("files/wandb-summary.json") for name in readings if name.endswith("-summary.json")}
    left_out = {name for name in readings if name.endswith(".wandb") and name[: name.rfind("/") + 1] in synced}
    problems = []
    for tool, pattern in _RUN_FOLDERS.items():
        matches = {name: match.group("run") for name in readings if (match := pattern.match(name))}
        if not matches:
            continue
        latest = max(matches, key=lambda name: (*_progress(readings[name], name), -name.count("/"), name))
        # Below a run and above it are parts of it: checkpoints, and the summary of the whole.
        others = {run for run in matches.values() if not are_nested(run, matches[latest])}
        left_out |= {name for name in readings if name.startswith(tuple(f"{run}/" for run in others))}
        left_out |= {name for name in matches if tool == TRAINER and name != latest}
        if others:
            shown = [run.rpartition("/")[2] for run in sorted(others)]
            shown = shown[:3] + ([f"{len(shown) - 3} more"] if len(shown) > 3 else [])
            read = matches[latest].rpartition("/")[2]
            what = f"Of {len(others) + 1} runs of {tool}, only {read} was read, not {join_words(shown, last='and')}."
            problems.append(problem_of("TP522", file=str(folder), what=what))
    return left_out, problems


def _progress(reading: FileReading, name: str) -> tuple[str, float]:
    """Return when a run started (W&B's folders state it) and how many steps it did, as far as a file states it."""
    started = [match.group() for match in re.finditer(r"(?<=run-)\d{8}_\d{6}", name)]
    started += [str(fact.value) for fact in reading.facts if fact.name == "run.started_at" and not started]
    steps = [to_number(fact.value) for fact in reading.facts if fact.name == "training.steps_done"]
    return max(started, default=""), max((step for step in steps if step is not None), default=0.0)
