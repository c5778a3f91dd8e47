"""What a bundle holds and under which names, and which files of a run folder go into it.

Inside a bundle:

    MANIFEST.sha256        every other file with its SHA-256, as `sha256sum -c` reads it
    REPORT.html            the runs for a reader
    bundle_manifest.json   the runs with their grades, every file with size and hash, the content digest
    ro-crate-metadata.json the same runs in the words of RO-Crate, for archives
    runs/<run>/…           the run folders, large weights left out unless requested
    schemas/v1/…           the schemas that the documents follow
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from evidence.bundle.format.rules import refusal
from evidence.run.layout import ADAPTER, DEEPEST, EXPORT, LOCK, TRAINED_PARAMS, WEIGHT_FOLDERS
from schemas.problems import Problem

LONGEST_PATH = 1024
LONGEST_PART_BYTES = 255

_DRIVE = re.compile(r"[A-Za-z]:")
_RESERVED = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|clock\$|com[0-9¹²³]|lpt[0-9¹²³])\s*(\..*)?", re.IGNORECASE)
_NOT_ON_WINDOWS = re.compile(r'[<>:"|?*]')
# Beside control characters: what is not shown, or turns the direction of reading, so that a name looks like another.
_INVISIBLE = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def portable_form(path: str) -> str:
    """Return what is left of a path on a file system that ignores case and Unicode form, as on Windows and macOS."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def escape_reason(path: str) -> str | None:
    """Return why unpacking this path would write outside the chosen folder, or None."""
    parts = re.split(r"[/\\]", path)
    if ".." in parts:
        return "The name climbs out of its folder with `..`."
    if path.startswith(("/", "\\")):
        return "The name is an absolute path."
    if _DRIVE.match(path):
        return "The name starts with a drive letter."
    return None


def unportable_reason(path: str) -> str | None:
    """Return why this path is not the same file on every system, or None."""
    if not path:
        return "The name is empty."
    if _INVISIBLE.search(path):
        return "The name has a character that cannot be seen."
    if "\\" in path:
        return "The name has a backslash, which is a separator on Windows only."
    if len(path) > LONGEST_PATH:
        return f"The name has {len(path):,} characters; {LONGEST_PATH:,} are the most."
    return next(filter(None, map(_part_reason, path.split("/"))), None)


def _part_reason(part: str) -> str | None:
    """Return why one part of a path is not the same on every system, or None."""
    if part in {"", "."}:
        return "The name has an empty part or a part `.`."
    if part != "..":  # which is its own refusal
        if part.endswith((".", " ")) or part.startswith(" "):
            return "A part of the name ends in a dot, or has a space at an end, which Windows drops."
        if _RESERVED.fullmatch(part):
            return f"`{part}` is the name of a device on Windows."
        if match := _NOT_ON_WINDOWS.search(part):
            return f"The name has the character `{match.group()}`, which Windows does not allow."
        if len(part.encode("utf-8")) > LONGEST_PART_BYTES:
            return f"A part of the name is longer than {LONGEST_PART_BYTES} bytes."
    return None


HASHES = "MANIFEST.sha256"
REPORT = "REPORT.html"
BUNDLE_MANIFEST = "bundle_manifest.json"
CRATE = "ro-crate-metadata.json"
RUNS = "runs"
SCHEMAS = "schemas"

SMALL_BYTES = 32 << 20
"""Largest adapter or export that is packed without being requested."""


@dataclass(frozen=True, kw_only=True)
class RunFiles:
    """What a run folder holds, for packing."""

    packed: tuple[str, ...]
    """Paths inside the folder that are packed, sorted, with forward slashes."""
    left_out: tuple[str, ...]
    """Files and folders that are not: weights and unlisted files unless requested; lock, temporary, hidden files."""
    problems: tuple[Problem, ...]
    """What must not be packed, and what cannot be."""


def files_of_run(folder: Path, *, with_weights: bool = False, unlisted: Collection[str] = ()) -> RunFiles:
    """Return which files of a run folder a bundle takes; no link is followed.

    Args:
        folder: The run folder.
        with_weights: Whether to take checkpoints, adapter and export too, whatever their size.
        unlisted: Files that stay out because the run does not list them.
    """
    packed: list[str] = []
    left_out: list[str] = []
    problems: list[Problem] = []
    small = frozenset(WEIGHT_FOLDERS) if with_weights else small_weights(folder)
    for name, entry in _walk(folder, "", left_out, problems, weights=small):
        if entry.is_symlink() or not entry.is_file(follow_symlinks=False):
            kind = "symbolic link" if entry.is_symlink() else "special file"
            problems.append(refusal("TP844", name, f"This is a {kind}, not a file."))
        elif reason := escape_reason(name) or unportable_reason(name):
            problems.append(refusal("TP845", name, reason))
        elif name in unlisted:
            left_out.append(name)
        else:
            packed.append(name)
    packed.sort()
    problems += _colliding(packed)
    return RunFiles(packed=tuple(packed), left_out=tuple(sorted(left_out)), problems=tuple(problems))


def small_weights(folder: Path) -> frozenset[str]:
    """Return the folder with weights that is packed unasked: one with which the model can be questioned, if small.

    A run that has its trained parameters needs no other; an adapter is smaller than a whole model.
    """
    if (folder / TRAINED_PARAMS).is_file():
        return frozenset()
    for name in (ADAPTER, EXPORT):
        files = [path for path in (folder / name).rglob("*") if path.is_file() and not path.is_symlink()]
        if files:
            return frozenset({name} if sum(path.stat().st_size for path in files) <= SMALL_BYTES else ())
    return frozenset()


def is_left_out(name: str, *, weights: frozenset[str]) -> bool:
    """Return whether a file or folder of a run stays out of a bundle, by its path inside the run.

    Args:
        name: Its path.
        weights: The folders with weights that are packed.
    """
    last = name.rpartition("/")[2]
    if last == LOCK or last.startswith(".") or last.endswith(".tmp"):
        return True
    return name in WEIGHT_FOLDERS and name not in weights


def _walk(
    folder: Path, prefix: str, left_out: list[str], problems: list[Problem], *, weights: frozenset[str]
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield everything in a folder but plain folders themselves; what stays out or cannot be read is noted."""
    if prefix.count("/") > DEEPEST:
        what = f"The folder is nested more than {DEEPEST} levels deep in the run; it was not read."
        problems.append(refusal("TP854", prefix, what))
        return
    try:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError as error:
        problems.append(refusal("TP854", prefix, f"The folder cannot be read: {error.strerror}."))
        return
    for entry in entries:
        name = prefix + entry.name
        if is_left_out(name, weights=weights):
            left_out.append(name)
        elif entry.is_dir(follow_symlinks=False):
            yield from _walk(folder / entry.name, f"{name}/", left_out, problems, weights=weights)
        else:
            yield name, entry


def _colliding(names: Sequence[str]) -> Iterator[Problem]:
    """Yield names that are one on a file system that ignores case."""
    seen: dict[str, str] = {}
    for name in names:
        earlier = seen.setdefault(portable_form(name), name)
        if earlier != name:
            what = f"The name becomes `{earlier}` where case or Unicode form do not count."
            yield refusal("TP845", name, what)
