"""Lines of a growing file: what is new, what is unfinished, what is too long, and what is another file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pages import Open, said
from synthetic import write_run

from dashboard.shared.reading import growing
from dashboard.shared.reading.growing import GrowingLines
from dashboard.shared.session import state
from evidence.layout import LOG, METRICS


class Kept:
    def __init__(self, path: Path) -> None:
        self.lines: list[bytes] = []
        self.reader = GrowingLines(path, take=self.take, forget=self.lines.clear)

    def take(self, lines: bytes) -> None:
        assert lines.endswith(b"\n")
        self.lines += lines.splitlines()

    def now(self) -> tuple[list[bytes], int]:
        self.reader.read_on()
        return list(self.lines), self.reader.too_long


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(growing, "CHUNK_BYTES", 8)
    return tmp_path / "lines"


def add(path: Path, text: bytes) -> None:
    with path.open("ab") as file:
        file.write(text)


def test_what_is_new_is_given_once_and_an_unfinished_line_later(path: Path) -> None:
    kept = Kept(path)
    assert kept.now() == ([], 0)
    add(path, b"one\ntwo\nthree\nfo")
    assert kept.now() == ([b"one", b"two", b"three"], 0)
    add(path, b"ur\n")
    assert kept.now() == kept.now() == ([b"one", b"two", b"three", b"four"], 0)


def test_a_file_without_news_is_not_taken_again(path: Path) -> None:
    taken: list[bytes] = []
    reader = GrowingLines(path, take=taken.append, forget=lambda: None)
    add(path, b"one\n")
    reader.read_on()
    reader.read_on()
    assert taken == [b"one\n"]


@pytest.mark.parametrize("size", [8, 9, 15, 16, 17, 100])
def test_a_line_that_is_too_long_is_passed_over_and_counted_however_it_comes(path: Path, size: int) -> None:
    kept = Kept(path)
    add(path, b"one\n" + b"x" * size)
    assert kept.now() == ([b"one"], 1)
    add(path, b"x" * 5)
    assert kept.now() == ([b"one"], 1)
    add(path, b"x\ntwo\n" + b"y" * size + b"\nthree\n")
    assert kept.now() == ([b"one", b"two", b"three"], 2)


def test_another_file_is_read_afresh(path: Path, tmp_path: Path) -> None:
    kept = Kept(path)
    add(path, b"x" * 20 + b"\none\n")
    assert kept.now() == ([b"one"], 1)
    (tmp_path / "other").write_bytes(b"other\n")
    (tmp_path / "other").replace(path)
    assert kept.now() == ([b"other"], 0)
    path.write_bytes(b"cut\n")
    assert kept.now() == ([b"cut"], 0)
    path.unlink()
    assert kept.now() == ([], 0)


@pytest.mark.parametrize(
    ("name", "view", "word"),
    [
        (METRICS, "Curves", "Not drawn: 1 line of metrics.jsonl that cannot be read."),
        (LOG, "Log", "2 of 2 records. 1 line could not be read."),
    ],
)
def test_the_page_shows_what_follows_a_line_that_is_too_long(
    opened: Open, root: Path, name: str, view: str, word: str
) -> None:
    path = write_run(root, "alpha", steps=4) / name
    (first, *rest) = path.read_text("utf-8").splitlines(keepends=True)
    rest = rest or [first]
    path.write_text(first + json.dumps({"x": "y" * growing.CHUNK_BYTES}) + "\n" + "".join(rest), "utf-8")
    assert word in said(opened(state.RUN, run="alpha", view=view))
