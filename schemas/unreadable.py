"""The problem of a file that the operating system does not let us read."""

from __future__ import annotations

from schemas.problems import Problem


def cannot_read(error: OSError, *, file: str) -> Problem:
    """Return what went wrong with opening or reading a file, with what to do about it."""
    what, advice = f"The file cannot be read: {error.strerror or error}.", "Check the disk and try again."
    if isinstance(error, FileNotFoundError):
        what, advice = "There is no such file.", "Check the path, or write the file first."
    elif isinstance(error, IsADirectoryError | NotADirectoryError):
        what, advice = "This is a folder where a file is expected, or the other way round.", "Check the path."
    elif isinstance(error, PermissionError):
        what, advice = "The file may not be read by this user.", "Change its permissions (chmod u+r) or its owner."
    return Problem(code="TP101", severity="error", file=file, what=what, next=advice)
