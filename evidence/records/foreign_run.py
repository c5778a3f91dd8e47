"""A folder that another tool wrote, read whole: every file goes to the reader that its name and content request.

`read_foreign` never raises on what the folder holds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from evidence.run import layout
from evidence.run.unreadable import too_deep
from foreign.readers.console.log import read_log
from foreign.readers.keys import is_set
from foreign.readers.model_card import is_card, read_card
from foreign.readers.structured import read_csv_file, read_json_file, read_rows_file, read_yaml_file
from foreign.readers.tensorboard import is_event_file, read_events
from foreign.readers.text import Text, read_text
from foreign.readers.tracking import is_of_mlflow, read_mlflow, read_wandb_summary, superseded_files
from foreign.readers.training_tools import is_table
from foreign.readers.view import FileReading, ForeignRun
from foreign.readers.wandb_records import read_wandb_records
from schemas.formats import join_words, quantity
from schemas.problems import Problem, problem_of
from schemas.reading import LARGEST_DOCUMENT, MOST_VALUES, count_values

WEIGHTS = frozenset(
    (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".msgpack", ".gguf", ".npz", ".npy", ".h5", ".onnx", ".orbax")
)
"""Ends of the names of files that hold weights; they are never read."""

SKIPPED_FOLDERS = frozenset(("__pycache__", "venv", "node_modules"))
"""Folders that are not part of a run; those whose name begins with a dot are left out too."""

MOST_FILES = 5000
"""Files of a folder that are read."""

_MOST_NAMED = 10
"""Files left out that are named; further ones are counted."""

_HEAD_BYTES = 4096
"""Bytes at the beginning of a document in which it names its schema."""

_NAME = re.compile(r"[^\\\x00-\x1f\ud800-\udfff]{1,255}")
"""Names that every system and every document can hold."""

LARGEST_BYTES = 1 << 28
"""A file of records beyond this size (256 MiB) is not read: it may hold pictures."""

_NOT_ABOUT_THE_RUN = re.compile(
    r"^(?:tokenizer.*|special_tokens_map|added_tokens|vocab|merges|generation_config|preprocessor_config|chat_template|"
    r".*\.index|package(?:-lock)?|dataset_infos?|requirements|pip_freeze.*|conda|.*freeze.*)\.(?:json|txt|ya?ml)$",
    re.IGNORECASE,
)
"""Files that describe a model or an environment, not a run."""

_LOG_ENDS = frozenset((".log", ".txt", ".out", ".err", ".stdout", ".stderr"))
_TEXT_ENDS = frozenset((".json", ".jsonl", ".ndjson", ".yaml", ".yml", ".csv")) | _LOG_ENDS


def read_foreign(folder: Path) -> ForeignRun:
    """Return everything that a folder states about a run, with its sources; never raises on what it holds."""
    folder = Path(folder)
    problems: list[Problem] = []
    names = [name for name, _ in islice(entries(folder, problems), MOST_FILES)]
    if len(names) == MOST_FILES:
        what = f"The folder holds more files than the first {MOST_FILES}; the others were not read."
        problems.append(problem_of("TP521", file=str(folder), what=what))
    readings = {name: _read(folder, name) for name in names}
    left_out, several = superseded_files(readings, folder)
    for name in left_out:
        readings[name] = FileReading(tool=readings[name].tool, encoding=readings[name].encoding)
    return ForeignRun(path=folder, files=readings, problems=(*problems, *several))


def entries(folder: Path, problems: list[Problem]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield the regular files below a folder by their path in it, in order; what is left out is a problem.

    Hidden and temporary files are left out, as in our own runs, and so are the notes that a user added with
    trainproof: they are not the other tool's.
    """
    left_out = _LeftOut()
    yield from _below(folder, problems, left_out, "")
    problems += left_out.as_problems(folder)


@dataclass
class _LeftOut:
    """Files and folders that are not part of a run, or cannot be kept, filled while a folder is walked."""

    unneeded: list[str] = field(default_factory=list)
    """Hidden, temporary, of packages."""
    unnameable: list[str] = field(default_factory=list)
    """With names that some systems cannot hold."""

    def note(self, name: str, entry: os.DirEntry[str]) -> bool:
        """Return whether an entry is left out, and remember it."""
        if not _NAME.fullmatch(entry.name):
            self.unnameable.append(name)
            return True
        is_folder = entry.is_dir(follow_symlinks=False)
        if entry.name.startswith(".") or entry.name.endswith(".tmp") or (is_folder and entry.name in SKIPPED_FOLDERS):
            self.unneeded.append(f"{name}/" if is_folder else name)
            return True
        return False

    def as_problems(self, folder: Path) -> Iterator[Problem]:
        """Yield a warning for names that cannot be kept, and a note for what no run needs."""
        if self.unnameable:
            what = f"{_name_all(self.unnameable)} left out: not every system allows such a name."
            yield replace(problem_of("TP524", file=str(folder), what=what), severity="warning")
        if self.unneeded:
            what = f"{_name_all(self.unneeded)} left out: hidden, temporary or of packages."
            yield problem_of("TP524", file=str(folder), what=what)


def _name_all(names: list[str]) -> str:
    """Return names as the subject of a sentence, every one up to a few and the others counted."""
    first = [os.fsencode(name).decode("utf-8", "backslashreplace") for name in names[:_MOST_NAMED]]
    more = [quantity(len(names) - _MOST_NAMED, "other")] if len(names) > _MOST_NAMED else []
    return f"{join_words([*first, *more], last='and')} {'was' if len(names) == 1 else 'were'}"


def _below(
    folder: Path, problems: list[Problem], left_out: _LeftOut, prefix: str
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    if prefix.count("/") > layout.DEEPEST:
        problems.append(too_deep(folder))
        return
    try:
        with os.scandir(folder) as listing:
            found = sorted(listing, key=lambda entry: entry.name)
    except OSError as error:
        what = f"The folder cannot be read: {error.strerror or error}."
        problems.append(problem_of("TP209", file=str(folder), what=what))
        return
    for entry in found:
        name = prefix + entry.name
        if left_out.note(name, entry):
            continue
        if entry.is_dir(follow_symlinks=False):
            if not _is_our_run(folder / entry.name):
                yield from _below(folder / entry.name, problems, left_out, f"{name}/")
        elif entry.is_file(follow_symlinks=False):
            if name != layout.NOTES or not _names_our_schema(folder / name):
                yield name, entry
        else:
            kind = "symbolic link" if entry.is_symlink() else "special file"
            what = f"{name} is a {kind}; it was not read."
            problems.append(replace(problem_of("TP206", file=str(folder / entry.name), what=what), severity="warning"))


def _is_our_run(folder: Path) -> bool:
    """Return whether a folder inside this one is a run of trainproof, which speaks for itself."""
    return any(_names_our_schema(folder / name) for name in (layout.MANIFEST, layout.IMPORT))


def _names_our_schema(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return b'"schema_version"' in file.read(_HEAD_BYTES)
    except OSError:
        return False


def is_weights(name: str) -> bool:
    """Return whether a file holds weights, by its name."""
    return Path(name).suffix.lower() in WEIGHTS


def _read(folder: Path, name: str) -> FileReading:
    """Read one file; one that cannot be read, or is too large, gives its problem."""
    path = folder / name
    has_records = is_event_file(name) or name.endswith(".wandb")
    known = has_records or is_of_mlflow(name) or is_card(name) or path.suffix.lower() in _TEXT_ENDS
    if not known or is_weights(name) or _NOT_ABOUT_THE_RUN.match(path.name):
        return FileReading()
    try:
        most, size = LARGEST_BYTES if has_records else LARGEST_DOCUMENT, path.stat().st_size
        if size > most:
            return _not_read(str(path), f"The file has {size:,} bytes", most)
        reading = _reading(path.read_bytes(), name, str(path))
        return replace(reading, facts=tuple(fact for fact in reading.facts if is_set(fact.name, fact.value)))
    except OSError as error:
        what = f"The file cannot be read: {error.strerror or error}."
        return FileReading(problems=(problem_of("TP521", file=str(path), what=what),))


def _not_read(where: str, size: str, most: int) -> FileReading:
    what = f"{size}, more than the {most:,} that are read; it was not read."
    return FileReading(problems=(problem_of("TP521", file=where, what=what),))


def _reading(data: bytes, name: str, where: str) -> FileReading:
    if is_event_file(name):
        return read_events(data, name, where)
    if name.endswith(".wandb"):
        return read_wandb_records(data, name, where)
    if (values := count_values(data) + data.count(b"\n") + data.count(b"\r")) > MOST_VALUES:
        return _not_read(where, f"The file has about {values:,} values and lines", MOST_VALUES)
    tracked = read_mlflow(data, name, where)
    if tracked is not None:
        return tracked
    return _text_reading(read_text(data, file=where), name, where) if data.strip() else FileReading()


def _text_reading(text: Text, name: str, where: str) -> FileReading:
    end = Path(name).suffix.lower()
    if end == ".json":
        return (read_wandb_summary if name.endswith("wandb-summary.json") else _json_or_rows)(text, name, where)
    if end in (".jsonl", ".ndjson"):
        return read_rows_file(text, name, where)
    if end in (".yaml", ".yml"):
        return read_yaml_file(text, name, where)
    if end == ".csv" or (end in _LOG_ENDS and is_table(text.text)):
        return read_csv_file(text, name, where)
    if is_card(name):
        return read_card(text, name)
    return read_log(text, name, where) if end in _LOG_ENDS else FileReading()


def _json_or_rows(text: Text, name: str, where: str) -> FileReading:
    """Read a `.json` file; where it is not a document, it may hold JSON lines."""
    reading = read_json_file(text, name, where)
    if reading.tool is None and reading.problems and text.text.count("\n") > 1:
        rows = read_rows_file(text, name, where)
        if rows.tool is not None:
            return rows
    return reading
