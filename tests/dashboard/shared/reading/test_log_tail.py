from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from dashboard.shared.reading import log_tail
from dashboard.shared.reading.log_tail import LEVELS, OTHER, LogTail


def messages(tail: LogTail) -> list[str]:
    return [record["message"] for record in tail.log().records]


def test_a_log_is_read_on_and_a_torn_last_line_waits(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    tail = LogTail(path)
    assert tail.log().total == 0
    path.write_text('{"message": "a"}\n{"mess')
    assert messages(tail) == ["a"]
    with path.open("a") as file:
        file.write('age": "b"}\nnot json\n[1]\n')
    assert messages(tail) == ["a", "b"]
    assert (tail.log().total, tail.log().unread) == (2, 2)


def test_a_log_that_was_replaced_is_read_afresh(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"message": "a"}\n{"message": "b"}\n')
    tail = LogTail(path)
    assert messages(tail) == ["a", "b"]
    path.unlink()
    assert messages(tail) == []
    path.write_text('{"message": "c"}\n')
    assert messages(tail) == ["c"]


def test_records_are_found_by_what_they_say_and_by_any_level(tmp_path: Path) -> None:
    records = [
        {"level": "info", "message": "Started", "event": None},
        {"level": "critical", "message": "None left"},
        {"level": None, "event": "started"},
        {"message": 7},
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))

    def found(levels: Collection[str], words: str) -> list[dict]:
        return list(LogTail(path, levels, words).log().records)

    assert found(["info"], "") == records[:1]
    assert found([OTHER], "") == records[1:]
    assert found([*LEVELS, OTHER], "STARTED") == [records[0], records[2]]
    assert found([*LEVELS, OTHER], "none") == [records[1]], "what is not there is no word"


def test_the_first_line_of_a_long_log_is_found_and_all_are_counted(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(log_tail, "MOST_RECORDS", 3)
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f'{{"message": "line {number}"}}\n' for number in range(9)))
    tail = LogTail(path)
    assert messages(tail) == ["line 6", "line 7", "line 8"]
    assert (tail.log().found, tail.log().total) == (9, 9)
    search = LogTail(path, words="LINE 0")
    assert messages(search) == ["line 0"]
    with path.open("a") as file:
        file.write('{"message": "line 01"}\n')
    assert (messages(search), search.log().found, search.log().total) == (["line 0", "line 01"], 2, 10)
