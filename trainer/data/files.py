"""Row files by number, decoded on access: JSONL, JSON, Parquet, Arrow, plain text, and folders.

| file | in memory |
|---|---|
| JSONL | 16 bytes a row: offset and line number |
| JSON array | all rows |
| Parquet | one row group |
| Arrow, folder of the `datasets` library | nothing: the files are memory-mapped |
| plain text | the text |

A value means the same in every format: null and NaN are missing values, a byte order mark is skipped, and a duplicate
key is an error. The files of a folder are read in the order of their names.
"""

from __future__ import annotations

import json
import math
import mmap
import re
from abc import abstractmethod
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np

from evidence.hashes import sha256_file, sha256_lines
from schemas.formats import format_value, join_words
from schemas.problems import Lines, Problem, ProblemError, pointer_to, problem_of, truncate_problems
from schemas.reading import LARGEST_ROWS, UTF8_BOM, decode, detect_utf16, read_json
from trainer.config.names import refuse_other_content

T = TypeVar("T")
Row = dict[str, Any]

STATE = "state.json"
"""Lists the data files in a folder of the `datasets` library."""

SUFFIXES = (".parquet", ".arrow", ".jsonl", ".json")
"""Row files in a folder. JSON files may be metadata, so they are rows only without other files."""

SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation", "validation", "valid", "val", "dev"), "test"),
}
"""Splits by words in file names, as in the `datasets` library."""

SHARD = re.compile(r"(?P<name>.*?)[-_.]?(?P<number>\d{5})-of-(?P<count>\d{5})")
ROW_COLUMNS = frozenset({"messages", "conversations", "prompt", "instruction", "chosen", "text"})
"""Keys that make a JSON object a row, not a wrapper of rows."""


class LazySequence(Sequence[T]):
    """A sequence whose elements are computed on access.

    Args:
        length: Number of elements.
        get: Computes the element of an index from 0 to `length` - 1.
    """

    def __init__(self, length: int, get: Callable[[int], T]) -> None:
        self._length, self._get = length, get

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, number: int) -> T: ...
    @overload
    def __getitem__(self, number: slice) -> list[T]: ...
    def __getitem__(self, number: int | slice) -> T | list[T]:
        if isinstance(number, slice):
            return [self._get(each) for each in range(*number.indices(len(self)))]
        if not -len(self) <= number < len(self):
            raise IndexError(number)
        return self._get(number % len(self))


class RowTable(LazySequence[Row]):
    """Rows of a file, without keys whose value is missing.

    Args:
        path: File or folder.
        length: Number of rows.
    """

    keeps_nulls: tuple[str, ...] = ("task",)
    """Columns in which null is a value. Columnar formats give every row the keys that any row has."""
    ignored_files: tuple[str, ...] = ()
    """Files of the folder that are not read."""

    def __init__(self, path: Path, length: int) -> None:
        super().__init__(length, lambda number: drop_missing(self.row(number), keep=self.keeps_nulls))
        self.path = path

    @property
    def sha256(self) -> str:
        """Hash of the file; for a folder, hash over the hashes of its data files."""
        return sha256_file(self.path)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """Warnings about the file itself."""
        return ()

    def line_of(self, number: int) -> int:
        """Return the line of a row, counted from 1."""
        return number + 1

    def locate(self, number: int) -> tuple[str, int]:
        """Return the file and line of a row."""
        return str(self.path), self.line_of(number)

    @abstractmethod
    def row(self, number: int) -> Row:
        """Decode a row, with its missing values."""


class JsonLines(RowTable):
    """A JSONL file; blank lines are skipped."""

    def __init__(self, path: Path) -> None:
        starts, lines, blank, offset = array("q"), array("q"), array("q"), 0
        with path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                (lines if line.strip() else blank).append(number)
                if line.strip():
                    starts.append(offset + (len(UTF8_BOM) if number == 1 and line.startswith(UTF8_BOM) else 0))
                offset += len(line)
            # An empty file cannot be mapped.
            self._text = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) if offset else b""
        super().__init__(path, len(starts))
        self._starts, self._lines, self._blank = starts, lines, blank

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """Warnings about blank lines."""
        what, file = "The line is blank and was skipped.", str(self.path)
        return tuple(
            truncate_problems(problem_of("TP131", file=file, line=n, what=what, why=None) for n in self._blank)
        )

    def line_of(self, number: int) -> int:
        """Return the line of a row, counted from 1."""
        return self._lines[number]

    def row(self, number: int) -> Row:
        """Decode the JSON object of a line."""
        first, line = self._starts[number], self._lines[number]
        end = self._text.find(b"\n", first)
        value, _ = parse_value(self._text[first : end if end >= 0 else len(self._text)], self.path, line)
        if not isinstance(value, dict):
            raise unreadable(self.path, f"The line contains {format_value(value)}, not an object.", line=line)
        return value


class JsonArray(RowTable):
    """A JSON document: an array of rows, an object with one array of rows, or a single row."""

    def __init__(self, path: Path) -> None:
        if (size := path.stat().st_size) > LARGEST_ROWS:
            what = f"{path.name} is one JSON document of {size:,} bytes, which would have to be read into memory."
            fix = f"Write JSONL, which is read row by row: `jq -c '.[]' {path.name} > {path.stem}.jsonl`."
            raise unreadable(path, what, fix=fix)
        value, self._find_line = parse_value(path.read_bytes().removeprefix(UTF8_BOM), path)
        lists = [name for name, one in value.items() if isinstance(one, list)] if isinstance(value, dict) else []
        self._parent = pointer_to(lists) if len(lists) == 1 and not ROW_COLUMNS & value.keys() else ""
        value = value[lists[0]] if self._parent else value
        self._rows = value if isinstance(value, list) else [value]
        super().__init__(path, len(self._rows))

    def line_of(self, number: int) -> int:
        """Return the line at which a row begins."""
        return self._find_line(f"{self._parent}/{number}") or 1

    def row(self, number: int) -> Row:
        """Return an element of the array."""
        if not isinstance(value := self._rows[number], dict):
            what = f"The array contains {format_value(value)}, not an object."
            raise unreadable(self.path, what, line=self.line_of(number))
        return value


class PlainText(RowTable):
    """A text file as one row with the column `text`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, 1)

    def row(self, number: int) -> Row:
        """Read the whole text."""
        try:
            return {"text": self.path.read_text(encoding="utf-8-sig")}
        except UnicodeDecodeError as error:
            raise unreadable(self.path, f"The text is not UTF-8: byte {error.start}.") from error


class Arrow(RowTable):
    """A Parquet file, read by row groups, or an Arrow file, which is mapped."""

    keeps_nulls = ()

    def __init__(self, path: Path) -> None:
        arrow = import_pyarrow(path)
        with reading(path):
            is_parquet = not (path.suffix.lower() == ".arrow" or first_bytes(path).startswith(b"ARROW1"))
            if is_parquet:
                file = arrow.parquet.ParquetFile(path)
                sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
                schema, self._group = file.schema_arrow, lru_cache(maxsize=2)(file.read_row_group)
            else:
                is_file = first_bytes(path).startswith(b"ARROW1")
                open_file = arrow.ipc.open_file if is_file else arrow.ipc.open_stream
                table = open_file(arrow.memory_map(str(path))).read_all()
                batches, schema = table.to_batches(), table.schema
                sizes, self._group = [batch.num_rows for batch in batches], batches.__getitem__
        self._ends = np.cumsum(sizes, dtype=np.int64)
        self._json = [field.name for field in schema if str(field.type).startswith("extension<arrow.json")]
        if twice := [name for name, times in Counter(schema.names).items() if times > 1]:
            what = f"The file has several columns named {join_words(twice, last='and')}."
            raise ProblemError([problem_of("TP109", file=str(path), what=what)], exit_code=2)
        super().__init__(path, int(sum(sizes)))

    def row(self, number: int) -> Row:
        """Read a row from its row group or batch."""
        group, place = find_part(self._ends, number)
        with reading(self.path):
            row: Row = self._group(group).slice(place, 1).to_pylist()[0]
            return row | {name: json.loads(row[name]) for name in self._json if row[name] is not None}


class Folder(RowTable):
    """The rows of several files, one file after the other."""

    def __init__(self, path: Path, files: Sequence[Path], ignored: Sequence[Path] = ()) -> None:
        self._tables = [open_table(file) for file in files]
        self._ends = np.cumsum([len(table) for table in self._tables], dtype=np.int64)
        super().__init__(path, sum(map(len, self._tables)))
        self.ignored_files = tuple(str(each.relative_to(path)) for each in ignored)
        self.keeps_nulls = self._tables[0].keeps_nulls if files else ()

    @property
    def sha256(self) -> str:
        """Hash over the hashes of the data files, in their order."""
        return sha256_lines(table.sha256 for table in self._tables)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """Warnings about any of the files."""
        return tuple(truncate_problems(problem for table in self._tables for problem in table.warnings))

    def locate(self, number: int) -> tuple[str, int]:
        """Return the file and line of a row."""
        part, place = find_part(self._ends, number)
        return self._tables[part].locate(place)

    def row(self, number: int) -> Row:
        """Decode a row of one of the files."""
        part, place = find_part(self._ends, number)
        return self._tables[part].row(place)


def find_part(ends: np.ndarray, number: int) -> tuple[int, int]:
    """Return the part that contains a row and the place within the part, given the cumulative sizes of the parts."""
    part = int(np.searchsorted(ends, number, side="right"))
    return part, number - (int(ends[part - 1]) if part else 0)


def open_table(path: Path) -> RowTable:
    """Open a file or folder of rows, recognised by content and then by suffix.

    Raises:
        ProblemError: Exit code 2; it cannot be read, needs a package, or contains several datasets.
    """
    if path.is_dir():
        return open_folder(path)
    refuse_other_content(path, "TP016")
    suffix, head = path.suffix.lower(), first_bytes(path)
    if suffix in (".parquet", ".arrow") or head.startswith((b"PAR1", b"ARROW1")):
        return Arrow(path)
    if suffix == ".txt":
        return PlainText(path)
    if detect_utf16(head[:4]):
        raise ProblemError(decode(head[:4], file=str(path))[1], exit_code=2)
    return JsonArray(path) if is_json_document(path) else JsonLines(path)


def is_json_document(path: Path) -> bool:
    """Return whether a file is one JSON document, not one JSON object per line."""
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


def open_folder(path: Path) -> RowTable:
    """Open a folder written by the `datasets` library, or a folder of row files.

    Splits are recognised by name. If there is a training split, it is read and the others are ignored.

    Raises:
        ProblemError: Exit code 2; it lacks row files, or contains only held-out splits or several datasets.
    """
    if (path / STATE).is_file():
        with reading(path):
            names = [str(entry["filename"]) for entry in json.loads((path / STATE).read_bytes())["_data_files"]]
        return Folder(path, [path / name for name in names])
    found = sorted(child for child in path.iterdir() if (child / STATE).is_file()) or list_row_files(path)
    if not found:
        fix = f"Pass a file of rows, or a folder with files that end in {join_words(SUFFIXES)}."
        raise unreadable(path, f"{path} does not contain row files.", fix=fix)
    by_split: dict[str, list[Path]] = {"train": [], "": [], "test": []}
    for file in found:
        by_split[find_split(file.relative_to(path).as_posix())].append(file)
    chosen = by_split["train"] or by_split[""]
    datasets: dict[str, list[Path]] = {}
    for file in chosen:
        shard = SHARD.fullmatch(file.stem)
        is_named = shard is not None or file.is_dir() or find_split(file.name)
        name = file.parent / ((shard["name"] if shard else file.stem) if is_named else "*")
        datasets.setdefault(str(name.relative_to(path)) + file.suffix, []).append(file)
    if not chosen or len(datasets) > 1:
        listed = join_words(datasets or (str(file.relative_to(path)) for file in found), last="and")
        what = f"{path.name} contains {'the datasets' if chosen else 'only held-out splits:'} {listed}."
        fix = f"Pass one of the datasets, such as {found[0]}."
        if any(len(files) > 1 for files in datasets.values()):
            fix = "Copy or link the files of one dataset into a separate folder, and pass that folder."
        raise ProblemError([problem_of("TP017", file=str(path), what=what, next=fix)], exit_code=2)
    if (shard := SHARD.fullmatch(chosen[0].stem)) and len(chosen) != int(shard["count"]):
        what = f"{path.name} has {len(chosen)} of {int(shard['count'])} files of {next(iter(datasets))}."
        raise unreadable(path, what, fix="Download the missing files, or name the files one by one.")
    return Folder(path, chosen, [file for file in found if file not in chosen])


def find_split(name: str) -> str:
    """Return the split that a path names, `train` or `test`, or an empty string."""
    words = re.split(r"[^a-z0-9]+", name.lower())
    return next((SPLITS[word] for word in reversed(words) if word in SPLITS), "")


def list_row_files(path: Path) -> list[Path]:
    """List row files in a folder and up to two levels below it, `shard-2` before `shard-10`."""
    found = [
        file
        for pattern in ("*", "*/*", "*/*/*")
        for file in path.glob(pattern)
        if file.suffix.lower() in SUFFIXES
        and not file.name.startswith(("cache-", "dataset_info"))
        and not any(part.startswith(".") for part in file.relative_to(path).parts)
    ]
    only_json = all(file.suffix.lower() == ".json" for file in found)
    found = [file for file in found if only_json or file.suffix.lower() != ".json"]
    return sorted(
        found, key=lambda file: [(part.isdigit() and int(part), part) for part in re.split(r"(\d+)", str(file))]
    )


def first_bytes(path: Path) -> bytes:
    """Read the first 8 bytes of a file, which identify its format."""
    with path.open("rb") as stream:
        return stream.read(8)


def parse_value(text: bytes, path: Path, line: int | None = None) -> tuple[Any, Lines]:
    """Parse a JSON document, or the JSON text of a line; a number that is not finite becomes null.

    Raises:
        ProblemError: Exit code 2; it is not JSON, or has a duplicate key.
    """
    decoded, problems = decode(text, file=str(path))
    if decoded is not None:
        parsed = read_json(decoded, file=str(path))
        problems += tuple(each for each in parsed.problems if each.code != "TP110")
        if not problems:
            return parsed.value, parsed.lines
    raise ProblemError([replace(each, line=line or each.line) for each in problems], exit_code=2)


def import_pyarrow(path: Path) -> Any:
    """Import pyarrow, or raise a ProblemError with exit code 2 if it is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        what = f"Reading {path.name} needs pyarrow, which is not installed."
        raise ProblemError([problem_of("TP015", file=str(path), what=what)], exit_code=2) from error
    return pyarrow


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Convert errors of pyarrow and JSON in damaged files into a ProblemError."""
    try:
        yield
    except (ValueError, OSError, LookupError, TypeError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise unreadable(path, f"It cannot be read: {reason.rstrip('.')}.") from error


def unreadable(path: Path, what: str, *, line: int | None = None, fix: str | None = None) -> ProblemError:
    """Build the error of a file that cannot be read."""
    return ProblemError([problem_of("TP016", file=str(path), what=what, line=line, next=fix)], exit_code=2)


def drop_missing(value: Any, *, keep: Sequence[str] = ()) -> Any:
    """Return a row without keys whose value is null or NaN, which pandas writes for a missing value.

    Args:
        value: The row.
        keep: Columns that are left unchanged.
    """
    if isinstance(value, dict):
        return {
            key: one if key in keep else drop_missing(one)
            for key, one in value.items()
            if one is not None and not (isinstance(one, float) and math.isnan(one))
        }
    return [drop_missing(one) for one in value] if isinstance(value, list) else value
