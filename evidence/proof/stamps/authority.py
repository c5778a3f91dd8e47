"""Request a stamp of a time authority: one HTTP POST with a hash, and its answer compared with the request.

Nothing of the run leaves the machine but the hash. The request is written here byte by byte (RFC 3161, section 2.4.1),
since it is one constant around hash and nonce; the answer is read by `rfc3161-client`.
"""

from __future__ import annotations

import http.client
import secrets
from pathlib import Path
from urllib.parse import urlsplit

from evidence.proof.rules import NOT_STAMPED, refusal
from evidence.proof.stamps.check import Stamp, read_stamp
from schemas.problems.problem import ProblemError
from schemas.problems.visible import visible

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
        raise ProblemError([refusal(NOT_STAMPED, authority, why)], exit_code=4)
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
        raise ProblemError([refusal(NOT_STAMPED, authority, why, next="Give the authority's address.")], exit_code=2)
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
    return ProblemError([refusal(NOT_STAMPED, authority, f"The time authority {what}.")], exit_code=4)


def stamp_path(file: Path) -> Path:
    """Return where the time stamp of a file lies: `a.zip` and `a.zip.tsr`, which `openssl ts` reads too."""
    return Path(f"{file}.tsr")
