"""Read a folder of another tool: every file with the reader that its name and content ask for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from evidence import layout
from evidence.imports import trackers
from evidence.imports.console import read_log
from evidence.imports.documents import read_csv_file, read_json_file, read_rows_file, read_yaml_file
from evidence.imports.keys import PATTERNS, TABLE, decode_text, is_set
from evidence.imports.run import FileReading, ImportedRun
from evidence.imports.trackers import is_event_file, is_mlflow_file
from evidence.layout import nested_too_deep
from schemas.problems import Problem, problem_of
from schemas.reading import LARGEST_DOCUMENT, MOST_VALUES, count_values

MAX_FILES = 5000
"""Files of a folder that are read."""

MAX_BYTES = 1 << 28
"""Size of an event file that is read (256 MiB): larger ones hold images."""

_HEAD_BYTES = 4096
_NAME = re.compile(r"[^\\\x00-\x1f\ud800-\udfff]{1,255}")
_READERS = {
    ".json": read_json_file,
    ".jsonl": read_rows_file,
    ".ndjson": read_rows_file,
    ".yaml": read_yaml_file,
    ".yml": read_yaml_file,
    ".csv": read_csv_file,
    **dict.fromkeys((".log", ".txt", ".out", ".err", ".stdout", ".stderr"), read_log),
}


def read_tool_folder(folder: Path) -> ImportedRun:
    """Read everything that a folder states about a run; never raises on its contents."""
    folder = Path(folder)
    problems: list[Problem] = []
    names = list(islice(walk_files(folder, problems), MAX_FILES))
    if len(names) == MAX_FILES:
        what = f"Only the first {MAX_FILES:,} files of the folder were read."
        problems.append(problem_of("TP521", file=str(folder), what=what))
    readings = {name: _read_file(folder / name, name) for name in names}
    left_out, several = trackers.superseded_files(readings, folder)
    for name in left_out:
        readings[name] = FileReading(tool=readings[name].tool, encoding=readings[name].encoding)
    return ImportedRun(path=folder, files=readings, problems=(*problems, *several))


def is_weights(name: str) -> bool:
    """Return whether a file holds weights, by its name."""
    return Path(name).suffix.lower() in TABLE["paths"]["weights"]


def walk_files(folder: Path, problems: list[Problem], prefix: str = "") -> Iterator[str]:
    """Yield the regular files of the other tool below a folder, in order, and append a problem for skipped ones."""
    if prefix.count("/") > layout.DEEPEST:
        problems.append(nested_too_deep(folder / prefix))
        return
    try:
        with os.scandir(folder / prefix) as listing:
            found = sorted(listing, key=lambda entry: entry.name)
    except OSError as error:
        what = f"The folder cannot be read: {error.strerror or error}."
        problems.append(problem_of("TP209", file=str(folder / prefix), what=what))
        return
    for entry in found:
        name, path = prefix + entry.name, Path(entry.path)
        if not _NAME.fullmatch(entry.name):
            shown = os.fsencode(name).decode("utf-8", "backslashreplace")
            what = f"{shown} was skipped: not every system allows such a name."
            problems.append(problem_of("TP524", file=str(folder), what=what))
        elif entry.name.startswith(".") or entry.name.endswith(".tmp"):
            continue
        elif entry.is_dir(follow_symlinks=False):
            is_ours = any(_names_our_schema(path / own) for own in (layout.MANIFEST, layout.IMPORT))
            if not is_ours and entry.name not in TABLE["paths"]["skipped_folders"]:
                yield from walk_files(folder, problems, f"{name}/")
        elif entry.is_file(follow_symlinks=False):
            if name != layout.NOTES or not _names_our_schema(path):
                yield name
        else:
            what = f"{name} is a {'symbolic link' if entry.is_symlink() else 'special file'}; it was not read."
            problems.append(problem_of("TP206", file=str(path), what=what, severity="warning"))


def _names_our_schema(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return b'"schema_version"' in file.read(_HEAD_BYTES)
    except OSError:
        return False


def _read_file(path: Path, name: str) -> FileReading:
    """Read one file; one that cannot be read, or is too large, gives its problem."""
    is_known = is_event_file(name) or is_mlflow_file(name) or path.suffix.lower() in _READERS
    if not is_known or is_weights(name) or PATTERNS["other_file"].match(path.name):
        return FileReading()
    limit, what, reading = MAX_BYTES if is_event_file(name) else LARGEST_DOCUMENT, "", FileReading()
    try:
        size = path.stat().st_size
        if size > limit:
            what = f"The file has {size:,} bytes, more than the {limit:,} that are read."
        elif is_event_file(name):
            reading = trackers.read_events(path, name)
        else:
            data = path.read_bytes()
            values = count_values(data) + data.count(b"\n") + data.count(b"\r")
            if values > MOST_VALUES:
                what = f"The file has about {values:,} values and lines, more than the {MOST_VALUES:,} that are read."
            elif is_mlflow_file(name) or data.strip():
                text = decode_text(data)
                if is_mlflow_file(name):
                    reading = trackers.read_mlflow(text, name)
                elif name.endswith("wandb-summary.json"):
                    reading = trackers.read_wandb_summary(text, name, str(path))
                else:
                    reading = _READERS[path.suffix.lower()](text, name, str(path))
                reading.encoding = text.encoding
    except OSError as error:
        what = f"The file cannot be read: {error.strerror or error}."
    if what:
        return FileReading(problems=[problem_of("TP521", file=str(path), what=what)])
    reading.facts = [fact for fact in reading.facts if is_set(fact.name, fact.value)]
    return reading
