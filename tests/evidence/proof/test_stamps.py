"""Time stamps against an authority of one's own: what holds, and each thing that does not, in its own words."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rfc3161_client", reason="needs rfc3161-client (extra `witness`)")
if shutil.which("openssl") is None:
    pytest.skip("needs openssl, which is the other implementation", allow_module_level=True)

import rfc3161_client
from own_time_authority import Authority, new_authority, serving

from evidence.proof.stamps.authority import address_problem, check, read_stamp, request, request_stamp
from evidence.proof.trust import loaded_certificate
from schemas.problems import ProblemError

DATA = b"what was there"
DIGEST = hashlib.sha256(DATA).digest()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("authority") / "own")


@pytest.fixture(scope="module")
def url(authority: Authority) -> Iterator[str]:
    with serving(authority.answer) as address:
        yield address


@pytest.fixture(scope="module")
def answer(url: str) -> bytes:
    return request_stamp(url, DIGEST)


def root_of(authority: Authority) -> dict[str, object]:
    return {"own root": loaded_certificate(authority.root.read_bytes(), "root.pem")}


def refusal_of(address: str, digest: bytes = DIGEST) -> tuple[str, int]:
    with pytest.raises(ProblemError) as refused:
        request_stamp(address, digest)
    [problem] = refused.value.problems
    assert problem.code == "TP861"
    return problem.what, refused.value.exit_code


def test_the_request_is_the_one_that_another_implementation_writes():
    theirs = rfc3161_client.TimestampRequestBuilder(data=DATA, hash_algorithm=rfc3161_client.HashAlgorithm.SHA256)
    built = theirs.build()
    assert request(DIGEST, built.nonce) == built.as_bytes()


def test_a_stamp_holds_here_and_for_openssl(authority: Authority, answer: bytes, tmp_path: Path):
    worth = check(answer, DIGEST, "x", root_of(authority))
    assert (worth.root, worth.problem, worth.stamp.by) == ("own root", None, "Own Time")
    assert worth.stamp.time is not None
    (tmp_path / "data").write_bytes(DATA)
    (tmp_path / "answer").write_bytes(answer)
    assert authority.agrees(tmp_path / "data", tmp_path / "answer")


def test_without_a_root_it_is_only_read(answer: bytes):
    worth = check(answer, DIGEST, "x", {})
    assert (worth.root, worth.problem) == (None, None)


def test_of_other_data(authority: Authority, answer: bytes):
    other = hashlib.sha256(b"something else").digest()
    worth = check(answer, other, "x", root_of(authority))
    assert worth.problem == f"The stamp is over the hash {DIGEST.hex()}, and this has {other.hex()}."


def test_of_a_foreign_authority(answer: bytes, tmp_path: Path):
    foreign = new_authority(tmp_path / "foreign")
    worth = check(answer, DIGEST, "x", {"another": loaded_certificate(foreign.root.read_bytes(), "")})
    assert worth.root is None
    assert worth.problem is not None
    assert worth.problem.startswith("It does not hold under the root certificate another: ")


def test_by_a_certificate_that_had_expired(tmp_path: Path):
    old = new_authority(tmp_path / "old", expired=True)
    worth = check(old.answer(request(DIGEST, 7)), DIGEST, "x", root_of(old))
    assert worth.root is None
    assert worth.problem is not None
    assert worth.problem.startswith("Its certificate expired on 20")
    assert worth.problem.endswith(", before the time that it states.")


def test_a_changed_stamp(authority: Authority, answer: bytes):
    """Every byte of the signature counts: its last ones are in the middle of the answer's last value."""
    broken = answer[:-5] + bytes([answer[-5] ^ 1]) + answer[-4:]
    worth = check(broken, DIGEST, "x", root_of(authority))
    assert worth.root is None
    assert worth.problem is not None


def test_an_answer_to_another_question(authority: Authority):
    recorded = authority.answer(request(DIGEST, 99))
    with serving(lambda _: recorded) as address:
        assert refusal_of(address) == (
            "The answer has another nonce than the question, so it is the answer to another one.",
            4,
        )


def test_an_answer_of_another_hash_algorithm(authority: Authority):
    sha512 = authority.answer(authority.query(DATA, "-sha512"))
    what = "The stamp is over a hash of another algorithm (2.16.840.1.101.3.4.2.3); only SHA-256 is taken."
    assert check(sha512, DIGEST, "x", root_of(authority)).problem == what


@pytest.mark.parametrize("content", [b"", b"hello", b"\x30\x03\x02\x01\x00", b"0" * 3000])
def test_answers_that_are_no_stamps(content: bytes):
    with serving(lambda _: content) as address:
        assert refusal_of(address) == ("The answer is not a time stamp of RFC 3161.", 4)


def test_a_refusal_is_passed_on(authority: Authority):
    rejection = authority.answer(authority.query(DATA, "-sha384"))  # the authority does not take SHA-384
    assert read_stamp(rejection, "x").problem is not None
    with serving(lambda _: rejection) as address:
        assert refusal_of(address)[0].startswith("The time authority refused")


def test_an_authority_that_is_not_there():
    with serving(lambda _: 503) as address:
        assert refusal_of(address) == ("The time authority answered with status 503.", 4)
    assert refusal_of(address)[0].startswith("The time authority cannot be reached: ")  # the server has ended


def test_an_endless_answer_is_cut_off():
    with serving(lambda _: bytes(2 << 20)) as address:
        assert refusal_of(address) == ("The time authority answered with more than 1,048,576 bytes.", 4)


@pytest.mark.parametrize(
    "text", ["", "time.example", "ftp://time.example", "file:///etc/passwd", "http://[", "http://a\nb"]
)
def test_addresses_that_are_none(text: str):
    assert address_problem(text) is not None
    assert refusal_of(text)[1] == 2


def test_one_that_is_an_address():
    assert address_problem("https://time.example:8443/tsr?x=1") is None
