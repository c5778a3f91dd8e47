"""Files of a bundle, and which files of a run folder are packed.

Layout of a bundle::

    MANIFEST.sha256        every other file with its SHA-256, in the format of `sha256sum -c`
    REPORT.html            the runs as one page, for readers; `verify` does not check it
    bundle_manifest.json   the runs with their grades, the label `partial`, redacted files, the content digest
    runs/<run>/...         the run folders
"""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evidence.layout import ADAPTER, DEEPEST, EXPORT, LOCK, TRAINED_PARAMS, WEIGHT_FOLDERS
from schemas.formats import visible
from schemas.problems import Problem, problem_of

HASHES = "MANIFEST.sha256"
REPORT = "REPORT.html"
BUNDLE_MANIFEST = "bundle_manifest.json"
RUNS = "runs"

Progress = Callable[[int, int], None]  # called with the bytes done and the total

_MAX_PART_BYTES = 255
_SMALL_WEIGHTS_BYTES = 32 << 20  # of an adapter or export that is packed without `--with-weights`

_UNSAFE_NAMES = [
    (re.compile(pattern, re.DOTALL | re.IGNORECASE), reason)
    for pattern, reason in (
        (r"(^|[/\\])\.\.([/\\]|$)", "Path traversal: the name contains `..`."),
        (r"^([/\\]|[a-z]:)", "The name is an absolute path."),
        # Control characters, and those that are not shown or change the reading direction.
        (
            "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]",
            "The name contains a control or invisible character.",
        ),
        (r"^.{1025}", "The name is longer than 1,024 characters."),
        (r"(^|/)\.?(/|$)", "The name contains an empty part or `.`."),
        (r"[. ](/|$)|(^|/) ", "A part of the name ends in a dot, or starts or ends with a space; Windows drops these."),
        (
            r"(^|/)(con|prn|aux|nul|conin\$|conout\$|clock\$|com[0-9¹²³]|lpt[0-9¹²³])\s*(\.[^/]*)?(/|$)",
            "A part of the name is a reserved device name on Windows.",
        ),
        (r'[<>:"|?*\\]', "The name contains a character that Windows does not allow or treats as a separator."),
    )
]
"""Names that are unsafe to unpack, or that differ between operating systems."""
_HASH_LINE = re.compile(r"([0-9a-f]{64})  (\S.*)")


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """Path, size and checksums of a file in a bundle; those that were not computed are 0 or ""."""

    name: str
    size_bytes: int
    crc32: int = 0
    sha256: str = ""


def bundle_problem(
    code: str, file: str, what: str, *, expected: str | None = None, line: int | None = None, next: str | None = None
) -> Problem:
    """Build a problem about a file whose name may come from a hostile archive."""
    return problem_of(code, file=visible(file), what=what, expected=expected, line=line, next=next)


def hash_lines(hashes: Mapping[str, str]) -> str:
    """Format hashes by path as sorted `<sha256>  <path>` lines for `sha256sum -c`, for names without escapes."""
    return "".join(f"{hashes[path]}  {path}\n" for path in sorted(hashes))


def read_hash_lines(text: str) -> dict[str, str] | None:
    """Parse `<sha256>  <path>` lines into hashes by path, or None if a line is malformed or repeats a path."""
    hashes: dict[str, str] = {}
    for line in text.split("\n")[:-1]:
        match = _HASH_LINE.fullmatch(line)
        if match is None or match[2] in hashes:
            return None
        hashes[match[2]] = match[1]
    return hashes if text.endswith("\n") else None


def content_sha256(files: Iterable[StoredFile]) -> str:
    """Compute the content digest: SHA-256 of the `hash_lines` of all files but the two lists."""
    hashes = {file.name: file.sha256 for file in files if file.name not in {HASHES, BUNDLE_MANIFEST}}
    return hashlib.sha256(hash_lines(hashes).encode("utf-8")).hexdigest()


def portable_form(path: str) -> str:
    """Normalize a path as file systems do that ignore case and Unicode form (Windows, macOS)."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def name_problem(path: str) -> str | None:
    """Return why a path is unsafe to unpack or differs between operating systems, or None."""
    if reason := next((reason for pattern, reason in _UNSAFE_NAMES if pattern.search(path)), None):
        return reason
    is_long = any(len(part.encode("utf-8")) > _MAX_PART_BYTES for part in path.split("/"))
    return f"A part of the name is longer than {_MAX_PART_BYTES} bytes." if is_long else None


def folder_problems(folders: Sequence[Path]) -> list[Problem]:
    """Return which run folders do not exist, and which share a name."""
    problems = [
        bundle_problem("TP840", str(folder), "This is not a folder." if folder.exists() else "This does not exist.")
        for folder in folders
        if not folder.is_dir()
    ]
    names = Counter(folder.resolve().name for folder in folders)
    repeated = sorted(name for name, count in names.items() if count > 1)
    return problems + [bundle_problem("TP849", name, "Several run folders have this name.") for name in repeated]


@dataclass(frozen=True, kw_only=True)
class RunFiles:
    """Sorted paths of a run folder that are packed and that are not, and the problems of files that prevent packing."""

    packed: tuple[str, ...]
    left_out: tuple[str, ...]
    problems: tuple[Problem, ...]


def files_of_run(folder: Path, *, with_weights: bool = False, unlisted: Collection[str] = ()) -> RunFiles:
    """List the files of a run folder that a bundle takes, without following links.

    It omits the lock, temporary, hidden and `unlisted` files, and large weights unless `with_weights`.
    """
    packed: list[str] = []
    left_out: list[str] = []
    problems: list[Problem] = []
    spelled: dict[str, str] = {}
    weights = frozenset(WEIGHT_FOLDERS) if with_weights else _small_weights(folder)
    folders = [""]
    for prefix in folders:
        for entry in _list_folder(folder, prefix, problems):
            name = prefix + entry.name
            is_skipped = entry.name == LOCK or entry.name.startswith(".") or entry.name.endswith(".tmp")
            if is_skipped or (name in WEIGHT_FOLDERS and name not in weights):
                left_out.append(name)
            elif entry.is_dir(follow_symlinks=False):
                folders.append(f"{name}/")
            elif entry.is_symlink() or not entry.is_file():
                kind = "symbolic link" if entry.is_symlink() else "special file"
                problems.append(bundle_problem("TP844", name, f"This is a {kind}."))
            elif reason := name_problem(name):
                problems.append(bundle_problem("TP845", name, reason))
            elif name in unlisted:
                left_out.append(name)
            elif (earlier := spelled.setdefault(portable_form(name), name)) != name:
                what = f"On Windows and macOS this is the same file as `{earlier}`."
                problems.append(bundle_problem("TP845", name, what))
            else:
                packed.append(name)
    return RunFiles(packed=tuple(sorted(packed)), left_out=tuple(sorted(left_out)), problems=tuple(problems))


def _small_weights(folder: Path) -> frozenset[str]:
    """Return the small adapter or export that is packed by default, unless the run has trained parameters."""
    if (folder / TRAINED_PARAMS).is_file():
        return frozenset()
    for name in (ADAPTER, EXPORT):
        files = [path for path in (folder / name).rglob("*") if path.is_file() and not path.is_symlink()]
        if files:
            is_small = sum(path.stat().st_size for path in files) <= _SMALL_WEIGHTS_BYTES
            return frozenset({name} if is_small else ())
    return frozenset()


def _list_folder(folder: Path, prefix: str, problems: list[Problem]) -> list[os.DirEntry[str]]:
    what = f"The folder is nested more than {DEEPEST} levels deep."
    if prefix.count("/") <= DEEPEST:
        try:
            with os.scandir(folder / prefix) as listing:
                return sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            what = f"The folder cannot be read: {error.strerror}."
    problems.append(bundle_problem("TP854", prefix, what))
    return []
