"""Timestamps of a run's start and seal, which a failing authority never stops."""

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

from commands import run_command
from own_time_authority import Authority, new_authority, serving
from whole_runs import errors_of, logged

from evidence import layout
from evidence.bundle.build import build_bundle
from evidence.extras import install_command
from evidence.index.index import check_paths
from trainer.config.load import load_config
from trainer.recorder.progress import Watch
from trainer.run import RunRequest, run

CONFIG = """
model: {name: tiny-gpt2}
data: {max_length: 96}
batch: {microbatch_size: 4}
mesh: {device: cpu, devices: 1}
evaluation: {eval_set: null}
limits: {steps: 2}
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("authority") / "own")


def trained(folder: Path, address: str) -> Path:
    (folder / "config.yaml").write_text(CONFIG)
    config = load_config(folder / "config.yaml", settings=[f"recording.time_authority={address}"])
    order = RunRequest(config=config, folder=folder / "r1", command=["trainproof", "train"])
    assert run(order, Watch(quiet=True)) == 0
    return folder / "r1"


@pytest.fixture(scope="module")
def stamped_run(authority, tmp_path_factory) -> Path:
    with serving(authority.answer) as address:
        return trained(tmp_path_factory.mktemp("runs"), address)


def said(capsys: pytest.CaptureFixture[str], *arguments: object, exit_code: int = 0) -> str:
    code, out, err = run_command(capsys, *arguments)
    assert code == exit_code, out + err
    return out + err


def stamps(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / layout.STAMPS).read_text())["stamps"]


@pytest.fixture
def zipped(stamped_run: Path, tmp_path: Path) -> Path:
    return build_bundle([stamped_run], tmp_path / "r1.zip", allow_partial=True).output


@pytest.mark.slow
def test_both_stamps_are_recorded_without_an_effect_on_the_grade(stamped_run):
    assert [(each["of"], each["failed"]) for each in stamps(stamped_run)] == [("start", None), ("manifest", None)]
    [report] = check_paths([stamped_run]).runs
    assert [finding for finding in report.findings if finding.severity == "error"] == []
    assert "stamps.json" not in " ".join(report.grade.reasons)


def test_times_are_proven_to_a_reader_who_trusts_the_authority(zipped, authority, tmp_path, capsys, monkeypatch):
    out = said(capsys, "verify", zipped, "--tsa-root", authority.root)
    assert out.count(" whose root certificate you trust (root.pem).\n") == 2
    assert "  r1: Configuration, data and plan existed before 20" in out
    assert "  r1: The manifest with the hash of every file existed before 20" in out
    foreign = new_authority(tmp_path / "foreign").root
    out = said(capsys, "verify", zipped, "--tsa-root", foreign, exit_code=1)
    assert out.count("error TP862: runs/r1/stamps.json: ") == 2
    out = said(capsys, "verify", zipped)
    assert out.count("You trust no root certificate of this authority, so it proves nothing to you.") == 2
    monkeypatch.setitem(sys.modules, "rfc3161_client", None)
    out = said(capsys, "verify", zipped)
    assert out.count(f" was not checked, which needs `rfc3161-client`: {install_command('witness')}.\n") == 2


def test_stamps_moved_to_another_run_are_not_valid(stamped_run, tmp_path, capsys):
    other = shutil.copytree(stamped_run, tmp_path / "r1")
    (other / layout.CONFIG).write_text((other / layout.CONFIG).read_text() + "# another\n")
    out = said(capsys, "show", other)
    assert "The timestamp of configuration, data and plan is not valid. It is for the hash " in out
    assert "A timestamp of the manifest with the hash of every file states 20" in out  # which is as it was


def test_a_run_succeeds_without_an_answer_of_the_authority(tmp_path):
    with serving(lambda _: 503) as address:
        folder = trained(tmp_path, address)
    assert [each["failed"] for each in stamps(folder)] == ["The time authority answered with status 503."] * 2
    [event] = logged(folder, "start_not_stamped")
    assert event["message"] == "no timestamp of the start: The time authority answered with status 503."
    assert errors_of(folder) == []


def test_a_malformed_address_is_refused_before_the_run(tmp_path, capsys):
    (tmp_path / "config.yaml").write_text(CONFIG)
    flags = ["--config", tmp_path / "config.yaml", "--output", tmp_path / "r1"]
    out = said(capsys, "train", *flags, "--set", "recording.time_authority=time.example", exit_code=2)
    assert "time.example is not an address of the form https://HOST/PATH." in out
    assert not (tmp_path / "r1").exists()


def test_stamping_afterwards(stamped_run, authority, tmp_path, capsys):
    folder = shutil.copytree(stamped_run, tmp_path / "r1")
    with serving(authority.answer) as address:
        out = said(capsys, "stamp", folder, "--authority", address, "--certificate", authority.root)
        assert f"{folder / 'stamps.json'}: The manifest with the hash of every file existed before 20" in out
        zipped = build_bundle([folder], tmp_path / "r1.zip", allow_partial=True).output
        said(capsys, "stamp", zipped, "--authority", address)
    out = said(capsys, "verify", zipped, "--tsa-root", authority.root)
    assert "  r1.zip: The zip existed before 20" in out
    shutil.copy(zipped, tmp_path / "other.zip")
    (tmp_path / "other.zip.tsr").write_bytes(b"junk")
    out = said(capsys, "verify", tmp_path / "other.zip")
    what = "The timestamp of the zip is not valid. This is not a timestamp of RFC 3161."
    assert f"warning TP862: {tmp_path / 'other.zip.tsr'}: {what}" in out
    assert [each["of"] for each in stamps(folder)] == ["start", "manifest", "manifest"]
    assert authority.agrees(zipped, Path(f"{zipped}.tsr"))
    answer = tmp_path / "answer.tsr"
    answer.write_bytes(base64.b64decode(stamps(folder)[-1]["response"]))
    assert authority.agrees(folder / layout.MANIFEST, answer)
