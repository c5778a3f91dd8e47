"""The verbs compare, package and verify as a user types them: output, exit code, nothing more."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic import write_run

from trainproof.cli import app as command


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        command.main(list(arguments))
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_run(Path("submission_runs"), "m37_v1", items=20, seed=1)
    return tmp_path


def test_the_command_of_the_seed_documents(capsys: pytest.CaptureFixture[str]):
    code, out, err = run(capsys, "package", "--run-dir", "submission_runs/m37_v1")
    path = Path("bundles/m37_v1.zip")
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[0].startswith("bundles/m37_v1.zip: ")
    assert lines[0].endswith(" files, verified.")
    assert lines[1] == "  m37_v1: consistent, from the folder alone"
    assert lines[-1] == f"  zip SHA-256    {hashlib.sha256(path.read_bytes()).hexdigest()}"


def test_underscores_in_flags(capsys: pytest.CaptureFixture[str]):
    code, _, _ = run(capsys, "package", "--run_dir=submission_runs/m37_v1", "--output", "x.zip", "--allow_partial")
    assert code == 0
    assert Path("x.zip").is_file()


def test_a_missing_folder_is_an_error_and_never_ok(capsys: pytest.CaptureFixture[str]):
    code, out, err = run(capsys, "package", "--run-dir", "submission_runs/nothing")
    assert (code, out) == (2, "")
    assert err == (
        "error TP840: submission_runs/nothing: This does not exist.\n"
        "  The path does not exist or is not a folder.\n"
        "  Next: Pass the path of a run folder; `trainproof runs` lists them.\n"
    )
    assert not Path("bundles").exists()


def test_no_folder_at_all(capsys: pytest.CaptureFixture[str]):
    code, out, err = run(capsys, "package")
    assert (code, out, err.splitlines()[0]) == (2, "", "error TP851: No run folder was given.")


def test_package_and_verify_as_json(capsys: pytest.CaptureFixture[str]):
    write_run(Path("submission_runs"), "smoke", steps=2, mode="smoke")
    code, out, _ = run(capsys, "package", "submission_runs/m37_v1", "submission_runs/smoke", "--json")
    built = json.loads(out)
    assert code == 0
    assert built["output"] == "bundles/submission.zip"
    assert [each["run_id"] for each in built["runs"]] == ["m37_v1", "smoke"]
    code, out, _ = run(capsys, "verify", "bundles/submission.zip", "--json")
    verdict = json.loads(out)
    assert (code, verdict["ok"], verdict["findings"]) == (0, True, [])
    assert verdict["content_sha256"] == built["content_sha256"]
    assert [(each["run_id"], each["stated_grade"], each["grade"]) for each in verdict["runs"]] == [
        ("m37_v1", "consistent", "consistent"),
        ("smoke", "consistent", "consistent"),
    ]


def test_verify_of_a_changed_bundle(capsys: pytest.CaptureFixture[str]):
    run(capsys, "package", "submission_runs/m37_v1")
    path = Path("bundles/m37_v1.zip")
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"loss": 1', b'"loss": 0', 1))
    assert path.read_bytes() != content
    code, out, _ = run(capsys, "verify", str(path))
    assert code == 1
    assert out == (
        "error TP801: runs/m37_v1/metrics.jsonl: The content does not match its checksum.\n"
        "  The file is not a zip, or it is damaged: headers, sizes or checksums are wrong, or bytes belong to no "
        "entry.\n"
        "  Next: Download or copy the file again.\n"
        f"bundles/m37_v1.zip: not valid ({out.split('valid (')[1].split(')')[0]}).\n"
        "The bundle does not verify. Do not rely on its content.\n"
    )


def test_verify_of_what_is_not_there(capsys: pytest.CaptureFixture[str]):
    code, out, err = run(capsys, "verify", "nothing.zip")
    assert (code, out) == (2, "")
    assert err == (
        "error TP091: nothing.zip: This does not exist.\n"
        "  Next: Pass the path of a bundle that `trainproof package` wrote.\n"
    )
    assert run(capsys, "verify", "submission_runs")[0] == 2


def test_compare(capsys: pytest.CaptureFixture[str]):
    write_run(Path("submission_runs"), "other", items=20, seed=2, correct=0.1)
    code, out, _ = run(capsys, "compare", "submission_runs/m37_v1", "submission_runs/other")
    assert code == 0
    assert out.startswith("Settings that differ (")
    code, out, _ = run(capsys, "compare", "submission_runs/m37_v1", "submission_runs/other", "--json")
    assert (code, json.loads(out)["names"]) == (0, ["m37_v1", "other"])


def test_compare_of_other_questions_is_a_refusal(capsys: pytest.CaptureFixture[str]):
    write_run(Path("submission_runs"), "other", items=19)
    code, out, _ = run(capsys, "compare", "submission_runs/m37_v1", "submission_runs/other")
    assert code == 1
    assert out.endswith(
        "Scores of m37_v1 and other cannot be compared:\n  Only m37_v1 was evaluated on 1 item (item-0019).\n"
    )


def test_the_verbs_need_neither_jax_nor_streamlit():
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
