"""Request RFC 3161 timestamps from a time authority, which gets only a hash, store them and verify them.

`stamps.json` of a run holds one for its start (configuration, data and plan) and one for the manifest with the hash of
every file; the run took place between the two. The stamp of a zip is next to it as `.tsr`, as `openssl ts` reads it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from evidence import layout
from evidence.extras import install_command, need
from evidence.hashes import sha256_file
from evidence.proof.signatures import problem_error, read_limited
from evidence.proof.trust import fetch, is_http_url, load_certificate, root_texts
from evidence.writing import write_json
from schemas.catalog import VERSION
from schemas.formats import visible
from schemas.problems import ProblemError
from schemas.reading import get_str
from schemas.validate import read_document

if TYPE_CHECKING:
    from cryptography.x509 import Certificate
    from rfc3161_client import TimeStampResponse

Subject = Literal["start", "manifest", "zip"]

_SUBJECTS: dict[Subject, str] = {
    "start": "configuration, data and plan",
    "manifest": "the manifest with the hash of every file",
    "zip": "the zip",
}


@dataclass(frozen=True, kw_only=True)
class Timestamp:
    """One entry of `stamps.json`, or the stamp next to a zip.

    `sha256` is the hash that the subject has now, or None if a file is missing. `authority` is an address or the name
    of the `.tsr` file, and `response` a TimeStampResp in DER, or None if the request failed with `failure`.
    """

    subject: Subject
    sha256: str | None
    authority: str
    response: bytes | None = None
    failure: str | None = None


def timestamp_path(file: Path) -> Path:
    """Return the path of a file's timestamp: `a.zip.tsr` for `a.zip`."""
    return Path(f"{file}.tsr")


def start_message(folder: Path, manifest: Mapping[str, Any]) -> bytes | None:
    """Return what is stamped for the start of a run, three lines `NAME=SHA256`, or None if a part is missing."""
    data = get_str(manifest, "dataset", "sha256")
    try:
        config, plan = sha256_file(folder / layout.CONFIG), sha256_file(folder / layout.PLAN)
    except OSError:
        return None
    return f"config.yaml={config}\ndata={data}\nplan.json={plan}\n".encode() if data else None


def request_timestamp(authority: str, message: bytes) -> bytes:
    """Request a timestamp of a message and return the response, a TimeStampResp in DER.

    Raises:
        ProblemError: Exit code 4: the authority cannot be reached, refuses, or answers another request. Exit code 2:
            the address is not valid, or the extra `witness` is not installed.
    """
    need("stamp", "witness")
    from rfc3161_client import HashAlgorithm, TimestampRequestBuilder

    if not is_http_url(authority):
        what = f"{visible(authority)} is not an address of the form https://HOST/PATH."
        raise problem_error(authority, "TP861", what=what)
    request = TimestampRequestBuilder(data=message, hash_algorithm=HashAlgorithm.SHA256).build()
    response = fetch(authority, "TP861", query=request.as_bytes(), server="time authority", exit_code=4)
    decoded, digest = _decode(response), hashlib.sha256(message).digest()
    failure = "The time authority answered another request: its response has another nonce or hash."
    if isinstance(decoded, str):
        failure = decoded
    elif (decoded.tst_info.nonce, decoded.tst_info.message_imprint.message) == (request.nonce, digest):
        return response
    raise problem_error(authority, "TP861", what=failure, exit_code=4)


def _decode(response: bytes) -> TimeStampResponse | str:
    """Decode a TimeStampResp, or return why it is not a timestamp."""
    from rfc3161_client import decode_timestamp_response

    try:
        decoded = decode_timestamp_response(response)
        if decoded.status > 1:
            reason = "; ".join(visible(text) for text in decoded.status_string) or f"status {decoded.status}"
            return f"The time authority refused: {reason}."
        _ = decoded.tst_info, decoded.signed_data  # Both are decoded on access.
    except ValueError:
        return "This is not a timestamp of RFC 3161."
    return decoded


def stamp_run(
    folder: Path, subject: Literal["start", "manifest"], message: bytes, authority: str, now: datetime
) -> str | None:
    """Request a timestamp, append the response or the failure to the run's `stamps.json`, and return the failure."""
    row = {
        "of": subject,
        "sha256": hashlib.sha256(message).hexdigest(),
        "authority": authority,
        "asked_at": now.isoformat(timespec="seconds"),
        "response": None,
        "failed": None,
    }
    try:
        row["response"] = base64.b64encode(request_timestamp(authority, message)).decode("ascii")
    except ProblemError as error:
        row["failed"] = error.problems[0].what
    path = folder / layout.STAMPS
    document = read_document(path, "stamps").value if path.exists() else None
    write_json(path, {"schema_version": VERSION, "stamps": [*(document or {"stamps": []})["stamps"], row]})
    return row["failed"]


def load_timestamps(folder: Path, manifest: Mapping[str, Any] | None) -> tuple[Timestamp, ...]:
    """Load the timestamps of a run folder, each with the hash that its subject has now."""
    path = folder / layout.STAMPS
    document = read_document(path, "stamps") if path.is_file() and manifest is not None else None
    if document is None or manifest is None or document.value is None or document.problems:
        return ()
    start = start_message(folder, manifest)
    start_sha256 = hashlib.sha256(start).hexdigest() if start else None
    sha256 = {"start": start_sha256, "manifest": sha256_file(folder / layout.MANIFEST)}
    return tuple(
        Timestamp(
            subject=each["of"],
            sha256=sha256[each["of"]],
            authority=visible(each["authority"]),
            response=base64.b64decode(each["response"]) if each["response"] else None,
            failure=each["failed"] and visible(each["failed"]),
        )
        for each in document.value["stamps"]
    )


def load_zip_timestamp(file: Path) -> Timestamp | None:
    """Load the timestamp next to a zip, or None if the file does not exist."""
    path = timestamp_path(file)
    try:
        response = read_limited(path)
    except OSError:
        return None
    return Timestamp(subject="zip", sha256=sha256_file(file), authority=path.name, response=response)


def load_authority_roots(named: Path | None = None) -> dict[str, Certificate]:
    """Load the root certificate in a file, or those on the trust list."""
    return {name: load_certificate(text, file) for name, text, file in root_texts("time authority", named)}


def verify_timestamp(
    stamp: Timestamp, roots: Mapping[str, Certificate], *, requested: bool = False
) -> tuple[str, bool]:
    """Return what a timestamp proves under trusted root certificates, as a sentence, and whether it is invalid.

    A stamp for other content is invalid. One by an unknown authority is invalid only if `requested`.
    """
    subject = _SUBJECTS[stamp.subject]
    if stamp.failure is not None:
        return f"No timestamp of {subject}: {stamp.failure}", False
    if find_spec("rfc3161_client") is None:
        install = install_command("witness")
        return f"The timestamp of {subject} was not checked, which needs `rfc3161-client`: {install}.", False
    from rfc3161_client import VerificationError, VerifierBuilder

    invalid = f"The timestamp of {subject} is not valid."
    if stamp.sha256 is None or stamp.response is None:
        return f"{invalid} A file that it is for is missing.", requested
    decoded, digest = _decode(stamp.response), bytes.fromhex(stamp.sha256)
    if isinstance(decoded, str):
        return f"{invalid} {decoded}", True
    stamped, time = decoded.tst_info.message_imprint.message, decoded.tst_info.gen_time.astimezone(UTC)
    if stamped != digest:
        return f"{invalid} It is for the hash {stamped.hex()}, but this has {stamp.sha256}.", True
    failure = ""
    for name, root in roots.items():
        try:
            VerifierBuilder(roots=[root]).build().verify(decoded, digest)
        except (VerificationError, ValueError) as error:
            failure = failure or f"{invalid} The root certificate {name} does not confirm it: {visible(str(error))}."
        else:
            existed = f"{subject[0].upper()}{subject[1:]} existed before {time:%Y-%m-%d %H:%M:%S} UTC"
            return f"{existed}, according to a time authority whose root certificate you trust ({name}).", False
    if failure and requested:
        return failure, True
    stated = f"A timestamp of {subject} states {time:%Y-%m-%d %H:%M:%S} UTC, by {stamp.authority}."
    return f"{stated} You trust no root certificate of this authority, so it proves nothing to you.", False


def describe_timestamps(folder: Path, manifest: Mapping[str, Any] | None) -> list[str]:
    """Return what the timestamps of a run folder prove under the roots of the trust list, as sentences."""
    stamps = load_timestamps(folder, manifest)
    roots = load_authority_roots() if stamps else {}
    return [verify_timestamp(stamp, roots)[0] for stamp in stamps]
