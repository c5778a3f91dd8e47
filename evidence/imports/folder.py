"""Read a folder of another tool: every file with the reader that its name and content ask for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from evidence import layout
from evidence.imports.console import read_log
from evidence.imports.keys import is_set
from evidence.imports.run import FileReading, ImportedRun
from evidence.imports.tables import read_csv_file, read_json_file, read_rows_file, read_yaml_file
from evidence.imports.tensorboard import is_event_file, read_events
from evidence.imports.text import Text, decode_text
from evidence.imports.trackers import (
    is_mlflow_file,
    read_mlflow,
    read_wandb_records,
    read_wandb_summary,
    superseded_files,
)
from evidence.layout import nested_too_deep
from schemas.formats import join_words, quantity
from schemas.problems import Problem, Severity, problem_of
from schemas.reading import LARGEST_DOCUMENT, MOST_VALUES, count_values

WEIGHTS = frozenset(
    (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".msgpack", ".gguf", ".npz", ".npy", ".h5", ".onnx", ".orbax")
)
"""Suffixes of files that hold weights; they are never read or copied."""

SKIPPED_FOLDERS = frozenset(("__pycache__", "venv", "node_modules"))
"""Folders that are not part of a run, like those whose name begins with a dot."""

MAX_FILES = 5000
"""Files of a folder that are read."""

MAX_BYTES = 1 << 28
"""Size of an event file or a record file that is read (256 MiB): larger ones hold images."""

_MAX_NAMED = 10
_HEAD_BYTES = 4096
_NAME = re.compile(r"[^\\\x00-\x1f\ud800-\udfff]{1,255}")
_NOT_ABOUT_THE_RUN = re.compile(
    r"^(?:tokenizer.*|special_tokens_map|added_tokens|vocab|merges|generation_config|preprocessor_config|chat_template|"
    r".*\.index|package(?:-lock)?|dataset_infos?|requirements|pip_freeze.*|conda|.*freeze.*)\.(?:json|txt|ya?ml)$",
    re.IGNORECASE,
)
"""Files that describe a model or an environment."""

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
    names = [name for name, _ in islice(walk_files(folder, problems), MAX_FILES)]
    if len(names) == MAX_FILES:
        what = f"Only the first {MAX_FILES:,} files of the folder were read."
        problems.append(problem_of("TP521", file=str(folder), what=what))
    readings = {name: _read_file(folder / name, name) for name in names}
    left_out, several = superseded_files(readings, folder)
    for name in left_out:
        readings[name] = FileReading(tool=readings[name].tool, encoding=readings[name].encoding)
    return ImportedRun(path=folder, files=readings, problems=(*problems, *several))


def is_weights(name: str) -> bool:
    """Return whether a file holds weights, by its name."""
    return Path(name).suffix.lower() in WEIGHTS


def walk_files(folder: Path, problems: list[Problem]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield the regular files below a folder by path, in order, and append a problem for skipped ones.

    Hidden and temporary files, runs of trainproof inside the folder and the notes that trainproof keeps are not the
    other tool's.
    """
    hidden: list[str] = []
    bad_names: list[str] = []
    yield from _walk(folder, "", problems, hidden, bad_names)
    for names, why in (
        (bad_names, "not every system allows such a name"),
        (hidden, "hidden, temporary or of packages"),
    ):
        if names:
            shown = [os.fsencode(name).decode("utf-8", "backslashreplace") for name in names[:_MAX_NAMED]]
            more = [quantity(len(names) - _MAX_NAMED, "other")] if len(names) > _MAX_NAMED else []
            verb = "was" if len(names) == 1 else "were"
            what = f"{join_words([*shown, *more], last='and')} {verb} skipped: {why}."
            severity: Severity = "warning" if names is bad_names else "note"
            problems.append(problem_of("TP524", file=str(folder), what=what, severity=severity))


def _walk(
    folder: Path, prefix: str, problems: list[Problem], hidden: list[str], bad_names: list[str]
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    if prefix.count("/") > layout.DEEPEST:
        problems.append(nested_too_deep(folder))
        return
    try:
        with os.scandir(folder) as listing:
            found = sorted(listing, key=lambda entry: entry.name)
    except OSError as error:
        what = f"The folder cannot be read: {error.strerror or error}."
        problems.append(problem_of("TP209", file=str(folder), what=what))
        return
    for entry in found:
        name, is_folder = prefix + entry.name, entry.is_dir(follow_symlinks=False)
        if not _NAME.fullmatch(entry.name):
            bad_names.append(name)
        elif entry.name.startswith(".") or entry.name.endswith(".tmp") or (is_folder and entry.name in SKIPPED_FOLDERS):
            hidden.append(f"{name}/" if is_folder else name)
        elif is_folder:
            inside = folder / entry.name
            if not any(_names_our_schema(inside / own) for own in (layout.MANIFEST, layout.IMPORT)):
                yield from _walk(inside, f"{name}/", problems, hidden, bad_names)
        elif entry.is_file(follow_symlinks=False):
            if name != layout.NOTES or not _names_our_schema(folder / name):
                yield name, entry
        else:
            what = f"{name} is a {'symbolic link' if entry.is_symlink() else 'special file'}; it was not read."
            problems.append(problem_of("TP206", file=str(folder / entry.name), what=what, severity="warning"))


def _names_our_schema(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return b'"schema_version"' in file.read(_HEAD_BYTES)
    except OSError:
        return False


def _read_file(path: Path, name: str) -> FileReading:
    """Read one file; one that cannot be read, or is too large, gives its problem."""
    has_records = is_event_file(name) or name.endswith(".wandb")
    is_known = has_records or is_mlflow_file(name) or path.suffix.lower() in _READERS
    if not is_known or is_weights(name) or _NOT_ABOUT_THE_RUN.match(path.name):
        return FileReading()
    limit, what, reading = MAX_BYTES if has_records else LARGEST_DOCUMENT, "", FileReading()
    try:
        size = path.stat().st_size
        if size > limit:
            what = f"The file has {size:,} bytes, more than the {limit:,} that are read."
        elif is_event_file(name):
            reading = read_events(path, name)
        elif has_records:
            reading = read_wandb_records(path.read_bytes(), name, str(path))
        else:
            data = path.read_bytes()
            values = count_values(data) + data.count(b"\n") + data.count(b"\r")
            if values > MOST_VALUES:
                what = f"The file has about {values:,} values and lines, more than the {MOST_VALUES:,} that are read."
            elif is_mlflow_file(name) or data.strip():
                reading = _read_text(decode_text(data, file=str(path)), name, str(path))
    except OSError as error:
        what = f"The file cannot be read: {error.strerror or error}."
    if what:
        return FileReading(problems=(problem_of("TP521", file=str(path), what=what),))
    return replace(reading, facts=tuple(fact for fact in reading.facts if is_set(fact.name, fact.value)))


def _read_text(text: Text, name: str, where: str) -> FileReading:
    if is_mlflow_file(name):
        reading = read_mlflow(text, name)
    elif name.endswith("wandb-summary.json"):
        reading = read_wandb_summary(text, name, where)
    else:
        reading = _READERS[Path(name).suffix.lower()](text, name, where)
    return replace(reading, encoding=text.encoding, problems=(*text.problems, *reading.problems))
