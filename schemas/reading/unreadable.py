"""Files that cannot be read: the operating system does not let us, or something else lies in their place."""

from __future__ import annotations

import errno
from pathlib import Path

from schemas.problems.problem import Problem, ProblemError
from schemas.problems.rule import problem_of

_ADVICE = {
    errno.ENAMETOOLONG: "Give a shorter path.",
    errno.EACCES: "Check the permissions of the path and of every folder above it.",
    errno.EPERM: "Check the permissions of the path and of every folder above it.",
    errno.ENOSPC: "Make room, or write to another place.",
    errno.ELOOP: "Give the path of the file itself: links lead in a circle.",
}

_LONGEST_PATH = 300


def cannot_read(error: OSError, *, file: str) -> Problem:
    """Return what went wrong with opening or reading a file, with what to do about it."""
    what, advice = f"The file cannot be read: {error.strerror or error}.", "Check the disk and try again."
    if isinstance(error, FileNotFoundError):
        what, advice = "The file does not exist.", "Check the path, or write the file first."
    elif isinstance(error, IsADirectoryError | NotADirectoryError):
        what, advice = "The path names a folder instead of a file, or a file instead of a folder.", "Check the path."
    elif isinstance(error, PermissionError):
        what, advice = "The file may not be read by this user.", "Change its permissions (chmod u+r) or its owner."
    return problem_of("TP101", file=file, what=what, why=None, next=advice)


def refused_by_system(error: OSError) -> Problem:
    """Return the problem of a path that the system refused: too long, in a folder without access, on a full disk."""
    return problem_of(
        "TP101",
        file=_shorten(str(error.filename)) if error.filename is not None else "",
        what=f"The system refuses this: {error.strerror or error}.",
        why=None,
        next=_ADVICE.get(error.errno or 0, "Check the path and the disk, and try again."),
    )


def _shorten(path: str) -> str:
    return path if len(path) <= _LONGEST_PATH else f"{path[:_LONGEST_PATH]}…"


_CONTENTS = (
    (b"version https://git-lfs.", "a Git LFS pointer in place of the file", "Fetch the file with `git lfs pull`."),
    (b"/annex/objects/", "a git-annex pointer in place of the file", "Fetch the file with `git annex get`."),
    (b"<!doctype html", "a web page", "Download the file itself; this is a page about it, or an error message."),
    (b"<html", "a web page", "Download the file itself; this is a page about it, or an error message."),
    (b"\x1f\x8b", "compressed with gzip", "Unpack it with `gunzip`, and name what comes out."),
    (b"\x28\xb5\x2f\xfd", "compressed with Zstandard", "Unpack it with `unzstd`, and name what comes out."),
    (b"pk\x03\x04", "a zip, as archives, spreadsheets and PyTorch pickles are", "Unpack it, or export it again."),
)


def refuse_other_content(path: Path, code: str) -> None:
    """Refuse a file that holds something else than data, such as the pointer that Git LFS leaves in its place.

    Args:
        path: the file, which may be missing.
        code: Code of the problem.

    Raises:
        ProblemError: exit code 2.
        OSError: it cannot be read.
    """
    if not path.is_file():
        return
    with path.open("rb") as file:
        head = file.read(32).lower()
    for begins, what, way in _CONTENTS:
        if head.startswith(begins) and not (begins.startswith(b"<") and path.suffix.lower() == ".txt"):
            found = problem_of(code, file=str(path), what=f"{path.name} is {what}.", why=None, next=way)
            raise ProblemError([found], exit_code=2)
