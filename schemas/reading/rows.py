"""Rows: a JSONL file read line by line, each line checked against the schema of its kind.

A run appends rows and may be killed while it does, so a torn last line is normal there: it is dropped with a warning. A
line that cannot be read anywhere else is an error. Blank lines are skipped with a warning.

Lines that `row_types` is sure of cost about 2 µs each; all others go through `json_text` and the schema, which explain.
Metric rows without any doubt are read as one table.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from schemas.catalog.row_fields import ROW_KIND
from schemas.explain.violations import violations
from schemas.problems.problem import Problem
from schemas.problems.rule import problem_of
from schemas.problems.words import quantity
from schemas.reading.columns import read_table
from schemas.reading.json_text import read_json
from schemas.reading.limits import LARGEST_ROWS, LONGEST_ROW, line_of, too_large
from schemas.reading.row_types import decoder_of
from schemas.reading.text import decode, other_encoding
from schemas.reading.unreadable import cannot_read

APPENDED = ("metric_row", "log_record", "system_row", "rollout_row", "answer_over_step", "prediction_row")
"""Kinds that a run appends to. People write the others, often without a newline at the end."""

MOST_EXPLAINED = 100
"""Lines of one file whose problems are explained; thousands of lines are rarely wrong in a hundred different ways."""

MOST_COUNTED = 1_000
"""Further lines with problems that are counted; a file with more is not ours, and reading on would take minutes."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The rows of a file.

    Attributes:
        values: the rows without problems, in order.
        problems: what is wrong with the others.
        torn_tail: whether an incomplete last line was dropped.
        bytes_read: offset after the last complete line.
        left_out: lines that gave no row, in order.
    """

    values: Sequence[dict[str, Any]]
    problems: tuple[Problem, ...]
    torn_tail: bool
    bytes_read: int
    left_out: tuple[int, ...] = ()

    def line_of(self, index: int) -> int:
        """Return the line of `values[index]`: with line 2 left out, the second row is on line 3."""
        line = 1 + index
        for left_out in self.left_out:
            if left_out > line:
                break
            line += 1
        return line


def read_rows(path: str | Path, kind: str) -> Rows:
    """Return the rows of a JSONL file and everything that is wrong with it; never raises on its content.

    Args:
        path: the file; problems carry it as it is written here.
        kind: a kind of row from `catalog`.
    """
    reader = _RowReader(str(path), kind)
    try:
        with Path(path).open("rb") as stream, collector_paused():
            size = os.fstat(stream.fileno()).st_size
            if kind in APPENDED and size > LARGEST_ROWS:
                limit = f"at most {LARGEST_ROWS:,} bytes"
                reader.problems.append(too_large(f"The file has {size:,} bytes", limit, file=str(path)))
            else:
                reader.read(stream)
    except OSError as error:
        reader.problems.append(cannot_read(error, file=str(path)))
    return reader.rows()


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep Python's cycle collector from running: over a million new dicts it doubles the time and finds nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@dataclass(frozen=True, kw_only=True)
class _Unreadable:
    line: int
    problems_before: int
    unexplained_before: int


class _RowReader:
    def __init__(self, file: str, kind: str) -> None:
        self.file = file
        self.kind = kind
        self.values: Sequence[dict[str, Any]] = []
        self.problems: list[Problem] = []
        self.torn_tail = False
        self.left_out: list[int] = []
        self.bytes_read = 0
        self.line = 0
        self.blank = 0
        self.explained = 0
        self.unexplained = 0
        # What was noted before the newest line that is not JSON: as the last line it is a torn tail, not an error.
        self.unreadable: _Unreadable | None = None

    def rows(self) -> Rows:
        if self.blank > MOST_EXPLAINED:
            self.problems.append(self._more_blank_lines())
        if self.unexplained:
            self.problems.append(self._more_lines())
        return Rows(
            values=self.values,
            problems=tuple(self.problems),
            torn_tail=self.torn_tail,
            bytes_read=self.bytes_read,
            left_out=tuple(self.left_out),
        )

    def read(self, stream: BinaryIO) -> None:
        head = stream.read(4)
        if other_encoding(head):
            self.problems += decode(head, file=self.file)[1]
            return
        stream.seek(0)
        if self.kind == ROW_KIND:
            self._read_table(stream)
        sure = decoder_of(self.kind) or _never_sure
        length, rows = 0, []
        for line, length in iter(lambda: line_of(stream), (b"", 0)):
            self.line += 1
            row = sure(line)
            if length > LONGEST_ROW:
                self._pass_over(length)
            elif row is None or not line.endswith(b"\n"):
                row = self._look_closer(line)
            if row is None:
                self.left_out.append(self.line)
            else:
                rows.append(row)
            if self.unexplained == MOST_COUNTED:
                break
        self.values = self.values or rows
        self.bytes_read = stream.tell()
        if self.unreadable and self.unreadable.line == self.line and self.kind in APPENDED:
            self._drop_torn_tail(self.unreadable, length)

    def _read_table(self, stream: BinaryIO) -> None:
        """Take all whole lines at once, if none of them needs a closer look; the stream is then behind them."""
        end = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        # Without a number of bytes it would read into one buffer and copy it into another.
        text = stream.read(end)
        whole = len(text) if text.endswith(b"\n") else text.rfind(b"\n") + 1
        table = read_table(text if whole == len(text) else text[:whole])
        if table is not None:
            self.values, self.line = table, len(table)
        stream.seek(0 if table is None else whole)

    def _look_closer(self, line: bytes) -> dict[str, Any] | None:
        """Return the row if it is right after all; otherwise note what is wrong with it."""
        if not line.strip():
            self.blank += 1
            if self.blank <= MOST_EXPLAINED:
                self.problems.append(self._blank_line())
            return None
        self.unreadable = _Unreadable(
            line=self.line, problems_before=len(self.problems), unexplained_before=self.unexplained
        )
        if not line.endswith(b"\n") and self.kind in APPENDED:
            return None
        text, problems = decode(line.rstrip(b"\r\n"), file=self.file)
        value = None
        if text is not None:
            parsed = read_json(text, file=self.file)
            problems += parsed.problems
            if parsed.is_read:
                self.unreadable = None
                value = parsed.value
                problems += tuple(violations(self.kind, value, file=self.file, lines=lambda _pointer: self.line))
        self._note(problems)
        return None if problems else value

    def _pass_over(self, length: int) -> None:
        limit = f"a row of at most {LONGEST_ROW:,} bytes"
        self._note((too_large(f"The row has {length:,} bytes", limit, file=self.file),))

    def _note(self, problems: tuple[Problem, ...]) -> None:
        if problems and self.explained == MOST_EXPLAINED:
            self.unexplained += 1
        elif problems:
            self.explained += 1
            self.problems += [replace(problem, line=self.line) for problem in problems]

    def _drop_torn_tail(self, unreadable: _Unreadable, length: int) -> None:
        """Take back what was noted of the last line, and end the reading before it."""
        self.unexplained = unreadable.unexplained_before
        self.problems[unreadable.problems_before :] = [self._torn_tail(length)]
        self.torn_tail = True
        self.bytes_read -= length
        self.left_out.pop()
        self.line -= 1

    def _torn_tail(self, length: int) -> Problem:
        what = f"The last line is incomplete ({length} bytes) and was left out."
        why = "This is normal when a run is killed while it writes a row."
        return problem_of("TP130", file=self.file, line=self.line, what=what, why=why)

    def _blank_line(self) -> Problem:
        what = "The line is blank and was skipped."
        return problem_of("TP131", file=self.file, line=self.line, what=what, why=None)

    def _more_blank_lines(self) -> Problem:
        more = self.blank - MOST_EXPLAINED
        was = "was" if more == 1 else "were"
        return replace(self._blank_line(), line=None, what=f"{quantity(more, 'more blank line')} {was} skipped.")

    def _more_lines(self) -> Problem:
        have = "has" if self.unexplained == 1 else "have"
        unread = "; what follows them was not read" if self.unexplained == MOST_COUNTED else ""
        what = f"{quantity(self.unexplained, 'more line')} of this file {have} problems{unread}."
        why = f"The first {MOST_EXPLAINED} are explained one by one."
        return problem_of("TP132", file=self.file, what=what, why=why)


def _never_sure(_line: bytes) -> None:
    return None
