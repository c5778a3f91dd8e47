"""A run with a time authority: stamped before its first step and after its seal, and never stopped by the authority."""

from __future__ import annotations

import base64
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rfc3161_client", reason="needs rfc3161-client (extra `witness`)")
if shutil.which("openssl") is None:
    pytest.skip("needs openssl, which is the other implementation", allow_module_level=True)

from own_time_authority import Authority, new_authority, serving

from evidence import layout
from evidence.bundle.build import build_bundle
from evidence.extras import install_command
from evidence.index.index import check_paths
from trainer.config.load import load_config
from trainer.recorder.progress import Watch
from trainer.run import RunRequest, run
from trainproof import command

CONFIG = """
model: {name: tiny-gpt2}
data: {max_length: 96}
batch: {microbatch_size: 4}
mesh: {device: cpu, devices: 1}
evaluation: {eval_set: null}
limits: {steps: 2}
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("authority") / "own")


def trained(folder: Path, address: str) -> Path:
    (folder / "config.yaml").write_text(CONFIG)
    config = load_config(folder / "config.yaml", settings=[f"recording.time_authority={address}"])
    order = RunRequest(config=config, folder=folder / "r1", command=["trainproof", "train"])
    assert run(order, Watch(quiet=True)) == 0
    return folder / "r1"


@pytest.fixture(scope="module")
def stamped_run(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with serving(authority.answer) as address:
        return trained(tmp_path_factory.mktemp("runs"), address)


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        command.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out + captured.err


def stamps(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / layout.STAMPS).read_text())["stamps"]
    return found


@pytest.mark.slow
def test_both_stamps_are_there_and_cost_no_grade(stamped_run: Path):
    assert [(each["of"], each["failed"]) for each in stamps(stamped_run)] == [("start", None), ("manifest", None)]
    [report] = check_paths([stamped_run]).runs
    assert [finding for finding in report.findings if finding.severity == "error"] == []
    assert "stamps.json" not in " ".join(report.grade.reasons)


def test_a_reader_who_trusts_the_authority_is_told_the_times(
    stamped_run: Path, authority: Authority, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    zipped = build_bundle([stamped_run], tmp_path / "r1.zip", allow_partial=True).output
    code, out = said(capsys, "verify", zipped, "--tsa-root", authority.root)
    assert code == 0
    assert out.count(" whose root certificate you trust (root.pem).\n") == 2
    assert "  r1: Configuration, data and plan existed before 20" in out
    assert "  r1: The manifest with the hash of every file existed before 20" in out
    code, out = said(capsys, "verify", zipped)
    assert code == 0
    assert out.count("You trust no root certificate of this authority, so it proves nothing to you.") == 2


def test_without_the_extra_the_rest_is_judged(
    stamped_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    zipped = build_bundle([stamped_run], tmp_path / "r1.zip", allow_partial=True).output
    monkeypatch.setitem(sys.modules, "rfc3161_client", None)
    code, out = said(capsys, "verify", zipped)
    assert code == 0
    assert out.count(f" was not checked, which needs `rfc3161-client`: {install_command('witness')}.\n") == 2


def test_under_another_root_it_does_not_hold(stamped_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    zipped = build_bundle([stamped_run], tmp_path / "r1.zip", allow_partial=True).output
    foreign = new_authority(tmp_path / "foreign")
    code, out = said(capsys, "verify", zipped, "--tsa-root", foreign.root)
    assert code == 1
    assert out.count("error TP862: runs/r1/stamps.json: ") == 2


def test_a_stamp_of_another_run(stamped_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Stamps that are moved to another run are of another start and another manifest."""
    other = tmp_path / "r1"
    shutil.copytree(stamped_run, other)
    (other / layout.CONFIG).write_text((other / layout.CONFIG).read_text() + "# another\n")
    code, out = said(capsys, "show", other)
    assert code == 0
    assert "The time stamp of configuration, data and plan is not valid. It is for the hash " in out
    assert "A time stamp of the manifest with the hash of every file states 20" in out  # which is as it was


def test_nobody_is_there_and_the_run_succeeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with serving(lambda _: 503) as address:
        folder = trained(tmp_path, address)
    assert [each["failed"] for each in stamps(folder)] == ["The time authority answered with status 503."] * 2
    [event] = [
        row
        for row in map(json.loads, (folder / layout.LOG).read_text().splitlines())
        if row["event"] == "start_not_stamped"
    ]
    assert event["message"] == "no time stamp of the start: The time authority answered with status 503."
    [report] = check_paths([folder]).runs
    assert [finding for finding in report.findings if finding.severity == "error"] == []


def test_what_is_no_address_is_refused_before_anything_is_spent(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "config.yaml").write_text(CONFIG)
    flags = ["--config", tmp_path / "config.yaml", "--output", tmp_path / "r1"]
    code, out = said(capsys, "train", *flags, "--set", "recording.time_authority=time.example")
    assert code == 2
    assert "time.example is not an address of the form https://HOST/PATH." in out
    assert not (tmp_path / "r1").exists()


def test_stamping_afterwards(
    stamped_run: Path, authority: Authority, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = tmp_path / "r1"
    shutil.copytree(stamped_run, folder)
    with serving(authority.answer) as address:
        code, out = said(capsys, "stamp", folder, "--authority", address, "--certificate", authority.root)
        assert code == 0
        assert f"{folder / 'stamps.json'}: The manifest with the hash of every file existed before 20" in out
        zipped = build_bundle([folder], tmp_path / "r1.zip", allow_partial=True).output
        code, out = said(capsys, "stamp", zipped, "--authority", address)
        assert code == 0
    code, out = said(capsys, "verify", zipped, "--tsa-root", authority.root)
    assert code == 0
    assert "  r1.zip: The zip existed before 20" in out
    shutil.copy(zipped, tmp_path / "other.zip")
    (tmp_path / "other.zip.tsr").write_bytes(b"junk")
    code, out = said(capsys, "verify", tmp_path / "other.zip")
    assert code == 0
    what = "The time stamp of the zip is not valid. This is not a time stamp of RFC 3161."
    assert f"warning TP862: {tmp_path / 'other.zip.tsr'}: {what}" in out
    assert [each["of"] for each in stamps(folder)] == ["start", "manifest", "manifest"]
    assert authority.agrees(zipped, Path(f"{zipped}.tsr"))
    assert authority.agrees(folder / layout.MANIFEST, _answer(stamps(folder)[-1], tmp_path))


def _answer(stamp: dict[str, Any], folder: Path) -> Path:
    path = folder / "answer.tsr"
    path.write_bytes(base64.b64decode(stamp["response"]))
    return path
