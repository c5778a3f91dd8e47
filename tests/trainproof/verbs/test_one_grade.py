"""Every command gives a run the same grade and states what it rests on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from receipts import receipt

from evidence.bundle.build import checklist
from evidence.proof.receipts import load_extent, save_receipt
from trainproof.cli.app import main

ROOT = Path(__file__).parents[3] / "submission_runs"


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The runs of the demo, of which this user has reproduced the smoke run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "own"))
    for name in ("demo-smoke", "demo-full"):
        shutil.copytree(ROOT / name, Path("runs") / name)
    extent = load_extent(Path("runs/demo-smoke"))
    whole = ((0, extent.last_step),)
    save_receipt(receipt(Path("runs/demo-smoke"), segments=whole, trained=extent.trained))
    return Path("runs")


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    captured = capsys.readouterr()
    assert not ended.value.code, captured
    return captured.out


def test_all_commands_agree(capsys: pytest.CaptureFixture[str]) -> None:
    folders = [f"runs/{name}" for name in ("demo-full", "demo-smoke")]
    grades = [json.loads(printed(capsys, "show", folder, "--json")) for folder in folders]
    found = {
        "show": grades,
        "check": json.loads(printed(capsys, "check", "runs", "--json"))["runs"],
        "runs": sorted(json.loads(printed(capsys, "runs", "runs", "--json")), key=lambda run: str(run["path"])),
        "package": json.loads(printed(capsys, "package", *folders, "--output", "both.zip", "--json"))["runs"],
        "verify": json.loads(printed(capsys, "verify", "both.zip", "--json"))["runs"],
    }
    expected = [("consistent", "folder"), ("verified", "with receipts from you")]
    assert {name: [(run["grade"], run["scope"]) for run in runs] for name, runs in found.items()} == dict.fromkeys(
        found, expected
    )
    assert [run["stated_grade"] for name in ("package", "verify") for run in found[name]] == ["consistent"] * 4


def test_a_stranger_sees_the_grade_of_the_folder(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = printed(capsys, "package", "runs/demo-smoke", "--output", "smoke.zip")
    here = "  demo-smoke: verified (score: 100 of 100 answers; training: 2 of 2 steps), with receipts from you"
    assert f"{here}; consistent, from the folder alone\n" in mine
    assert f"{here}; consistent, from the folder alone. Checked by you on " in printed(capsys, "verify", "smoke.zip")
    packed = Path("smoke.zip").read_bytes()
    monkeypatch.setenv("XDG_DATA_HOME", "strangers")
    assert "  demo-smoke: consistent, from the folder alone. " in printed(capsys, "verify", "smoke.zip")
    assert "  demo-smoke: consistent, from the folder alone\n" in printed(
        capsys, "package", "runs/demo-smoke", "--output", "smoke.zip"
    )
    assert Path("smoke.zip").read_bytes() == packed
    assert "consistent, from the folder alone" in printed(capsys, "show", "runs/demo-smoke")


def test_checklist_of_the_package_page() -> None:
    folders = [Path("runs/demo-full"), Path("runs/demo-smoke")]
    details = {(item.run, item.what): item.detail for item in checklist(folders)}
    assert details["demo-full", "grade"] == "The run is graded consistent, from the folder alone."
    assert details["demo-smoke", "grade"] == (
        "The run is graded verified (score: 100 of 100 answers; training: 2 of 2 steps), with receipts from you. "
        "The bundle states consistent, from the folder alone."
    )
