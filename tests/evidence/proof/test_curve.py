"""Keys that sign everything, from the literature, and keys that are in order.

The eight points of small order and their second spellings are those of Chalkias, Garillot and Nikolaenko, "Taming the
many EdDSAs" (2020), table 6, and of libsodium's list.
"""

import base64
from pathlib import Path

import pytest

from evidence.proof.keys import weakness

SMALL = "Its point has a small order, so one signature fits every content."
SECOND = "It is not the one spelling of its point that RFC 8032 allows, so two keys would be one."
POINTS = {
    "order 1": "0100000000000000000000000000000000000000000000000000000000000000",
    "order 2": "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "order 4": "0000000000000000000000000000000000000000000000000000000000000000",
    "order 4, negative": "0000000000000000000000000000000000000000000000000000000000000080",
    "order 8": "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "order 8, negative": "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
    "order 8, other": "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "order 8, other, negative": "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
}
SPELLINGS = {
    "order 1, sign of zero": "0100000000000000000000000000000000000000000000000000000000000080",
    "order 2, sign of zero": "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "order 1, y beyond the field": "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "order 1, both": "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "order 4, y beyond the field": "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "order 4, y beyond, negative": "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
}
RFC_8032 = [  # section 7.1
    "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
    "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
    "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
    "278117fc144c72340f67d0f2316e8386ceffbf2b2428c9c51fef7c597f1d426e",
    "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
]


@pytest.mark.parametrize("name", POINTS)
def test_a_point_of_small_order(name: str):
    assert weakness(bytes.fromhex(POINTS[name])) == SMALL


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_second_spelling(name: str):
    assert weakness(bytes.fromhex(SPELLINGS[name])) == SECOND


@pytest.mark.parametrize("key", RFC_8032)
def test_keys_of_the_standard_are_in_order(key: str):
    assert weakness(bytes.fromhex(key)) is None


def test_what_is_no_point():
    assert weakness(bytes.fromhex("02" + "00" * 31)) == "It is not a point of the curve."
    assert weakness(b"short") == "It has 5 bytes; a key of Ed25519 has 32."


def test_what_openssl_would_have_accepted(tmp_path: Path):
    """The attack itself: with the point of order 1 this one signature fits every message, for OpenSSL."""
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    from evidence.proof.keys import public_key
    from schemas.problems import ProblemError

    neutral = bytes.fromhex(POINTS["order 1"])
    for message in (b"one", b"another"):
        ed25519.Ed25519PublicKey.from_public_bytes(neutral).verify(neutral + bytes(32), message)
    spki = bytes.fromhex("302a300506032b6570032100") + neutral
    path = tmp_path / "weak.pub"
    path.write_text(f"-----BEGIN PUBLIC KEY-----\n{base64.b64encode(spki).decode()}\n-----END PUBLIC KEY-----\n")
    with pytest.raises(ProblemError) as refused:
        public_key(path)
    [problem] = refused.value.problems
    assert (problem.code, problem.what) == ("TP855", f"This key proves nothing. {SMALL}")
