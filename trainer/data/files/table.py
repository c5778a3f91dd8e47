"""Rows of a file by their number, decoded on access; what is kept is where they stand.

| file | kept in memory |
|---|---|
| JSONL | 8 bytes a row: where its line begins |
| JSON array | its rows |
| Parquet | one group of rows |
| Arrow, folder of the `datasets` library | nothing: the files are mapped |
| plain text | the text |

A folder of such files is read in the order of their names. What a value is never depends on the format: null and NaN
are missing values, a byte order mark is skipped, and a key that stands twice is refused.
"""

from __future__ import annotations

import json
import math
import mmap
import re
from abc import abstractmethod
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, overload

import numpy as np

from evidence.hashes import sha256_file, sha256_lines
from schemas.formats import format_value, join_words
from schemas.problems import Lines, Problem, ProblemError, pointer_to, problem_of, truncate_problems
from schemas.reading import LARGEST_ROWS, UTF8_BOM, decode, other_encoding, read_json
from trainer.config.other_content import refuse_other_content

STATE = "state.json"
"""In a folder of the `datasets` library, the names of its data files."""

ENDINGS = (".parquet", ".arrow", ".jsonl", ".json")
"""Files of rows in a folder; JSON only where there are no others, since it may describe them."""

SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation", "validation", "valid", "val", "dev"), "test"),
}
"""Splits by the words in the names of files and folders, as the `datasets` library knows them."""

SHARD = re.compile(r"(?P<name>.*?)[-_.]?(?P<number>\d{5})-of-(?P<count>\d{5})")
ROW_COLUMNS = frozenset({"messages", "conversations", "prompt", "instruction", "chosen", "text"})
"""Keys of a JSON object that is a row itself, and no wrapper of rows."""


class RowTable(Sequence[dict[str, Any]]):
    """Rows of a file; a subclass states how many there are and reads one.

    Args:
        path: the file or folder.
    """

    keeps_nulls: tuple[str, ...] = ("task",)
    """Columns in which a null is a value; formats of columns give every row the keys that any of them has."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.left_aside: tuple[str, ...] = ()
        """Files of the folder that are not read."""

    @property
    def sha256(self) -> str:
        """Hash of the file; of a folder, over the hashes of its data files."""
        return sha256_file(self.path)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """What is odd about the file and keeps no one from using it."""
        return ()

    def line_of(self, number: int) -> int:
        """Return where a row stands, counted from 1."""
        return number + 1

    def place_of(self, number: int) -> tuple[str, int]:
        """Return the file in which a row stands, and its line there."""
        return str(self.path), self.line_of(number)

    @abstractmethod
    def row(self, number: int) -> dict[str, Any]:
        """Return the row of a number from 0 on, as it is written."""

    @overload
    def __getitem__(self, number: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, number: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, number: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        if not -len(self) <= number < len(self):
            raise IndexError(number)
        row: dict[str, Any] = without_nulls(self.row(number % len(self)), keep=self.keeps_nulls)
        return row

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[number] for number in range(len(self)))


class JsonLines(RowTable):
    """A JSONL file; blank lines hold no row."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        starts, lines, blank, place = array("q"), array("q"), array("q"), 0
        with path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                (lines if line.strip() else blank).append(number)
                if line.strip():
                    starts.append(place + (len(UTF8_BOM) if number == 1 and line.startswith(UTF8_BOM) else 0))
                place += len(line)
            # An empty file cannot be mapped, and has no row to request.
            self._text = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) if place else b""
        self._starts, self._lines, self._blank = starts, lines, blank

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """The blank lines."""
        what, file = "The line is blank and was skipped.", str(self.path)
        return tuple(
            truncate_problems(problem_of("TP131", file=file, line=n, what=what, why=None) for n in self._blank)
        )

    def line_of(self, number: int) -> int:
        """Return the line of a row."""
        return self._lines[number]

    def row(self, number: int) -> dict[str, Any]:
        """Return the row of a line."""
        first = self._starts[number]
        end = self._text.find(b"\n", first)
        value, _ = json_value(self._text[first : end if end >= 0 else len(self._text)], self.path, self._lines[number])
        if not isinstance(value, dict):
            raise unreadable(
                self.path, f"The line holds {format_value(value)}, not an object.", line=self._lines[number]
            )
        return value


class JsonArray(RowTable):
    """A JSON document: an array of rows, an object with one array of rows in it, or a single row."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        if (size := path.stat().st_size) > LARGEST_ROWS:
            what = f"{path.name} is one JSON document of {size:,} bytes, all of which would have to be held in memory."
            way = f"Write JSONL, which is read row by row: `jq -c '.[]' {path.name} > {path.stem}.jsonl`."
            raise unreadable(path, what, way=way)
        value, self._lines = json_value(path.read_bytes().removeprefix(UTF8_BOM), path)
        lists = [name for name, one in value.items() if isinstance(one, list)] if isinstance(value, dict) else []
        self._above = pointer_to(lists) if len(lists) == 1 and not ROW_COLUMNS & value.keys() else ""
        value = value[lists[0]] if self._above else value
        self._rows = value if isinstance(value, list) else [value]

    def __len__(self) -> int:
        return len(self._rows)

    def line_of(self, number: int) -> int:
        """Return the line at which a row begins."""
        return self._lines(f"{self._above}/{number}") or 1

    def row(self, number: int) -> dict[str, Any]:
        """Return an element."""
        if not isinstance(value := self._rows[number], dict):
            raise unreadable(
                self.path, f"The array holds {format_value(value)}, not an object.", line=self.line_of(number)
            )
        return value


class PlainText(RowTable):
    """A text file as one row with the column `text`."""

    def __len__(self) -> int:
        return 1

    def row(self, number: int) -> dict[str, Any]:
        """Return the whole text."""
        try:
            return {"text": self.path.read_text(encoding="utf-8-sig")}
        except UnicodeDecodeError as error:
            raise unreadable(self.path, f"The text is not UTF-8: byte {error.start}.") from error


class Arrow(RowTable):
    """A Parquet file, a group of rows at a time, or an Arrow file, which is mapped."""

    keeps_nulls = ()

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        arrow = arrow_module(path)
        with readable(path):
            if path.suffix.lower() == ".arrow" or beginning(path).startswith(b"ARROW1"):
                is_stream = not beginning(path).startswith(b"ARROW1")
                open_file = arrow.ipc.open_stream if is_stream else arrow.ipc.open_file
                table = open_file(arrow.memory_map(str(path))).read_all()
                batches, schema = table.to_batches(), table.schema
                sizes, self._group = [batch.num_rows for batch in batches], batches.__getitem__
            else:
                file = arrow.parquet.ParquetFile(path)
                sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
                schema, self._group = file.schema_arrow, lru_cache(maxsize=2)(file.read_row_group)
        self._ends = np.cumsum(sizes, dtype=np.int64)
        self._json = [field.name for field in schema if str(field.type).startswith("extension<arrow.json")]
        if twice := [name for name, times in Counter(schema.names).items() if times > 1]:
            what = f"The file has several columns named {join_words(twice, last='and')}."
            raise ProblemError([problem_of("TP109", file=str(path), what=what)], exit_code=2)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def row(self, number: int) -> dict[str, Any]:
        """Return a row of the group that it is in."""
        group = int(np.searchsorted(self._ends, number, side="right"))
        first = int(self._ends[group - 1]) if group else 0
        with readable(self.path):
            row: dict[str, Any] = self._group(group).slice(number - first, 1).to_pylist()[0]
            return row | {name: json.loads(row[name]) for name in self._json if row[name] is not None}


class Folder(RowTable):
    """The rows of several files, one file behind the other."""

    def __init__(self, path: Path, files: Sequence[Path], left_aside: Sequence[Path] = ()) -> None:
        super().__init__(path)
        self.left_aside = tuple(str(each.relative_to(path)) for each in left_aside)
        self._tables = [table_of(file) for file in files]
        self.keeps_nulls = self._tables[0].keeps_nulls if files else ()
        self._ends = np.cumsum([len(table) for table in self._tables], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    @property
    def sha256(self) -> str:
        """Hash over the hashes of the data files, in their order."""
        return sha256_lines(table.sha256 for table in self._tables)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """What is odd about any of the files."""
        return tuple(truncate_problems(problem for table in self._tables for problem in table.warnings))

    def place_of(self, number: int) -> tuple[str, int]:
        """Return the file in which a row stands, and its line there."""
        table, place = self._found(number)
        return table.place_of(place)

    def row(self, number: int) -> dict[str, Any]:
        """Return a row of the file that it is in."""
        table, place = self._found(number)
        return table.row(place)

    def _found(self, number: int) -> tuple[RowTable, int]:
        which = int(np.searchsorted(self._ends, number, side="right"))
        return self._tables[which], number - (int(self._ends[which - 1]) if which else 0)


def table_of(path: Path) -> RowTable:
    """Return the rows of a file or folder, by what is in it and then by its name.

    Raises:
        ProblemError: exit code 2; it cannot be read, it needs a package, or it holds several datasets.
    """
    if path.is_dir():
        return folder_table(path)
    refuse_other_content(path, "TP016")
    ending, head = path.suffix.lower(), beginning(path)
    if ending in (".parquet", ".arrow") or head.startswith((b"PAR1", b"ARROW1")):
        return Arrow(path)
    if ending == ".txt":
        return PlainText(path)
    if other_encoding(head[:4]):
        raise ProblemError(decode(head[:4], file=str(path))[1], exit_code=2)
    return JsonArray(path) if is_one_document(path) else JsonLines(path)


def is_one_document(path: Path) -> bool:
    """Return whether a file is one JSON document with rows in it, and not a row on each line."""
    with path.open("rb") as stream:
        lines = (text for line in stream if (text := line.removeprefix(UTF8_BOM).strip()))
        first = next(lines, b"")
        if path.suffix.lower() != ".json" or not first.startswith(b"{"):
            return first.startswith(b"[")
        has_more = next(lines, None) is not None
    try:
        return not ROW_COLUMNS & json.loads(first).keys() and not has_more
    except ValueError:
        return has_more


def folder_table(path: Path) -> RowTable:
    """Return the rows of a folder: one that the `datasets` library wrote, or one with files of rows.

    Splits are told by names. Where there is a training split, it is read and the rest is left aside.

    Raises:
        ProblemError: exit code 2; it holds nothing to read, only rows that are held out, or several datasets.
    """
    if (path / STATE).is_file():
        with readable(path):
            names = [str(entry["filename"]) for entry in json.loads((path / STATE).read_bytes())["_data_files"]]
        return Folder(path, [path / name for name in names])
    found = sorted(child for child in path.iterdir() if (child / STATE).is_file()) or data_files(path)
    if not found:
        way = f"Name a file of rows, or a folder with files that end in {join_words(ENDINGS)}."
        raise unreadable(path, f"{path} holds no files of rows.", way=way)
    by_split: dict[str, list[Path]] = {"train": [], "": [], "test": []}
    for file in found:
        by_split[split_in(file.relative_to(path).as_posix())].append(file)
    chosen = by_split["train"] or by_split[""]
    datasets: dict[str, list[Path]] = {}
    for file in chosen:
        shard = SHARD.fullmatch(file.stem)
        is_named = shard is not None or file.is_dir() or split_in(file.name)
        name = file.parent / ((shard["name"] if shard else file.stem) if is_named else "*")
        datasets.setdefault(str(name.relative_to(path)) + file.suffix, []).append(file)
    if not chosen or len(datasets) > 1:
        held = join_words(datasets or (str(file.relative_to(path)) for file in found), last="and")
        what = f"{path.name} holds {'the datasets' if chosen else 'nothing but rows that are held out,'} {held}."
        way = f"Name one of them, as in {found[0]}."
        if any(len(files) > 1 for files in datasets.values()):
            way = "Put the files of one of them into a folder of their own, by copy or link, and name that folder."
        raise ProblemError([problem_of("TP017", file=str(path), what=what, next=way)], exit_code=2)
    if (shard := SHARD.fullmatch(chosen[0].stem)) and len(chosen) != int(shard["count"]):
        what = f"{path.name} holds {len(chosen)} of {int(shard['count'])} files of {next(iter(datasets))}."
        raise unreadable(path, what, way="Fetch the missing files, or name the files that are there one by one.")
    return Folder(path, chosen, [file for file in found if file not in chosen])


def split_in(name: str) -> str:
    """Return the split that a path names, `train` or `test`; empty if it names none."""
    words = re.split(r"[^a-z0-9]+", name.lower())
    return next((SPLITS[word] for word in reversed(words) if word in SPLITS), "")


def data_files(path: Path) -> list[Path]:
    """Return the files of rows in a folder and up to two below it, `shard-2` before `shard-10`."""
    found = [
        file
        for pattern in ("*", "*/*", "*/*/*")
        for file in path.glob(pattern)
        if file.suffix.lower() in ENDINGS
        and not file.name.startswith(("cache-", "dataset_info"))
        and not any(part.startswith(".") for part in file.relative_to(path).parts)
    ]
    only_json = all(file.suffix.lower() == ".json" for file in found)
    found = [file for file in found if only_json or file.suffix.lower() != ".json"]
    return sorted(
        found, key=lambda file: [(part.isdigit() and int(part), part) for part in re.split(r"(\d+)", str(file))]
    )


def beginning(path: Path) -> bytes:
    """Return the first bytes of a file, which tell formats apart."""
    with path.open("rb") as stream:
        return stream.read(8)


def json_value(text: bytes, path: Path, line: int | None = None) -> tuple[Any, Lines]:
    """Return the value of a JSON text and the lines of its parts; a number that is not finite is null.

    Args:
        text: the document or the line.
        path: the file.
        line: on which it stands, or None if it is the whole file.

    Raises:
        ProblemError: exit code 2; it is not JSON, or holds a key twice.
    """
    decoded, problems = decode(text, file=str(path))
    if decoded is not None:
        parsed = read_json(decoded, file=str(path))
        problems += tuple(each for each in parsed.problems if each.code != "TP110")
        if not problems:
            return parsed.value, parsed.lines
    raise ProblemError([replace(each, line=line or each.line) for each in problems], exit_code=2)


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
        raise ProblemError([problem_of("TP015", file=str(path), what=what)], exit_code=2) from error
    return getattr(pyarrow, name) if name else pyarrow


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn what a damaged file makes pyarrow and JSON raise into the problem of that file."""
    try:
        yield
    except (ValueError, OSError, LookupError, TypeError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise unreadable(path, f"It cannot be read: {reason.rstrip('.')}.") from error


def unreadable(path: Path, what: str, *, line: int | None = None, way: str | None = None) -> ProblemError:
    """Return the refusal of a file that cannot be read."""
    return ProblemError([problem_of("TP016", file=str(path), what=what, line=line, next=way)], exit_code=2)


def without_nulls(value: Any, *, keep: Sequence[str] = ()) -> Any:
    """Return a row without the keys that hold nothing: null, or NaN, which pandas writes for a missing value.

    Args:
        value: the row.
        keep: columns that stay as they are.
    """
    if isinstance(value, dict):
        return {
            key: one if key in keep else without_nulls(one)
            for key, one in value.items()
            if one is not None and not (isinstance(one, float) and math.isnan(one))
        }
    return [without_nulls(one) for one in value] if isinstance(value, list) else value
