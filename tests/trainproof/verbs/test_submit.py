"""The commands compare, package and verify as a user types them, and the grade that every command gives a run."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from receipts import receipt
from synthetic import write_run

from evidence.bundle.build import checklist
from evidence.proof.receipts import load_extent, save_receipt

Run = Callable[..., tuple[int, str, str]]

COMMITTED = Path(__file__).parents[3] / "submission_runs"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_run(Path("submission_runs"), "m37_v1", items=20, seed=1)


def test_the_command_of_the_seed_documents(made: Path, run: Run):
    code, out, err = run("package", "--run-dir", made)
    first, second, *_, last = out.splitlines()
    assert (code, err) == (0, "")
    assert first.startswith("bundles/m37_v1.zip: ")
    assert first.endswith(" files, intact.")
    assert second == "  m37_v1: consistent, judged by its files"
    assert last == f"  zip SHA-256    {hashlib.sha256(Path('bundles/m37_v1.zip').read_bytes()).hexdigest()}"
    assert run("package", f"--run_dir={made}", "--output", "x.zip", "--allow_partial")[0] == 0
    assert Path("x.zip").is_file()


def test_a_missing_folder_is_an_error_and_never_ok(made: Path, run: Run):
    code, out, err = run("package", "--run-dir", "submission_runs/nothing")
    assert (code, out) == (2, "")
    assert err == (
        "error TP840: submission_runs/nothing: This does not exist.\n"
        "  The path does not exist or is not a folder.\n"
        "  Next: Pass the path of a run folder; `trainproof runs` lists them.\n"
    )
    assert not Path("bundles").exists()
    code, out, err = run("package")
    assert (code, out, err.splitlines()[0]) == (2, "", "error TP851: No run folder was given.")


def test_package_and_verify_as_json(made: Path, run: Run):
    smoke = write_run(made.parent, "smoke", steps=2, mode="smoke")
    code, out, _ = run("package", made, smoke, "--json")
    built = json.loads(out)
    assert (code, built["output"]) == (0, "bundles/submission.zip")
    assert [each["run_id"] for each in built["runs"]] == ["m37_v1", "smoke"]
    code, out, _ = run("verify", "bundles/submission.zip", "--json")
    verdict = json.loads(out)
    assert (code, verdict["ok"], verdict["findings"]) == (0, True, [])
    assert verdict["content_sha256"] == built["content_sha256"]
    names = ("run_id", "stated_grade", "grade")
    graded = [tuple(each[name] for name in names) for each in verdict["runs"]]
    assert graded == [("m37_v1", "consistent", "consistent"), ("smoke", "consistent", "consistent")]


def test_verify_of_a_changed_bundle(made: Path, run: Run):
    run("package", made)
    path = Path("bundles/m37_v1.zip")
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"loss": 1', b'"loss": 0', 1))
    assert path.read_bytes() != content
    code, out, _ = run("verify", path)
    assert code == 1
    assert out.startswith(
        "bundles/m37_v1.zip: Not valid.\n"
        "  Do not rely on its content.\n"
        "error TP801: runs/m37_v1/metrics.jsonl: The content does not match its checksum.\n"
        "  The file is not a zip, or it is damaged: headers, sizes or checksums are wrong, or bytes belong to no "
        "entry.\n"
        "  Next: Download or copy the file again.\n"
    )
    assert "Not covered" not in out


def test_verify_of_what_is_not_there(made: Path, run: Run):
    fix = "Pass a bundle that `trainproof package` wrote. To check a run, use `trainproof check`."
    assert run("verify", "nothing.zip") == (2, "", f"error TP091: nothing.zip: This does not exist.\n  Next: {fix}\n")
    assert run("verify", "submission_runs")[0] == 2


def test_compare(made: Path, run: Run):
    other = write_run(made.parent, "other", items=20, seed=2, correct=0.1)
    code, out, _ = run("compare", made, other)
    assert (code, out[:22]) == (0, "Settings that differ (")
    code, out, _ = run("compare", made, other, "--json")
    assert (code, json.loads(out)["names"]) == (0, ["m37_v1", "other"])
    code, out, _ = run("compare", made, write_run(made.parent, "fewer", items=19))
    refused = "Scores of m37_v1 and fewer cannot be compared:\n  Only m37_v1 was evaluated on 1 item (item-0019).\n"
    assert (code, out[-len(refused) :]) == (1, refused)


def test_the_verbs_need_neither_jax_nor_streamlit(made: Path):
    """The verbs run where only the contract and the truth are installed."""
    script = (
        "import sys\nfrom trainproof.cli import app as command\n"
        "for arguments in (['package', 'submission_runs/m37_v1'], ['verify', 'bundles/m37_v1.zip'],"
        " ['compare', 'submission_runs/m37_v1', 'submission_runs/m37_v1']):\n"
        "    try:\n        command.main(arguments)\n"
        "    except SystemExit as ended:\n        assert not ended.code, arguments\n"
        "assert not {'jax', 'flax', 'streamlit', 'pandas', 'scipy'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The full and the smoke run of the demo; this user has reproduced the smoke run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "own"))
    full, smoke = (shutil.copytree(COMMITTED / name, Path("runs") / name) for name in ("demo-full", "demo-smoke"))
    extent = load_extent(smoke)
    save_receipt(receipt(smoke, segments=((0, extent.last_step),), trained=extent.trained))
    return [full, smoke]


def test_all_commands_agree_on_a_grade(demo: list[Path], run: Run) -> None:
    def document(*arguments: object) -> list[dict]:
        code, out, _ = run(*arguments, "--json")
        assert code == 0
        return json.loads(out)

    found = {
        "show": [document("show", folder) for folder in demo],
        "check": document("check", "runs")["runs"],
        "runs": sorted(document("runs", "runs"), key=lambda run: str(run["path"])),
        "package": document("package", *demo, "--output", "both.zip")["runs"],
        "verify": document("verify", "both.zip")["runs"],
    }
    expected = [("consistent", "folder"), ("verified", "with receipts from you")]
    graded = {name: [(run["grade"], run["scope"]) for run in runs] for name, runs in found.items()}
    assert graded == dict.fromkeys(found, expected)
    assert [run["stated_grade"] for name in ("package", "verify") for run in found[name]] == ["consistent"] * 4
    details = {(item.run, item.what): item.detail for item in checklist(demo)}
    assert details["demo-full", "grade"] == "The run is graded consistent, judged by its files."
    assert details["demo-smoke", "grade"] == (
        "The run is graded verified (reproduced: 100 of 100 answers, 2 of 2 steps), with receipts from you. "
        "The bundle states consistent, judged by its files."
    )


def test_a_stranger_sees_the_grade_of_the_folder(demo: list[Path], run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    package = ("package", "runs/demo-smoke", "--output", "smoke.zip")
    here = "  demo-smoke: verified (reproduced: 100 of 100 answers, 2 of 2 steps), with receipts from you"
    assert f"{here}; consistent, judged by its files\n" in run(*package)[1]
    verified = run("verify", "smoke.zip")[1]
    assert verified.startswith("smoke.zip: Verified.\n")
    row = re.search("^  demo-smoke  (verified .*?)  (.*?)  0$", verified, re.MULTILINE)
    assert row is not None
    assert row.groups() == ("verified (reproduced: 100 of 100 answers, 2 of 2 steps)", "receipts from you")
    assert "  demo-smoke: Checked by you on " in verified
    packed = Path("smoke.zip").read_bytes()
    monkeypatch.setenv("XDG_DATA_HOME", "strangers")
    stranger = run("verify", "smoke.zip")[1]
    assert stranger.startswith("smoke.zip: Intact, not verified.\n")
    assert re.search("^  demo-smoke  consistent  nobody you trust  0$", stranger, re.MULTILINE)
    assert "  demo-smoke: consistent, judged by its files\n" in run(*package)[1]
    assert Path("smoke.zip").read_bytes() == packed
    assert "consistent, judged by its files" in run("show", "runs/demo-smoke")[1]
