"""The last lines that a job printed, ready for a page: no control sequences, no keys, no more than a screen or two."""

from __future__ import annotations

import re
from pathlib import Path

from evidence.bundle.secrets.masking import mask, visible
from launch.jobs.files import no_link

_TAIL_BYTES = 16_384
_CONTROL = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)")


def tail(path: Path, lines: int = 40) -> str:
    """Return the last lines of a file, a redrawn line in its last state; empty if the file is missing or a link."""
    try:
        with no_link(path).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    whole = _CONTROL.sub("", text).split("\n")
    if size > _TAIL_BYTES:
        whole = whole[1:]  # The first line is likely cut.
    shown = [line.rstrip("\r").rpartition("\r")[2] for line in whole]
    while shown and not shown[-1].strip():
        shown.pop()
    return mask(visible("\n".join(shown[-lines:])))
