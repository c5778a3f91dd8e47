"""Signatures: made and checked, forged and mistaken, and what is said where `cryptography` is not installed."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import re
import stat
import sys
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from bundles import contents, listed_again, pack, small_bundle

from evidence.extras import install_command
from trainproof import command

needs_cryptography = pytest.mark.skipif(
    importlib.util.find_spec("cryptography") is None, reason="needs cryptography (extra `sign`)"
)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        command.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return small_bundle(tmp_path)


@pytest.fixture
def signed(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A signed bundle, with the key `me` beside it."""
    code, _, err = run(capsys, "sign", bundle, "--new-key", tmp_path / "me")
    assert (code, err) == (0, "")
    return bundle


@needs_cryptography
def test_a_key_and_a_signature(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    key = tmp_path / "me"
    code, out, _ = run(capsys, "sign", "--new-key", key)
    key_id = out.split("new private key ")[1].split(";")[0]
    assert code == 0
    assert out == (
        f"{key}: new private key {key_id}; keep it to yourself.\n"
        f"{key}.pub: its public key; give it to those who verify.\n"
    )
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    code, out, _ = run(capsys, "sign", bundle, "--key", key)
    assert (code, out) == (0, f"{bundle}.sig: signature of demo-1.zip with {key_id}.\n")
    code, out, _ = run(capsys, "verify", bundle, "--public-key", f"{key}.pub")
    assert code == 0
    dated = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00"
    assert re.search(
        rf"The holder of {key_id} signed this content, in a statement of {dated}\. "
        r"Whose key that is, you must know from elsewhere\.\n$",
        out,
    )
    Path(f"{bundle}.sig").unlink()
    code, out, _ = run(capsys, "verify", bundle)
    assert out.endswith("Who made it is not known: no signature was given, so anyone could have.\n")


@needs_cryptography
def test_the_envelope_is_dsse_and_the_statement_in_toto(signed: Path, tmp_path: Path):
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    envelope = json.loads(Path(f"{signed}.sig").read_text("utf-8"))
    payload = base64.b64decode(envelope["payload"])
    kind = envelope["payloadType"]
    encoded = f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode() + payload
    public: Any = load_pem_public_key((tmp_path / "me.pub").read_bytes())
    public.verify(base64.b64decode(envelope["signatures"][0]["sig"]), encoded)  # raises if it does not hold
    statement = json.loads(payload)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    digest = hashlib.sha256(signed.read_bytes()).hexdigest()
    assert statement["subject"] == [{"name": "demo-1.zip", "digest": {"sha256": digest}}]
    content = json.loads(contents(signed)["bundle_manifest.json"])["content_sha256"]
    stated_at = datetime.fromisoformat(statement["predicate"].pop("stated_at"))
    assert abs((datetime.now(UTC) - stated_at).total_seconds()) < 600
    assert statement["predicate"] == {
        "content_sha256": content,
        "bundle_manifest_sha256": hashlib.sha256(contents(signed)["bundle_manifest.json"]).hexdigest(),
        "runs": [{"run_id": "demo-1", "grade": "consistent"}],
    }


@needs_cryptography
def test_packed_again_the_signature_holds(signed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    again = tmp_path / "again.zip"
    with zipfile.ZipFile(again, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents(signed).items():
            archive.writestr(name, content)
    code, out, _ = run(capsys, "verify", again, "--signature", f"{signed}.sig", "--public-key", tmp_path / "me.pub")
    assert code == 0
    assert "signed this content" in out


@needs_cryptography
def test_another_bundle_and_another_key(signed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    other = small_bundle(tmp_path / "other", seed=5)
    code, out, _ = run(capsys, "verify", other, "--signature", f"{signed}.sig", "--public-key", tmp_path / "me.pub")
    assert code == 1
    assert out.startswith(f"error TP835: {signed}.sig: The signature is for the content digest ")
    assert out.endswith("Who made it is not known: the signature does not hold, so anyone could have.\n")
    run(capsys, "sign", "--new-key", tmp_path / "you")
    code, out, _ = run(capsys, "verify", signed, "--public-key", tmp_path / "you.pub", "--json")
    value = json.loads(out)
    assert code == 1
    assert (value["ok"], value["findings"], value["signature"]["holds"]) == (False, [], False)
    assert [finding["what"] for finding in value["signature"]["findings"]] == [
        "No signature in it was made with this key for this content."
    ]


@needs_cryptography
def test_a_forger_who_rewrites_everything_but_the_signature(
    signed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Without a signature this bundle holds: nothing contradicts anything."""
    files = contents(small_bundle(tmp_path / "better", correct=1.0))
    forged = pack(listed_again(files), tmp_path / "demo-1-forged.zip")
    assert run(capsys, "verify", forged)[0] == 0
    code, _, _ = run(capsys, "verify", forged, "--signature", f"{signed}.sig", "--public-key", tmp_path / "me.pub")
    assert code == 1


@needs_cryptography
def test_what_the_bundle_states_of_itself_is_signed_too(
    signed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """The content digest leaves the lists out; of a bundle of another version nobody can make them again."""
    files = contents(signed)
    manifest = json.loads(files["bundle_manifest.json"])
    manifest["partial"] = True
    manifest["made_by"]["version"] = "0.0.9"
    manifest["runs"][0]["reasons"] = ["The judges found fraud."]
    files["bundle_manifest.json"] = json.dumps(manifest, indent=2).encode() + b"\n"
    files["MANIFEST.sha256"] = "".join(
        f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files) if name != "MANIFEST.sha256"
    ).encode()
    forged = pack(files, tmp_path / "forged.zip")
    assert run(capsys, "verify", forged)[0] == 0
    code, out, _ = run(capsys, "verify", forged, "--signature", f"{signed}.sig", "--public-key", tmp_path / "me.pub")
    assert code == 1
    assert (
        f"error TP835: {signed}.sig: The signature is for another bundle_manifest.json: label, version, grades or "
        "reasons were changed.\n"
    ) in out


def other_payload(envelope: dict[str, Any]) -> None:
    payload = json.loads(base64.b64decode(envelope["payload"]))
    payload["predicate"]["content_sha256"] = "0" * 64
    envelope["payload"] = base64.b64encode(json.dumps(payload).encode()).decode()


MADE_BY_KEY = "No signature in it was made with this key for this content."
NO_ENVELOPE = "This is no DSSE envelope of an in-toto statement."
BROKEN: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "other payload": (other_payload, MADE_BY_KEY),
    "other type": (lambda e: e.update(payloadType="text/plain"), NO_ENVELOPE),
    "no payload": (lambda e: e.pop("payload"), NO_ENVELOPE),
    "payload of no base64": (lambda e: e.update(payload="%%%"), NO_ENVELOPE),
    "payload of other letters": (lambda e: e.update(payload="é"), NO_ENVELOPE),
    "no signature": (lambda e: e.update(signatures=[]), MADE_BY_KEY),
    "signatures of no list": (lambda e: e.update(signatures={}), NO_ENVELOPE),
    "signature of no object": (lambda e: e.update(signatures=["x"]), MADE_BY_KEY),
    "empty signature": (lambda e: e["signatures"][0].update(sig=""), MADE_BY_KEY),
    "short signature": (lambda e: e["signatures"][0].update(sig="AAAA"), MADE_BY_KEY),
}


@needs_cryptography
@pytest.mark.parametrize("name", BROKEN)
def test_envelopes_that_do_not_hold(name: str, signed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    change, what = BROKEN[name]
    path = Path(f"{signed}.sig")
    envelope = json.loads(path.read_text("utf-8"))
    change(envelope)
    path.write_text(json.dumps(envelope), "utf-8")
    code, out, _ = run(capsys, "verify", signed, "--public-key", tmp_path / "me.pub")
    assert code == 1
    assert out.startswith(f"error TP834: {path}: {what}\n")


@needs_cryptography
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"null", b'{"a": 1, "a": 2}', b"[" * 100_000])
def test_files_that_are_no_signature(content: bytes, signed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    Path(f"{signed}.sig").write_bytes(content)
    code, out, _ = run(capsys, "verify", signed, "--public-key", tmp_path / "me.pub")
    assert code == 1
    assert out.startswith(f"error TP834: {signed}.sig: {NO_ENVELOPE}\n")


@needs_cryptography
def test_no_signature_there(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run(capsys, "sign", "--new-key", tmp_path / "me")
    code, out, _ = run(capsys, "verify", bundle, "--public-key", tmp_path / "me.pub")
    assert code == 1
    assert out.startswith(f"error TP869: {bundle}.sig: The signature cannot be read: No such file or directory.\n")


@needs_cryptography
def test_a_bundle_that_does_not_hold_is_not_signed(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    bundle.write_bytes(bundle.read_bytes()[:-1])
    code, out, _ = run(capsys, "sign", bundle, "--new-key", tmp_path / "me")
    assert (code, out) == (1, "")
    assert not Path(f"{bundle}.sig").exists()


@needs_cryptography
def test_a_key_is_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "me").write_text("precious")
    code, _, err = run(capsys, "sign", "--new-key", tmp_path / "me")
    assert code == 2
    assert err.startswith(f"error TP848: {tmp_path / 'me'}: This file exists, and a key is never overwritten.\n")
    assert (tmp_path / "me").read_text() == "precious"


@needs_cryptography
@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", b"me"])
def test_keys_that_cannot_be_used(
    content: bytes | None, bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    key = tmp_path / "bad"
    if content is not None:
        key.write_bytes(content)
    for arguments in (["sign", bundle, "--key", key], ["verify", bundle, "--public-key", key]):
        code, out, err = run(capsys, *arguments)
        assert (code, out) == (2, "")
        assert err.startswith(f"error TP855: {key}: ")


@needs_cryptography
def test_a_public_key_signs_nothing(signed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    code, _, err = run(capsys, "sign", signed, "--key", tmp_path / "me.pub")
    assert code == 2
    assert "This is not a private key of Ed25519 in PEM form, or a password locks it." in err


def test_a_signature_without_a_key(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    code, _, err = run(capsys, "verify", bundle, "--signature", "x.sig")
    assert code == 2
    assert err.startswith(
        "error TP855: x.sig: A signature proves nothing without the public key of whoever is to have made it.\n"
    )


def test_nothing_to_sign_with(bundle: Path, capsys: pytest.CaptureFixture[str]):
    assert "No key was named." in run(capsys, "sign", bundle)[2]
    assert "Neither a bundle nor a key was named." in run(capsys, "sign")[2]


def test_without_the_extra(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    for name in [name for name in sys.modules if name.startswith("cryptography.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    code, _, err = run(capsys, "sign", bundle, "--new-key", tmp_path / "me")
    assert code == 2
    assert err == (
        "error TP095: Signatures need the package `cryptography`, which is not installed.\n"
        f"  Next: Install it: {install_command('sign')}.\n"
    )
