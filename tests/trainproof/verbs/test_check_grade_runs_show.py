"""The commands check, runs and show."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from mutations import apply
from synthetic import write_run

from trainproof.cli.app import main, replace_former_command


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_run(Path("runs"), "good")
    return Path("runs")


@pytest.fixture
def broken(root: Path) -> Path:
    folder = write_run(root, "broken", seed=1)
    apply(folder, {"file": "metrics.jsonl", "replace": ["\n", "\r\n"]})
    return folder


def test_check_of_good_runs_exits_0(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(capsys, "check", root) == (
        0,
        "runs/good  consistent\n1 run: 1 consistent; nothing found.\n",
        "",
    )


def test_check_of_a_broken_run_exits_1(root: Path, broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_command(capsys, "check", root)
    assert (code, err) == (1, "")
    assert "metrics.jsonl matches its hash after CRLF conversion." in out
    assert out.endswith("2 runs: 1 consistent, 1 measured; 1 error.\n")


def test_check_of_nothing_exits_2(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(capsys, "check", "absent") == (
        2,
        "",
        (
            "error TP091: absent: absent does not exist.\n"
            "  Next: Pass a run folder, a folder of runs, or a document under the name that a run gives it.\n"
        ),
    )
    assert run_command(capsys, "check")[0] == 2


def test_check_as_json(root: Path, broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_command(capsys, "check", root, "--json")
    report = json.loads(out)
    assert code == 1
    assert [(run["path"], run["grade"]) for run in report["runs"]] == [
        ("runs/broken", "measured"),
        ("runs/good", "consistent"),
    ]
    finding = report["runs"][0]["findings"][0]
    assert (finding["code"], finding["severity"], finding["file"]) == ("TP202", "error", "runs/broken/metrics.jsonl")
    assert {"line", "pointer", "what", "expected", "next"} <= finding.keys()


def test_check_in_the_other_forms(root: Path, broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(capsys, "check", root, "--github")[1].startswith(
        "::error file=runs/broken/metrics.jsonl,title=TP202::"
    )
    assert json.loads(run_command(capsys, "check", root, "--sarif")[1])["version"] == "2.1.0"
    assert run_command(capsys, "check", root, "--sarif", "--json")[0] == 2


def test_former_commands_are_replaced(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(capsys, "grade", root, "--json") == run_command(capsys, "check", root, "--json")
    for former, present in (
        (["report", "a", "-o", "b.html"], ["compare", "--html", "report.html", "a", "--html", "b.html"]),
        (["stamp", "a.zip", "--authority=https://tsa"], ["sign", "a.zip", "--timestamp=https://tsa"]),
        (["answer", "a", "--states", "1,2"], ["replay", "a", "--pack-states", "1,2"]),
    ):
        assert replace_former_command(former) == present


def test_runs_lists_what_is_there(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_command(capsys, "runs", root)
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()] == [["run", "grade"], ["good", "consistent"]]
    assert json.loads(run_command(capsys, "runs", root, "--json")[1])[0]["run_id"] == "good"


def test_runs_without_a_folder_says_how_to_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(capsys, "runs") == (
        2,
        "",
        (
            "error TP091: submission_runs: submission_runs does not exist, or is not a folder.\n"
            "  Next: Check the path; `trainproof demo` writes two runs to submission_runs.\n"
        ),
    )


def test_show_shows_one_run(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_command(capsys, "show", root / "good")
    assert code == 0
    assert "  exact match                  0.667 (0.391–0.862)" in out
    shown = json.loads(run_command(capsys, "show", root / "good", "--json")[1])
    assert (shown["run_id"], shown["grade"], shown["findings"]) == ("good", "consistent", [])
    assert run_command(capsys, "show", "absent")[0] == 2


def test_check_of_a_pipe_is_refused(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("plan.json")
    code, out, err = run_command(capsys, "check", "plan.json")
    assert (code, out) == (2, "")
    assert "plan.json is neither a file nor a folder." in err


@pytest.fixture
def deep(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a run with more folders inside each other than Python calls functions; pytest could not remove them."""
    here = Path.cwd()
    monkeypatch.chdir(root / "good")
    for _ in range(1100):
        Path("d").mkdir()
        os.chdir("d")
    monkeypatch.chdir(here)
    yield root / "good"
    subprocess.run(["rm", "-rf", str(here / root / "good")], check=True)


@pytest.mark.parametrize("verb", ["check", "runs", "show", "package"])
def test_folders_inside_each_other_without_end_are_not_followed(
    deep: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    code, out, err = run_command(capsys, verb, deep.parent if verb == "runs" else deep)
    assert code == (1 if verb in ("check", "package") else 0)
    said = "The folder is nested more than 64 levels deep in the run; it was not read."
    assert said in out + err
