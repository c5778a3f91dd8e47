"""Row files: JSONL, JSON, Parquet, Arrow, plain text, and folders.

A value means the same in every format: null and NaN are missing values, a byte order mark is skipped, and a duplicate
key is an error. Rows are read one by one, except those of a JSON document. The files of a folder are read in the order
of their names.
"""

from __future__ import annotations

import json
import math
import mmap
import pickle
import re
import tempfile
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from evidence.hashes import sha256_file, sha256_lines
from schemas.formats import format_value, join_words
from schemas.problems import Lines, ProblemError, pointer_to, problem_of
from schemas.reading import LARGEST_ROWS, UTF8_BOM, decode, detect_utf16, parse_json
from trainer.config.names import refuse_other_content

T = TypeVar("T")
Row = dict[str, Any]
ReadRow = Callable[[], Row]  # decodes a row, with its missing values

STATE = "state.json"  # lists the data files in a folder of the `datasets` library

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
    """A sequence of `length` elements, which `get` computes on access from their index."""

    def __init__(self, length: int, get: Callable[[int], T]) -> None:
        self._length, self._get = length, get

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self._get(each) for each in range(*number.indices(len(self)))]
        if not -len(self) <= number < len(self):
            raise IndexError(number)
        return self._get(number % len(self))


class StoredSequence(LazySequence[T]):
    """Values in an unnamed temporary file, which is memory-mapped; 8 bytes a value are in memory."""

    def __init__(self, values: Iterable[T]) -> None:
        ends = array("q", [0])
        with tempfile.TemporaryFile() as file:  # a mapped file stays after it is closed
            for value in values:
                ends.append(ends[-1] + file.write(pickle.dumps(value)))
            file.flush()
            stored = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if ends[-1] else b""
        super().__init__(len(ends) - 1, lambda number: pickle.loads(stored[ends[number] : ends[number + 1]]))  # noqa: S301


@dataclass(frozen=True)
class RowTable:
    """Rows of a file or folder, without keys whose value is missing. Each iteration reads the file again."""

    path: Path
    read: Callable[[], Iterable[ReadRow]]
    lines: Sequence[int]  # line of each row, counted from 1
    keep: tuple[str, ...] = ("task",)
    """Columns in which null is a value. Columnar formats give every row the keys that any row has."""
    parts: Sequence[RowTable] = ()  # files of a folder
    ignored_files: tuple[str, ...] = ()  # files of the folder that are not read

    def __len__(self) -> int:
        return len(self.lines)

    def __iter__(self) -> Iterator[Row]:
        return (drop_missing(read(), keep=self.keep) for read in self.read())

    @property
    def sha256(self) -> str:
        """Hash of the file; for a folder, hash over the hashes of its data files, in their order."""
        return sha256_lines(part.sha256 for part in self.parts) if self.path.is_dir() else sha256_file(self.path)

    def locate(self, number: int) -> tuple[str, int]:
        """Return the file and line of a row."""
        for part in self.parts:
            if number < len(part):
                return part.locate(number)
            number -= len(part)
        return str(self.path), self.lines[number]


def open_table(path: Path) -> RowTable:
    """Open a file or folder of rows, by content and then suffix, or raise a ProblemError with exit code 2."""
    if not len(table := open_folder(path) if path.is_dir() else open_file(path)):
        what, fix = f"{path.name} has no rows.", "Write one row per line; schemas/documents/v1 describes the shapes."
        raise ProblemError([problem_of("TP011", file=str(path), what=what, next=fix)], exit_code=2)
    return table


def open_file(path: Path) -> RowTable:
    """Open a file of rows, which may be empty; see `open_table`."""
    refuse_other_content(path, "TP016")
    suffix, head = path.suffix.lower(), first_bytes(path)
    if suffix in (".parquet", ".arrow") or head.startswith((b"PAR1", b"ARROW1")):
        count, *_ = open_arrow(path)
        return RowTable(path, partial(read_arrow, path), range(1, 1 + count), keep=())
    if suffix == ".txt":
        return RowTable(path, lambda: [partial(read_text, path)], [1])
    if detect_utf16(head[:4]):
        raise ProblemError(decode(head[:4], file=str(path))[1], exit_code=2)
    if is_json_document(path):
        return open_document(path)
    lines = array("q", (number for number, _ in filled_lines(path)))
    return RowTable(path, lambda: (partial(parse_row, text, path, line) for line, text in filled_lines(path)), lines)


def filled_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file that are not blank, with their numbers from 1 and without a byte order mark."""
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            if text := line.removeprefix(UTF8_BOM if number == 1 else b"").strip():
                yield number, text


def is_json_document(path: Path) -> bool:
    """Return whether a file is one JSON document, not one JSON object per line."""
    lines = (text for _, text in filled_lines(path))
    first = next(lines, b"")
    if path.suffix.lower() != ".json" or not first.startswith(b"{"):
        return first.startswith(b"[")
    has_more = next(lines, None) is not None
    try:
        return not ROW_COLUMNS & json.loads(first).keys() and not has_more
    except ValueError:
        return has_more


def open_document(path: Path) -> RowTable:
    """Open a JSON document: an array of rows, an object with one array of rows, or a single row."""
    if (size := path.stat().st_size) > LARGEST_ROWS:
        what = f"{path.name} is one JSON document of {size:,} bytes, which would have to be read into memory."
        fix = f"Write JSONL, which is read row by row: `jq -c '.[]' {path.name} > {path.stem}.jsonl`."
        raise unreadable(path, what, fix=fix)
    value, find_line = parse_value(path.read_bytes().removeprefix(UTF8_BOM), path)
    lists = [name for name, one in value.items() if isinstance(one, list)] if isinstance(value, dict) else []
    parent = pointer_to(lists) if len(lists) == 1 and not ROW_COLUMNS & value.keys() else ""
    value = value[lists[0]] if parent else value
    rows = value if isinstance(value, list) else [value]
    lines = LazySequence(len(rows), lambda number: find_line(f"{parent}/{number}") or 1)

    def require_object(number: int) -> Row:
        if not isinstance(row := rows[number], dict):
            what = f"The array contains {format_value(row)}, not an object."
            raise unreadable(path, what, line=lines[number])
        return row

    return RowTable(path, lambda: (partial(require_object, number) for number in range(len(rows))), lines)


def read_text(path: Path) -> Row:
    """Read a text file as one row with the column `text`."""
    try:
        return {"text": path.read_text(encoding="utf-8-sig")}
    except UnicodeDecodeError as error:
        raise unreadable(path, f"The text is not UTF-8: byte {error.start}.") from error


def open_arrow(path: Path) -> tuple[int, Any, Iterable[Any]]:
    """Return number of rows, schema and batches of a Parquet file, or of an Arrow file, which is mapped."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        what = f"Reading {path.name} needs pyarrow, which is not installed."
        raise ProblemError([problem_of("TP015", file=str(path), what=what)], exit_code=2) from error
    with reading(path):
        is_file = first_bytes(path).startswith(b"ARROW1")
        if is_file or path.suffix.lower() == ".arrow":
            open_file = pyarrow.ipc.open_file if is_file else pyarrow.ipc.open_stream
            table = open_file(pyarrow.memory_map(str(path))).read_all()
            count, schema, batches = table.num_rows, table.schema, table.to_batches()
        else:
            file = pyarrow.parquet.ParquetFile(path)
            count, schema, batches = file.metadata.num_rows, file.schema_arrow, file.iter_batches()
        if twice := [name for name, times in Counter(schema.names).items() if times > 1]:
            what = f"The file has several columns named {join_words(twice, last='and')}."
            raise ProblemError([problem_of("TP109", file=str(path), what=what)], exit_code=2)
    return count, schema, batches


def read_arrow(path: Path) -> Iterator[ReadRow]:
    """Yield the rows of a Parquet or Arrow file, batch by batch."""
    _, schema, batches = open_arrow(path)
    with reading(path):
        as_json = [field.name for field in schema if str(field.type).startswith("extension<arrow.json")]

        def decode_row(batch: Any, place: int) -> Row:
            with reading(path):
                row: Row = batch.slice(place, 1).to_pylist()[0]
                return row | {name: json.loads(row[name]) for name in as_json if row[name] is not None}

        for batch in batches:
            yield from (partial(decode_row, batch, place) for place in range(batch.num_rows))


def open_folder(path: Path) -> RowTable:
    """Open a folder written by the `datasets` library, or a folder of row files, as one table; see `open_table`."""
    if (path / STATE).is_file():
        with reading(path):
            state = json.loads((path / STATE).read_bytes())
            chosen = found = [path / entry["filename"] for entry in state["_data_files"]]
    else:
        found = sorted(child for child in path.iterdir() if (child / STATE).is_file()) or list_row_files(path)
        chosen = choose_files(path, found)
    parts = [open_folder(file) if file.is_dir() else open_file(file) for file in chosen]
    return RowTable(
        path,
        lambda: chain.from_iterable(part.read() for part in parts),
        range(1, 1 + sum(map(len, parts))),
        keep=parts[0].keep if parts else (),
        parts=parts,
        ignored_files=tuple(str(file.relative_to(path)) for file in found if file not in chosen),
    )


def choose_files(path: Path, found: Sequence[Path]) -> list[Path]:
    """Return the files of the training split, or all if no file name has a split; see `open_table` for errors."""
    if not found:
        fix = f"Pass a file of rows, or a folder with files that end in {join_words(SUFFIXES)}."
        raise unreadable(path, f"{path} does not contain row files.", fix=fix)
    by_split: dict[str, list[Path]] = {"train": [], "": [], "test": []}
    for file in found:
        by_split[find_split(file.relative_to(path).as_posix())].append(file)
    chosen = by_split["train"] or by_split[""]
    datasets: dict[str, None] = {}
    for file in chosen:
        shard = SHARD.fullmatch(file.stem)
        is_named = shard is not None or file.is_dir() or find_split(file.name)
        name = file.parent / ((shard["name"] if shard else file.stem) if is_named else "*")
        datasets[str(name.relative_to(path)) + file.suffix] = None
    if not chosen or len(datasets) > 1:
        listed = join_words(datasets or (str(file.relative_to(path)) for file in found), last="and")
        what = f"{path.name} contains {'the datasets' if chosen else 'only held-out splits:'} {listed}."
        fix = f"Pass the files of one dataset, such as {found[0]}; several must be alone in a folder."
        raise ProblemError([problem_of("TP017", file=str(path), what=what, next=fix)], exit_code=2)
    if (shard := SHARD.fullmatch(chosen[0].stem)) and len(chosen) != int(shard["count"]):
        what = f"{path.name} has {len(chosen)} of {int(shard['count'])} files of {next(iter(datasets))}."
        raise unreadable(path, what, fix="Download the missing files, or name the files one by one.")
    return chosen


def find_split(name: str) -> str:
    """Return the split that a path names, `train` or `test`, or an empty string."""
    words = re.split(r"[^a-z0-9]+", name.lower())
    return next((SPLITS[word] for word in reversed(words) if word in SPLITS), "")


def list_row_files(path: Path) -> list[Path]:
    """List row files in a folder and up to two levels below it, `shard-2` before `shard-10`."""
    found = []
    for file in chain.from_iterable(map(path.glob, ("*", "*/*", "*/*/*"))):
        is_hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
        if file.suffix.lower() in SUFFIXES and not is_hidden and not file.name.startswith(("cache-", "dataset_info")):
            found.append(file)
    only_json = all(file.suffix.lower() == ".json" for file in found)
    found = [file for file in found if only_json or file.suffix.lower() != ".json"]
    words = {file: re.split(r"(\d+)", str(file)) for file in found}
    return sorted(found, key=lambda file: [(int(word) if word.isdigit() else 0, word) for word in words[file]])


def first_bytes(path: Path) -> bytes:
    """Read the first 8 bytes of a file, which identify its format."""
    with path.open("rb") as stream:
        return stream.read(8)


def parse_row(text: bytes, path: Path, line: int) -> Row:
    """Parse the JSON object of a line."""
    value, _ = parse_value(text, path, line)
    if not isinstance(value, dict):
        raise unreadable(path, f"The line contains {format_value(value)}, not an object.", line=line)
    return value


def parse_value(text: bytes, path: Path, line: int | None = None) -> tuple[Any, Lines]:
    """Parse a JSON document or line, or raise a ProblemError; numbers that are not finite become null."""
    parsed = parse_json(text, file=str(path))
    if problems := [replace(each, line=line or each.line) for each in parsed.problems if each.code != "TP110"]:
        raise ProblemError(problems, exit_code=2)
    return parsed.value, parsed.lines


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

    Columns in `keep` are left unchanged.
    """
    if isinstance(value, dict):
        return {
            key: one if key in keep else drop_missing(one)
            for key, one in value.items()
            if one is not None and not (isinstance(one, float) and math.isnan(one))
        }
    return [drop_missing(one) for one in value] if isinstance(value, list) else value
