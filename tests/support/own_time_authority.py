"""A local time authority of RFC 3161, whose stamps OpenSSL makes, independently of the library that reads them."""

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_CONFIG = """
[tsa]
default_tsa = own
[own]
serial = {folder}/serial
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha1, sha256, sha512
accuracy = secs:1
ess_cert_id_alg = sha256
"""


@dataclass(frozen=True)
class Authority:
    """An authority with its folder, which holds root.pem, tsa.pem and their keys."""

    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "root.pem"

    def answer(self, query: bytes) -> bytes:
        (self.folder / "query.tsq").write_bytes(query)
        self._openssl(
            "-reply", "-queryfile", "query.tsq", "-signer", "tsa.pem", "-inkey", "tsa.key", "-out", "answer.tsr"
        )
        return (self.folder / "answer.tsr").read_bytes()

    def query(self, data: bytes, *flags: str) -> bytes:
        (self.folder / "data").write_bytes(data)
        self._openssl("-query", "-data", "data", "-cert", *(flags or ("-sha256",)), "-out", "own.tsq")
        return (self.folder / "own.tsq").read_bytes()

    def agrees(self, data: Path, answer: Path) -> bool:
        """Return whether OpenSSL too finds that an answer is a stamp of a file under this root."""
        command = ["openssl", "ts", "-verify", "-data", data, "-in", answer, "-CAfile", self.root]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def _openssl(self, mode: str, *arguments: str) -> None:
        config = ["-config", "tsa.cnf"] if mode == "-reply" else []
        subprocess.run(["openssl", "ts", mode, *config, *arguments], cwd=self.folder, capture_output=True, check=True)


def certificate(
    name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, begin: datetime, end: datetime
) -> x509.CertificateBuilder:
    """Return a certificate without extensions, not signed yet."""
    builder = x509.CertificateBuilder(issuer, name, key, x509.random_serial_number())
    return builder.not_valid_before(begin).not_valid_after(end)


def new_authority(folder: Path, *, expired: bool = False) -> Authority:
    """Create a root certificate and a signing one, which ended ten days ago if it is expired."""
    folder.mkdir(parents=True)
    (folder / "tsa.cnf").write_text(_CONFIG.format(folder=folder))
    (folder / "serial").write_text("01\n")
    root_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)

    root_name = _name("Own Root")
    begun = now - timedelta(days=100)
    root = (
        certificate(root_name, root_name, root_key.public_key(), begun, now + timedelta(days=1000))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(root_key.public_key()), critical=False)
        .sign(root_key, hashes.SHA256())
    )
    end = now + timedelta(days=-10 if expired else 100)
    leaf = (
        certificate(_name("Own Time"), root_name, key.public_key(), begun, end)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING]), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(root_key.public_key()), critical=False)
        .sign(root_key, hashes.SHA256())
    )
    (folder / "root.pem").write_bytes(root.public_bytes(serialization.Encoding.PEM))
    (folder / "tsa.pem").write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
    (folder / "tsa.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return Authority(folder)


@contextmanager
def serving(answer: Callable[[bytes], bytes | int]) -> Iterator[str]:
    """Give the address of a local server that answers POSTs by a function: bytes, or a status in place of them."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            given = answer(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200 if isinstance(given, bytes) else given)
            self.send_header("Content-Type", "application/timestamp-reply")
            self.end_headers()
            if isinstance(given, bytes):
                self.wfile.write(given)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/tsr"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
