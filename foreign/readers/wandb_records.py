"""The record file of a W&B run, `run-ID.wandb`: its settings, rows and last values, without the package wandb.

Since 0.19 an offline run leaves nothing else until it is synced. The file is a LevelDB log of protobuf messages behind
a header of seven bytes. Sources: wandb/sdk/internal/datastore.py, wandb/proto/wandb_internal.proto.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from foreign.readers.statement import Citation, Fact
from foreign.readers.structured import document_reading, rows_reading
from foreign.readers.tensorboard import BrokenRecordError, MessageField, fields
from foreign.readers.text import read_text
from foreign.readers.tracking import WANDB, read_wandb_summary
from foreign.readers.view import FileReading
from schemas.problems import problem_of, unknown_lines

HEADER = b":W&B\xe1\xbe\x00"
_BLOCK_BYTES, _CHUNK = 1 << 15, struct.Struct("<IHB")
_FULL, _FIRST, _LAST = 1, 2, 4
_HISTORY, _SUMMARY, _CONFIG, _RUN = 2, 3, 5, 17
_RUN_ID, _RUN_CONFIG, _RUN_NAME, _RUN_START = 1, 4, 6, 17
_KEY, _NESTED_KEY, _JSON = 1, 2, 16


def read_wandb_records(data: bytes, file: str, where: str) -> FileReading:
    """Return what a record file gives; what is damaged ends the reading.

    Args:
        data: The file's content.
        file: Its path inside the folder.
        where: Its name in problems.
    """
    config: dict[str, Any] = {}
    summary: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    facts: list[Fact] = []
    problems = []
    try:
        for record in records(data):
            for field in fields(record) if record else ():
                if field.number == _HISTORY:
                    step = _number(_last(field, 2))
                    rows.append({"_step": step} | _items(field, 1) if step is not None else _items(field, 1))
                elif field.number == _SUMMARY:
                    summary |= _items(field, 1)
                elif field.number == _CONFIG:
                    config |= _items(field, 1)
                elif field.number == _RUN:
                    config |= _items(_last(field, _RUN_CONFIG), 1)
                    facts += _run_facts(field, file)
    except (BrokenRecordError, ValueError, RecursionError) as error:
        what = f"The records of this W&B run cannot be read to the end ({error}); those before it were read."
        then = "Sync the run with `wandb sync`, download its config.yaml and wandb-summary.json, and import those."
        problems.append(problem_of("TP521", file=where, what=what, next=then))
    config.pop("_wandb", None)
    settings = document_reading(config, unknown_lines, file, where)
    last = read_wandb_summary(read_text(json.dumps(summary).encode(), file=where), file, where)
    metrics = rows_reading(list(enumerate(rows, start=1)), file).metrics
    return FileReading(
        tool=WANDB if rows or config or summary or facts else None,
        facts=(*facts, *(replace(fact, source=_in_records(fact.source)) for fact in (*settings.facts, *last.facts))),
        metrics=tuple(replace(row, source=_in_records(row.source)) for row in metrics),
        scores=tuple(replace(score, source=_in_records(score.source)) for score in last.scores),
        problems=tuple(problems),
    )


def records(data: bytes) -> Iterator[bytes]:
    """Yield each record, put together from its chunks.

    Raises:
        BrokenRecordError: This is no record file, or a chunk is cut off or damaged; the records before it were yielded.
    """
    if not data.startswith(HEADER):
        message = "it does not begin as the record file of a W&B run"
        raise BrokenRecordError(message)
    place, record = len(HEADER), b""
    while place < len(data):
        if (left := _BLOCK_BYTES - place % _BLOCK_BYTES) < _CHUNK.size:
            place += left
            continue
        chunk = data[place : place + _CHUNK.size]
        crc, length, kind = _CHUNK.unpack(chunk) if len(chunk) == _CHUNK.size else (0, len(data), 0)
        content = data[place + _CHUNK.size : place + _CHUNK.size + length]
        if len(content) < length or zlib.crc32(bytes([kind]) + content) != crc:
            message = f"the record at byte {place:,} is cut off or damaged"
            raise BrokenRecordError(message)
        place += _CHUNK.size + length
        record = content if kind in (_FULL, _FIRST) else record + content
        if kind in (_FULL, _LAST):
            yield record


def _items(message: MessageField | None, number: int) -> dict[str, Any]:
    """Return the keys and values that a message has in its field `number`; nested keys are joined by slashes."""
    values: dict[str, Any] = {}
    for item in fields(message.content) if message else ():
        if item.number == number and item.wire == 2:
            parts = list(fields(item.content))
            keys = [part.content.decode("utf-8", "replace") for part in parts if part.number in (_KEY, _NESTED_KEY)]
            values["/".join(keys)] = next((json.loads(part.content) for part in parts if part.number == _JSON), None)
    return values


def _last(message: MessageField, number: int) -> MessageField | None:
    return next((field for field in reversed(list(fields(message.content))) if field.number == number), None)


def _number(message: MessageField | None) -> int | None:
    """Return the whole number in the first field of a message; zero is not written."""
    if message is None:
        return None
    return next((field.as_signed() for field in fields(message.content) if field.number == 1), 0)


def _run_facts(run: MessageField, file: str) -> Iterator[Fact]:
    name, start = _last(run, _RUN_NAME) or _last(run, _RUN_ID), _number(_last(run, _RUN_START))
    if name is not None:
        yield Fact(name="run.id", value=name.content.decode("utf-8", "replace"), source=Citation(file=file))
    if start is not None and 0 < start < 4_102_444_800:
        time = datetime.fromtimestamp(start, UTC).isoformat(timespec="seconds")
        yield Fact(name="run.started_at", value=time, source=Citation(file=file))


def _in_records(source: Citation) -> Citation:
    """Return a place in a record file, which has rows and keys and no lines."""
    return Citation(file=source.file, pointer=source.pointer or (f"row {source.line}" if source.line else None))
