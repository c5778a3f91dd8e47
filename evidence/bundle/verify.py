"""Verifying a bundle with nothing but its files: is it whole, is it ours, are its runs what it states they are.

Nothing is written to disk before the archive has been found harmless and every content has been read once; then the
run documents go to a private temporary folder, are checked and graded again, and the folder is removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evidence.bundle.files import MOST_LIST_BYTES, BundleFiles, open_bundle
from evidence.bundle.format.documents import FileHash, program_build, program_version
from evidence.bundle.format.layout import BUNDLE_MANIFEST, CRATE, HASHES, REPORT, RUNS
from evidence.bundle.format.rules import refusal
from evidence.bundle.inspection import FIT_GRADES, LABELLED_GRADES
from evidence.bundle.integrity import (
    list_problems,
    manifest_problems,
    needed_schema_problems,
    run_names,
    schema_problems,
)
from evidence.bundle.judgement import judged_together, within_run
from evidence.bundle.report.crate import crate_text
from evidence.bundle.report.page import ReportRun, report_html
from evidence.bundle.secrets.redact import (
    MASK,
    MOST_BYTES,
    Redaction,
    may_be_redacted,
    redaction_problems,
    stated_redactions,
)
from evidence.bundle.secrets.scan import encoding_of
from evidence.bundle.verdict import BundleVerdict, VerifiedRun
from evidence.bundle.zip.container import Progress
from evidence.judge.grade import FORMER_NAMES
from evidence.proof.stamps.record import stamps_of
from evidence.proof.verification import graded_with, proofs_of
from evidence.records.facts import facts_of
from evidence.run.layout import MANIFEST, in_weight_folder
from evidence.run.scratch import scratch_folder
from schemas.problems import Problem, ProblemError, worst_first
from schemas.validate import read_document

MOST_UNPACKED_BYTES = 8 << 30
"""Most bytes of run documents, weights left out, that are unpacked to be checked."""
SELF_LISTED = frozenset({HASHES, BUNDLE_MANIFEST, CRATE})
"""Files that the crate cannot describe by size, because they depend on it."""

__all__ = ["BundleVerdict", "VerifiedRun", "verify_bundle"]


def verify_bundle(path: Path, *, progress: Progress | None = None) -> BundleVerdict:
    """Return the verdict on a bundle.

    Args:
        path: The zip, or the folder that it was unpacked into.
        progress: Told how many bytes of content have been hashed.

    Raises:
        OSError: The file cannot be read, or the temporary folder not be written.
    """
    try:
        with open_bundle(path) as files:
            found = files.hashes(progress)
            if too_large := _too_large(files):
                return _refuse(path, [too_large])
            with scratch_folder("trainproof-verify-") as scratch:
                return _check_files(path, files, found, scratch)
    except ProblemError as error:
        return _refuse(path, error.problems)


def _refuse(path: Path, problems: Sequence[Problem]) -> BundleVerdict:
    return BundleVerdict(
        path=path,
        findings=worst_first(problems),
        runs=(),
        content_sha256=None,
        manifest_sha256=None,
        partial=False,
        redactions=(),
        files=0,
        size_bytes=0,
    )


def _too_large(files: BundleFiles) -> Problem | None:
    """Return why a bundle is too large to be checked, or None."""
    unpacked = sum(size for path, size in files.sizes.items() if _is_run_document(path))
    if unpacked > MOST_UNPACKED_BYTES:
        expected = f"at most {MOST_UNPACKED_BYTES:,} bytes"
        return refusal("TP812", RUNS, f"The run documents have {unpacked:,} bytes.", expected=expected)
    for path in (HASHES, BUNDLE_MANIFEST, CRATE, REPORT):
        if (size := files.sizes.get(path, 0)) > MOST_LIST_BYTES:
            return refusal(
                "TP812", path, f"The file has {size:,} bytes.", expected=f"at most {MOST_LIST_BYTES:,} bytes"
            )
    return None


def _check_files(path: Path, files: BundleFiles, found: Mapping[str, FileHash], folder: Path) -> BundleVerdict:
    """Return the verdict on a bundle whose files were read once; `folder` is empty and ours."""
    problems = [*list_problems(found, files.content(HASHES)), *files.problems]
    manifest, shape = _manifest(files.content(BUNDLE_MANIFEST), folder)
    problems += shape
    if manifest:
        problems += manifest_problems(found, manifest)
    files.write_to(folder, _is_run_document)
    redactions = stated_redactions(manifest or {})
    masks = {each.path: _masks(files, each.path) for each in redactions if may_be_redacted(each.path)}
    if unfit := list(redaction_problems(redactions, found, masks)):
        problems += unfit
        redactions = ()
    runs = _report_runs(folder, found, redactions)
    verified = [_verify_run(run, manifest or {}, found, folder) for run in runs]
    if manifest:
        problems += _grade_problems(verified, partial=manifest["partial"])
        made = {name: files.content(name) for name in (REPORT, CRATE)}
        problems += _made_problems(runs, manifest, found, made)
    broken = any(problem.severity == "error" for problem in problems)
    return BundleVerdict(
        path=path,
        findings=worst_first(problems),
        runs=tuple(verified),
        content_sha256=manifest["content_sha256"] if manifest and not broken else None,
        manifest_sha256=found[BUNDLE_MANIFEST].sha256 if manifest and not broken else None,
        partial=bool(manifest and manifest["partial"]),
        redactions=redactions,
        files=len(found),
        size_bytes=sum(each.size_bytes for each in found.values()),
    )


def _masks(files: BundleFiles, path: str) -> int:
    """Return how often the mask of a redaction stands in a file, in UTF-8 or UTF-16; 0 if it is too large for one."""
    content = (files.content(path) or b"") if files.sizes.get(path, 0) <= 2 * MOST_BYTES else b""
    return content.decode(encoding_of(content[:2]) or "utf-8", "replace").count(MASK)


def _manifest(content: bytes | None, folder: Path) -> tuple[dict[str, Any] | None, Sequence[Problem]]:
    """Return bundle_manifest.json if it is valid, and what is wrong with it."""
    if content is None:
        return None, [refusal("TP820", BUNDLE_MANIFEST, f"The archive has no {BUNDLE_MANIFEST}.")]
    (folder / BUNDLE_MANIFEST).write_bytes(content)
    document = read_document(folder / BUNDLE_MANIFEST, "bundle_manifest")
    problems = [within_run(problem, folder) for problem in document.problems]
    return (None if any(problem.severity == "error" for problem in problems) else document.value), problems


def _is_run_document(path: str) -> bool:
    """Return whether a file of a bundle is a document of a run: in a run folder, and no weights."""
    top, _, rest = path.partition("/")
    return top == RUNS and not path.endswith("/") and not in_weight_folder(rest.partition("/")[2])


def _report_runs(folder: Path, found: Mapping[str, FileHash], redactions: Sequence[Redaction]) -> list[ReportRun]:
    """Return the runs that were unpacked, checked and graded again."""
    return [
        ReportRun(
            name=judged.name,
            grade=judged.grade,
            findings=judged.findings,
            facts=facts_of(judged.run),
            notes=judged.run.notes,
            files=tuple(file for path, file in found.items() if path.startswith(f"{RUNS}/{judged.name}/")),
        )
        for judged in judged_together([folder / RUNS / name for name in sorted(run_names(found))], redactions)
    ]


def _verify_run(
    run: ReportRun, manifest: Mapping[str, Any], found: Mapping[str, FileHash], folder: Path
) -> VerifiedRun:
    place = f"{RUNS}/{run.name}"
    stated = {each["run_id"]: each["grade"] for each in manifest.get("runs", [])}.get(run.name)
    hash_of_manifest = found.get(f"{place}/{MANIFEST}")
    proofs = proofs_of(folder / place, hash_of_manifest.sha256) if hash_of_manifest else ()
    grade = graded_with(run.grade, proofs)
    return VerifiedRun(
        run_id=run.name,
        stated_grade=FORMER_NAMES.get(stated, stated) if stated else None,
        grade_alone=run.grade.name,
        grade=grade.name,
        reasons=tuple(grade.reasons),
        coverage=grade.coverage,
        findings=run.findings,
        predictions=None if run.facts.predictions is None else len(run.facts.predictions),
        run_sha256=hash_of_manifest.sha256 if hash_of_manifest else None,
        commit=run.facts.manifest["code"]["commit"] if run.facts.manifest else None,
        stamps=stamps_of(folder / place, run.facts.manifest),
    )


def _grade_problems(runs: Sequence[VerifiedRun], *, partial: bool) -> Iterator[Problem]:
    """Yield runs whose grade is not the stated one, or not fit for a bundle with or without the label."""
    for run in runs:
        place = f"{RUNS}/{run.run_id}"
        if run.stated_grade not in {None, run.grade_alone}:
            what = f"The bundle states `{run.stated_grade}`; the run is graded `{run.grade_alone}`."
            yield refusal("TP825", place, what)
        errors = any(finding.severity == "error" for finding in run.findings)
        if run.grade_alone not in FIT_GRADES | LABELLED_GRADES:
            what = f"The run is graded `{run.grade_alone}`, which no bundle may hold."
            yield refusal("TP826", place, what, next="Ask for a bundle without this run; no label makes it fit.")
        elif not partial and (errors or run.grade_alone not in FIT_GRADES):
            state = "has errors" if errors else f"is graded `{run.grade_alone}`"
            yield refusal("TP826", place, f"The run {state}, and the bundle is not labelled partial.")


def _made_problems(
    runs: Sequence[ReportRun],
    manifest: Mapping[str, Any],
    found: Mapping[str, FileHash],
    made: Mapping[str, bytes | None],
) -> Iterator[Problem]:
    """Yield in what the files that the program made differ from what it makes; only its own version can show it."""
    made_by = manifest["made_by"]
    version = made_by["version"]
    missing = [name for name, content in made.items() if content is None]
    yield from (refusal("TP820", name, f"The archive has no {name}.") for name in missing)
    if version != program_version():
        what = f"The bundle was built by version {version}, and this is {program_version()}."
        yield refusal("TP830", BUNDLE_MANIFEST, what)
        yield from needed_schema_problems(found)
    elif made_by.get("build") != program_build():
        what = f"The bundle was built by another build of version {version}."
        yield refusal("TP830", BUNDLE_MANIFEST, what)
        yield from needed_schema_problems(found)
    elif not missing:
        yield from schema_problems(found)
        partial = manifest["partial"]
        others = [file for path, file in found.items() if not path.startswith(f"{RUNS}/") and path not in SELF_LISTED]
        if report_html(runs, partial=partial).encode("utf-8") != made[REPORT]:
            yield refusal("TP827", REPORT, "The report differs from the one that the runs inside give.")
        if crate_text(runs, others, partial=partial).encode("utf-8") != made[CRATE]:
            yield refusal("TP831", CRATE, "The crate differs from the one that the files inside give.")
