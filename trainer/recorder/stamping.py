"""Request time stamps of a run's start, before the first step, and of its sealed manifest.

A failing authority costs at most ten seconds and never the run; its answer or the failure is kept in stamps.json.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from evidence import layout
from evidence.extras import need
from evidence.proof.signatures import refuse
from evidence.proof.timestamps import stamp_run, start_message
from evidence.proof.trust import is_http_url
from schemas.formats import visible
from trainer.recorder.recorder import Recorder


def refuse_authority(authority: str | None) -> None:
    """Raise `ProblemError` with exit code 2 for an invalid address, or if `rfc3161-client` is not installed."""
    if authority is None:
        return
    if not is_http_url(authority):
        what = f"{visible(authority)} is not an address of the form https://HOST/PATH."
        then = "Set recording.time_authority to the address of a time authority, or to null."
        raise refuse(file="recording.time_authority", code="TP861", what=what, next=then)
    need("train", "witness")


def stamp_start(recorder: Recorder, authority: str | None) -> None:
    """Request a time stamp of configuration, data and plan before the first step, and log the result."""
    if authority is None:
        return
    message = start_message(recorder.folder, recorder.manifest)
    assert message is not None, "configuration, data and plan are recorded before"
    failure, sha256 = _stamp(recorder.folder, "start", message, authority), hashlib.sha256(message).hexdigest()
    if failure is None:
        recorder.log("info", "start_stamped", f"time stamp of the start by {authority}", sha256=sha256)
    else:
        recorder.log("warning", "start_not_stamped", f"no time stamp of the start: {failure}", sha256=sha256)


def stamp_end(folder: Path, authority: str | None) -> str | None:
    """Request a time stamp of the sealed manifest and return the result as text, or None without an authority."""
    if authority is None:
        return None
    failure = _stamp(folder, "manifest", (folder / layout.MANIFEST).read_bytes(), authority)
    return f"no time stamp of the end: {failure}" if failure else f"time stamp of the end by {authority}"


def _stamp(folder: Path, subject: Literal["start", "manifest"], message: bytes, authority: str) -> str | None:
    try:
        return stamp_run(folder, subject, message, authority, datetime.now(UTC))
    except OSError as error:
        return f"{layout.STAMPS} cannot be written: {error.strerror or error}."
