"""Timestamps from a time authority of our own, which OpenSSL implements."""

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rfc3161_client", reason="needs rfc3161-client (extra `witness`)")
if shutil.which("openssl") is None:
    pytest.skip("needs openssl", allow_module_level=True)

from own_time_authority import Authority, new_authority, serving

from evidence.proof.timestamps import Timestamp, request_timestamp, verify_timestamp
from evidence.proof.trust import load_certificate
from schemas.problems import ProblemError

DATA = b"what was there"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("authority") / "own")


@pytest.fixture(scope="module")
def response(authority: Authority) -> Iterator[bytes]:
    with serving(authority.answer) as address:
        yield request_timestamp(address, DATA)


def verified(response: bytes, *authorities: Authority, data: bytes = DATA, requested: bool = True) -> tuple[str, bool]:
    stamp = Timestamp(subject="zip", sha256=hashlib.sha256(data).hexdigest(), authority="x", response=response)
    roots = {each.folder.name: load_certificate(each.root.read_text(), "") for each in authorities}
    return verify_timestamp(stamp, roots, requested=requested)


def test_openssl_agrees(authority: Authority, response: bytes, tmp_path: Path) -> None:
    sentence, is_refuted = verified(response, authority)
    assert sentence.startswith("The zip existed before 20")
    assert not is_refuted
    (tmp_path / "data").write_bytes(DATA)
    (tmp_path / "response").write_bytes(response)
    assert authority.agrees(tmp_path / "data", tmp_path / "response")


def test_unknown_authority_proves_nothing(response: bytes, tmp_path: Path) -> None:
    sentence, is_refuted = verified(response)
    assert (sentence[-25:], is_refuted) == ("it proves nothing to you.", False)
    foreign = new_authority(tmp_path / "foreign")
    assert verified(response, foreign, requested=False)[1] is False
    sentence, is_refuted = verified(response, foreign)
    assert ("The root certificate foreign does not confirm it: " in sentence, is_refuted) == (True, True)


def test_invalid_stamps(authority: Authority, response: bytes, tmp_path: Path) -> None:
    sentence, is_refuted = verified(response, authority, data=b"something else", requested=False)
    assert ("It is for the hash " in sentence, is_refuted) == (True, True)
    changed = response[:-5] + bytes([response[-5] ^ 1]) + response[-4:]
    expired = new_authority(tmp_path / "old", expired=True)
    sha512 = authority.answer(authority.query(DATA, "-sha512"))
    for other, root in [
        (changed, authority),
        (expired.answer(authority.query(DATA)), expired),
        (sha512, authority),
        (b"junk", authority),
    ]:
        assert verified(other, root)[1]


def refusal(address: str) -> tuple[str, int]:
    with pytest.raises(ProblemError) as refused:
        request_timestamp(address, DATA)
    [problem] = refused.value.problems
    assert problem.code == "TP861"
    return problem.what, refused.value.exit_code


def test_invalid_answers_are_refused(authority: Authority) -> None:
    recorded, rejection = (authority.answer(authority.query(DATA, flag)) for flag in ("-sha256", "-sha384"))
    cases: list[tuple[bytes | int, str]] = [
        (recorded, "The time authority answered another request: "),  # its nonce is that of an earlier request
        (rejection, "The time authority refused: "),
        (b"", "This is not a timestamp"),
        (b"\x30\x03\x02\x01\x00", "This is not a timestamp"),
        (bytes(2 << 20), "The time authority answered with more than 1,048,576 bytes."),
        (503, "The time authority answered with status 503."),
    ]
    for answer, expected in cases:
        with serving(lambda _, answer=answer: answer) as address:
            what, exit_code = refusal(address)
        assert (what[: len(expected)], exit_code) == (expected, 4)
    assert refusal(address)[0].startswith("The time authority cannot be reached: ")  # the server has ended


@pytest.mark.parametrize(
    "text", ["", "time.example", "ftp://time.example", "file:///etc/passwd", "http://[", "http://a\nb"]
)
def test_only_http_addresses_are_used(text: str) -> None:
    assert refusal(text)[1] == 2
