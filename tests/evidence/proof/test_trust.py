"""Whom a reader trusts, and what that changes: names beside signatures, and the grade that a signed receipt gives."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from bundles import small_bundle
from synthetic import write_run

pytest.importorskip("cryptography", reason="needs cryptography (extra `sign`)")

from evidence.bundle.build import build_bundle
from evidence.layout import MANIFEST, RECEIPTS
from evidence.proof.keys import new_key
from evidence.proof.receipts import run_sha256
from evidence.proof.trust import trust_path
from evidence.proof.verification import DEVICE
from trainproof import command


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "own"))


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the keys of Ada and Bob."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ada", "bob"):
        new_key(folder / name)
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_bundle(tmp_path_factory.mktemp("built"))


@pytest.fixture
def zipped(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(built, tmp_path / built.name))


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        command.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


def good(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    code, out, err = run(capsys, *arguments)
    assert (code, err) == (0, ""), out + err
    return out


def key_id(capsys: pytest.CaptureFixture[str], key: Path) -> str:
    return good(capsys, "trust", "add", key, "--name", "x").split(" ")[2]


def test_adding_listing_removing(keys: Path, capsys: pytest.CaptureFixture[str]):
    assert good(capsys, "trust", "list") == f"Nobody is trusted; the list is {trust_path()}.\n"
    said = good(capsys, "trust", "add", keys / "ada.pub", "--name", "Ada")
    identity = said.split(" ")[2]
    assert said == f"Ada: key {identity} is trusted.\n"
    good(capsys, "trust", "add", keys / "bob.pub", "--name", "Bob")
    good(capsys, "trust", "add", keys / "ada.pub", "--name", "Ada L.")  # a new name, not a second entry
    listed = json.loads(good(capsys, "trust", "list", "--json"))
    assert [each["name"] for each in listed] == ["Bob", "Ada L."]
    assert good(capsys, "trust", "remove", identity) == f"Ada L.: key {identity} is trusted no longer.\n"
    code, _, err = run(capsys, "trust", "remove", "Ada L.")
    assert code == 2
    assert err.startswith('error TP859: "Ada L." is not on the trust list, which holds Bob.\n')


def test_a_private_key_is_not_added(keys: Path, capsys: pytest.CaptureFixture[str]):
    code, _, err = run(capsys, "trust", "add", keys / "ada", "--name", "Ada")
    assert code == 2
    assert f"  Next: Add the public key, for example {keys / 'ada'}.pub.\n" in err


@pytest.mark.parametrize("name", ["", " ", "a\nb", "\x1b[31m", "x" * 101])
def test_names_that_cannot_be_kept(name: str, keys: Path, capsys: pytest.CaptureFixture[str]):
    assert run(capsys, "trust", "add", keys / "ada.pub", "--name", name)[0] == 2
    assert not trust_path().exists()


@pytest.mark.parametrize("content", ["{", "[]", '{"schema_version": "1.1", "trusted": [{"kind": "key"}]}'])
def test_a_broken_list_trusts_nobody_and_says_so(
    content: str, zipped: Path, keys: Path, capsys: pytest.CaptureFixture[str]
):
    trust_path().parent.mkdir(parents=True)
    trust_path().write_text(content)
    for arguments in (["trust", "list"], ["verify", zipped], ["trust", "add", keys / "ada.pub", "--name", "Ada"]):
        code, out, err = run(capsys, *arguments)
        assert (code, out) == (2, "")
        assert err.startswith(f"error TP860: {trust_path()}: The trust list is not valid: ")
    assert trust_path().read_text() == content


def test_a_trusted_signer_has_a_name(zipped: Path, keys: Path, capsys: pytest.CaptureFixture[str]):
    good(capsys, "sign", zipped, "--key", keys / "ada")
    out = good(capsys, "verify", zipped)
    assert out.endswith(
        "Who made it is not known: demo-1.zip.sig beside it holds 1 signature by keys that you do not trust. "
        "`--public-key FILE` checks one, and `trainproof trust add FILE --name NAME` remembers it.\n"
    )
    identity = good(capsys, "trust", "add", keys / "ada.pub", "--name", "Ada").split(" ")[2]
    out = good(capsys, "verify", zipped)
    assert f"Ada ({identity}), whom you trust, signed this content, in a statement of 20" in out
    assert "demo-1: consistent." in out  # a signature says who, not that it ran


def test_two_people_sign_one_bundle(zipped: Path, keys: Path, capsys: pytest.CaptureFixture[str]):
    good(capsys, "sign", zipped, "--key", keys / "ada")
    assert good(capsys, "sign", zipped, "--key", keys / "bob").endswith(", beside 1 other.\n")
    good(capsys, "sign", zipped, "--key", keys / "ada")
    envelope = json.loads(Path(f"{zipped}.sig").read_text())
    assert len(envelope["signatures"]) == 2
    for name in ("ada", "bob"):
        good(capsys, "verify", zipped, "--public-key", keys / f"{name}.pub")
    for name in ("ada", "bob"):
        good(capsys, "trust", "add", keys / f"{name}.pub", "--name", name)
    found = json.loads(good(capsys, "verify", zipped, "--json"))["signature"]
    assert [each["name"] for each in found["signers"]] == ["ada", "bob"]
    assert found["holds"] is True


def test_the_signature_of_somebody_else_is_never_overwritten(
    zipped: Path, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    other = small_bundle(tmp_path / "other", seed=3)
    good(capsys, "sign", other, "--key", keys / "bob")
    bobs = Path(f"{other}.sig").read_bytes()
    Path(f"{zipped}.sig").write_bytes(bobs)
    code, _, err = run(capsys, "sign", zipped, "--key", keys / "ada")
    assert code == 2
    assert err.startswith(f"error TP870: {zipped}.sig: It holds 1 signature for other content, by SHA256:")
    assert Path(f"{zipped}.sig").read_bytes() == bobs
    good(capsys, "sign", zipped, "--key", keys / "bob")  # his own may be replaced
    good(capsys, "verify", zipped, "--public-key", keys / "bob.pub")


def test_what_lies_beside_can_warn_and_never_fails(
    zipped: Path, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    other = small_bundle(tmp_path / "other", seed=3)
    good(capsys, "sign", other, "--key", keys / "ada")
    shutil.copy(f"{other}.sig", f"{zipped}.sig")
    good(capsys, "trust", "add", keys / "ada.pub", "--name", "Ada")
    code, out, _ = run(capsys, "verify", zipped)
    assert code == 0
    assert f"warning TP835: {zipped}.sig: The signature is for the content digest " in out
    Path(f"{zipped}.sig").write_text("junk")
    code, out, _ = run(capsys, "verify", zipped)
    assert code == 0
    assert f"warning TP834: {zipped}.sig: This is no DSSE envelope of an in-toto statement.\n" in out


def receipt(folder: Path) -> dict[str, Any]:
    manifest = json.loads((folder / MANIFEST).read_text())
    return {
        "schema_version": "1.1",
        "kind": "replay",
        "run_id": manifest["run_id"],
        "run_sha256": run_sha256(folder),
        "made_at": "2026-11-23T20:15:00.000+00:00",
        "made_by": {"version": "1", "commit": None},
        "environment": manifest["environment"],
        "device": {"platform": "cpu", "kind": "cpu", "count": 1},
        "covered": {
            "segments": [{"first_step": 0, "last_step": 4, "verdict": "identical"}],
            "items": {"drawn": 12, "identical": 12, "within_tolerance": 0, "different": 0, "trained": 6},
        },
        "result": "identical",
        "said": "5 of 5 segments are identical.",
    }


@pytest.fixture
def with_receipt(keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A run with a receipt in its folder that Ada signed."""
    folder = write_run(tmp_path / "runs", "demo-1", steps=4, items=6)
    (folder / RECEIPTS).mkdir()
    path = folder / RECEIPTS / "replay.json"
    path.write_text(json.dumps(receipt(folder)))
    assert good(capsys, "sign", path, "--key", keys / "ada").startswith(f"{path}.sig: signature of replay.json with ")
    return folder


def grade_of(capsys: pytest.CaptureFixture[str], folder: Path) -> tuple[str, list[str]]:
    [found] = json.loads(good(capsys, "grade", folder, "--json"))
    return found["grade"], found["reasons"]


def test_a_receipt_signed_by_somebody_trusted_makes_a_run_verified(
    with_receipt: Path, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    name, reasons = grade_of(capsys, with_receipt)
    assert name == "consistent"
    assert reasons[-1].startswith("A claim, by an unknown person, of 2026-11-23: ")
    good(capsys, "trust", "add", keys / "ada.pub", "--name", "Ada")
    said = "Checked by Ada on 2026-11-23: 5 of 5 segments are identical."
    covered = (
        "Score repeated: 6 of 6 answers of the trained model, 6 of 6 of the untrained one. Training repeated: 4 of 4 "
        "steps, its end among them."
    )
    assert grade_of(capsys, with_receipt) == ("verified", [said, covered, DEVICE, *reasons[:-1]])
    zipped = build_bundle([with_receipt], tmp_path / "with.zip").output
    assert f"  demo-1: verified (score: 6 of 6 answers; training: 4 of 4 steps). {said} " in good(
        capsys, "verify", zipped
    )
    assert said in good(capsys, "show", with_receipt)


def test_a_receipt_that_was_changed_after_it_was_signed_is_a_claim(
    with_receipt: Path, keys: Path, capsys: pytest.CaptureFixture[str]
):
    good(capsys, "trust", "add", keys / "ada.pub", "--name", "Ada")
    path = with_receipt / RECEIPTS / "replay.json"
    path.write_text(path.read_text().replace("5 of 5", "9 of 9"))
    assert grade_of(capsys, with_receipt)[0] == "consistent"


def test_a_receipt_of_another_run_is_no_matter(
    with_receipt: Path, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    good(capsys, "trust", "add", keys / "ada.pub", "--name", "Ada")
    other = write_run(tmp_path / "others", "demo-2", steps=4, items=6, seed=3)
    shutil.copytree(with_receipt / RECEIPTS, other / RECEIPTS)
    assert grade_of(capsys, other)[0] == "consistent"


def test_a_signature_of_something_else_beside_a_receipt(
    with_receipt: Path, keys: Path, zipped: Path, capsys: pytest.CaptureFixture[str]
):
    """Ada did sign: a bundle. Her envelope moved beside a receipt says nothing of it."""
    good(capsys, "trust", "add", keys / "ada.pub", "--name", "Ada")
    good(capsys, "sign", zipped, "--key", keys / "ada")
    shutil.copy(f"{zipped}.sig", with_receipt / RECEIPTS / "replay.json.sig")
    assert grade_of(capsys, with_receipt)[0] == "consistent"


def test_what_cannot_be_signed(keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "any.json"
    path.write_text('{"covered": 3}')
    code, _, err = run(capsys, "sign", path, "--key", keys / "ada")
    assert code == 2
    assert err.startswith(f"error TP871: {path}: This is neither a bundle nor a receipt nor a statement about a run.\n")


@pytest.mark.parametrize("name", ["you", "GitHub", " Nobody "])
def test_nobody_takes_the_name_of_the_reader(name: str, keys: Path, capsys: pytest.CaptureFixture[str]):
    """A grade says "checked by you" of the reader's own work alone."""
    code, _, err = run(capsys, "trust", "add", keys / "ada.pub", "--name", name)
    assert code == 2
    assert "cannot be a name on the trust list" in err
