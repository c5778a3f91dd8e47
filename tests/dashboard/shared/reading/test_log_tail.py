from __future__ import annotations

from pathlib import Path

from dashboard.shared.reading import log_tail
from dashboard.shared.reading.log_tail import LEVELS, OTHER, LogTail, matching


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


def test_records_are_found_by_what_they_say_and_by_any_level() -> None:
    records = [
        {"level": "info", "message": "Started", "event": None},
        {"level": "critical", "message": "None left"},
        {"level": None, "event": "started"},
        {"message": 7},
    ]
    assert matching(records, ["info"], "") == records[:1]
    assert matching(records, [OTHER], "") == records[1:]
    assert matching(records, [*LEVELS, OTHER], "STARTED") == [records[0], records[2]]
    assert matching(records, [*LEVELS, OTHER], "none") == [records[1]], "what is not there is no word"


def test_of_a_long_log_the_newest_records_are_kept_and_all_are_counted(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(log_tail, "MOST_RECORDS", 3)
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f'{{"message": "{number}"}}\n' for number in range(9)))
    tail = LogTail(path)
    assert messages(tail) == ["6", "7", "8"]
    assert tail.log().total == 9
