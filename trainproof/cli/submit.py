"""Submit runs: `package`, `sign`, `verify`."""

from __future__ import annotations

import sys
import zipfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from evidence.bundle.build import BuildReport, build_bundle
from evidence.bundle.contents import Progress
from evidence.bundle.reading import is_unpacked_bundle
from evidence.bundle.verify import BundleVerdict, verify_bundle
from evidence.bundle.witnesses import check_attestation, check_signature, check_timestamps, sign_bundle
from evidence.grade import CONSISTENT, FOLDER
from evidence.hashes import sha256_file
from evidence.layout import MANIFEST, STAMPS
from evidence.proof.receipts import sign_receipt
from evidence.proof.signatures import create_key, problem_error, signature_path
from evidence.proof.timestamps import (
    Timestamp,
    load_authority_roots,
    load_timestamps,
    request_timestamp,
    stamp_run,
    timestamp_path,
    verify_timestamp,
)
from evidence.run import read_existing_run
from evidence.writing import as_json_text
from schemas.formats import join_lines, quantity, size
from schemas.problems import ProblemError, problem_of
from schemas.render import render_json, render_text
from trainproof.cli.options import AsJson
from trainproof.output import align, progress_bar

PARTIAL = "  Labelled partial: some runs are unfinished or have errors."


def package(
    runs: Annotated[list[Path] | None, typer.Argument(help="Run folders.")] = None,
    run_dir: Annotated[list[Path] | None, typer.Option(help="Run folder.", hidden=True)] = None,
    output: Annotated[Path | None, typer.Option(help="Zip to write. Default: bundles/<run>.zip.")] = None,
    allow_partial: Annotated[
        bool, typer.Option("--allow-partial", help="Pack unfinished runs and runs with errors, labelled as such.")
    ] = False,
    with_weights: Annotated[
        bool, typer.Option("--with-weights", help="Pack checkpoints, adapters and exports too.")
    ] = False,
    with_unlisted: Annotated[
        bool, typer.Option("--with-unlisted", help="Pack files that a run does not list too.")
    ] = False,
    redact: Annotated[
        bool, typer.Option("--redact", help="Mask secrets and home folders in the packed copies of logs and texts.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Pack runs into one zip that anyone can verify. Exit code 1: a run cannot be packed."""
    folders = [*(runs or []), *(run_dir or [])]
    name = folders[0].resolve().name if len(folders) == 1 else "submission"
    with progress_bar("Packing") as progress:
        report = build_bundle(
            folders,
            output or Path("bundles") / f"{name}.zip",
            allow_partial=allow_partial,
            with_weights=with_weights,
            with_unlisted=with_unlisted,
            redact=redact,
            progress=progress,
        )
    sys.stdout.write(as_json_text(build_json(report)) if as_json else build_text(report))


def build_text(report: BuildReport) -> str:
    """Format what was packed."""
    both = ((run.grade.describe(), run.folder_grade.describe()) for run in report.runs)
    grades = ["; ".join(dict.fromkeys(each)) for each in both]
    lines = [
        f"{report.output}: {size(report.size_bytes)}, {report.files:,} files, intact.",
        *(f"  {run.name}: {graded}" for run, graded in zip(report.runs, grades, strict=True)),
        *([PARTIAL] if report.partial else []),
        *([f"  Skipped: {', '.join(report.left_out)}"] if report.left_out else []),
        *(f"  {item.run}: {item.detail} {item.next}".rstrip() for item in report.challenges),
        *(f"  Redacted: {each.path}, {quantity(each.count, 'place')}." for each in report.redactions),
        f"  content digest {report.content_sha256}",
        f"  zip SHA-256    {report.zip_sha256}",
    ]
    return render_text(report.warnings) + join_lines(lines)


def build_json(report: BuildReport) -> dict[str, Any]:
    """Return what was packed as JSON values."""
    return {
        "output": str(report.output),
        "bytes": report.size_bytes,
        **{name: getattr(report, name) for name in ("zip_sha256", "content_sha256", "partial", "files")},
        "runs": [
            {"run_id": run.name, "stated_grade": run.folder_grade.name, **run.grade.document()} for run in report.runs
        ],
        "left_out": list(report.left_out),
        "redactions": [asdict(each) for each in report.redactions],
        "warnings": render_json(report.warnings),
        "challenges": [
            {"run_id": item.run, "can": item.state == "ok", "said": item.detail} for item in report.challenges
        ],
    }


def sign(
    file: Annotated[
        Path | None, typer.Argument(help="Bundle (zip) or receipt (JSON); with --timestamp, also a run folder.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="Private SSH key, for example ~/.ssh/id_ed25519.")] = None,
    new_key: Annotated[
        Path | None, typer.Option(help="Create a private key here, and its public key next to it.")
    ] = None,
    timestamp: Annotated[
        str | None, typer.Option(metavar="URL", help="Request a timestamp (RFC 3161) from this authority.")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="Root certificate of the authority (PEM), to check its stamp.")
    ] = None,
) -> None:
    """Sign a bundle or receipt, or request a timestamp.

    A signature uses an SSH key; a timestamp shows that the file exists now. Exit code 1: either is not valid.
    """
    if timestamp and file is None:
        message = "--timestamp needs a zip or a run folder."
        raise typer.BadParameter(message)
    if key or new_key or not timestamp:
        sys.stdout.write(sign_file(file, key, new_key))
    if timestamp and file:
        sys.stdout.write(stamp(file, timestamp, certificate))


def sign_file(file: Path | None, key: Path | None, new_key: Path | None) -> str:
    """Create a key, sign a bundle or receipt, or both, and describe it.

    Raises:
        ProblemError: A key is missing (exit code 2), or the bundle is not valid (exit code 1).
    """
    used = key or new_key
    if used is None:
        what = "No key was given." if file else "Neither a file nor a key was given."
        raise problem_error(file="", code="TP855", what=what)
    lines = []
    if new_key:
        lines.append(f"{new_key}: new private key {create_key(new_key)}. Keep it secret.")
        lines.append(f"{new_key}.pub: its public key. Give it to those who verify.")
    if file:
        is_json = file.suffix == ".json" and not zipfile.is_zipfile(file)
        key_id = sign_receipt(file, used) if is_json else sign_bundle(verify_path(file), used)
        lines.append(f"{signature_path(file)}: signed {file.name} with {key_id}.")
    return join_lines(lines)


def stamp(path: Path, authority: str, certificate: Path | None) -> str:
    """Request and store a timestamp for a zip or a run's manifest, and describe it.

    Raises:
        ProblemError: The run has not ended or the stamp is not valid for the certificate (exit code 1), something
            cannot be used (exit code 2), or the authority sent no stamp (exit code 4).
        OSError: A file cannot be read or written.
    """
    roots = load_authority_roots(certificate)
    if path.is_dir():
        manifest = read_existing_run(path).manifest
        if manifest is None or not manifest["artifacts"]:
            what = "The run lacks a valid manifest with its files, so a timestamp would prove nothing."
            raise problem_error(path, "TP861", what=what, exit_code=1, next="Wait until the run has ended.")
        message = (path / MANIFEST).read_bytes()
        if failure := stamp_run(path, "manifest", message, authority, datetime.now(UTC)):
            raise problem_error(authority, "TP861", what=failure, exit_code=4)
        stored, timestamp = path / STAMPS, load_timestamps(path, manifest)[-1]
    else:
        stored, response = timestamp_path(path), request_timestamp(authority, path.read_bytes())
        stored.write_bytes(response)
        timestamp = Timestamp(subject="zip", sha256=sha256_file(path), authority=authority, response=response)
    sentence, is_refuted = verify_timestamp(timestamp, roots, requested=certificate is not None)
    if is_refuted:
        raise problem_error(stored, "TP862", what=sentence, exit_code=1)
    return join_lines([f"{stored}: {sentence}"])


def verify(
    bundle: Annotated[Path, typer.Argument(help="Zip, or the folder that it was unpacked to.")],
    signature: Annotated[Path | None, typer.Option(help="Signature. Default: the .sig next to the zip.")] = None,
    public_key: Annotated[Path | None, typer.Option(help="SSH public key of the expected signer.")] = None,
    tsa_root: Annotated[Path | None, typer.Option(help="Root certificate of the time authority (PEM).")] = None,
    attestation: Annotated[Path | None, typer.Option(help="Attestation of a GitHub workflow.")] = None,
    trusted_root: Annotated[Path | None, typer.Option(help="Trusted root of Sigstore for the attestation.")] = None,
    repository: Annotated[
        str | None, typer.Option(help="OWNER/NAME of the repository whose workflow you trust.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Verify a bundle offline. Hashes, documents and grades are checked again. Exit code 1: it is not valid."""
    with progress_bar("Verifying") as progress:
        verdict = check_signature(verify_path(bundle, progress), signature, public_key)
    verdict = check_timestamps(verdict, tsa_root)
    if attestation is not None:
        verdict = check_attestation(verdict, attestation, trusted_root, repository)
    sys.stdout.write(as_json_text(verdict_json(verdict)) if as_json else verdict_text(verdict))
    raise typer.Exit(0 if verdict.ok else 1)


def verify_path(path: Path, progress: Progress | None = None) -> BundleVerdict:
    """Verify a zip or an unpacked bundle; raise `ProblemError` (exit code 2) or an `OSError` if it is neither."""
    is_missing = not path.exists()
    if is_missing or (path.is_dir() and not is_unpacked_bundle(path)):
        what = "This does not exist." if is_missing else "This folder is not an unpacked bundle."
        fix = "Pass a bundle that `trainproof package` wrote. To check a run, use `trainproof check`."
        raise ProblemError([problem_of("TP091", file=str(path), what=what, why=None, next=fix)], exit_code=2)
    return verify_bundle(path, progress=progress)


def verdict_text(verdict: BundleVerdict) -> str:
    """Format a verdict: the answer, problems, runs and facts as tables, and what is not covered."""
    answer, *more = verdict.answer
    lines = [f"{verdict.path}: {answer}", *(f"  {sentence}" for sentence in more)]
    text = join_lines([*lines, *([PARTIAL] if verdict.partial else [])])
    text += render_text((*verdict.findings, *verdict.witness_problems))
    facts = [("files", f"{verdict.files:,}, {size(verdict.size_bytes)}"), ("signature", verdict.author)]
    facts += [("content digest", verdict.content_sha256)] if verdict.content_sha256 else []
    facts += [("timestamp", sentence) for sentence in verdict.stamps.sentences] if verdict.stamps else []
    if found := verdict.attestation:
        said = f"{found.path.name}: {found.sentence} {found.invocation}" if found.sentence else None
        facts += [("attestation", text) for text in (said, found.unchecked) if text]
    if verdict.runs:
        rows = [("run", "grade", "confirmed by", "errors")]
        for run in verdict.runs:
            by = "nobody you trust" if run.grade.scope == FOLDER else run.grade.scope.removeprefix("with ")
            rows.append((run.name, run.grade.words, by, f"{len(run.errors):,}"))
        told = ((run.name, reason) for run in verdict.runs for reason in run.grade.reasons if reason != CONSISTENT)
        text += f"\n{align(rows)}" + join_lines(f"  {name}: {reason}" for name, reason in told)
    text += f"\n{align(facts)}"
    return text + join_lines(["", "Not covered", *(f"  {each}" for each in verdict.uncovered)] if verdict.holds else [])


def verdict_json(verdict: BundleVerdict) -> dict[str, Any]:
    """Return a verdict as JSON values."""
    signature, stamps, attestation = verdict.signature, verdict.stamps, verdict.attestation
    return {
        "path": str(verdict.path),
        **{name: getattr(verdict, name) for name in ("ok", "proven", "partial", "content_sha256")},
        "redactions": [asdict(each) for each in verdict.redactions],
        "files": verdict.files,
        "bytes": verdict.size_bytes,
        "signature": signature
        and {
            "path": str(signature.path),
            "key_id": signature.key_id,
            "signers": [{"key_id": signature.key_id, "name": name} for name in signature.signers],
            "unknown": int(signature.key_id is not None and not signature.signers),
            "asked": signature.is_requested,
            "holds": bool(signature.signers) and not signature.problems,
            "findings": render_json(signature.problems),
        },
        "stamps": stamps and {"sentences": list(stamps.sentences), "findings": render_json(stamps.problems)},
        "attestation": attestation
        and {
            "path": str(attestation.path),
            **{name: getattr(attestation, name) for name in ("sentence", "invocation", "unchecked")},
            "holds": attestation.sentence is not None and attestation.unchecked is None,
            "findings": render_json(attestation.problems),
        },
        "findings": render_json(verdict.findings),
        "runs": [
            {
                "run_id": run.name,
                "stated_grade": run.stated_grade,
                **run.grade.document(),
                "findings": render_json(run.findings),
            }
            for run in verdict.runs
        ],
    }
