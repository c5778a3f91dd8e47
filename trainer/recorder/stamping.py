"""Time stamps of a run while it runs: of its start before the first step, and of its manifest after its seal.

An authority that cannot be reached costs at most ten seconds and never the run: its answer, or why it did not answer,
is kept in stamps.json.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from evidence.proof.keys import needed_module
from evidence.proof.rules import refusal
from evidence.proof.stamps.authority import address_problem
from evidence.proof.stamps.record import Moment, stamp_run, start_of
from evidence.run import layout
from evidence.run.hashes import sha256_file
from schemas.problems import ProblemError
from trainer.recorder.recorder import Recorder


def refuse_authority(authority: str | None) -> None:
    """Refuse an authority that can never answer, before anything is spent; None is accepted.

    Raises:
        ProblemError: Exit code 2: it is not an address, or `rfc3161-client` is not installed.
    """
    if authority is None:
        return
    if why := address_problem(authority):
        then = "Give recording.time_authority the address of a time authority, or null."
        raise ProblemError([refusal("TP861", "recording.time_authority", why, next=then)], exit_code=2)
    needed_module("rfc3161_client", "Time stamps", extra="witness")


def stamp_start(recorder: Recorder, authority: str | None) -> None:
    """Have an authority attest that configuration, data and plan existed before the first step.

    The log states it too.
    """
    if authority is None:
        return
    sha256 = start_of(recorder.folder, recorder.manifest)
    assert sha256 is not None, "configuration, data and plan are recorded before"
    failed = _stamp(recorder.folder, "start", sha256, authority)
    if failed is None:
        recorder.log("info", "start_stamped", f"time stamp of the start by {authority}", sha256=sha256)
    else:
        recorder.log("warning", "start_not_stamped", f"no time stamp of the start: {failed}", sha256=sha256)


def stamp_end(folder: Path, authority: str | None) -> str | None:
    """Have an authority attest that the sealed manifest exists.

    Return what came of it, or None if no authority is named.
    """
    if authority is None:
        return None
    failed = _stamp(folder, "manifest", sha256_file(folder / layout.MANIFEST), authority)
    return f"no time stamp of the end: {failed}" if failed else f"time stamp of the end by {authority}"


def _stamp(folder: Path, of: Moment, sha256: str, authority: str) -> str | None:
    try:
        return stamp_run(folder, of, sha256, authority, datetime.now(UTC))
    except OSError as error:
        return f"{layout.STAMPS} cannot be written: {error.strerror or error}."
