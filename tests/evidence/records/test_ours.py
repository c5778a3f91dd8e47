"""Reading folders that hold anything at all: no exception, and what could not be read is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from mutations import apply
from synthetic import write_run

from evidence.records.ours import read_existing_run, read_run
from evidence.run.lock import RunLock
from schemas.problems import ProblemError


def whats(folder: Path) -> list[str]:
    return [problem.what for problem in read_run(folder).problems]


def test_run_is_read_whole(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, "run", steps=5, items=4))
    assert run.problems == ()
    assert run.is_run
    assert run.status == "succeeded"
    assert run.manifest is not None
    assert run.manifest["run_id"] == "run"
    assert run.config is not None
    assert run.config["limits"]["steps"] == 5
    assert [row["step"] for row in run.metrics().values] == [1, 2, 3, 4, 5]
    assert len(run.predictions().values) == len(run.baseline_predictions().values) == 4
    assert run.metrics() is run.metrics()
    assert run.files == (
        "baseline_predictions.jsonl",
        "config.yaml",
        "eval_summary.json",
        "first_examples.json",
        "log.jsonl",
        "metrics.jsonl",
        "plan.json",
        "predictions.jsonl",
        "run_manifest.json",
    )


def test_folder_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    run = read_run(tmp_path / "absent")
    assert not run.is_run
    assert whats(tmp_path / "absent") == ["The folder cannot be read: No such file or directory."]
    with pytest.raises(ProblemError) as refused:
        read_existing_run(tmp_path / "absent")
    assert refused.value.exit_code == 2


def test_file_instead_of_a_folder_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert whats(tmp_path / "file") == ["The folder cannot be read: Not a directory."]


def test_links_and_special_files_are_not_read(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run")
    secret = tmp_path / "secret.json"
    secret.write_text('{"secret": 1}')
    apply(folder, {"file": "run_manifest.json", "link_to": str(secret)})
    apply(folder, {"file": "plan.json", "make_folder": True})
    (folder / "log.jsonl").unlink()
    os.mkfifo(folder / "log.jsonl")
    run = read_run(folder)
    assert run.manifest is None
    assert run.plan is None
    assert run.log().values == []
    assert [problem.what for problem in run.problems] == [
        "log.jsonl is a special file, not a file; it was not read.",
        "plan.json is a folder, not a file; it was not read.",
        "run_manifest.json is a symbolic link, not a file; it was not read.",
    ]


def test_weights_are_not_looked_into_and_other_folders_are(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run")
    for name in ("checkpoints/7", "export", "extra/deep"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").write_text("")
    (folder / "extra" / "outside").symlink_to(tmp_path)
    assert [name for name in read_run(folder).files if "/" in name] == ["extra/deep/file"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_folder_without_permission_is_a_problem(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run")
    folder.chmod(0)
    try:
        assert whats(folder) == ["The folder cannot be read: Permission denied."]
    finally:
        folder.chmod(0o755)


def test_folder_that_cannot_be_listed_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(tmp_path, "run")

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("evidence.records.ours.os.scandir", refuse)
    assert whats(folder) == ["The folder cannot be read: Permission denied."]


def test_running_needs_somebody_who_runs(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run", status="running")
    assert read_run(folder).status == "interrupted"
    with RunLock(folder):
        assert read_run(folder).status == "running"


def test_findings_get_the_line_of_the_value_they_point_to(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run", manifest={"mode": "other"})
    problem = read_run(folder).problems[0]
    line = (folder / "run_manifest.json").read_text().splitlines()[(problem.line or 0) - 1]
    assert line == '  "mode": "other",'


def test_run_that_was_killed_before_its_manifest_is_interrupted(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").touch()
    assert read_run(tmp_path).status is None
    (tmp_path / "run.lock").touch()
    assert read_run(tmp_path).status == "interrupted"
    with RunLock(tmp_path):
        assert read_run(tmp_path).status is None
