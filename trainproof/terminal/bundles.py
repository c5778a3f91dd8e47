"""Output of `trainproof package` and `trainproof verify`: text, JSON and a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evidence.bundle.build import BuildReport
from evidence.bundle.container import Progress
from evidence.bundle.contents import bundle_problem
from evidence.bundle.reading import is_unpacked_bundle
from evidence.bundle.secrets import Redaction
from evidence.bundle.verdict import BundleVerdict, VerifiedRun
from evidence.bundle.verify import verify_bundle
from schemas.formats import join_lines, quantity, size
from schemas.problems import Problem, ProblemError, problem_of
from schemas.render import render_json, render_text


def default_output(runs: list[Path]) -> Path:
    """Return `bundles/RUN.zip`, or `bundles/submission.zip` for several runs."""
    name = runs[0].resolve().name if len(runs) == 1 else "submission"
    return Path("bundles") / f"{name}.zip"


def verdict_on(path: Path, progress: Progress | None = None) -> BundleVerdict:
    """Verify a bundle that the user named.

    Raises:
        ProblemError: The file cannot be read, or the disk is full (exit code 2).
    """
    if not path.exists() or (path.is_dir() and not is_unpacked_bundle(path)):
        raise ProblemError([_no_file(path)], exit_code=2)
    try:
        return verify_bundle(path, progress=progress)
    except OSError as error:
        what = f"The bundle cannot be checked: {error.strerror or error}."
        raise ProblemError([bundle_problem("TP801", str(error.filename or path), what)], exit_code=2) from None


def build_text(report: BuildReport) -> str:
    """Format what was built for the terminal."""
    lines = [f"{report.output}: {size(report.size_bytes)}, {report.files:,} files, verified."]
    lines += [f"  {run.name}: {run.grade.name}" for run in report.runs]
    if report.partial:
        lines.append("  Labelled partial: some runs are unfinished or have errors.")
    if report.left_out:
        lines.append(f"  Left out: {', '.join(report.left_out)}")
    lines += [f"  {item.run}: {item.detail} {item.next}".rstrip() for item in report.challenges]
    lines += _redaction_lines(report.redactions)
    lines += [f"  content digest {report.content_sha256}", f"  zip SHA-256    {report.zip_sha256}"]
    return render_text(report.warnings) + join_lines(lines)


def build_dict(report: BuildReport) -> dict[str, Any]:
    """Return what was built for `--json`."""
    return {
        "output": str(report.output),
        "bytes": report.size_bytes,
        "zip_sha256": report.zip_sha256,
        "content_sha256": report.content_sha256,
        "partial": report.partial,
        "files": report.files,
        "runs": [
            {"run_id": run.name, "grade": run.grade.name, "reasons": list(run.grade.reasons)} for run in report.runs
        ],
        "left_out": list(report.left_out),
        "redactions": [each.as_dict() for each in report.redactions],
        "warnings": render_json(report.warnings),
        "challenges": [
            {"run_id": item.run, "can": item.state == "ok", "said": item.detail} for item in report.challenges
        ],
    }


def verdict_text(verdict: BundleVerdict) -> str:
    """Format a verdict for the terminal: problems, runs, and what is proven."""
    state = "valid" if verdict.ok else "not valid"
    content = f"{quantity(verdict.files, 'file')}, {size(verdict.size_bytes)}"
    lines = [f"{verdict.path}: {state} ({content})."]
    lines += [_run_line(run) for run in verdict.runs]
    if verdict.partial:
        lines.append("  Labelled partial: some runs are unfinished or have errors.")
    lines += _redaction_lines(verdict.redactions)
    if verdict.content_sha256:
        lines.append(f"  content digest {verdict.content_sha256}")
    lines += _witness_lines(verdict)
    return render_text((*verdict.findings, *verdict.witness_problems)) + join_lines([*lines, verdict.proven])


def verdict_dict(verdict: BundleVerdict) -> dict[str, Any]:
    """Return a verdict for `--json`."""
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
            "key_id": verdict.signature.key_id,
            "signers": [{"key_id": each.key_id, "name": each.name} for each in verdict.signature.signers],
            "unknown": int(verdict.signature.key_id is not None and not verdict.signature.signers),
            "asked": verdict.signature.asked,
            "holds": bool(verdict.signature.signers) and not verdict.signature.problems,
            "findings": render_json(verdict.signature.problems),
        },
        "stamps": verdict.stamps
        and {"sentences": list(verdict.stamps.sentences), "findings": render_json(verdict.stamps.problems)},
        "attestation": verdict.attestation
        and {
            "path": str(verdict.attestation.path),
            "sentence": verdict.attestation.sentence,
            "invocation": verdict.attestation.invocation,
            "unchecked": verdict.attestation.unchecked,
            "holds": verdict.attestation.sentence is not None and verdict.attestation.unchecked is None,
            "findings": render_json(verdict.attestation.problems),
        },
        "findings": render_json(verdict.findings),
        "runs": [
            {
                "run_id": run.run_id,
                "stated_grade": run.stated_grade,
                "grade": run.grade,
                "coverage": run.coverage or None,
                "reasons": list(run.reasons),
                "findings": render_json(run.findings),
            }
            for run in verdict.runs
        ],
    }


@contextmanager
def progress_bar(words: str) -> Iterator[Progress | None]:
    """Give a function that draws a progress bar, or None without a terminal."""
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
    what, then = "This does not exist.", "Pass the path of a bundle that `trainproof package` built."
    if path.is_dir():
        what, then = "This folder is not an unpacked bundle.", f"To check a run, use `trainproof check {path}`."
    return problem_of("TP091", file=str(path), what=what, why=None, next=then)


def _redaction_lines(redactions: Sequence[Redaction]) -> Iterator[str]:
    """Yield the masked files; the originals, whose hashes the run manifest holds, cannot be checked."""
    for each in redactions:
        yield f"  Redacted: {each.path}, {quantity(each.count, 'place')}."


def _witness_lines(verdict: BundleVerdict) -> Iterator[str]:
    """Yield the results for time stamps and attestations."""
    if verdict.stamps:
        yield from (f"  {sentence}" for sentence in verdict.stamps.sentences)
    attestation = verdict.attestation
    if attestation and attestation.sentence:
        yield f"  {attestation.path.name}: {attestation.sentence} {attestation.invocation}"
    if attestation and attestation.unchecked:
        yield f"  {attestation.unchecked}"


def _run_line(run: VerifiedRun) -> str:
    errors = sum(finding.severity == "error" for finding in run.findings)
    found = f", {quantity(errors, 'error')}" if errors else ""
    covered = f" ({run.coverage})" if run.coverage else ""
    return f"  {run.run_id}: {run.grade}{covered}{found}. {' '.join(run.reasons)}"
