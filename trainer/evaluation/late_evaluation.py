"""Adds an evaluation to a run that has ended: whole or not at all, wherever the process is killed.

Answers and summary are written beside the files whose place they take. The manifest that lists them is the seal: until
it is written they count for nothing, and from then on they only have to be moved, which the next command does where
this one was killed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evidence import layout
from evidence.hashes import sha256_file, sha256_manifest
from evidence.writing import RowWriter, write_json
from schemas.problems import ProblemError
from schemas.validate import read_document
from trainer.recorder.failure import INTERRUPTED
from trainer.recorder.recorder import artifacts_of, now

ADDED = (layout.PREDICTIONS, layout.EVAL_SUMMARY)

SEALED_AGAIN = "sealed again with its evaluation"
"""How the log's line about it begins."""


def beside(folder: Path, name: str) -> Path:
    """Return where a file is written that will take the place of `name`."""
    return folder / f".{name}.tmp"


def add_evaluation(folder: Path, summary: dict[str, Any], *, by: str) -> None:
    """Take the answers that lie beside and their summary into the run, and seal it again.

    Args:
        folder: of the run.
        summary: the document `eval_summary.json`.
        by: what answered, for the log.
    """
    write_json(beside(folder, layout.EVAL_SUMMARY), summary)
    manifest = manifest_of(folder) | {"finished_at": now()}
    if manifest["status"] == "running":  # killed after its last step: it has no end yet
        ending = {"code": INTERRUPTED, "error": None, "message": "killed after its last step; evaluated later"}
        manifest |= {"status": "interrupted", "exit": ending}
    sealed = {
        "time": now(),
        "level": "info",
        "event": "run_sealed",
        "message": f"{SEALED_AGAIN} on {by}",
        "fields": {"manifest_sha256": sha256_manifest(manifest)},
    }
    with RowWriter(folder / layout.LOG) as log:
        log.append(sealed)
    instead = {name: beside(folder, name) for name in ADDED}
    write_json(folder / layout.MANIFEST, manifest | {"artifacts": artifacts_of(folder, instead=instead)})
    for name, path in instead.items():
        path.replace(folder / name)


def finish_or_undo(folder: Path) -> None:
    """Finish an addition that was ended after its seal; undo one that was ended before. The caller holds the folder."""
    left = [name for name in ADDED if beside(folder, name).exists()]
    sealed = {artifact["path"]: artifact["sha256"] for artifact in manifest_of(folder)["artifacts"]}
    whole = [name for name in left if sha256_file(beside(folder, name)) == sealed.get(name)]
    for name in whole:
        beside(folder, name).replace(folder / name)
    if whole != left:
        cut_off_seal(folder / layout.LOG)
    for name in left:
        beside(folder, name).unlink(missing_ok=True)


@contextmanager
def undone_unless_finished(folder: Path) -> Iterator[None]:
    """Leave the run as it was, or with its whole evaluation, where what happens inside fails."""
    try:
        yield
    except BaseException:
        finish_or_undo(folder)
        raise


def cut_off_seal(log: Path) -> None:
    """Take the last line off the log if it records a seal that was not reached."""
    lines = log.read_bytes().splitlines(keepends=True)
    if lines and SEALED_AGAIN.encode() in lines[-1]:
        os.truncate(log, sum(map(len, lines[:-1])))


def manifest_of(folder: Path) -> dict[str, Any]:
    """Return the run's manifest.

    Raises:
        ProblemError: exit code 2; it is missing, or it is not valid.
    """
    read = read_document(folder / layout.MANIFEST, "run_manifest")
    if read.value is None or any(problem.severity == "error" for problem in read.problems):
        raise ProblemError(read.problems, exit_code=2)
    return read.value
