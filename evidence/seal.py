"""Seal contents with a secret of this user, to recognise later what this user made.

A folder of runs can be cloned, unzipped or shared, and what lies in it may look like a job or a receipt. The secret is
in the user's own data folder, so nobody else can write a job that this user's worker starts, or a receipt that counts
as this user's.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import hmac
import os
import secrets
import shutil
import stat
import tempfile
from functools import cache
from pathlib import Path

_SECRET_BYTES = 32


def user_folder(variable: str, *below_home: str) -> Path:
    """Return the folder of trainproof below an XDG variable, or below the home folder if the variable is not set.

    A process may have no home folder, for example in a container under a bare user id. It then gets a folder in the
    temporary directory that only this user can enter.
    """
    if parent := os.environ.get(variable):
        return Path(parent) / "trainproof"
    try:
        home = Path.home()
    except RuntimeError:
        home = _temporary_home()
    return home.joinpath(*below_home, "trainproof")


def user_data_folder() -> Path:
    """Return the folder for this user's secret, receipts and trusted keys."""
    return user_folder("XDG_DATA_HOME", ".local", "share")


@cache
def _temporary_home() -> Path:
    """Return a folder that no other user can write to, deleted at exit if its usual name is taken."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    try:
        folder = Path(tempfile.gettempdir()) / f"trainproof-{user}"
    except FileNotFoundError:  # no folder can be written, so nothing is stored
        return Path(os.devnull)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if stat.S_ISDIR(status.st_mode) and status.st_uid == user and not status.st_mode & 0o077:
        return folder
    own = tempfile.mkdtemp(prefix="trainproof-")
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return Path(own)


def secret_path() -> Path:
    """Return the file of this user's secret."""
    return user_data_folder() / "seal.key"


def make_seal(content: bytes) -> str:
    """Return the seal of a content; the first call creates the secret.

    Raises:
        OSError: The secret cannot be read or written.
    """
    return _seal(_secret() or _new_secret(), content)


def verify_seal(seal: str | None, content: bytes) -> bool:
    """Return whether this user sealed exactly this content."""
    try:
        secret = _secret()
    except OSError:
        return False
    if secret is None or seal is None:
        return False
    return hmac.compare_digest(seal.encode("utf-8", "replace"), _seal(secret, content).encode())


def _seal(secret: bytes, content: bytes) -> str:
    return hmac.new(secret, content, hashlib.sha256).hexdigest()


def _secret() -> bytes | None:
    """Return the secret, or None if it is missing or has the wrong size: an empty file could be guessed."""
    try:
        found = secret_path().read_bytes()
    except FileNotFoundError:
        return None
    return found if len(found) == _SECRET_BYTES else None


def _new_secret() -> bytes:
    """Create the secret. If two processes do so at once the last one wins, and the first has to seal again."""
    path = secret_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_SECRET_BYTES))
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return path.read_bytes()
