"""Keys of Ed25519: made, read from PEM files, and refused where they prove nothing.

The package `cryptography` is loaded when it is needed and comes with the extra `sign`.

A key whose point has a small order signs everything: with the point of order 1 one fixed signature fits every message
(Chalkias, Garillot, Nikolaenko: Taming the many EdDSAs, 2020, section 2). OpenSSL loads such keys, so they are refused
here, and with them every second spelling of a point (RFC 8032, section 5.1.3).
"""

from __future__ import annotations

import hashlib
import importlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.proof.rules import refusal
from evidence.run.extras import Extra, install_command
from schemas.problems import ProblemError, problem_of

_P = 2**255 - 19
"""The field of edwards25519 (RFC 8032, section 5.1)."""
_D = -121665 * pow(121666, -1, _P) % _P
"""The curve: -x² + y² = 1 + d x² y²."""
_SIGN = 1 << 255


def weakness(key: bytes) -> str | None:
    """Return why a public key is of no use, as a sentence, or None for one that holds.

    Args:
        key: The 32 bytes of the key: y in little endian, the sign of x in the highest bit.
    """
    if len(key) != 32:
        return f"It has {len(key)} bytes; a key of Ed25519 has 32."
    number = int.from_bytes(key, "little")
    y, negative = number % _SIGN, number >= _SIGN
    x_squared = _x_squared(y)
    if y >= _P or (x_squared == 0 and negative):
        return "It is not the one spelling of its point that RFC 8032 allows, so two keys would be one."
    if x_squared and pow(x_squared, (_P - 1) // 2, _P) != 1:
        return "It is not a point of the curve."
    if _times_eight(y) == 1:
        return "Its point has a small order, so one signature fits every content."
    return None


def _x_squared(y: int) -> int:
    """Return x² of a point by its y; the denominator is never 0, since -1/d is not a square."""
    return (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P


def _times_eight(y: int) -> int:
    """Return y of eight times a point: doubled three times, y(2P) = (y² + x²) / (2 + x² - y²); 1 is the neutral one."""
    for _ in range(3):
        x_squared = _x_squared(y)
        y = (y * y + x_squared) * pow(2 + x_squared - y * y, -1, _P) % _P
    return y


MOST_BYTES = 1 << 20
"""Largest key, signature or certificate that is read."""


@dataclass(frozen=True)
class PublicKey:
    """A public key of Ed25519 that is fit to prove something.

    Attributes:
        raw: Its 32 bytes.
    """

    raw: bytes

    @property
    def key_id(self) -> str:
        """Its name: `SHA256:` and the hash of its bytes."""
        return f"SHA256:{hashlib.sha256(self.raw).hexdigest()}"

    @property
    def pem(self) -> str:
        """The key as a PEM file holds it."""
        ed25519, serialization = crypto()
        form = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        text: bytes = ed25519.Ed25519PublicKey.from_public_bytes(self.raw).public_bytes(*form)
        return text.decode("ascii")

    def has_signed(self, message: bytes, signature: bytes) -> bool:
        """Return whether its holder signed a message (RFC 8032, Ed25519 without context)."""
        ed25519, _ = crypto()
        invalid = importlib.import_module("cryptography.exceptions").InvalidSignature
        try:
            ed25519.Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except invalid:
            return False
        return True


@dataclass(frozen=True)
class PrivateKey:
    """A private key; what it holds is never shown."""

    key: Any

    @property
    def public(self) -> PublicKey:
        """Its public key."""
        return PublicKey(self.key.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message; the same message gives the same bytes."""
        signature: bytes = self.key.sign(message)
        return signature


def new_key(path: Path) -> PublicKey:
    """Write a new private key, readable by its owner alone, and its public key beside it.

    Raises:
        ProblemError: Exit code 2: a file is there already or cannot be written, or `cryptography` is not installed.
    """
    public_path = public_of(path)
    if there := [each for each in (path, public_path) if each.exists()]:
        what = "This file exists, and a key is never overwritten."
        raise ProblemError([refusal("TP848", str(each), what) for each in there], exit_code=2)
    ed25519, serialization = crypto()
    key = ed25519.Ed25519PrivateKey.generate()
    form = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    made = PrivateKey(key).public
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(key.private_bytes(serialization.Encoding.PEM, *form))
        public_path.write_bytes(made.pem.encode("ascii"))
    except OSError as error:
        for each in (path, public_path):
            each.unlink(missing_ok=True)  # neither was there before
        what = f"The key cannot be written: {error.strerror or error}."
        raise ProblemError([refusal("TP848", str(path), what)], exit_code=2) from None
    return made


def public_of(path: Path) -> Path:
    """Return where the public key of a private key lies: `me.key` and `me.key.pub`."""
    return Path(f"{path}.pub")


def private_key(path: Path) -> PrivateKey:
    """Return the private key in a PEM file.

    Raises:
        ProblemError: Exit code 2: the file does not hold one, or `cryptography` is not installed.
    """
    ed25519, serialization = crypto()

    def load(pem: bytes) -> Any:
        return serialization.load_pem_private_key(pem, None)

    return PrivateKey(_key(_content(path), path, load, ed25519.Ed25519PrivateKey, "private"))


def public_key(path: Path) -> PublicKey:
    """Return the public key in a PEM file.

    Raises:
        ProblemError: Exit code 2: the file does not hold one, it proves nothing, or `cryptography` is not installed.
    """
    return public_key_in(_content(path), path)


def public_key_in(pem: bytes, path: Path) -> PublicKey:
    """Return the public key in the text of a PEM file; `path` states where the text is from.

    Raises:
        ProblemError: Exit code 2, as `public_key`.
    """
    ed25519, serialization = crypto()
    raw = _key(pem, path, serialization.load_pem_public_key, ed25519.Ed25519PublicKey, "public").public_bytes_raw()
    if why := weakness(raw):
        then = "Ask its owner for another key; do not rely on anything that it signed."
        raise ProblemError([refusal("TP855", str(path), f"This key proves nothing. {why}", next=then)], exit_code=2)
    return PublicKey(raw)


def limited_content(path: Path) -> bytes:
    """Return what a file holds; nothing of one that is too large for a key, a signature or a certificate.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    return content if len(content) <= MOST_BYTES else b""


def crypto() -> tuple[Any, Any]:
    """Return the modules of `cryptography` for Ed25519 and for key files.

    Raises:
        ProblemError: Exit code 2: it is not installed.
    """
    asymmetric = needed_module("cryptography.hazmat.primitives.asymmetric.ed25519", "Signatures", extra="sign")
    return asymmetric, needed_module("cryptography.hazmat.primitives.serialization", "Signatures", extra="sign")


def needed_module(name: str, what_needs_it: str, *, extra: Extra) -> Any:
    """Return a module of an extra.

    Raises:
        ProblemError: Exit code 2: its package is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.partition(".")[0].replace("_", "-")
        what = f"{what_needs_it} need the package `{package}`, which is not installed."
        then = f"Install it: {install_command(extra)}."
        problem = problem_of("TP095", file="", what=what, why=None, next=then)
        raise ProblemError([problem], exit_code=2) from None


def _content(path: Path) -> bytes:
    try:
        return limited_content(path)
    except OSError as error:
        what = f"The key cannot be read: {error.strerror or error}."
        raise ProblemError([refusal("TP855", str(path), what)], exit_code=2) from None


def _key(pem: bytes, path: Path, load: Any, kind: type, word: str) -> Any:
    """Return an Ed25519 key from the text of a PEM file.

    Raises:
        ProblemError: Exit code 2: the file does not hold one.
    """
    unsupported = importlib.import_module("cryptography.exceptions").UnsupportedAlgorithm
    try:
        key = load(pem)
    except (ValueError, TypeError, unsupported):
        key = None
    if not isinstance(key, kind):
        what = f"This is not a {word} key of Ed25519 in PEM form, or a password locks it."
        raise ProblemError([refusal("TP855", str(path), what)], exit_code=2)
    return key
