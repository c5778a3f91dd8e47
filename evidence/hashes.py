"""Hash files, strings and JSON values with SHA-256, chain the entries of a run, and seal contents for this user."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import tempfile
from collections.abc import Iterable
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any, NamedTuple

from evidence.layout import user_data_folder

CHUNK_BYTES = 2**18  # bytes of a file that are hashed at a time


def sha256_file(path: Path) -> str:
    """Return the hash of a file's bytes as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    # For small files, hashlib.file_digest and a buffered file spend as long on allocating buffers as on hashing.
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def sha256_lines(strings: Iterable[str]) -> str:
    r"""Return the hash of strings in order, each written as a JSON string and a newline: `["a"]` as `"a"\n`, in UTF-8.

    Because of the JSON quoting, `["a", "b"]` and `["a\nb"]` differ.
    """
    lines = "".join(f"{encode_basestring(text)}\n" for text in strings)
    return hashlib.sha256(lines.encode("utf-8", "surrogatepass")).hexdigest()


def sha256_json(value: Any) -> str:
    """Return the hash of a JSON value written with sorted keys and no spaces, in UTF-8.

    For `{"b": 1, "a": "é"}` the bytes `{"a":"é","b":1}` are hashed. A number that is not finite raises a ValueError.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def sha256_manifest(manifest: dict[str, Any]) -> str:
    """Return the hash of a manifest without its artifact list.

    The log stores this hash and the artifact list stores the hash of the log, so editing either one is detected.
    """
    return sha256_json({key: value for key, value in manifest.items() if key != "artifacts"})


class RowsSoFar(NamedTuple):
    """Number and hash of the rows before a chain entry."""

    rows: int
    sha256: str


class Chain:
    """Hash chain of a run: each entry contains the hash of the previous one, so that of the last identifies the run.

    `before` is the hash of the entry of another run that this run continues, or None for a new chain.
    """

    def __init__(self, before: str | None = None) -> None:
        self.entries: list[dict[str, Any]] = []
        self._before = before
        self._rows = 0
        self._lines = hashlib.sha256()

    def row(self, line: bytes) -> None:
        """Add a line of metrics.jsonl, including its newline."""
        self._rows += 1
        self._lines.update(line)

    def rows_so_far(self) -> RowsSoFar:
        """Return number and hash of the rows added so far."""
        return RowsSoFar(self._rows, self._lines.hexdigest())

    def entry(
        self,
        *,
        step: int,
        data_position: int,
        state_sha256: str,
        params_sha256: str | None = None,
        rows: RowsSoFar | None = None,
    ) -> dict[str, Any]:
        """Append the next entry, a line of chain.jsonl (schema `chain_entry`), and return it.

        `rows` are those at the time when the state was saved, by default all rows so far.
        """
        rows = rows or self.rows_so_far()
        entry = {"step": step, "data_position": data_position, "state_sha256": state_sha256}
        entry |= {"params_sha256": params_sha256, "rows": rows.rows, "rows_sha256": rows.sha256, "previous": self.head}
        self.entries.append(entry)
        return entry

    @property
    def head(self) -> str | None:
        """Hash of the last entry; before the first one, of the entry that this run continues."""
        return hash_entry(self.entries[-1]) if self.entries else self._before

    def document(self) -> dict[str, Any]:
        """Return the manifest's group `chain`; there must be an entry."""
        return {"entries": len(self.entries), "head": self.head}


def hash_entry(entry: dict[str, Any]) -> str:
    """Return the hash of an entry, which the next one contains as `previous`."""
    return sha256_json(entry)


_SECRET_BYTES = 32


def secret_path() -> Path:
    """Return the file of this user's secret."""
    return user_data_folder() / "seal.key"


def make_seal(content: bytes) -> str:
    """Authenticate a content with a secret of this user, which the first call creates; raise OSError if it cannot.

    A folder of runs can be cloned, unzipped or shared, so its jobs and receipts may be from anyone. The secret is in
    the user's own data folder: only this user can write a job that the worker starts, or a receipt that counts as the
    user's own.
    """
    return hmac.new(_secret() or _new_secret(), content, hashlib.sha256).hexdigest()


def verify_seal(seal: str | None, content: bytes) -> bool:
    """Return whether this user sealed exactly this content."""
    try:
        secret = _secret()
    except OSError:
        secret = None
    if secret is None or seal is None:
        return False
    expected = hmac.new(secret, content, hashlib.sha256).hexdigest()
    return hmac.compare_digest(seal.encode("utf-8", "replace"), expected.encode())


def _secret() -> bytes | None:
    """Return the secret, or None if it is missing or has the wrong size: an empty file could be guessed."""
    try:
        found = secret_path().read_bytes()
    except FileNotFoundError:
        return None
    return found if len(found) == _SECRET_BYTES else None


def _new_secret() -> bytes:
    """Create the secret. If two processes create it, the last one wins, and the first has to seal again."""
    path = secret_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        part = Path(folder) / path.name
        part.touch(0o600)
        part.write_bytes(secrets.token_bytes(_SECRET_BYTES))
        part.replace(path)
    return path.read_bytes()
