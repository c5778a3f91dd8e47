"""Rows of a file by their number, decoded on access; what is kept is where they stand.

| file | kept in memory |
|---|---|
| JSONL | 8 bytes a row: where its line begins |
| Parquet | one group of rows |
| folder of the `datasets` library | nothing: its files are mapped |
| plain text | the text |
"""

from __future__ import annotations

import json
import mmap
from abc import abstractmethod
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, overload

import numpy as np

from evidence.run.hashes import sha256_file, sha256_lines
from schemas.problems.problem import Problem, ProblemError
from schemas.problems.rule import Rule, problem_of

NO_ARROW = Rule(
    "TP015",
    "Package for these files not installed",
    "Parquet files and folders of the datasets library are read with pyarrow.",
    "Install it: `pip install pyarrow`.",
)
UNREADABLE_ROWS = Rule(
    "TP016", "Rows that cannot be read", "The file is not what its name says, or is damaged.", "Write the file again."
)
SEVERAL_SPLITS = Rule(
    "TP017",
    "Several splits",
    "The folder holds several datasets, and a run learns from one.",
    "Name the folder of one.",
)

STATE = "state.json"
"""In a folder of the `datasets` library, the names of its data files."""


class RowTable(Sequence[dict[str, Any]]):
    """Rows of a file; a subclass states how many there are and reads one.

    Args:
        path: the file or folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def sha256(self) -> str:
        """Hash of the file; of a folder, over the hashes of its data files."""
        return sha256_file(self.path)

    def line_of(self, number: int) -> int:
        """Return where a row stands, counted from 1."""
        return number + 1

    @abstractmethod
    def row(self, number: int) -> dict[str, Any]:
        """Return the row of a number from 0 on."""

    @overload
    def __getitem__(self, number: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, number: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, number: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(number, slice):
            return [self.row(one) for one in range(*number.indices(len(self)))]
        if not -len(self) <= number < len(self):
            raise IndexError(number)
        return self.row(number % len(self))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self.row(number) for number in range(len(self)))


class JsonLines(RowTable):
    """A JSONL file; blank lines hold no row."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        starts, lines, place = array("q"), array("q"), 0
        with path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                if line.strip():
                    starts.append(place)
                    lines.append(number)
                place += len(line)
            # An empty file cannot be mapped, and has no row to request.
            self._text = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) if place else b""
        self._starts, self._lines = starts, lines

    def __len__(self) -> int:
        return len(self._starts)

    def line_of(self, number: int) -> int:
        """Return the line of a row."""
        return self._lines[number]

    def row(self, number: int) -> dict[str, Any]:
        """Return the row of a line."""
        first = self._starts[number]
        end = self._text.find(b"\n", first)
        try:
            value = json.loads(self._text[first : end if end >= 0 else len(self._text)])
        except ValueError as error:
            raise unreadable(self.path, f"The line is not JSON: {error}.", line=self.line_of(number)) from error
        if not isinstance(value, dict):
            raise unreadable(self.path, "The line is not an object.", line=self.line_of(number))
        return value


class PlainText(RowTable):
    """A text file as one row with the column `text`."""

    def __len__(self) -> int:
        return 1

    def row(self, number: int) -> dict[str, Any]:
        """Return the whole text."""
        try:
            return {"text": self.path.read_text(encoding="utf-8")}
        except UnicodeDecodeError as error:
            raise unreadable(self.path, f"The text is not UTF-8: byte {error.start}.") from error


class Parquet(RowTable):
    """A Parquet file, a group of rows at a time."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        parquet = arrow_module(path, "parquet")
        with readable(path):
            self._file = parquet.ParquetFile(path)
        groups = range(self._file.num_row_groups)
        self._ends = np.cumsum([self._file.metadata.row_group(group).num_rows for group in groups], dtype=np.int64)
        self._group = lru_cache(maxsize=2)(self._read)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def row(self, number: int) -> dict[str, Any]:
        """Return a row of the group that it is in."""
        group = int(np.searchsorted(self._ends, number, side="right"))
        first = int(self._ends[group - 1]) if group else 0
        row: dict[str, Any] = without_nulls(self._group(group).slice(number - first, 1).to_pylist()[0])
        return row

    def _read(self, group: int) -> Any:
        with readable(self.path):
            return self._file.read_row_group(group)


class ArrowFolder(RowTable):
    """A dataset as `Dataset.save_to_disk` of the `datasets` library writes it; its files are mapped, not read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        arrow = arrow_module(path)
        with readable(path):
            names = [str(entry["filename"]) for entry in json.loads((path / STATE).read_bytes())["_data_files"]]
            self._files = [path / name for name in names]
            tables = [arrow.ipc.open_stream(arrow.memory_map(str(file))).read_all() for file in self._files]
        self._batches = [batch for table in tables for batch in table.to_batches()]
        self._ends = np.cumsum([batch.num_rows for batch in self._batches], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    @property
    def sha256(self) -> str:
        """Hash over the hashes of the data files, in their order."""
        return sha256_lines(map(sha256_file, self._files))

    def row(self, number: int) -> dict[str, Any]:
        """Return a row of the batch that it is in."""
        batch = int(np.searchsorted(self._ends, number, side="right"))
        first = int(self._ends[batch - 1]) if batch else 0
        row: dict[str, Any] = without_nulls(self._batches[batch].slice(number - first, 1).to_pylist()[0])
        return row


def table_of(path: Path) -> RowTable:
    """Return the rows of a file or folder, by its name.

    Raises:
        ProblemError: exit code 2; it cannot be read, it needs a package, or it holds several datasets.
    """
    if path.is_dir():
        if (path / "dataset_dict.json").is_file():
            raise ProblemError([several_splits(path)], exit_code=2)
        return ArrowFolder(path)
    kinds: dict[str, type[RowTable]] = {".parquet": Parquet, ".txt": PlainText}
    return kinds.get(path.suffix.lower(), JsonLines)(path)


def arrow_module(path: Path, name: str | None = None) -> Any:
    """Return pyarrow, or a part of it.

    Raises:
        ProblemError: exit code 2; it is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        what = f"Reading {path.name} needs pyarrow, which is not installed."
        raise ProblemError([problem_of(NO_ARROW, file=str(path), what=what)], exit_code=2) from error
    return getattr(pyarrow, name) if name else pyarrow


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn what a damaged file makes pyarrow and JSON raise into the problem of that file."""
    try:
        yield
    except (ValueError, OSError, LookupError, TypeError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise unreadable(path, f"It cannot be read: {reason.rstrip('.')}.") from error


def unreadable(path: Path, what: str, *, line: int | None = None) -> ProblemError:
    """Return the refusal of a file that cannot be read."""
    return ProblemError([problem_of(UNREADABLE_ROWS, file=str(path), what=what, line=line)], exit_code=2)


def several_splits(path: Path) -> Problem:
    """Return the problem of a folder with a dataset for each split."""
    names = sorted(child.name for child in path.iterdir() if (child / STATE).is_file())
    what = f"{path.name} holds the datasets {', '.join(names)}."
    return problem_of(SEVERAL_SPLITS, file=str(path), what=what, next=f"Name one of them, as in {path / names[0]}.")


def without_nulls(value: Any) -> Any:
    """Return a row without the keys that hold nothing: columns give every row the keys that any of them has."""
    if isinstance(value, dict):
        return {key: without_nulls(one) for key, one in value.items() if one is not None}
    return [without_nulls(one) for one in value] if isinstance(value, list) else value
