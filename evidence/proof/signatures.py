"""SSH signatures, made and verified by `ssh-keygen -Y` (OpenSSH 8.2 or later).

What is signed is a bundle's digest or the bytes of a receipt, never a file name. Keys, signatures and lists of allowed
signers are parsed by `ssh-keygen` alone.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from evidence.writing import output_error
from schemas.formats import visible
from schemas.problems import Problem, ProblemError, problem_of

NAMESPACE = "trainproof"  # namespace of our signatures; the signature of a Git commit or an e-mail has another

_MAX_FILE_BYTES = 1 << 20  # of a key, signature or certificate
_GOOD_SIGNATURE = re.compile(rb'Good "trainproof" signature with \S+ key (SHA256:[A-Za-z0-9+/]{43})\s*')
_INSTALL = (
    "Install OpenSSH 8.2 or later: `apt install openssh-client`, `brew install openssh`, or the optional feature "
    "OpenSSH Client of Windows."
)


@dataclass(frozen=True, kw_only=True)
class SignatureResult:
    """Result of verifying a signature: fingerprint and owners of its key, or why it is not valid."""

    key_id: str | None = None
    names: tuple[str, ...] = ()
    problem: Problem | None = None


def signature_path(file: Path) -> Path:
    """Return the path of a file's signature: `a.zip.sig` for `a.zip`."""
    return Path(f"{file}.sig")


def bundle_message(content_sha256: str, manifest_sha256: str) -> bytes:
    """Return the text that is signed for a bundle: the content digest of the runs, and the hash of its manifest."""
    return f"trainproof bundle\ncontent {content_sha256}\nbundle_manifest.json {manifest_sha256}\n".encode()


def sign(message: bytes, key: Path, output: Path) -> str:
    """Sign a message into an armored signature file and return the fingerprint of the key.

    `key` is a private SSH key, or a public one whose private key is in the SSH agent. Every problem has exit code 2.
    """
    signed = _ssh_keygen("-Y", "sign", "-n", NAMESPACE, "-f", str(key), message=message)
    if signed.returncode:
        raise problem_error(key, "TP855", what=f"Signing with this key failed: {_reason(signed)}")
    try:
        if output.exists() and output.read_bytes() != signed.stdout:
            what = "Another signature exists here, and signatures are never overwritten."
            raise problem_error(output, "TP870", what=what)
        output.write_bytes(signed.stdout)
    except OSError as error:
        raise output_error(error, output, subject="The signature") from None
    result = verify_signature(message, output)
    if result.problem:
        raise ProblemError([result.problem], exit_code=2)
    return str(result.key_id)


def verify_signature(message: bytes, signature: Path, allowed_signers: Path | None = None) -> SignatureResult:
    """Verify the signature of a message and find its signers in a list of `allowed_signers`, if one is given.

    `ssh-keygen` applies the options of that list, such as `valid-before`.
    """
    file = visible(str(signature))
    try:
        content = read_limited(signature)
    except OSError as error:
        what = f"The signature cannot be read: {error.strerror or error}."
        return SignatureResult(problem=problem_of("TP869", file=file, what=what))
    with TemporaryDirectory(prefix="trainproof-") as folder:
        copy = Path(folder) / "signature"
        copy.write_bytes(content)
        common = ("-n", NAMESPACE, "-s", str(copy))
        checked = _ssh_keygen("-Y", "check-novalidate", *common, message=message)
        good = _GOOD_SIGNATURE.fullmatch(checked.stdout)
        if checked.returncode or good is None:
            what = f"This is not a signature of this content: {_reason(checked)}"
            return SignatureResult(problem=problem_of("TP834", file=file, what=what))
        names: list[str] = []
        if allowed_signers is not None and allowed_signers.is_file():
            known = ("-f", str(allowed_signers))
            found = _ssh_keygen("-Y", "find-principals", "-s", str(copy), *known).stdout.decode("utf-8", "replace")
            names = [
                visible(name)
                for name in dict.fromkeys(found.splitlines())
                if not _ssh_keygen("-Y", "verify", *common, *known, "-I", name, message=message).returncode
            ]
    return SignatureResult(key_id=good[1].decode("ascii"), names=tuple(names))


def create_key(path: Path) -> str:
    """Create a private Ed25519 key and the public key next to it, and return the fingerprint."""
    public = Path(f"{path}.pub")
    if path.exists() or public.exists():  # ssh-keygen would ask
        raise problem_error(path, "TP855", what="This key exists, and keys are never overwritten.")
    made = _ssh_keygen("-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path))
    if made.returncode:
        raise problem_error(path, "TP855", what=f"The key cannot be created: {_reason(made)}")
    return read_fingerprint(public)


def read_fingerprint(key: Path) -> str:
    """Return the fingerprint of a public key file."""
    return fingerprint(read_or_refuse(key, "TP855", "The key"), str(key))


def fingerprint(key: bytes, file: str) -> str:
    """Return the fingerprint of a public key, `SHA256:` and 43 characters, or raise a problem of `file`."""
    shown = _ssh_keygen("-l", "-f", "-", message=key)
    if shown.returncode or b"PRIVATE KEY" in key:
        raise problem_error(file, "TP855", what="This is not an SSH public key.")
    return shown.stdout.split()[1].decode("ascii", "replace")


def read_limited(path: Path) -> bytes:
    """Read a file, or return nothing if it is too large to be a key, signature or certificate."""
    with path.open("rb") as file:
        content = file.read(_MAX_FILE_BYTES + 1)
    return content if len(content) <= _MAX_FILE_BYTES else b""


def read_or_refuse(path: Path, code: str, subject: str) -> bytes:
    """Read a file as `read_limited` does, or raise a problem with exit code 2, such as `The key cannot be read: …`."""
    try:
        return read_limited(path)
    except OSError as error:
        raise problem_error(path, code, what=f"{subject} cannot be read: {error.strerror or error}.") from None


def _ssh_keygen(*arguments: str, message: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run `ssh-keygen` with a message as its standard input, or raise a problem if it is missing or too old."""
    program = shutil.which("ssh-keygen")
    if program is None:
        what = "Signatures need `ssh-keygen`, which is not installed."
        raise problem_error(file="", code="TP095", what=what, next=_INSTALL)
    finished = subprocess.run([program, *arguments], input=message, capture_output=True, check=False)
    if b"usage:" in finished.stderr:
        raise problem_error(file="", code="TP095", what=f"{program} is too old for signatures of files.", next=_INSTALL)
    return finished


def problem_error(
    file: Path | str, code: str, *, what: str, next: str | None = None, exit_code: int = 2
) -> ProblemError:
    """Return an error with one problem about a file whose name may be hostile."""
    return ProblemError([problem_of(code, file=visible(str(file)), what=what, next=next)], exit_code=exit_code)


def _reason(finished: subprocess.CompletedProcess[bytes]) -> str:
    """Return what `ssh-keygen` wrote to standard error, as the end of a sentence."""
    lines = finished.stderr.decode("utf-8", "replace").replace("\r", "").splitlines()
    shown = [visible(line.strip()) for line in lines if line.strip() and not line.startswith(("@", "Signing data"))]
    return f"{'; '.join(shown).rstrip('.') or 'it gives no reason'}."
