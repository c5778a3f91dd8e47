"""Attestations of workflows, signed by a local Sigstore."""

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sigstore", reason="needs sigstore (extra `witness`)")

from bundles import contents, small_bundle
from own_sigstore import OwnSigstore, Workflow, statement_about

from evidence.bundle.witnesses import Attestation, verify_attestations
from evidence.proof.trust import load_sigstore_roots
from schemas.problems import Problem, ProblemError
from trainproof.cli import app as command

Capture = pytest.CaptureFixture[str]
DIGEST = "ab" * 32
CONSISTENT = "  demo-1  consistent  nobody you trust  0\n"


@pytest.fixture(scope="module")
def sigstore() -> OwnSigstore:
    return OwnSigstore()


@pytest.fixture(scope="module")
def zipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_bundle(tmp_path_factory.mktemp("bundle"))


@pytest.fixture(scope="module")
def commit(zipped: Path) -> str:
    stated: str = json.loads(contents(zipped)["runs/demo-1/run_manifest.json"])["code"]["commit"]
    return stated


def write(folder: Path, *bundles: dict[str, Any]) -> Path:
    path = folder / "attestation.jsonl"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in bundles))
    return path


def verified(path: Path, sigstore: OwnSigstore, **expected: str) -> list[Attestation] | str:
    """Return the valid attestations in a file, or why none is valid."""
    roots = {"own": load_sigstore_roots(json.dumps(sigstore.trusted_root), "root")[0]}
    found = verify_attestations(
        path, roots, expected.get("repository", "ada/runs"), [expected.get("commit", Workflow().commit)]
    )
    return found.what if isinstance(found, Problem) else found


def test_valid_attestation(sigstore: OwnSigstore, tmp_path: Path) -> None:
    several = [sigstore.attestation(statement_about(each * 32)) for each in ("01", "02")]
    found = verified(write(tmp_path, *several), sigstore)
    assert isinstance(found, list)
    assert [each.digests for each in found] == [{"01" * 32}, {"02" * 32}]
    assert found[0].made_at == sigstore.begun.isoformat()
    assert found[0].invocation == "https://github.com/ada/runs/actions/runs/1/attempts/1"


@pytest.mark.parametrize(
    "workflow",
    [
        Workflow(repository="eve/runs"),
        Workflow(commit="f" * 40),
        Workflow(runner="self-hosted"),  # its owner could have done anything there
        Workflow(issuer="https://accounts.example"),  # whoever has an e-mail address gets such a certificate
    ],
)
def test_another_workflow_is_refused(workflow: Workflow, sigstore: OwnSigstore, tmp_path: Path) -> None:
    what = verified(write(tmp_path, sigstore.attestation(statement_about(DIGEST), workflow)), sigstore)
    assert str(what).startswith("The attestation is not valid: Certificate's OIDC")


@pytest.mark.parametrize("part", ["authority", "certificates", "signatures"])
def test_forged_key(part: str, sigstore: OwnSigstore, tmp_path: Path) -> None:
    """A forger lacks the key of the authority, of the log of certificates, or of the log of signatures."""
    forged = sigstore.with_other(part).attestation(statement_about(DIGEST))
    assert isinstance(verified(write(tmp_path, forged), sigstore), str)


def test_logged_after_certificate_expired(sigstore: OwnSigstore, tmp_path: Path) -> None:
    late = sigstore.attestation(statement_about(DIGEST), logged_after_minutes=11)
    assert isinstance(verified(write(tmp_path, late), sigstore), str)


OTHER_PAYLOAD = base64.b64encode(json.dumps(statement_about("cd" * 32)).encode()).decode()
OTHER_HASH = base64.b64encode(bytes(32)).decode()


@pytest.mark.parametrize(
    "change",
    [
        lambda envelope, _: envelope.update(payload=OTHER_PAYLOAD),
        lambda envelope, _: envelope.update(signatures=envelope["signatures"] * 2),
        lambda _, log: log[0].update(integratedTime=str(int(log[0]["integratedTime"]) + 60)),
        lambda _, log: log[0]["inclusionProof"].update(hashes=[OTHER_HASH]),
        lambda _, log: log.clear(),
    ],
)
def test_changed_afterwards(change: Callable[[Any, Any], None], sigstore: OwnSigstore, tmp_path: Path) -> None:
    bundle = sigstore.attestation(statement_about(DIGEST))
    change(bundle["dsseEnvelope"], bundle["verificationMaterial"]["tlogEntries"])
    assert isinstance(verified(write(tmp_path, bundle), sigstore), str)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"null", b"\xff", b'{"verificationMaterial": 3}', b"[" * 9999])
def test_invalid_attestation_file(content: bytes, sigstore: OwnSigstore, tmp_path: Path) -> None:
    path = tmp_path / "attestation.json"
    path.write_bytes(content)
    assert isinstance(verified(path, sigstore), str)


def verify(
    capsys: Capture, folder: Path, sigstore: OwnSigstore, zipped: Path, *flags: object, **changes: Any
) -> tuple[int, str]:
    """Run `verify --attestation` on a bundle that a workflow with some changes attested."""
    digest = changes.pop("digest", hashlib.sha256(zipped.read_bytes()).hexdigest())
    path = write(folder, sigstore.attestation(statement_about(digest), Workflow(**changes)))
    root = folder / "root.json"
    root.write_text(json.dumps(sigstore.trusted_root))
    with pytest.raises(SystemExit) as ended:
        command.main([str(each) for each in ("verify", zipped, "--attestation", path, "--trusted-root", root, *flags)])
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out + captured.err


@pytest.mark.parametrize("file", ["zip", "manifest"])
def test_attested_run_is_verified(file, sigstore, zipped, commit, tmp_path, capsys):
    attested = zipped.read_bytes() if file == "zip" else contents(zipped)["runs/demo-1/run_manifest.json"]
    digest = hashlib.sha256(attested).hexdigest()
    code, out = verify(capsys, tmp_path, sigstore, zipped, "--repository", "ada/runs", commit=commit, digest=digest)
    made = f"Made by a workflow of ada/runs at commit {commit[:12]}, on a machine of GitHub."
    assert code == 0, out
    assert "  demo-1  verified (seen by a witness)  an attestation from GitHub  0\n" in out
    assert f"  demo-1: Checked by GitHub on {sigstore.begun:%Y-%m-%d}: {made}\n" in out
    assert f"  attestation.jsonl: {made} https://github.com/ada/runs/actions/runs/1/attempts/1\n" in out


def test_other_file_commit_or_repository_fails(sigstore, zipped, commit, tmp_path, capsys):
    flags = ("--repository", "ada/runs")
    for changes, error in [
        ({"digest": DIGEST, "commit": commit}, "error TP864: "),
        ({"commit": "f" * 40}, "error TP863: "),
        ({"commit": commit, "repository": "eve/runs"}, "error TP863: "),
    ]:
        code, out = verify(capsys, tmp_path, sigstore, zipped, *flags, **changes)
        assert (code, error in out, CONSISTENT in out) == (1, True, True)


def test_unchecked_without_repository_or_root(sigstore, zipped, commit, tmp_path, capsys):
    """A forger has a repository too, and its workflows attest what they like."""
    code, out = verify(capsys, tmp_path, sigstore, zipped, commit=commit)
    assert (code, CONSISTENT in out) == (0, True)
    assert "  attestation.jsonl was not checked. Pass the repository whose workflow should have made it: " in out
    path = str(tmp_path / "attestation.jsonl")
    with pytest.raises(SystemExit):
        command.main(["verify", str(zipped), "--attestation", path, "--repository", "ada/runs", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["runs"][0]["grade"], found["attestation"]["holds"]) == ("consistent", False)
    assert found["attestation"]["unchecked"].endswith("Pass a trusted root: `--trusted-root FILE`.")


def test_invalid_root() -> None:
    with pytest.raises(ProblemError) as refused:
        load_sigstore_roots('{"mediaType": "x"}', "root.json")
    assert (refused.value.exit_code, refused.value.problems[0].code) == (2, "TP859")
