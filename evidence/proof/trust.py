"""The trust list of this user: SSH keys of people, and root certificates of time authorities and of Sigstore.

The list is in the user's data folder and never in a run, so a run cannot add its author. Its keys are also
written to `allowed_signers`, the file that `ssh-keygen -Y verify` reads (ssh-keygen(1), ALLOWED SIGNERS).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from evidence import layout
from evidence.extras import need
from evidence.proof.signatures import NAMESPACE, fingerprint, problem_error, read_or_refuse
from evidence.writing import output_error, write_json, write_text
from schemas.catalog import VERSION
from schemas.formats import format_value, join_words, visible
from schemas.validate import read_document

if TYPE_CHECKING:
    from cryptography.x509 import Certificate
    from sigstore.models import TrustedRoot

Kind = Literal["key", "time authority", "attestation root"]

_RESERVED_NAMES = ("github", "nobody", "you")  # as the reasons of grades call workflows, strangers and the reader
_NAME = re.compile(r"\w[\w .@+'()-]{0,99}")  # allowed_signers takes these literally: no quotation marks or wildcards
_KEY = re.compile(r"(?:ssh|ecdsa|sk)-[\w@.-]+ [A-Za-z0-9+/]+=*")
_GITHUB_USER = re.compile(r"github:([A-Za-z0-9]+(?:-[A-Za-z0-9]+)*)")
_TIMEOUT_SECONDS = 10.0
_MAX_RESPONSE_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class TrustedEntry:
    """An SSH public key, a certificate in PEM form or a trusted root in JSON.

    `name` is the user's name for it, and `id` the fingerprint that `ssh-keygen -l` prints, or `SHA256:` and a hash.
    """

    kind: Kind
    name: str
    id: str
    content: str
    added_at: str


def trust_path() -> Path:
    """Return the path of this user's trust list."""
    return layout.user_data_folder() / "trust.json"


def allowed_signers_path() -> Path:
    """Return the path of the trusted keys in the format of `ssh-keygen`."""
    return layout.user_data_folder() / "allowed_signers"


def trusted_entries(kind: Kind | None = None) -> list[TrustedEntry]:
    """Return the trust list, or its entries of one kind; a damaged list is a problem with exit code 2."""
    path = trust_path()
    if not path.exists():
        return []
    document = read_document(path, "trust")
    wrong = [problem.what for problem in document.problems]
    entries = [] if wrong or not document.value else [TrustedEntry(**each) for each in document.value["trusted"]]
    wrong += [f"{one.name} needs an SSH key." for one in entries if one.kind == "key" and not _KEY.match(one.content)]
    if wrong:
        raise problem_error(path, "TP860", what=f"The trust list is not valid: {wrong[0]}")
    return [each for each in entries if kind in (None, each.kind)]


def add_trusted(source: str, name: str | None, now: datetime) -> list[TrustedEntry]:
    """Add the keys, certificate or Sigstore root of a source to the trust list, or rename them.

    `source` is a file, an `https` address, or `github:USER` for the keys that GitHub publishes, which need no name. An
    invalid source or name, and a list that cannot be written, are problems with exit code 2.
    """
    github = _GITHUB_USER.fullmatch(source)
    name = (name if name is not None else github[1] if github else "").strip()
    if not _NAME.fullmatch(name) or name.casefold() in _RESERVED_NAMES:
        allowed = "at most 100 letters, digits, spaces and .@+'()-, beginning with a letter or digit"
        what = f"{format_value(name)} cannot be a name on the trust list."
        advice = f"Pass another `--name`: {allowed}, and not {join_words(_RESERVED_NAMES)}."
        raise problem_error(file="", code="TP859", what=what, next=advice)
    found = _recognize(_load(f"https://github.com/{github[1]}.keys" if github else source), source)
    added_at = now.isoformat(timespec="seconds")
    new = [TrustedEntry(kind=kind, name=name, id=id_, content=text, added_at=added_at) for kind, id_, text in found]
    ids = {each.id for each in new}
    _write([*(each for each in trusted_entries() if each.id not in ids), *new])
    return new


def remove_trusted(name_or_id: str) -> list[TrustedEntry]:
    """Remove the entries with a name or id from the trust list and return them."""
    entries = trusted_entries()
    removed = [each for each in entries if name_or_id in (each.name, each.id)]
    if not removed:
        what = f"{format_value(name_or_id)} is not on the trust list."
        raise problem_error(file="", code="TP859", what=what, next="Run `trainproof trust list` to see names and ids.")
    _write([each for each in entries if each not in removed])
    return removed


def _write(entries: Sequence[TrustedEntry]) -> None:
    keys = [each for each in entries if each.kind == "key"]
    lines = [f'"{each.name}" namespaces="{NAMESPACE}" {each.content}\n' for each in keys]
    document = {"schema_version": VERSION, "trusted": [asdict(each) for each in entries]}
    try:
        trust_path().parent.mkdir(parents=True, exist_ok=True)
        write_json(trust_path(), document)
        write_text(allowed_signers_path(), "# Written by `trainproof trust`.\n" + "".join(lines))
    except OSError as error:
        raise output_error(error, trust_path(), subject="The trust list") from None


def _load(source: str) -> str:
    is_url = source.startswith("https://")
    content = fetch(source, "TP859") if is_url else read_or_refuse(Path(source), "TP859", "The file")
    return content.decode("utf-8", "replace")


def _recognize(text: str, source: str) -> Iterator[tuple[Kind, str, str]]:
    """Yield kind, id and content of each key, certificate or Sigstore root in a text."""
    if "BEGIN CERTIFICATE" in text:
        from cryptography.hazmat.primitives.serialization import Encoding

        certificate = load_certificate(text, source)
        der, pem = certificate.public_bytes(Encoding.DER), certificate.public_bytes(Encoding.PEM)
        yield "time authority", f"SHA256:{hashlib.sha256(der).hexdigest()}", pem.decode("ascii")
    elif text.lstrip().startswith("{"):
        load_sigstore_roots(text, source)
        yield "attestation root", f"SHA256:{hashlib.sha256(text.encode()).hexdigest()}", text
    elif "PRIVATE KEY" in text:
        what = "This is a private key, which only its owner may have."
        raise problem_error(source, "TP859", what=what, next=f"Add the public key, usually {source}.pub.")
    else:
        keys = [found[0] for line in text.splitlines() if (found := _KEY.match(line))]
        if not keys:
            what = "This holds no SSH public key, no certificate and no trusted root."
            raise problem_error(source, "TP859", what=what)
        yield from (("key", fingerprint(key.encode(), source), key) for key in keys)


def is_http_url(url: str) -> bool:
    """Return whether a text is an `http` or `https` address with a host and no spaces or control characters."""
    return re.fullmatch(r"https?://([\w.-]+|\[[0-9a-fA-F:]+\])(:\d{1,5})?(/[^\s\x00-\x1f\x7f]*)?", url) is not None


def fetch(url: str, code: str, *, query: bytes | None = None, server: str = "server", exit_code: int = 2) -> bytes:
    """Send a GET request to an `http` or `https` address, or POST a timestamp query, and return the answer.

    `code`, `server` and `exit_code` are for the problem if it cannot be reached, reports an error or answers too much.
    """
    import http.client
    import urllib.error
    import urllib.request

    headers = {"Content-Type": "application/timestamp-query"} if query else {}
    try:
        request = urllib.request.Request(url, query, headers)  # noqa: S310 - callers pass http(s)
        with urllib.request.build_opener().open(request, timeout=_TIMEOUT_SECONDS) as response:
            content: bytes = response.read(_MAX_RESPONSE_BYTES + 1)
        if len(content) <= _MAX_RESPONSE_BYTES:
            return content
        failure = f"answered with more than {_MAX_RESPONSE_BYTES:,} bytes"
    except urllib.error.HTTPError as error:
        failure = f"answered with status {error.code}"
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        failure = f"cannot be reached: {visible(str(reason) or type(error).__name__)}"
    raise problem_error(url, code, what=f"The {server} {failure}.", exit_code=exit_code)


def root_texts(kind: Kind, named: Path | None) -> list[tuple[str, str, str]]:
    """Return name, text and file of the given root certificate, or of each one on the trust list."""
    if named is not None:
        return [(named.name, _load(str(named)), str(named))]
    return [(each.name, each.content, str(trust_path())) for each in trusted_entries(kind)]


def load_certificate(pem: str, file: str) -> Certificate:
    """Load the first certificate of a PEM text; `file` names it in messages."""
    need("stamp", "witness")
    from cryptography.x509 import load_pem_x509_certificate

    try:
        return load_pem_x509_certificate(pem.encode())
    except ValueError:
        raise problem_error(file, "TP859", what="This is not a certificate in PEM form.") from None


def load_sigstore_roots(text: str, file: str) -> list[TrustedRoot]:
    """Load the trusted roots of Sigstore in a text: one JSON document, or one a line as `gh` writes them."""
    need("verify --attestation", "witness")
    from sigstore.errors import Error
    from sigstore.models import TrustedRoot
    from sigstore_models.trustroot.v1 import TrustedRoot as Inner

    try:
        return [TrustedRoot(Inner.from_json(part)) for part in split_json(text.encode())]
    except (ValueError, Error):
        raise problem_error(file, "TP859", what="This is not a trusted root of Sigstore in JSON.") from None


def split_json(text: bytes) -> list[bytes]:
    """Split JSON Lines into their documents; a single document stays whole."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    is_one_each = len(lines) > 1 and all(line.startswith(b"{") and line.endswith(b"}") for line in lines)
    return lines if is_one_each else [text]
