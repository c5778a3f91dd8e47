"""SSH signatures of bundles and receipts, and the trust list."""

import hashlib
import json
import os
import shutil
import stat
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
from bundles import contents, listed_again, pack, small_bundle
from receipts import receipt
from synthetic import write_run

from evidence.bundle.build import build_bundle
from evidence.layout import RECEIPTS
from evidence.proof import trust
from evidence.proof.signatures import create_key
from evidence.proof.trust import allowed_signers_path, trust_path
from trainproof.cli import app as command

Capture = pytest.CaptureFixture[str]

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen (OpenSSH)")


@pytest.fixture(autouse=True)
def user_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "own"))


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the keys of Ada and Bob."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ada", "bob"):
        create_key(folder / name)
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_bundle(tmp_path_factory.mktemp("built"))


@pytest.fixture
def bundle(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(built, tmp_path / built.name))


@pytest.fixture
def signed(bundle: Path, keys: Path, capsys: Capture) -> Path:
    """A bundle that Ada signed."""
    good(capsys, "sign", bundle, "--key", keys / "ada")
    return bundle


def run(capsys: Capture, *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        command.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


def good(capsys: Capture, *arguments: object) -> str:
    code, out, err = run(capsys, *arguments)
    assert (code, err) == (0, ""), out + err
    return out


def trust_ada(capsys: Capture, keys: Path, name: str = "Ada Lovelace") -> str:
    """Trust Ada's key and return its fingerprint."""
    return good(capsys, "trust", "add", keys / "ada.pub", "--name", name).split()[-3]


def test_a_new_key_signs_and_its_public_half_verifies(bundle: Path, tmp_path: Path, capsys: Capture) -> None:
    key = tmp_path / "me"
    out = good(capsys, "sign", bundle, "--new-key", key)
    key_id = out.split("new private key ")[1].split(". ")[0]
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    shown = subprocess.run(["ssh-keygen", "-l", "-f", f"{key}.pub"], capture_output=True, text=True, check=True).stdout
    assert shown.split()[1] == key_id
    assert f"Signed with {key_id}." in good(capsys, "verify", bundle, "--public-key", f"{key}.pub")
    code, _, err = run(capsys, "sign", "--new-key", key)
    assert (code, err.startswith(f"error TP855: {key}: This key exists")) == (2, True)


def test_trusted_signer_is_named(signed: Path, keys: Path, capsys: Capture) -> None:
    assert "The author is unknown: demo-1.zip.sig was made with SHA256:" in good(capsys, "verify", signed)
    key_id = trust_ada(capsys, keys)
    out = good(capsys, "verify", signed)
    assert f"Signed by Ada Lovelace, whom you trust ({key_id})." in out
    assert "  demo-1  consistent  nobody you trust  0\n" in out  # a signature says who, not that it ran
    found = json.loads(good(capsys, "verify", signed, "--json"))["signature"]
    assert found["signers"] == [{"key_id": key_id, "name": "Ada Lovelace"}]
    assert (found["holds"], found["key_id"], found["unknown"]) == (True, key_id, 0)
    Path(f"{signed}.sig").unlink()
    assert "Not signed: the author is unknown.\n" in good(capsys, "verify", signed)


def test_ssh_keygen_alone_verifies(signed: Path, keys: Path, capsys: Capture) -> None:
    """As docs/verify/signing.md says."""
    trust_ada(capsys, keys)
    content = json.loads(contents(signed)["bundle_manifest.json"])["content_sha256"]
    manifest = hashlib.sha256(contents(signed)["bundle_manifest.json"]).hexdigest()
    message = f"trainproof bundle\ncontent {content}\nbundle_manifest.json {manifest}\n"
    words = ["ssh-keygen", "-Y", "verify", "-n", "trainproof", "-I", "Ada Lovelace"]
    words += ["-f", str(allowed_signers_path()), "-s", f"{signed}.sig"]
    subprocess.run(words, input=message.encode(), check=True, capture_output=True)


def test_signature_survives_packing_again(signed: Path, keys: Path, tmp_path: Path, capsys: Capture) -> None:
    again = tmp_path / "again.zip"
    with zipfile.ZipFile(again, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents(signed).items():
            archive.writestr(name, content)
    code, out, _ = run(capsys, "verify", again, "--signature", f"{signed}.sig", "--public-key", keys / "ada.pub")
    assert (code, "Signed with SHA256:" in out) == (0, True)


def forge_everything(files: dict[str, bytes], folder: Path) -> dict[str, bytes]:
    """Build a better run with valid hashes, which only a signature can contradict."""
    return listed_again(contents(small_bundle(folder / "better", correct=1.0)))


def forge_manifest(files: dict[str, bytes], folder: Path) -> dict[str, bytes]:
    """Change the reasons for a grade, which the content digest does not cover."""
    manifest = json.loads(files["bundle_manifest.json"])
    manifest["made_by"]["version"] = "0.0.9"
    manifest["runs"][0]["reasons"] = ["The judges found fraud."]
    files["bundle_manifest.json"] = json.dumps(manifest, indent=2).encode() + b"\n"
    lines = [f"{hashlib.sha256(files[each]).hexdigest()}  {each}\n" for each in sorted(files)]
    files["MANIFEST.sha256"] = "".join(line for line in lines if "MANIFEST.sha256" not in line).encode()
    return files


@pytest.mark.parametrize("forge", [forge_everything, forge_manifest])
def test_signed_content_cannot_be_forged(forge: Any, signed: Path, keys: Path, tmp_path: Path, capsys: Capture) -> None:
    forged = pack(forge(contents(signed), tmp_path), tmp_path / "forged.zip")
    assert run(capsys, "verify", forged)[0] == 0
    code, out, _ = run(capsys, "verify", forged, "--signature", f"{signed}.sig", "--public-key", keys / "ada.pub")
    assert code == 1
    assert f"error TP834: {signed}.sig: This is not a signature of this content: " in out
    assert "The author is unknown: the signature does not hold.\n" in out


def test_signature_by_another_key_fails(signed: Path, keys: Path, capsys: Capture) -> None:
    code, out, _ = run(capsys, "verify", signed, "--public-key", keys / "bob.pub", "--json")
    value = json.loads(out)
    assert (code, value["ok"], value["signature"]["holds"]) == (1, False, False)
    good(capsys, "trust", "add", keys / "bob.pub", "--name", "Bob")
    code, out, _ = run(capsys, "verify", signed, "--signature", f"{signed}.sig")
    assert (code, "which is not on your trust list" in out) == (1, True)


def test_signature_in_another_namespace_fails(signed: Path, keys: Path, tmp_path: Path, capsys: Capture) -> None:
    """As of a Git commit, with the same key over the same bytes."""
    message = tmp_path / "message"
    message.write_bytes(b"any")
    words = ["ssh-keygen", "-Y", "sign", "-n", "git", "-f", str(keys / "ada"), str(message)]
    subprocess.run(words, check=True, capture_output=True)
    shutil.copy(f"{message}.sig", f"{signed}.sig")
    code, out, _ = run(capsys, "verify", signed, "--public-key", keys / "ada.pub")
    assert (code, "namespace" in out) == (1, True)


INVALID = b"-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----\n"


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"null", b'{"payloadType": "", "signatures": []}', INVALID])
def test_invalid_signature_fails_if_requested_or_warns(content, bundle, keys, capsys):
    Path(f"{bundle}.sig").write_bytes(content)
    code, out, _ = run(capsys, "verify", bundle, "--public-key", keys / "ada.pub")
    assert (code, f"error TP834: {bundle}.sig: " in out) == (1, True)
    code, out, _ = run(capsys, "verify", bundle)
    assert (code, f"warning TP834: {bundle}.sig: " in out) == (0, True)


def test_unusable_files_and_keys(bundle: Path, keys: Path, tmp_path: Path, capsys: Capture) -> None:
    ada = keys / "ada"
    code, out, _ = run(capsys, "verify", bundle, "--public-key", f"{ada}.pub")
    assert (code, f"error TP869: {bundle}.sig: The signature cannot be read: " in out) == (1, True)
    (tmp_path / "junk").write_text("junk")
    for arguments in (
        ["sign", bundle],
        ["sign"],
        ["sign", bundle, "--key", tmp_path / "junk"],
        ["sign", bundle, "--key", tmp_path / "missing"],
        ["verify", bundle, "--public-key", tmp_path / "junk"],
        ["verify", bundle, "--public-key", tmp_path / "missing"],
        ["verify", bundle, "--public-key", ada],
        ["verify", bundle, "--signature", "-x"],
    ):
        code, out, err = run(capsys, *arguments)
        assert (code, out, err[:11]) == (2, "", "error TP855")
    (tmp_path / "any.json").write_text('{"covered": 3}')
    assert run(capsys, "sign", tmp_path / "any.json", "--key", ada)[2].startswith("error TP871")
    bundle.write_bytes(bundle.read_bytes()[:-1])
    assert run(capsys, "sign", bundle, "--key", ada)[0] == 1
    assert not Path(f"{bundle}.sig").exists()


def test_signature_is_not_overwritten(signed: Path, keys: Path, capsys: Capture) -> None:
    adas = Path(f"{signed}.sig").read_bytes()
    good(capsys, "sign", signed, "--key", keys / "ada")  # the same signature again
    code, _, err = run(capsys, "sign", signed, "--key", keys / "bob")
    assert (code, err[:11], Path(f"{signed}.sig").read_bytes()) == (2, "error TP870", adas)


@pytest.mark.parametrize("program", [None, "#!/bin/sh\necho 'unknown option -- Y\nusage: ssh-keygen' >&2\nexit 1\n"])
def test_missing_or_old_ssh_keygen(program, signed, keys, tmp_path, capsys, monkeypatch):
    (tmp_path / "bin").mkdir()
    if program:
        (tmp_path / "bin" / "ssh-keygen").write_text(program)
        (tmp_path / "bin" / "ssh-keygen").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/nowhere")
    for arguments in (["sign", signed, "--key", keys / "ada"], ["verify", signed, "--public-key", keys / "ada.pub"]):
        code, out, err = run(capsys, *arguments)
        assert (code, out, err[:11], "Install OpenSSH 8.2 or later" in err) == (2, "", "error TP095", True)
    code, out, _ = run(capsys, "verify", signed)  # the signature was not requested
    assert (code, "\nwarning TP095" in out) == (0, True)


def test_add_rename_and_remove(keys: Path, capsys: Capture) -> None:
    key_id = trust_ada(capsys, keys)
    good(capsys, "trust", "add", keys / "bob.pub", "--name", "Bob")
    trust_ada(capsys, keys, "Ada L.")
    listed = json.loads(good(capsys, "trust", "list", "--json"))
    assert [(each["name"], each["kind"]) for each in listed] == [("Bob", "key"), ("Ada L.", "key")]
    assert good(capsys, "trust", "remove", key_id) == f"Ada L.: key {key_id} is no longer trusted.\n"
    assert run(capsys, "trust", "remove", "Ada L.")[2].startswith('error TP859: "Ada L." is not on the trust list.\n')
    assert "Ada" not in allowed_signers_path().read_text()


def test_github_keys_are_downloaded(signed: Path, keys: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    published = {"https://github.com/ada-l.keys": (keys / "bob.pub").read_bytes() + (keys / "ada.pub").read_bytes()}
    monkeypatch.setattr(trust, "fetch", lambda url, _: published[url])
    assert good(capsys, "trust", "add", "github:ada-l").count("ada-l: key SHA256:") == 2
    assert "Signed by ada-l" in good(capsys, "verify", signed)


@pytest.mark.parametrize(
    "name", ["", " ", "a\nb", "\x1b[31m", "x" * 101, 'a" b', "a,b", "*", "-I", "you", "GitHub", " You "]
)
def test_ambiguous_names_are_refused(name: str, keys: Path, capsys: Capture) -> None:
    code, _, err = run(capsys, "trust", "add", keys / "ada.pub", f"--name={name}")
    assert (code, "cannot be a name on the trust list" in err, trust_path().exists()) == (2, True, False)


@pytest.mark.parametrize(
    "content",
    [
        "junk",
        "ssh-ed25519 AAAA",
        'cert-authority ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICYeqF+yoTxTEIkSo1qj7aKLzjBcp82arDXSa+Q37t+0"',
        "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA\n-----END PUBLIC KEY-----\n",
        "-----BEGIN OPENSSH PRIVATE KEY-----\n",
    ],
)
def test_only_a_public_key_is_trusted(content: str, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "key").write_text(content)
    code, _, err = run(capsys, "trust", "add", tmp_path / "key", "--name", "Ada")
    assert (code, err[:9], trust_path().exists()) == (2, "error TP8", False)


PEM = {"kind": "key", "name": "Ada", "id": f"SHA256:{'0' * 64}", "content": "-----BEGIN PUBLIC KEY-----"}
FORMER_LIST = {"schema_version": "1.1", "trusted": [PEM | {"added_at": "2026-11-23T20:15:00+00:00"}]}


@pytest.mark.parametrize("content", ["{", "[]", json.dumps(FORMER_LIST)])
def test_invalid_trust_list_trusts_nobody(content: str, keys: Path, bundle: Path, capsys: Capture) -> None:
    trust_path().parent.mkdir(parents=True)
    trust_path().write_text(content)
    for arguments in (["trust", "list"], ["trust", "add", keys / "ada.pub", "--name", "Ada"]):
        code, out, err = run(capsys, *arguments)
        assert (code, out) == (2, "")
        assert err.startswith(f"error TP860: {trust_path()}: The ")
    assert trust_path().read_text() == content


@pytest.fixture
def receipted(keys: Path, tmp_path: Path, capsys: Capture) -> Path:
    """A run with a receipt in its folder that Ada signed."""
    folder = write_run(tmp_path / "runs", "demo-1", steps=4, items=6)
    (folder / RECEIPTS).mkdir()
    path = folder / RECEIPTS / "replay.json"
    path.write_text(json.dumps(receipt(folder, segments=((0, 4),), trained=6)))
    good(capsys, "sign", path, "--key", keys / "ada")
    return folder


def read_grade(capsys: Capture, folder: Path) -> tuple[str, list[str]]:
    [found] = json.loads(good(capsys, "check", folder, "--json"))["runs"]
    return found["grade"], found["reasons"]


def test_trusted_receipt_verifies_a_run(receipted: Path, keys: Path, tmp_path: Path, capsys: Capture) -> None:
    name, reasons = read_grade(capsys, receipted)
    assert (name, reasons[-1][:27]) == ("consistent", "Unverified claim by an unkn")
    trust_ada(capsys, keys, "Ada")
    name, reasons = read_grade(capsys, receipted)
    assert (name, reasons[0]) == ("verified", "Checked by Ada on 2026-11-23: 5 of 5 segments are identical.")
    out = good(capsys, "verify", build_bundle([receipted], tmp_path / "with.zip").output)
    assert "with.zip: Verified.\n" in out
    assert "  demo-1  verified (reproduced: 6 of 6 answers, 4 of 4 steps)  receipts from Ada  0\n" in out
    other = write_run(tmp_path / "others", "demo-2", steps=4, items=6, seed=3)
    shutil.copytree(receipted / RECEIPTS, other / RECEIPTS)
    assert read_grade(capsys, other)[0] == "consistent"


@pytest.mark.parametrize("change", ["receipt", "signature"])
def test_signature_of_other_content_is_no_proof(change, receipted, signed, keys, capsys):
    trust_ada(capsys, keys)
    path = receipted / RECEIPTS / "replay.json"
    if change == "receipt":
        path.write_text(path.read_text().replace("5 of 5", "9 of 9"))
    else:  # Ada did sign: a bundle
        shutil.copy(f"{signed}.sig", f"{path}.sig")
    assert read_grade(capsys, receipted)[0] == "consistent"
