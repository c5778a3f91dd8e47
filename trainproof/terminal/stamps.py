"""The verb `stamp` in words: what was stamped, by whom, and what the stamp is worth to this user."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from evidence.proof.rules import BAD_STAMP, NOT_STAMPED, refusal
from evidence.proof.stamps.authority import StampVerdict, check, request_stamp, stamp_path
from evidence.proof.stamps.record import stamp_run, stamps_of, trusted_roots
from evidence.records.facts import facts_of
from evidence.records.ours import read_existing_run
from evidence.run import layout
from evidence.run.hashes import sha256_file
from evidence.run.write import not_written
from schemas.problems.problem import ProblemError
from schemas.problems.visible import as_lines


def stamped_now(path: Path, authority: str, certificate: Path | None) -> str:
    """Ask for a stamp of a run's manifest or of a zip, keep it, and return what was done as the terminal shows it.

    Raises:
        ProblemError: Exit code 1: the answer does not hold under the certificate. Exit code 2: the path, address or
            certificate is not one. Exit code 4: the authority gave no stamp.
    """
    roots = trusted_roots(certificate)
    try:
        kept, worth = _of_run(path, authority, roots) if path.is_dir() else _of_file(path, authority, roots)
    except OSError as error:
        raise not_written(error, path, what="The time stamp") from None
    if certificate is not None and worth.problem:
        raise ProblemError([refusal(BAD_STAMP, str(kept), worth.problem)], exit_code=1)
    under = f"root {worth.root}" if worth.root else "no root certificate of it is trusted here, so keep the stamp"
    time = f"{worth.stamp.time:%Y-%m-%d %H:%M:%S} UTC" if worth.stamp.time else "an unknown time"
    return as_lines([f"{kept}: {path.name} existed before {time}, according to {worth.stamp.by} ({under})."])


def _of_file(path: Path, authority: str, roots: dict[str, object]) -> tuple[Path, StampVerdict]:
    if not path.is_file():
        what = "This does not exist; a run folder or a zip can be stamped."
        raise ProblemError([refusal(NOT_STAMPED, str(path), what, next="Give its path.")], exit_code=2)
    digest = bytes.fromhex(sha256_file(path))
    answer = request_stamp(authority, digest)
    kept = stamp_path(path)
    kept.write_bytes(answer)
    return kept, check(answer, digest, authority, roots)


def _of_run(folder: Path, authority: str, roots: dict[str, object]) -> tuple[Path, StampVerdict]:
    manifest = facts_of(read_existing_run(folder)).manifest
    if manifest is None or not manifest["artifacts"]:
        what = "The run has no valid manifest that lists its files, so a stamp would be of nothing."
        raise ProblemError([refusal(NOT_STAMPED, str(folder), what, next="Wait until it has ended.")], exit_code=1)
    failed = stamp_run(folder, "manifest", sha256_file(folder / layout.MANIFEST), authority, datetime.now(UTC))
    if failed is not None:
        raise ProblemError([refusal(NOT_STAMPED, authority, failed)], exit_code=4)
    newest = stamps_of(folder, manifest)[-1]
    assert newest.answer is not None
    digest = bytes.fromhex(newest.sha256)
    return folder / layout.STAMPS, check(newest.answer, digest, authority, roots)
