"""Files that are something else than data or a model: pointers, web pages, archives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from schemas.problems import ProblemError, problem_of

_OTHER_CONTENTS = (
    (b"version https://git-lfs.", "a Git LFS pointer, not the file itself", "Fetch the file with `git lfs pull`."),
    (b"/annex/objects/", "a git-annex pointer, not the file itself", "Fetch the file with `git annex get`."),
    (b"<!doctype html", "a web page", "Download the file itself."),
    (b"<html", "a web page", "Download the file itself."),
    (b"\x1f\x8b", "compressed with gzip", "Decompress it with `gunzip`, and name the result."),
    (b"\x28\xb5\x2f\xfd", "compressed with Zstandard", "Decompress it with `unzstd`, and name the result."),
    (b"pk\x03\x04", "a zip file, an archive or a spreadsheet or a PyTorch pickle", "Unpack it, or export it again."),
)


_max_tokenizer_bytes: ContextVar[int | None] = ContextVar("max_tokenizer_bytes", default=None)


@contextmanager
def limit_tokenizer_size(limit: int = 128 << 20) -> Iterator[None]:
    """Refuse larger tokenizer files (TP046) inside; for models of others. The largest known ones have 35 MB."""
    token = _max_tokenizer_bytes.set(limit)
    try:
        yield
    finally:
        _max_tokenizer_bytes.reset(token)


def refuse_other_content(path: Path, code: str) -> None:
    """Refuse a file that is not data, such as a Git LFS pointer or a web page; a missing file is accepted.

    Raises:
        ProblemError: Exit code 2, with a problem of the given code.
        OSError: The file cannot be read.
    """
    if not path.is_file():
        return
    limit, length = _max_tokenizer_bytes.get(), path.stat().st_size
    if code == "TP046" and limit is not None and length > limit:
        what = f"{path.name} has {length:,} bytes; at most {limit:,} are read from the tokenizer of another's run."
        raise ProblemError([problem_of(code, file=str(path), what=what, why=None)], exit_code=2)
    with path.open("rb") as file:
        head = file.read(32).lower()
    for begins, what, advice in _OTHER_CONTENTS:
        if head.startswith(begins) and not (begins.startswith(b"<") and path.suffix.lower() == ".txt"):
            found = problem_of(code, file=str(path), what=f"{path.name} is {what}.", why=None, next=advice)
            raise ProblemError([found], exit_code=2)
