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
from tasks import with_settings
from whole_runs import carried_out, errors_of, logged, refusal

from evidence import layout
from evidence.bundle.build import build_bundle
from evidence.extras import install_command
from trainer.config.tree import Config
from trainer.run import RunRequest


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("authority") / "own")


def trained(folder: Path, config: Config, address: str) -> Path:
    stamped = with_settings(config, recording={"time_authority": address})
    assert carried_out(RunRequest(config=stamped, folder=folder / "r1", command=["trainproof", "train"])) == 0
    return folder / "r1"


@pytest.fixture(scope="module")
def stamped_run(authority, config, tmp_path_factory) -> Path:
    with serving(authority.answer) as address:
        return trained(tmp_path_factory.mktemp("runs"), config, address)


def said(capsys: pytest.CaptureFixture[str], *arguments: object, exit_code: int = 0) -> str:
    code, out, err = run_command(capsys, *arguments)
    assert code == exit_code, out + err
    return out + err


def stamps(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / layout.STAMPS).read_text())["stamps"]


def test_times_are_proven_to_a_reader_who_trusts_the_authority(stamped_run, authority, tmp_path, capsys, monkeypatch):
    assert [(each["of"], each["failed"]) for each in stamps(stamped_run)] == [("start", None), ("manifest", None)]
    assert errors_of(stamped_run) == []
    zipped = build_bundle([stamped_run], tmp_path / "r1.zip", allow_partial=True).output
    out = said(capsys, "verify", zipped, "--tsa-root", authority.root)
    assert out.count(" whose root certificate you trust (root.pem).\n") == 2
    assert "  r1: Configuration, data and plan existed before 20" in out
    assert "  r1: The manifest with the hash of every file existed before 20" in out
    foreign = new_authority(tmp_path / "foreign").root
    out = said(capsys, "verify", zipped, "--tsa-root", foreign, exit_code=1)
    assert out.count("error TP862: runs/r1/stamps.json: ") == 2
    monkeypatch.setitem(sys.modules, "rfc3161_client", None)
    out = said(capsys, "verify", zipped)
    assert out.count(f" was not checked, which needs `rfc3161-client`: {install_command('witness')}.\n") == 2


def test_a_run_succeeds_without_an_answer_of_the_authority(config, tmp_path):
    with serving(lambda _: 503) as address:
        folder = trained(tmp_path, config, address)
    assert [each["failed"] for each in stamps(folder)] == ["The time authority answered with status 503."] * 2
    [event] = logged(folder, "start_not_stamped")
    assert event["message"] == "no timestamp of the start: The time authority answered with status 503."
    assert errors_of(folder) == []


def test_a_malformed_address_is_refused_before_the_run(config, order_of):
    order = order_of(with_settings(config, recording={"time_authority": "time.example"}))
    assert "time.example is not an address of the form https://HOST/PATH." in refusal(order)[1]
    assert not order.folder.exists()


def test_stamping_afterwards(stamped_run, authority, tmp_path, capsys):
    folder = shutil.copytree(stamped_run, tmp_path / "r1")
    with serving(authority.answer) as address:
        out = said(capsys, "stamp", folder, "--authority", address, "--certificate", authority.root)
        assert f"{folder / 'stamps.json'}: The manifest with the hash of every file existed before 20" in out
        zipped = build_bundle([folder], tmp_path / "r1.zip", allow_partial=True).output
        said(capsys, "stamp", zipped, "--authority", address)
    out = said(capsys, "verify", zipped, "--tsa-root", authority.root)
    assert "  r1.zip: The zip existed before 20" in out
    assert [each["of"] for each in stamps(folder)] == ["start", "manifest", "manifest"]
    stamp = zipped.with_name("r1.zip.tsr")
    assert authority.agrees(zipped, stamp)
    answer = tmp_path / "answer.tsr"
    answer.write_bytes(base64.b64decode(stamps(folder)[-1]["response"]))
    assert authority.agrees(folder / layout.MANIFEST, answer)
    stamp.write_bytes(b"junk")
    what = "The timestamp of the zip is not valid. This is not a timestamp of RFC 3161."
    assert f"warning TP862: {stamp}: {what}" in said(capsys, "verify", zipped)
