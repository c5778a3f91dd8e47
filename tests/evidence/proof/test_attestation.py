"""Attestations of workflows from a Sigstore of one's own: what holds, and what a forger would have to change."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sigstore", reason="needs sigstore (extra `witness`)")

from bundles import contents, small_bundle
from own_sigstore import OwnSigstore, Workflow, statement_about

from evidence.proof.attestation import attestations_in
from evidence.proof.trust import roots_of
from schemas.problems import ProblemError
from trainproof import command

DIGEST = "ab" * 32


@pytest.fixture(scope="module")
def own() -> OwnSigstore:
    return OwnSigstore()


@pytest.fixture(scope="module")
def zipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_bundle(tmp_path_factory.mktemp("bundle"))


@pytest.fixture(scope="module")
def commit(zipped: Path) -> str:
    stated: str = json.loads(contents(zipped)["runs/demo-1/run_manifest.json"])["code"]["commit"]
    return stated


def root_of(own: OwnSigstore) -> dict[str, Any]:
    return {"own": roots_of(json.dumps(own.trusted_root).encode(), "root")[0]}


def written(folder: Path, *bundles: dict[str, Any]) -> Path:
    path = folder / "attestation.jsonl"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in bundles))
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        command.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out + captured.err


def test_one_that_holds(own: OwnSigstore, tmp_path: Path):
    path = written(tmp_path, own.attestation(statement_about(DIGEST)))
    [found] = attestations_in(path, root_of(own))
    assert (found.root, found.problem) == ("own", None)
    assert (found.repository, found.workflow) == ("ada/runs", ".github/workflows/smoke.yml")
    assert (found.commit, found.runner) == (Workflow().commit, "github-hosted")
    assert found.digests == {DIGEST}
    assert found.made_at == own.begun


def test_several_one_a_line(own: OwnSigstore, tmp_path: Path):
    others = [own.attestation(statement_about(each * 32)) for each in ("01", "02")]
    found = attestations_in(written(tmp_path, *others), root_of(own))
    assert [each.digests for each in found] == [{"01" * 32}, {"02" * 32}]
    assert {each.root for each in found} == {"own"}


def test_without_a_root_nothing_is_believed(own: OwnSigstore, tmp_path: Path):
    [found] = attestations_in(written(tmp_path, own.attestation(statement_about(DIGEST))), {})
    assert (found.root, found.problem) == (None, None)


@pytest.mark.parametrize("part", ["authority", "certificates", "signatures"])
def test_made_with_another_key(part: str, own: OwnSigstore, tmp_path: Path):
    """A forger lacks the key of the authority, or that of the log of certificates, or that of the log of signatures."""
    forged = own.with_other(part).attestation(statement_about(DIGEST))
    [found] = attestations_in(written(tmp_path, forged), root_of(own))
    assert found.root is None
    assert found.problem is not None
    assert found.problem.startswith("It was verified and does not hold: ")


def test_logged_after_the_certificate_had_ended(own: OwnSigstore, tmp_path: Path):
    late = own.attestation(statement_about(DIGEST), logged_after_minutes=11)
    [found] = attestations_in(written(tmp_path, late), root_of(own))
    assert found.root is None


def other_payload(bundle: dict[str, Any]) -> None:
    bundle["dsseEnvelope"]["payload"] = base64.b64encode(json.dumps(statement_about("cd" * 32)).encode()).decode()


def other_time(bundle: dict[str, Any]) -> None:
    entry = bundle["verificationMaterial"]["tlogEntries"][0]
    entry["integratedTime"] = str(int(entry["integratedTime"]) + 60)


def no_entry(bundle: dict[str, Any]) -> None:
    bundle["verificationMaterial"]["tlogEntries"] = []


def other_proof(bundle: dict[str, Any]) -> None:
    bundle["verificationMaterial"]["tlogEntries"][0]["inclusionProof"]["hashes"] = [
        base64.b64encode(bytes(32)).decode()
    ]


def two_signatures(bundle: dict[str, Any]) -> None:
    bundle["dsseEnvelope"]["signatures"] *= 2


@pytest.mark.parametrize("change", [other_payload, other_time, no_entry, other_proof, two_signatures])
def test_changed_afterwards(change: Callable[[dict[str, Any]], None], own: OwnSigstore, tmp_path: Path):
    bundle = own.attestation(statement_about(DIGEST))
    change(bundle)
    [found] = attestations_in(written(tmp_path, bundle), root_of(own))
    assert found.root is None
    assert found.problem is not None


def test_vouched_for_by_somebody_else(own: OwnSigstore, tmp_path: Path):
    """Sigstore gives certificates to whoever has an e-mail address too."""
    personal = own.attestation(statement_about(DIGEST), Workflow(issuer="https://accounts.example"))
    with pytest.raises(ProblemError) as refused:
        attestations_in(written(tmp_path, personal), root_of(own))
    [problem] = refused.value.problems
    assert problem.code == "TP863"
    assert problem.what == "https://accounts.example vouched for whoever signed it, and not GitHub for a workflow."


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"null", b"\xff", b'{"verificationMaterial": 3}', b"[" * 9999])
def test_files_that_are_no_attestation(content: bytes, tmp_path: Path):
    path = tmp_path / "attestation.json"
    path.write_bytes(content)
    with pytest.raises(ProblemError) as refused:
        attestations_in(path, {})
    assert [each.code for each in refused.value.problems] == ["TP863"]


def verified(
    capsys: pytest.CaptureFixture[str], folder: Path, own: OwnSigstore, zipped: Path, *flags: object, **changes: Any
) -> tuple[int, str]:
    """Verify a bundle with an attestation of it, from a workflow with some changes."""
    digest = changes.pop("digest", hashlib.sha256(zipped.read_bytes()).hexdigest())
    path = written(folder, own.attestation(statement_about(digest), replace(Workflow(), **changes)))
    root = folder / "root.json"
    root.write_text(json.dumps(own.trusted_root))
    return run(capsys, "verify", zipped, "--attestation", path, "--trusted-root", root, *flags)


def test_a_run_of_a_workflow_is_verified(
    own: OwnSigstore, zipped: Path, commit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    code, out = verified(capsys, tmp_path, own, zipped, "--repository", "ada/runs", commit=commit)
    said = (
        f"Made by the workflow .github/workflows/smoke.yml of ada/runs at commit {commit[:12]}, on a machine of GitHub."
    )
    assert code == 0, out
    assert f"  demo-1: verified (seen by a witness). Checked by GitHub on {own.begun:%Y-%m-%d}: {said} " in out
    assert f"  attestation.jsonl: {said} https://github.com/ada/runs/actions/runs/1/attempts/1\n" in out
    assert "Repeated or witnessed by somebody whom you trust: demo-1 (seen by a witness)." in out


def test_the_manifest_of_a_run_may_be_what_was_attested(
    own: OwnSigstore, zipped: Path, commit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    digest = hashlib.sha256(contents(zipped)["runs/demo-1/run_manifest.json"]).hexdigest()
    code, out = verified(capsys, tmp_path, own, zipped, "--repository", "ada/runs", commit=commit, digest=digest)
    assert code == 0
    assert "demo-1: verified (seen by a witness)." in out


def test_of_another_file(own: OwnSigstore, zipped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    code, out = verified(capsys, tmp_path, own, zipped, digest=DIGEST)
    actual = hashlib.sha256(zipped.read_bytes()).hexdigest()
    assert code == 1
    assert f"error TP864: {tmp_path / 'attestation.jsonl'}: It attests {DIGEST}; the zip has {actual}.\n" in out
    assert "demo-1: consistent." in out


def test_at_another_commit(
    own: OwnSigstore, zipped: Path, commit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    code, out = verified(capsys, tmp_path, own, zipped, commit="f" * 40)
    assert code == 1
    assert f"The workflow ran at commit {'f' * 40}, and the run demo-1 states the commit {commit}.\n" in out
    assert "demo-1: consistent." in out


def test_of_another_repository(
    own: OwnSigstore, zipped: Path, commit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    code, out = verified(capsys, tmp_path, own, zipped, "--repository", "eve/runs", commit=commit)
    assert code == 1
    assert "The workflow is one of ada/runs, and eve/runs was asked for.\n" in out


def test_of_a_repository_that_nobody_named_it_is_a_claim(
    own: OwnSigstore, zipped: Path, commit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """A forger has a repository too, and its workflows attest what he likes."""
    code, out = verified(capsys, tmp_path, own, zipped, commit=commit, repository="eve/runs")
    assert code == 0
    assert "demo-1: consistent." in out
    assert (
        "  Whoever owns eve/runs decides what its workflows do: read that one, then say with `--repository eve/runs` "
        "that you trust it.\n"
    ) in out


def test_on_a_machine_of_its_owner_it_is_a_claim(
    own: OwnSigstore, zipped: Path, commit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    code, out = verified(capsys, tmp_path, own, zipped, commit=commit, runner="self-hosted")
    assert code == 0
    assert "demo-1: consistent." in out
    assert "A claim, by an unknown person, " in out
    assert "  It ran on a machine that is self-hosted: its owner could have done anything there.\n" in out


def test_without_a_root_it_is_a_claim(
    own: OwnSigstore, zipped: Path, commit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    digest = hashlib.sha256(zipped.read_bytes()).hexdigest()
    path = written(tmp_path, own.attestation(statement_about(digest), Workflow(commit=commit)))
    code, out = run(capsys, "verify", zipped, "--attestation", path, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["runs"][0]["grade"] == "consistent"
    assert found["attestation"]["holds"] is False
    assert found["attestation"]["unchecked"].startswith("Its signature, certificate and log entry were not checked, ")


def test_under_another_root(
    own: OwnSigstore, zipped: Path, commit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    digest = hashlib.sha256(zipped.read_bytes()).hexdigest()
    path = written(tmp_path, own.attestation(statement_about(digest), Workflow(commit=commit)))
    (tmp_path / "root.json").write_text(json.dumps(OwnSigstore().trusted_root))
    code, out = run(capsys, "verify", zipped, "--attestation", path, "--trusted-root", tmp_path / "root.json")
    assert code == 1
    assert "error TP863: " in out
    assert "demo-1: consistent." in out


def test_a_root_that_is_none(zipped: Path, own: OwnSigstore, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = written(tmp_path, own.attestation(statement_about(DIGEST)))
    (tmp_path / "root.json").write_text('{"mediaType": "x"}')
    code, out = run(capsys, "verify", zipped, "--attestation", path, "--trusted-root", tmp_path / "root.json")
    assert code == 2
    what = f"error TP859: {tmp_path / 'root.json'}: This is not a trusted root of Sigstore in JSON.\n"
    assert out.startswith(what)
