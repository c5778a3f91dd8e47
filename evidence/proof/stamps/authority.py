"""Request a stamp of a time authority: one HTTP POST with a hash, and its answer compared with the request.

Nothing of the run leaves the machine but the hash. The request is written here byte by byte (RFC 3161, section 2.4.1),
since it is one constant around hash and nonce; the answer is read by `rfc3161-client`.

`rfc3161-client` reads the stamp and verifies its signature and chain (RFC 3161, section 2.4.2); what it compares is
compared here first, so that each refusal states what is wrong with this stamp.
"""

from __future__ import annotations

import http.client
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from evidence.proof.keys import needed_module
from evidence.proof.rules import refusal
from schemas.formats import visible
from schemas.problems import ProblemError

SHA256_OID = "2.16.840.1.101.3.4.2.1"
_STATUS = {2: "refused", 3: "is still waiting", 4: "warns of a revocation", 5: "was revoked"}


@dataclass(frozen=True, kw_only=True)
class Stamp:
    """What a time authority answered.

    Attributes:
        answer: The TimeStampResp as it was read. None: it cannot be read, or is not a stamp.
        problem: Why it is not a stamp, as a sentence.
        time: When the authority states that it saw the hash.
        by: Name of the certificate that signed, or the authority's address.
        digest: The hash that it saw; so for the algorithm, by object identifier, and the nonce.
    """

    answer: Any
    problem: str | None
    time: datetime | None = None
    by: str = ""
    digest: bytes = b""
    algorithm: str = ""
    nonce: int | None = None
    expired_at: datetime | None = None
    """When its certificate had expired before the stamp was made. None: it had not."""

    def of_other_data(self, digest: bytes) -> str | None:
        """Return in what it is not a stamp of this SHA-256, as a sentence, or None."""
        if self.algorithm != SHA256_OID:
            return f"The stamp is over a hash of another algorithm ({self.algorithm}); only SHA-256 is taken."
        if self.digest != digest:
            return f"The stamp is over the hash {self.digest.hex()}, and this has {digest.hex()}."
        return None


@dataclass(frozen=True, kw_only=True)
class StampVerdict:
    """What a stamp is worth to one reader.

    Attributes:
        stamp: The stamp.
        root: Name of the trusted root that it is signed under. None: none of them.
        problem: Why it does not hold, as a sentence. None: nothing speaks against it.
    """

    stamp: Stamp
    root: str | None
    problem: str | None


def read_stamp(answer: bytes, authority: str) -> Stamp:
    """Return what an answer states; nothing of it is verified.

    Raises:
        ProblemError: Exit code 2: `rfc3161-client` is not installed.
    """
    library = needed_module("rfc3161_client", "Time stamps", extra="witness")
    try:
        read = library.decode_timestamp_response(answer)
        if read.status > 1:
            said = "; ".join(visible(each) for each in read.status_string)
            what = f"The time authority {_STATUS.get(read.status, 'refused')}{f': {said}' if said else ''}."
            return Stamp(answer=None, problem=what)
        info = read.tst_info
        signer = _signer(read)
    except ValueError:
        return Stamp(answer=None, problem="The answer is not a time stamp of RFC 3161.")
    time = info.gen_time.astimezone(UTC)
    return Stamp(
        answer=read,
        problem=None,
        time=time,
        by=_name(signer) or visible(authority),
        digest=bytes(info.message_imprint.message),
        algorithm=info.message_imprint.hash_algorithm.dotted_string,
        nonce=info.nonce,
        expired_at=signer.not_valid_after_utc if signer is not None and signer.not_valid_after_utc < time else None,
    )


def check(answer: bytes, digest: bytes, authority: str, roots: Mapping[str, Any]) -> StampVerdict:
    """Return what a stamp of a SHA-256 is worth to a reader who trusts some roots.

    Args:
        answer: The TimeStampResp in DER.
        digest: SHA-256 of what it is to be of, 32 bytes.
        authority: Address or file that names it where its certificate does not.
        roots: Root certificates by the names that the reader gave them.

    Raises:
        ProblemError: Exit code 2: `rfc3161-client` is not installed.
    """
    stamp = read_stamp(answer, authority)
    if why := stamp.problem or stamp.of_other_data(digest):
        return StampVerdict(stamp=stamp, root=None, problem=why)
    reasons = {}
    for name, root in roots.items():
        why = _not_under(stamp, digest, root)
        if why is None:
            return StampVerdict(stamp=stamp, root=name, problem=None)
        reasons[name] = why
    if stamp.expired_at:
        what = f"Its certificate expired on {stamp.expired_at:%Y-%m-%d}, before the time that it states."
        return StampVerdict(stamp=stamp, root=None, problem=what)
    if reasons:
        name, why = next(iter(reasons.items()))
        return StampVerdict(
            stamp=stamp, root=None, problem=f"It does not hold under the root certificate {name}: {why}."
        )
    return StampVerdict(stamp=stamp, root=None, problem=None)


def _not_under(stamp: Stamp, digest: bytes, root: Any) -> str | None:
    """Return why a stamp does not hold under a root certificate, or None if it does."""
    library = needed_module("rfc3161_client", "Time stamps", extra="witness")
    verifier = library.VerifierBuilder(roots=[root], intermediates=[]).build()
    try:
        verifier.verify(stamp.answer, digest)
    except library.VerificationError as error:
        return visible(str(error)).rstrip(".")
    return None


def _signer(read: Any) -> Any:
    """Return the certificate of the key that signed, if the answer holds it."""
    x509 = needed_module("cryptography.x509", "Time stamps", extra="witness")
    signed = read.signed_data
    certificates = [x509.load_der_x509_certificate(each) for each in signed.certificates]
    serials = {(each.issuer, each.serial_number) for each in signed.signer_infos}
    return next((each for each in certificates if (each.issuer, each.serial_number) in serials), None)


def _name(certificate: Any) -> str:
    """Return the common name of a certificate, or its whole subject."""
    if certificate is None:
        return ""
    name_oid = needed_module("cryptography.x509.oid", "Time stamps", extra="witness").NameOID
    names = certificate.subject.get_attributes_for_oid(name_oid.COMMON_NAME)
    return visible(str(names[0].value) if names else certificate.subject.rfc4514_string())


SECONDS = 10.0
"""Longest time to wait for an authority."""
MOST_BYTES = 1 << 20
"""Largest answer that is read."""

_SHA256 = bytes.fromhex("300d06096086480165030402010500")
"""AlgorithmIdentifier of SHA-256 in DER: the object identifier 2.16.840.1.101.3.4.2.1 and a null."""
_VERSION, _WITH_CERTIFICATE = b"\x02\x01\x01", b"\x01\x01\xff"


def request_stamp(authority: str, digest: bytes) -> bytes:
    """Return an authority's answer, a TimeStampResp in DER, that is about this digest and this request.

    Args:
        authority: Address of the authority, http or https.
        digest: SHA-256 of what is to be stamped, 32 bytes.

    Raises:
        ProblemError: Exit code 4: it cannot be reached, refuses, or answers something else; the message states which.
            Exit code 2: the address is not one, or `rfc3161-client` is not installed.
    """
    nonce = secrets.randbits(63)
    answer = _post(authority, request(digest, nonce))
    stamp = read_stamp(answer, authority)
    if why := _other_answer(stamp, digest, nonce):
        raise ProblemError([refusal("TP861", authority, why)], exit_code=4)
    return answer


def address_problem(authority: str) -> str | None:
    """Return why a text is not the address of an authority, as a sentence, or None."""
    try:
        parts = urlsplit(authority)
        port_holds = parts.port is None or parts.port > 0
    except ValueError:
        port_holds = False
    if not port_holds or parts.scheme not in {"http", "https"} or not parts.hostname or visible(authority) != authority:
        return f"{visible(authority)} is not an address of the form https://HOST/PATH."
    return None


def request(digest: bytes, nonce: int) -> bytes:
    """Return a TimeStampReq in DER for a SHA-256, which requests the authority's certificate too."""
    imprint = _der(0x30, _SHA256 + _der(0x04, digest))
    number = nonce.to_bytes(nonce.bit_length() // 8 + 1, "big")
    return _der(0x30, _VERSION + imprint + _der(0x02, number) + _WITH_CERTIFICATE)


def _der(tag: int, content: bytes) -> bytes:
    """Return a value in DER; all of these are shorter than 128 bytes, whose length is one byte."""
    return bytes((tag, len(content))) + content


def _other_answer(stamp: Stamp, digest: bytes, nonce: int) -> str | None:
    """Return in what an answer differs from the request, as a sentence."""
    if stamp.problem:
        return stamp.problem
    if stamp.nonce != nonce:
        return "The answer has another nonce than the question, so it is the answer to another one."
    return stamp.of_other_data(digest)


def _post(authority: str, body: bytes) -> bytes:
    if why := address_problem(authority):
        raise ProblemError([refusal("TP861", authority, why, next="Give the authority's address.")], exit_code=2)
    parts = urlsplit(authority)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=SECONDS)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request("POST", target, body, {"Content-Type": "application/timestamp-query"})
        with connection.getresponse() as answer:
            content = answer.read(MOST_BYTES + 1)
    except TimeoutError:
        raise _unreachable(authority, f"did not answer within {SECONDS:.0f} seconds") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise _unreachable(authority, f"cannot be reached: {visible(reason)}") from None
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK:
        elsewhere = answer.getheader("Location")
        moved = f" and names {visible(elsewhere)}" if elsewhere else ""
        raise _unreachable(authority, f"answered with status {answer.status}{moved}")
    if len(content) > MOST_BYTES:
        raise _unreachable(authority, f"answered with more than {MOST_BYTES:,} bytes")
    return content


def _unreachable(authority: str, what: str) -> ProblemError:
    return ProblemError([refusal("TP861", authority, f"The time authority {what}.")], exit_code=4)


def stamp_path(file: Path) -> Path:
    """Return where the time stamp of a file lies: `a.zip` and `a.zip.tsr`, which `openssl ts` reads too."""
    return Path(f"{file}.tsr")
