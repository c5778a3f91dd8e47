"""Inspect run folders and pack them into a bundle.

Contradictory runs, other folders, runs in progress, links, special files, unsafe names and secrets are never packed;
partial runs, templates and runs with errors only with the label `partial`. Personal details give a warning: a run
records its command line, so most runs hold one, and only their owner knows whether it matters.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Literal
from zipfile import is_zipfile

from evidence import layout
from evidence.bundle import contents
from evidence.bundle.contents import RUNS, Progress, StoredFile, bundle_problem, files_of_run, folder_problems
from evidence.bundle.page import output_problems, report_html
from evidence.bundle.reading import central_directory, local_header, read_blocks
from evidence.bundle.secrets import DETAIL, SECRET, Redaction, redacted_copy, scan_file
from evidence.bundle.verify import GRADES_LABELLED, GRADES_PACKED, CheckedRun, check_runs, verify_bundle
from evidence.hashes import sha256_file
from evidence.rules.files import unlisted_files
from evidence.writing import as_json_text, scratch_folder
from schemas.catalog import VERSION
from schemas.formats import quantity, visible
from schemas.problems import Action, Problem, ProblemError
from schemas.reading import get_str

_PROGRAM = "trainproof"
_PHASES = 4  # every byte is scanned, hashed, written and verified
_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")  # as types.schema.json has it
_UNREADABLE = "TP854"

State = Literal["ok", "note", "warning", "blocked"]
Advance = Callable[[int], None]  # called with the bytes done since its last call


@dataclass(frozen=True, kw_only=True)
class Inspection(CheckedRun):
    """A checked run, without findings about omitted files, and what packing it means.

    Problems name files relative to the run folder: `blocking` ones prevent packing, those `unless_partial` require the
    label `partial`, and `details` are personal details in the packed files.
    """

    packing: contents.RunFiles
    blocking: tuple[Problem, ...]
    unless_partial: tuple[Problem, ...]
    details: tuple[Problem, ...]


@dataclass(frozen=True, kw_only=True)
class ChecklistItem:
    """One line of the checklist: what was checked of a run ("" for the whole bundle), the result and the next step.

    `blocked` prevents packing; a `warning` deserves a look first.
    """

    run: str
    what: str
    state: State
    detail: str
    next: str = ""
    action: Action | None = None


@dataclass(frozen=True, kw_only=True)
class BuildReport:
    """Result of building a bundle.

    `left_out` are files and folders that were not packed, `warnings` are about personal details, and `challenges` state
    for each run with a score whether its model can be questioned.
    """

    output: Path
    size_bytes: int
    zip_sha256: str
    content_sha256: str
    partial: bool
    runs: tuple[CheckedRun, ...]
    files: int
    left_out: tuple[str, ...]
    redactions: tuple[Redaction, ...]
    warnings: tuple[Problem, ...]
    challenges: tuple[ChecklistItem, ...]


@dataclass(frozen=True, kw_only=True)
class PackedFile(StoredFile):
    """A file to pack, with its path on disk or its content."""

    source: Path | bytes

    def blocks(self) -> Iterable[bytes]:
        """Yield the content in blocks."""
        return [self.source] if isinstance(self.source, bytes) else read_blocks(self.source)


def _inspect_run(run: CheckedRun, advance: Advance, *, with_weights: bool, with_unlisted: bool) -> Inspection:
    """Scan the files of a run that would be packed, and sort what was found by whether it prevents packing."""
    unlisted = () if with_unlisted else unlisted_files(run.run)
    files = files_of_run(run.folder, with_weights=with_weights, unlisted=unlisted)
    run = replace(run, findings=tuple(finding for finding in run.findings if finding.file not in files.left_out))
    name, grade = run.name, run.folder_grade.name
    scanned = list(_scan(run.folder, files.packed, advance))
    reasons = "; ".join(reason.rstrip(".") for reason in run.folder_grade.reasons)
    graded = f"The run is graded {grade}{f': {reasons}' if reasons else ''}."
    blocking = [problem for problem in (*scanned, *files.problems) if problem.code != DETAIL]
    unless_partial = []
    if not _RUN_NAME.fullmatch(name):
        blocking.append(bundle_problem("TP845", name, f"The folder name `{visible(name)}` is not a valid run id."))
    if run.run.alive:
        blocking.append(bundle_problem("TP843", name, "A process holds the lock of this run folder."))
    if grade == "not a run":
        blocking.append(bundle_problem("TP853", name, "This is not a run."))
    elif grade in GRADES_LABELLED:
        unless_partial.append(bundle_problem("TP841", name, graded))
    elif grade not in GRADES_PACKED:
        blocking.append(bundle_problem("TP852", name, graded))
    if run.errors and grade != "not a run":
        what = f"The run has {quantity(len(run.errors), 'error')}. First: {run.errors[0].what}"
        is_packable = grade in GRADES_PACKED | GRADES_LABELLED
        fix = None if is_packable else "Fix the errors that `trainproof check` lists."
        (unless_partial if is_packable else blocking).append(bundle_problem("TP842", name, what, next=fix))
    return Inspection(
        **vars(run),
        packing=files,
        blocking=tuple(blocking),
        unless_partial=tuple(unless_partial),
        details=tuple(problem for problem in scanned if problem.code == DETAIL),
    )


def _scan(folder: Path, names: Sequence[str], advance: Advance) -> Iterator[Problem]:
    """Yield secrets and personal details in files; binary weights are skipped."""
    for name in names:
        try:
            with (folder / name).open("rb") as file:
                is_binary = layout.holds_weights(name) and b"\0" in file.read(1 << 16)
            if not is_binary:
                yield from scan_file(folder / name, name)
            advance((folder / name).stat().st_size)
        except OSError as error:
            yield bundle_problem(_UNREADABLE, name, f"The file cannot be read: {error.strerror}.")


def checklist(folders: Sequence[Path], *, with_weights: bool = False) -> list[ChecklistItem]:
    """Return what prevents run folders from being packed, and what to look at first; nothing is written."""
    items = [_item("", "folder", problem) for problem in folder_problems(folders)]
    for run in check_runs([folder for folder in folders if folder.is_dir()]):
        inspection = _inspect_run(run, lambda _: None, with_weights=with_weights, with_unlisted=False)
        items += _checklist_of_run(inspection)
    return items


def _checklist_of_run(run: Inspection) -> Iterator[ChecklistItem]:
    files, problems = run.packing, [*run.blocking, *run.unless_partial]
    size = sum((run.folder / path).stat().st_size for path in files.packed)
    left_out = f" Not packed: {', '.join(files.left_out)}." if files.left_out else ""
    graded = f"The run is graded {run.grade.describe()}."
    if run.grade.name != run.folder_grade.name:
        graded += f" The bundle states {run.folder_grade.describe()}."
    for what, codes, fine in (
        ("grade", ("TP853", "TP852", "TP841"), graded),
        ("errors", ("TP842",), "No error was found."),
        ("end of the run", ("TP843",), "No process writes to the folder."),
        ("secrets", (SECRET,), "No known kind of secret was found."),
        ("files", ("TP844", "TP845", _UNREADABLE), f"{quantity(len(files.packed), 'file')}, {size:,} bytes.{left_out}"),
    ):
        found = [_item(run.name, what, problem) for problem in problems if problem.code in codes]
        yield from found or [ChecklistItem(run=run.name, what=what, state="ok", detail=fine)]
    yield from (_item(run.name, "personal details", problem, "warning") for problem in run.details)
    yield from _challenge_item(run)


def _item(run: str, what: str, problem: Problem, state: State = "blocked") -> ChecklistItem:
    detail = problem.what if problem.file in {"", run} else f"{problem.file}: {problem.what}"
    return ChecklistItem(run=run, what=what, state=state, detail=detail, next=problem.next, action=problem.action)


def _challenge_item(run: Inspection) -> Iterator[ChecklistItem]:
    """Yield whether anyone who gets the bundle can question the model; nothing for a run without a score."""
    packed, folders = run.packing.packed, layout.WEIGHT_FOLDERS
    if layout.EVAL_SUMMARY not in packed:
        return
    state: State = "note"
    if layout.TRAINED_PARAMS in packed:
        # TP328 compares its hash. For adapters the manifest's hash covers the base model too, which is not here.
        is_whole = get_str(run.run.manifest, "training", "method") != "lora"
        what = "evaluated parameters" if is_whole else "adapters that the run recorded"
        state, detail, advice = "ok", f"possible. {layout.TRAINED_PARAMS} has the hash of the {what}.", ""
    elif found := [name for name in folders if any(path.startswith(f"{name}/") for path in packed)]:
        detail = f"unknown. {found[0]}/ is packed, but not checked against the evaluated weights."
        advice = f"Run `trainproof challenge {run.folder} --generate 1` to try."
    else:
        detail = "not possible, since the bundle holds no parameters."
        advice = "Set recording.params_mib to keep the trained parameters of future runs."
        if here := " and ".join(f"{name}/" for name in run.packing.left_out if name in folders):
            advice = f"Pack {here} too: `trainproof package {run.folder} --with-weights`."
    yield ChecklistItem(run=run.name, what="challenge", state=state, detail=f"Challenge: {detail}", next=advice)


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
    """Build a bundle, verify it as a stranger would, and only then give it its name; on failure nothing is left.

    Args:
        folders: Run folders; at least one.
        output: Zip to write; an existing one is replaced.
        allow_partial: Pack partial runs, templates and runs with errors, and label the bundle partial.
        with_weights: Pack checkpoints, adapters and exports.
        with_unlisted: Pack files that a finished run does not list.
        redact: Mask secrets and home folders in the packed copies of texts.
        progress: Called with the bytes of work done and the total.

    Raises:
        ProblemError: A folder does not exist or the output cannot be written (exit code 2); or a run cannot be packed
            (exit code 1). All reasons are given.
    """
    folders = [Path(folder) for folder in folders]
    problems = folder_problems(folders) if folders else [bundle_problem("TP851", "", "No run folder was given.")]
    problems += output_problems(folders, output, "a zip", lambda path: path.is_file() and is_zipfile(path))
    _raise_if_any(problems, exit_code=2)
    advance = _meter(folders, progress, with_weights=with_weights)
    inspect = partial(_inspect_run, with_weights=with_weights, with_unlisted=with_unlisted)
    inspections = [inspect(run, advance) for run in check_runs(folders)]
    redactions: tuple[Redaction, ...] = ()
    with scratch_folder("trainproof-redact-") as scratch:
        if redact:
            # Copies would not show links, unreadable files or a process that writes.
            codes = {"TP843", "TP844", "TP845", _UNREADABLE}
            found = ((problem, each) for each in inspections for problem in each.blocking if problem.code in codes)
            _raise_if_any(_in_run(*each, folders) for each in found)
            redactions = tuple(
                redaction
                for each in inspections
                for redaction in redacted_copy(each.folder, each.packing.packed, scratch / each.name)
            )
            copies = [scratch / each.name for each in inspections]
            inspections = [inspect(run, lambda _: None) for run in check_runs(copies, redactions)]
        _raise_if_any(
            _in_run(problem, each, folders)
            for each in inspections
            for problem in (*each.blocking, *(() if allow_partial else each.unless_partial))
        )
        is_partial = any(each.unless_partial for each in inspections)
        files = _collect_files(inspections, advance, is_partial=is_partial, redactions=redactions)
        _write_verified(files, output, advance, progress)
    return BuildReport(
        output=output,
        size_bytes=output.stat().st_size,
        zip_sha256=sha256_file(output),
        content_sha256=contents.content_sha256(files),
        partial=is_partial,
        runs=tuple(inspections),
        files=len(files),
        left_out=tuple(f"{each.name}/{name}" for each in inspections for name in each.packing.left_out),
        redactions=redactions,
        warnings=tuple(_in_run(problem, each, folders) for each in inspections for problem in each.details),
        challenges=tuple(item for each in inspections for item in _challenge_item(each)),
    )


def _raise_if_any(problems: Iterable[Problem], *, exit_code: int = 1) -> None:
    if found := list(problems):
        raise ProblemError(found, exit_code=exit_code)


def _meter(folders: Sequence[Path], progress: Progress | None, *, with_weights: bool) -> Advance:
    """Return a function that adds up the bytes done and reports them."""
    packed = [folder / name for folder in folders for name in files_of_run(folder, with_weights=with_weights).packed]
    total, done = _PHASES * sum(path.stat().st_size for path in packed), 0

    def advance(count: int) -> None:
        nonlocal done
        done = min(done + count, total)
        if progress:
            progress(done, total)

    return advance


def _in_run(problem: Problem, inspection: Inspection, folders: Sequence[Path]) -> Problem:
    """Return a problem with its file below the run folder as the user named it."""
    folder = next(folder for folder in folders if folder.resolve().name == inspection.name)
    file = str(folder) if problem.file in {"", inspection.name} else str(folder / problem.file)
    return replace(problem, file=file)


def _collect_files(
    inspections: Sequence[Inspection], advance: Advance, *, is_partial: bool, redactions: Sequence[Redaction]
) -> list[PackedFile]:
    """Return every file of the bundle, sorted by path."""
    files: list[PackedFile] = []

    def add(name: str, source: Path | bytes) -> PackedFile:
        file, digest, checksum, size = PackedFile(name=name, size_bytes=0, source=source), hashlib.sha256(), 0, 0
        for block in file.blocks():
            digest.update(block)
            checksum = zlib.crc32(block, checksum)
            size += len(block)
            advance(len(block))
        files.append(replace(file, size_bytes=size, crc32=checksum, sha256=digest.hexdigest()))
        return files[-1]

    runs: list[CheckedRun] = []
    for each in inspections:
        own = tuple(add(f"{RUNS}/{each.name}/{name}", each.folder / name) for name in each.packing.packed)
        runs.append(replace(each, files=own))
    add(contents.REPORT, report_html(runs, partial=is_partial).encode("utf-8"))
    manifest = {
        "schema_version": VERSION,
        "made_by": {"name": _PROGRAM, "version": version(_PROGRAM)},
        "content_sha256": contents.content_sha256(files),
        "partial": is_partial,
        "runs": [
            {
                "run_id": run.name,
                "path": f"{RUNS}/{run.name}",
                "grade": run.folder_grade.name,
                "reasons": list(run.folder_grade.reasons),
            }
            for run in runs
        ],
    }
    if redactions:
        manifest["redactions"] = [asdict(each) for each in sorted(redactions, key=lambda each: each.path)]
    add(contents.BUNDLE_MANIFEST, as_json_text(manifest).encode("utf-8"))
    add(contents.HASHES, contents.hash_lines({file.name: file.sha256 for file in files}).encode("utf-8"))
    return sorted(files, key=lambda file: file.name)


def _write_verified(files: Sequence[PackedFile], output: Path, advance: Advance, progress: Progress | None) -> None:
    """Write the canonical zip under a temporary name, verify it, and rename it."""

    def tell(done: int, size: int) -> None:
        if progress:
            progress((_PHASES - 1) * size + done, _PHASES * size)

    temporary = None
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{output.name}.", suffix=".tmp", dir=output.parent)
        temporary = Path(name)
        with os.fdopen(handle, "wb") as zipped:
            for file in files:
                zipped.write(local_header(file))
                digest = hashlib.sha256()
                for block in file.blocks():
                    digest.update(block)
                    zipped.write(block)
                    advance(len(block))
                if digest.hexdigest() != file.sha256:
                    what = "The file changed while it was packed."
                    raise ProblemError([bundle_problem("TP850", str(file.source), what)])
            zipped.write(central_directory(files))
            zipped.flush()
            os.fsync(zipped.fileno())
        verdict = verify_bundle(temporary, progress=tell)
        _raise_if_any(finding for finding in verdict.findings if finding.severity != "note")
        temporary.chmod(0o644)
        temporary.replace(output)
    except OSError as error:
        what = f"The bundle cannot be written: {error.strerror or error}."
        raise ProblemError([bundle_problem("TP848", str(output), what)], exit_code=2) from None
    finally:
        if temporary:
            temporary.unlink(missing_ok=True)
