"""A local Sigstore: certificate authority, certificate log and signature log.

Everything that `sigstore` verifies is made here from `cryptography`, after the specifications: certificates with
Fulcio's extensions (docs/oid-info.md), signed certificate timestamps (RFC 6962, section 3.2), and log entries with
promise, Merkle proof (RFC 6962, section 2.1.1, of a log with one other entry) and signed checkpoint.
"""

import base64
import hashlib
import inspect
import json
import struct
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from own_time_authority import certificate

ISSUER = "https://token.actions.githubusercontent.com"
FULCIO = "1.3.6.1.4.1.57264.1."
ORIGIN = "log.example"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
SCT_LIST = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")


@dataclass(frozen=True, kw_only=True)
class Workflow:
    """What GitHub says of the workflow that signs."""

    repository: str = "ada/runs"
    commit: str = "0123456789abcdef0123456789abcdef01234567"
    runner: str = "github-hosted"
    issuer: str = ISSUER

    @property
    def fields(self) -> dict[int, str]:
        """Return the values of Fulcio's extensions by the last part of their object identifier."""
        home = f"https://github.com/{self.repository}"
        return {8: self.issuer, 11: self.runner, 12: home, 13: self.commit, 21: f"{home}/actions/runs/1/attempts/1"}


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@dataclass(frozen=True)
class OwnSigstore:
    """The instance: the keys of its authority and of its two logs, and when its certificates begin."""

    authority: ec.EllipticCurvePrivateKey = field(default_factory=new_key)
    certificates: ec.EllipticCurvePrivateKey = field(default_factory=new_key)
    signatures: ec.EllipticCurvePrivateKey = field(default_factory=new_key)
    begun: datetime = field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0) - timedelta(days=30))

    @property
    def trusted_root(self) -> dict[str, Any]:
        """What a reader trusts, as `gh attestation trusted-root` prints it."""
        start = {"start": _stamp(self.begun - timedelta(days=1))}
        return {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "certificateAuthorities": [
                {
                    "subject": {"organization": "own", "commonName": "own"},
                    "uri": "https://fulcio.example",
                    "certChain": {"certificates": [{"rawBytes": _base64(_der(self.root()))}]},
                    "validFor": start,
                }
            ],
            "ctlogs": [_log("https://ct.example", self.certificates, start)],
            "tlogs": [_log("https://log.example", self.signatures, start)],
        }

    def root(self) -> x509.Certificate:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "own fulcio")])
        public = self.authority.public_key()
        return (
            certificate(name, name, public, self.begun - timedelta(days=1), self.begun + timedelta(days=3650))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .sign(self.authority, hashes.SHA256())
        )

    def attestation(
        self, statement: dict[str, Any], workflow: Workflow | None = None, *, logged_after_minutes: float = 1
    ) -> dict[str, Any]:
        """Return a Sigstore bundle (version 0.3) in which a workflow states something.

        Args:
            statement: An in-toto statement.
            workflow: Who states it.
            logged_after_minutes: When the log saw it, after the certificate began; it is valid for ten.
        """
        key = new_key()
        own = self._certificate(key.public_key(), workflow or Workflow())
        payload = json.dumps(statement).encode()
        encoded = b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)
        signature = _base64(key.sign(encoded, ec.ECDSA(hashes.SHA256())))
        entry = self._entry(payload, signature, own, self.begun + timedelta(minutes=logged_after_minutes))
        return {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {
                "certificate": {"rawBytes": _base64(_der(own))},
                "tlogEntries": [entry],
                "timestampVerificationData": {},
            },
            "dsseEnvelope": {
                "payload": _base64(payload),
                "payloadType": PAYLOAD_TYPE,
                "signatures": [{"sig": signature}],
            },
        }

    def _certificate(self, public: ec.EllipticCurvePublicKey, workflow: Workflow) -> x509.Certificate:
        """Return a workflow's certificate with the timestamp that the log of certificates gave its forerunner."""
        uri = f"https://github.com/{workflow.repository}/.github/workflows/smoke.yml@refs/heads/main"
        builder = (
            certificate(x509.Name([]), self.root().subject, public, self.begun, self.begun + timedelta(minutes=10))
            .add_extension(_usage(certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.authority.public_key()), critical=False
            )
            .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)]), critical=True)
        )
        for number, text in workflow.fields.items():
            value = text.encode()
            head = bytes([0x0C, len(value)]) if len(value) < 128 else bytes([0x0C, 0x81, len(value)])
            oid = x509.ObjectIdentifier(f"{FULCIO}{number}")
            builder = builder.add_extension(x509.UnrecognizedExtension(oid, head + value), critical=False)
        forerunner = builder.sign(self.authority, hashes.SHA256()).tbs_certificate_bytes
        milliseconds = int(self.begun.timestamp() * 1000)
        issuer = hashlib.sha256(_spki(self.authority)).digest()
        signed = struct.pack("!BBQH", 0, 0, milliseconds, 1) + issuer
        signed += len(forerunner).to_bytes(3, "big") + forerunner + b"\0\0"
        signature = self.certificates.sign(signed, ec.ECDSA(hashes.SHA256()))
        stamp = b"\0" + _log_id(self.certificates) + struct.pack("!Q", milliseconds) + b"\0\0\x04\x03"
        stamp += struct.pack("!H", len(signature)) + signature
        listed = struct.pack("!HH", len(stamp) + 2, len(stamp)) + stamp
        octets = bytes([0x04, 0x81, len(listed)]) if len(listed) >= 128 else bytes([0x04, len(listed)])
        return builder.add_extension(x509.UnrecognizedExtension(SCT_LIST, octets + listed), critical=False).sign(
            self.authority, hashes.SHA256()
        )

    def _entry(self, payload: bytes, signature: str, own: x509.Certificate, seen: datetime) -> dict[str, Any]:
        """Return the entry of the log: second of two, so that its proof is the hash of the other."""
        pem = own.public_bytes(serialization.Encoding.PEM)
        body = json.dumps(
            {
                "apiVersion": "0.0.1",
                "kind": "dsse",
                "spec": {
                    "envelopeHash": {"algorithm": "sha256", "value": "0" * 64},
                    "payloadHash": {"algorithm": "sha256", "value": hashlib.sha256(payload).hexdigest()},
                    "signatures": [{"signature": signature, "verifier": _base64(pem)}],
                },
            },
            separators=(",", ":"),
        ).encode()
        other, leaf = hashlib.sha256(b"\0other").digest(), hashlib.sha256(b"\0" + body).digest()
        top = hashlib.sha256(b"\1" + other + leaf).digest()
        log_id = _log_id(self.signatures)
        promised = json.dumps(
            {"body": _base64(body), "integratedTime": int(seen.timestamp()), "logID": log_id.hex(), "logIndex": 1},
            separators=(",", ":"),
        ).encode()
        note = f"{ORIGIN}\n2\n{_base64(top)}\n"
        signed_note = _base64(log_id[:4] + self._logged(note.encode()))
        return {
            "logIndex": "1",
            "logId": {"keyId": _base64(log_id)},
            "kindVersion": {"kind": "dsse", "version": "0.0.1"},
            "integratedTime": str(int(seen.timestamp())),
            "inclusionPromise": {"signedEntryTimestamp": _base64(self._logged(promised))},
            "inclusionProof": {
                "logIndex": "1",
                "rootHash": _base64(top),
                "treeSize": "2",
                "hashes": [_base64(other)],
                "checkpoint": {"envelope": f"{note}\n\u2014 {ORIGIN} {signed_note}\n"},
            },
            "canonicalizedBody": _base64(body),
        }

    def _logged(self, content: bytes) -> bytes:
        return self.signatures.sign(content, ec.ECDSA(hashes.SHA256()))

    def with_other(self, part: str) -> Self:
        """Return the instance with another key in one part, as a forger has it."""
        return replace(self, **{part: new_key()})


def statement_about(*digests: str) -> dict[str, Any]:
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": f"file-{index}", "digest": {"sha256": each}} for index, each in enumerate(digests)],
        "predicateType": "https://trainproof.example/run/v1",
        "predicate": {},
    }


def _log(url: str, key: ec.EllipticCurvePrivateKey, valid: dict[str, str]) -> dict[str, Any]:
    return {
        "baseUrl": url,
        "hashAlgorithm": "SHA2_256",
        "publicKey": {"rawBytes": _base64(_spki(key)), "keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": valid},
        "logId": {"keyId": _base64(_log_id(key))},
    }


def _usage(*, certificates: bool) -> x509.KeyUsage:
    usage = dict.fromkeys(inspect.signature(x509.KeyUsage).parameters, False)
    allowed = ("key_cert_sign", "crl_sign") if certificates else ("digital_signature",)
    return x509.KeyUsage(**usage | dict.fromkeys(allowed, True))


def _spki(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.DER, form)


def _log_id(key: ec.EllipticCurvePrivateKey) -> bytes:
    return hashlib.sha256(_spki(key)).digest()


def _der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.DER)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _stamp(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
