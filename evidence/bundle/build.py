"""Building a bundle: run folders in, one verified zip out, or nothing.

The zip is written under a temporary name, opened and verified as a stranger would, and only then takes its name; on
any failure nothing is left behind.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from evidence.bundle.format.documents import StatedRun, content_sha256
from evidence.bundle.format.layout import BUNDLE_MANIFEST, HASHES, files_of_run
from evidence.bundle.format.rules import refusal
from evidence.bundle.inspection import Advance, ChecklistItem, Inspection, challenge_line, folder_problems, inspect_runs
from evidence.bundle.secrets.redact import Redaction, redacted_copy
from evidence.bundle.sources import PackedFile, all_sources, blocks, stated_runs
from evidence.bundle.verify import verify_bundle
from evidence.bundle.zip.container import LocalHeader, Progress, ending, local_header
from evidence.run.hashes import sha256_file
from evidence.run.layout import MANIFEST
from evidence.run.scratch import scratch_folder
from schemas.problems import Problem, ProblemError

PHASES = 4
"""Every byte of a run is scanned, hashed, written and verified."""

_LEVELS = 3
"""How far above the output a run folder is looked for that was not named."""


@dataclass(frozen=True, kw_only=True)
class BuildReport:
    """What was built."""

    output: Path
    """The zip."""
    size_bytes: int
    """Its size."""
    zip_sha256: str
    """Hash of its bytes; changes if it is packed again."""
    content_sha256: str
    """Content digest; the same however it is packed."""
    partial: bool
    """Whether it is labelled as holding runs that are not results."""
    runs: tuple[StatedRun, ...]
    """The runs inside, by name."""
    files: int
    """Files inside."""
    left_out: tuple[str, ...]
    """Files and folders of the runs that were not packed."""
    redactions: tuple[Redaction, ...]
    """Files that were masked in the bundle."""
    warnings: tuple[Problem, ...]
    """Personal details that were packed."""
    challenges: tuple[ChecklistItem, ...]
    """Of each run that states a score, whether anyone who gets the bundle can question its model."""


def build_bundle(
    folders: Sequence[Path],
    output: Path,
    *,
    allow_partial: bool = False,
    with_weights: bool = False,
    with_unlisted: bool = False,
    redact: bool = False,
    progress: Progress | None = None,
) -> BuildReport:
    """Build and verify a bundle of run folders; an older file of that name is replaced.

    Args:
        folders: The run folders; at least one.
        output: The zip to write; missing folders above it are made.
        allow_partial: Whether to pack partial runs, templates and runs with errors, with a label.
        with_weights: Whether to pack checkpoints, adapters and exports.
        with_unlisted: Whether to pack files that a sealed run does not list.
        redact: Whether to mask secrets and home folders in the bundle's copies of logs and other texts; the run folders
            stay as they are.
        progress: Told how many bytes of work are done.

    Raises:
        ProblemError: Exit code 2: a folder does not exist or the output cannot be written. Exit code 1: a run must not
            be packed, or changed meanwhile. Every reason is given.
    """
    folders = [Path(folder) for folder in folders]
    refuse([*_selection_problems(folders), *_output_problems(folders, output)], exit_code=2)
    advance = _meter(folders, progress, with_weights=with_weights)
    inspections = inspect_runs(folders, with_weights=with_weights, with_unlisted=with_unlisted, advance=advance)
    with scratch_folder("trainproof-redact-") as scratch:
        redactions: tuple[Redaction, ...] = ()
        if redact:
            refuse(_in_the_way(inspections), exit_code=1)
            inspections, redactions = _redact(
                inspections, scratch, with_weights=with_weights, with_unlisted=with_unlisted
            )
        refuse(_refusals(inspections, folders, allow_partial=allow_partial), exit_code=1)
        partial = any(inspection.unless_labelled for inspection in inspections)
        sources = all_sources(inspections, advance, partial=partial, redactions=redactions)
        _write_verified(sources, output, advance)
    stated = stated_runs(inspections)
    listed = [source.hash for source in sources if source.path not in {HASHES, BUNDLE_MANIFEST}]
    return BuildReport(
        output=output,
        size_bytes=output.stat().st_size,
        zip_sha256=sha256_file(output),
        content_sha256=content_sha256(listed),
        partial=partial,
        runs=stated,
        files=len(sources),
        left_out=tuple(f"{each.name}/{name}" for each in inspections for name in each.files.left_out),
        redactions=redactions,
        warnings=tuple(_in_run(problem, each, folders) for each in inspections for problem in each.details),
        challenges=tuple(item for each in inspections for item in challenge_line(each)),
    )


def refuse(problems: Sequence[Problem], *, exit_code: int) -> None:
    """Raise all problems at once, if there are any."""
    if problems:
        raise ProblemError(problems, exit_code=exit_code)


def _selection_problems(folders: Sequence[Path]) -> list[Problem]:
    if not folders:
        return [refusal("TP851", "", "No run folder was given.")]
    return folder_problems(folders)


def _output_problems(folders: Sequence[Path], output: Path) -> Iterator[Problem]:
    """Yield why the output cannot lie where it was requested."""
    if output.is_dir():
        yield refusal("TP848", str(output), "The output is a folder.")
    elif output.exists() and not _is_zip(output):
        yield refusal("TP848", str(output), "The file there is not a zip, and would be replaced.")
    above = output.resolve().parents
    inside = next((folder for folder in folders if folder.resolve() in above), None)
    inside = inside or next((folder for folder in above[:_LEVELS] if (folder / MANIFEST).exists()), None)
    if inside:
        yield refusal("TP848", str(output), f"The output lies inside the run folder {inside}.")


def _is_zip(path: Path) -> bool:
    """Return whether a path is an ordinary file that begins as a zip does, or is empty; a pipe or device is neither."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) in {b"", b"PK\x03\x04", b"PK\x05\x06"}


def _meter(folders: Sequence[Path], progress: Progress | None, *, with_weights: bool) -> Advance:
    """Return a function that adds up the bytes that are done and reports how far the whole work is."""
    total = 0
    for folder in folders:
        packed = files_of_run(folder, with_weights=with_weights).packed
        total += PHASES * sum((folder / name).stat().st_size for name in packed)
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done = min(done + count, total)
        if progress:
            progress(done, total)

    return advance


def _in_the_way(inspections: Sequence[Inspection]) -> list[Problem]:
    """Return what keeps run folders from being copied for redaction; the copies would not show it."""
    return [
        _in_run(problem, each, [each.folder])
        for each in inspections
        for problem in each.never
        if problem.code in {"TP844", "TP845", "TP854", "TP843"}
    ]


def _redact(
    inspections: Sequence[Inspection], folder: Path, *, with_weights: bool, with_unlisted: bool
) -> tuple[list[Inspection], tuple[Redaction, ...]]:
    """Return what the packer must know of masked copies of the runs, and what was masked."""
    redactions = tuple(
        redaction
        for each in inspections
        for redaction in redacted_copy(each.folder, each.files.packed, folder / each.name)
    )
    copies = [folder / each.name for each in inspections]
    for copy in copies:
        copy.mkdir(exist_ok=True)  # of a run that holds no file to pack
    again = inspect_runs(copies, with_weights=with_weights, with_unlisted=with_unlisted, redactions=redactions)
    return again, redactions


def _refusals(inspections: Sequence[Inspection], folders: Sequence[Path], *, allow_partial: bool) -> list[Problem]:
    """Return every reason against packing these runs, with files named from above the run folders."""
    return [
        _in_run(problem, inspection, folders)
        for inspection in inspections
        for problem in (*inspection.never, *(() if allow_partial else inspection.unless_labelled))
    ]


def _in_run(problem: Problem, inspection: Inspection, folders: Sequence[Path]) -> Problem:
    """Return a problem of a run with the run folder in front of its file, as the user gave it."""
    folder = next(folder for folder in folders if folder.resolve().name == inspection.name)
    file = str(folder) if problem.file in {"", inspection.name} else str(folder / problem.file)
    return replace(problem, file=file)


def _write_verified(sources: Sequence[PackedFile], output: Path, advance: Advance) -> None:
    """Write the zip under a temporary name, verify it, and give it its name; on failure leave nothing."""
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{output.name}.", suffix=".tmp", dir=output.parent)
    except OSError as error:
        raise _cannot_write(output, error) from None
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            _write(file, sources, advance)
            file.flush()
            os.fsync(file.fileno())
        _verify_own(temporary, advance)
        temporary.chmod(0o644)
        temporary.replace(output)
    except OSError as error:
        raise _cannot_write(output, error) from None
    finally:
        temporary.unlink(missing_ok=True)


def _write(file: BinaryIO, sources: Sequence[PackedFile], advance: Advance) -> None:
    """Write the bytes of the zip.

    Raises:
        ProblemError: A file has other content than when it was hashed.
    """
    stored = [LocalHeader(name=source.path, size_bytes=source.size_bytes, crc32=source.crc32) for source in sources]
    for source, each in zip(sources, stored, strict=True):
        file.write(local_header(each))
        if source.disk is None:
            file.write(source.content)
            continue
        digest = hashlib.sha256()
        with source.disk.open("rb") as content:
            for block in blocks(content):
                digest.update(block)
                file.write(block)
                advance(len(block))
        if digest.hexdigest() != source.sha256:
            what = "The file has other content than when it was checked a moment ago."
            raise ProblemError([refusal("TP850", str(source.disk), what)])
    file.write(ending(stored))


def _verify_own(path: Path, advance: Advance) -> None:
    """Verify what was just written as a stranger would.

    Raises:
        ProblemError: It does not hold; this is a fault of the program or of the disk.
    """
    before = 0

    def tell(done: int, _total: int) -> None:
        nonlocal before
        advance(done - before)
        before = done

    verdict = verify_bundle(path, progress=tell)
    refuse([finding for finding in verdict.findings if finding.severity != "note"], exit_code=1)


def _cannot_write(output: Path, error: OSError) -> ProblemError:
    what = f"The bundle cannot be written: {error.strerror or error}."
    return ProblemError([refusal("TP848", str(output), what)], exit_code=2)
