"""Packing and verifying in words: text for the terminal, plain values for JSON, and a progress bar.

What lives here: wording. What does not: any finding (`evidence.bundle`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evidence.bundle.build import BuildReport
from evidence.bundle.files import is_unpacked_bundle
from evidence.bundle.format.rules import refusal
from evidence.bundle.secrets.redact import Redaction
from evidence.bundle.verify import BundleVerdict, VerifiedRun, verify_bundle
from evidence.bundle.zip.container import Progress
from schemas.formats import as_lines, quantity, size
from schemas.problems import Problem, ProblemError, problem_of
from schemas.render import as_dicts, as_text


def default_output(runs: list[Path]) -> Path:
    """Return the default path of a bundle: named after its run, or `submission` for several."""
    name = runs[0].resolve().name if len(runs) == 1 else "submission"
    return Path("bundles") / f"{name}.zip"


def verdict_on(path: Path, progress: Progress | None = None) -> BundleVerdict:
    """Return the verdict on a bundle that the user named.

    Raises:
        ProblemError: Exit code 2: the file cannot be read, or there is no room to check it.
    """
    if not path.exists() or (path.is_dir() and not is_unpacked_bundle(path)):
        raise ProblemError([_no_file(path)], exit_code=2)
    try:
        return verify_bundle(path, progress=progress)
    except OSError as error:
        what = f"The bundle cannot be checked: {error.strerror or error}."
        raise ProblemError([refusal("TP801", str(error.filename or path), what)], exit_code=2) from None


def build_text(report: BuildReport) -> str:
    """Return what was built, as the terminal shows it."""
    lines = [f"{report.output}: {size(report.size_bytes)}, {report.files:,} files; read back, it holds."]
    lines += [f"  {run.run_id}: {run.grade}" for run in report.runs]
    if report.partial:
        lines.append("  Labelled partial: it holds runs that are not results.")
    if report.left_out:
        lines.append(f"  Left out: {', '.join(report.left_out)}")
    lines += [f"  {item.run}: {item.detail} {item.next}".rstrip() for item in report.challenges]
    lines += _redaction_lines(report.redactions)
    lines += [f"  content digest {report.content_sha256}", f"  zip SHA-256    {report.zip_sha256}"]
    return as_text(report.warnings) + as_lines(lines)


def build_dict(report: BuildReport) -> dict[str, Any]:
    """Return what was built as JSON values."""
    return {
        "output": str(report.output),
        "bytes": report.size_bytes,
        "zip_sha256": report.zip_sha256,
        "content_sha256": report.content_sha256,
        "partial": report.partial,
        "files": report.files,
        "runs": [{"run_id": run.run_id, "grade": run.grade, "reasons": list(run.reasons)} for run in report.runs],
        "left_out": list(report.left_out),
        "redactions": [each.as_dict() for each in report.redactions],
        "warnings": as_dicts(report.warnings),
        "challenges": [
            {"run_id": item.run, "can": item.state == "ok", "said": item.detail} for item in report.challenges
        ],
    }


def verdict_text(verdict: BundleVerdict) -> str:
    """Return a verdict as the terminal shows it: what is wrong, the runs, what is proven."""
    state = "holds" if verdict.ok else "does not hold"
    content = f"{quantity(verdict.files, 'file')}, {size(verdict.size_bytes)}"
    lines = [f"{verdict.path}: {state} ({content})."]
    lines += [_run_line(run) for run in verdict.runs]
    if verdict.partial:
        lines.append("  Labelled partial: it holds runs that are not results.")
    lines += _redaction_lines(verdict.redactions)
    if verdict.content_sha256:
        lines.append(f"  content digest {verdict.content_sha256}")
    lines += _witness_lines(verdict)
    return as_text((*verdict.findings, *verdict.witness_problems)) + as_lines([*lines, verdict.proven])


def verdict_dict(verdict: BundleVerdict) -> dict[str, Any]:
    """Return a verdict as JSON values."""
    return {
        "path": str(verdict.path),
        "ok": verdict.ok,
        "proven": verdict.proven,
        "partial": verdict.partial,
        "content_sha256": verdict.content_sha256,
        "redactions": [each.as_dict() for each in verdict.redactions],
        "files": verdict.files,
        "bytes": verdict.size_bytes,
        "signature": verdict.signature
        and {
            "path": str(verdict.signature.path),
            "key_id": verdict.signature.signers[0].key_id if verdict.signature.signers else None,
            "signers": [{"key_id": each.key_id, "name": each.name} for each in verdict.signature.signers],
            "unknown": verdict.signature.unknown,
            "stated_at": verdict.signature.stated_at,
            "asked": verdict.signature.asked,
            "holds": bool(verdict.signature.signers) and not verdict.signature.problems,
            "findings": as_dicts(verdict.signature.problems),
        },
        "stamps": verdict.stamps
        and {"sentences": list(verdict.stamps.sentences), "findings": as_dicts(verdict.stamps.problems)},
        "attestation": verdict.attestation
        and {
            "path": str(verdict.attestation.path),
            "sentence": verdict.attestation.sentence,
            "invocation": verdict.attestation.invocation,
            "unchecked": verdict.attestation.unchecked,
            "holds": verdict.attestation.sentence is not None and verdict.attestation.unchecked is None,
            "findings": as_dicts(verdict.attestation.problems),
        },
        "findings": as_dicts(verdict.findings),
        "runs": [
            {
                "run_id": run.run_id,
                "stated_grade": run.stated_grade,
                "grade": run.grade,
                "coverage": run.coverage or None,
                "reasons": list(run.reasons),
                "findings": as_dicts(run.findings),
            }
            for run in verdict.runs
        ],
    }


@contextmanager
def progress_bar(words: str) -> Iterator[Progress | None]:
    """Give a function that draws how far work is on a terminal; None if there is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True))
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(words, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _no_file(path: Path) -> Problem:
    what, then = "This does not exist.", "Give the path of a bundle, a zip that `trainproof package` built."
    if path.is_dir():
        what, then = "This folder is not an unpacked bundle.", f"To check runs, use `trainproof check {path}`."
    return problem_of("TP091", file=str(path), what=what, why=None, next=then)


def _redaction_lines(redactions: Sequence[Redaction]) -> Iterator[str]:
    """Yield what was masked; the hash in the run manifest is that of the original, which cannot be checked here."""
    for each in redactions:
        yield f"  Redacted: {each.path}, {quantity(each.count, 'place')}; what stood there cannot be checked."


def _witness_lines(verdict: BundleVerdict) -> Iterator[str]:
    """Yield what time authorities and workflows attest, and what of it is not believed."""
    if verdict.stamps:
        yield from (f"  {sentence}" for sentence in verdict.stamps.sentences)
    attestation = verdict.attestation
    if attestation and attestation.sentence:
        yield f"  {attestation.path.name}: {attestation.sentence} {attestation.invocation}"
        if attestation.unchecked:
            yield f"  {attestation.unchecked}"


def _run_line(run: VerifiedRun) -> str:
    errors = sum(finding.severity == "error" for finding in run.findings)
    found = f", {quantity(errors, 'error')}" if errors else ""
    covered = f" ({run.coverage})" if run.coverage else ""
    return f"  {run.run_id}: {run.grade}{covered}{found}. {' '.join(run.reasons)}"
