"""The commands check, runs and show: what the terminal shows, word for word, JSON and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from mutations import apply
from synthetic import STARTED, write_run

from evidence import layout
from evidence.index.index import check_paths, index_runs
from evidence.report import report_as, report_text
from evidence.run import read_run
from trainproof.cli.app import replace_former_command
from trainproof.cli.inspect import run_text, runs_text

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_run(Path("runs"), "good")


@pytest.fixture
def root(good: Path) -> Path:
    """A folder of a good, a forged and a killed run."""
    bad = write_run(good.parent, "forged", seed=1, started=STARTED + timedelta(hours=1))
    apply(bad, {"file": "run_manifest.json", "pointer": "/result/best_loss", "value": 0.5})
    write_run(good.parent, "killed", seed=2, status="running", started=STARTED + timedelta(hours=2))
    return good.parent


REPORT = """\
runs/forged  contradictory: 1 error
error TP310: runs/forged/run_manifest.json at /result/best_loss (line 107): \
result.best_loss is 0.5; metrics.jsonl gives 1.440041.
  Every figure of the result is computed from the rows of metrics.jsonl.
  Expected: 1.440041.
  Next: Restore metrics.jsonl and the manifest from the original run.
runs/good    consistent
runs/killed  partial: 1 warning
  The run was interrupted after 10 of 20 steps.
warning TP513: runs/killed/run_manifest.json at /status (line 5): \
The run was killed; metrics.jsonl has 10 rows.
  The manifest says running, but no process holds the folder.
  Next: Keep it as an unfinished run, or resume it. To resume, run `trainproof train --resume RUN`.
3 runs: 1 consistent, 1 partial, 1 contradictory; 1 error, 1 warning.
"""

LIST = """\
run     grade          mode  status       model      device     steps  tokens    loss  exact match          \
duration  started
killed  partial        full  interrupted  own-model  cpu     10 of 20  20,480  1.7503  –                       \
9.0 s  2026-11-20 14:00:00
forged  contradictory  full  succeeded    own-model  cpu           20  40,960  1.4735  0.500 (0.254–0.746)    \
34.0 s  2026-11-20 13:00:00
good    consistent     full  succeeded    own-model  cpu           20  40,960  1.4696  0.667 (0.391–0.862)    \
34.0 s  2026-11-20 12:00:00

killed: warning TP513: The run was killed; metrics.jsonl has 10 rows.
forged: error TP310: result.best_loss is 0.5; metrics.jsonl gives 1.440041.
"""


def test_what_is_found_in_runs(root: Path, run: Run) -> None:
    assert run("check", root) == (1, REPORT, "")
    code, out, _ = run("check", root, "--json")
    report = json.loads(out)
    assert (code, [each["grade"] for each in report["runs"]]) == (1, ["contradictory", "consistent", "partial"])
    finding = report["runs"][0]["findings"][0]
    assert (finding["code"], finding["severity"], Path(finding["file"]).name) == ("TP310", "error", layout.MANIFEST)
    assert {"line", "pointer", "what", "expected", "next"} <= finding.keys()
    assert run("check", root, "--github")[1].startswith("::error file=runs/forged/run_manifest.json,line=107,")
    log = json.loads(report_as(check_paths([root]), ["sarif"]))
    rules = {rule["id"]: rule["shortDescription"]["text"] for rule in log["runs"][0]["tool"]["driver"]["rules"]}
    assert rules == {"TP310": "Result does not follow from the rows", "TP513": "Run was killed"}
    assert "--json and --sarif cannot be combined." in run("check", root, "--json", "--sarif")[2]


def test_check_of_good_runs_exits_0(good: Path, run: Run) -> None:
    assert run("check", good.parent) == (0, "runs/good  consistent\n1 run: 1 consistent; nothing found.\n", "")


def test_what_cannot_be_checked_exits_2(good: Path, run: Run) -> None:
    advice = "  Next: Pass a run folder, a folder of runs, or a document under the name that a run gives it.\n"
    assert run("check", "absent") == (2, "", f"error TP091: absent: absent does not exist.\n{advice}")
    assert run("check")[0] == run("show", "absent")[0] == 2
    os.mkfifo("plan.json")
    code, out, err = run("check", "plan.json")
    assert (code, out, "plan.json is neither a file nor a folder." in err) == (2, "", True)


def test_former_commands_are_replaced(good: Path, run: Run) -> None:
    assert run("grade", good, "--json") == run("check", good, "--json")
    for former, present in (
        (["report", "a", "-o", "b.html"], ["compare", "--html", "report.html", "a", "--html", "b.html"]),
        (["stamp", "a.zip", "--authority=https://tsa"], ["sign", "a.zip", "--timestamp=https://tsa"]),
        (["answer", "a", "--states", "1,2"], ["replay", "a", "--pack-states", "1,2"]),
    ):
        assert replace_former_command(former) == present


def test_runs_are_listed(root: Path, run: Run) -> None:
    assert run("runs", root) == run("runs", "--root", root) == (0, LIST, "")
    first = json.loads(run("runs", root, "--json")[1])[0]
    assert (first["path"], first["first_problem"]["code"]) == ("runs/killed", "TP513")
    assert (first["grade"], first["steps_done"], first["score"]) == ("partial", 10, None)
    code, _, err = run("runs", root, "--root", root)
    assert (code, "was given twice" in err) == (2, True)


def test_the_list_says_who_verified_a_run(good: Path) -> None:
    verified = {"grade": "verified", "coverage": "all of it", "reasons": ("Checked by Ada on 2026-11-23.", "Finished.")}
    summaries = [replace(summary, **verified) for summary in index_runs(good.parent)]
    assert "\ngood: all of it. Checked by Ada on 2026-11-23.\n" in runs_text(summaries)


def test_runs_without_a_folder_says_how_to_make_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.chdir(tmp_path)
    what = "submission_runs does not exist, or is not a folder."
    fix = "Check the path; `trainproof demo` writes two runs to submission_runs."
    assert run("runs") == (2, "", f"error TP091: submission_runs: {what}\n  Next: {fix}\n")


def test_one_run_without_the_figure_that_cannot_be_traced(root: Path, run: Run) -> None:
    code, out, _ = run("show", root / "forged")
    assert (code, out.split()[:4]) == (0, ["runs/forged", "run", "id", "forged"])
    assert "  last loss                    1.4735\n  best loss                    –\n" in out
    assert "  exact match                  0.667 (0.391–0.862)" in run("show", root / "good")[1]
    shown = json.loads(run("show", root / "good", "--json")[1])
    assert (shown["run_id"], shown["grade"], shown["findings"]) == ("good", "consistent", [])


def test_run_that_was_killed_while_compiling_is_shown(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run", status="running", steps=1, manifest={"model": None, "training": None})
    text = run_text(read_run(folder))
    assert "  optimizer steps              –\n" in text
    assert "  grade                        template, judged by its files\n" in text
    assert "The run was interrupted before its first step.\n" in text


def test_no_value_steers_the_terminal_or_makes_a_line_of_its_own(tmp_path: Path) -> None:
    hostile = "a\x1b[2J\x9b\u202eb\nrun-9  consistent"
    run = write_run(tmp_path, "bad", manifest={"model": {"name": hostile}, "command": ["--output", f"/x/{hostile}"]})
    plan = run / "plan.json"
    plan.write_text(plan.read_text() + "\x1b")
    for text in (report_text(check_paths([run])), run_text(read_run(run)), runs_text(index_runs(tmp_path))):
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "\nrun-9" not in text
        assert "bad" in text
    assert r"a\x1b[2J\x9b\u202eb\nrun-9" in run_text(read_run(run))


@pytest.fixture
def deep(good: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a run with more folders inside each other than Python calls functions; pytest could not remove them."""
    here = Path.cwd()
    monkeypatch.chdir(good)
    for _ in range(1100):
        Path("d").mkdir()
        os.chdir("d")
    monkeypatch.chdir(here)
    yield good
    subprocess.run(["rm", "-rf", str(here / good)], check=True)


@pytest.mark.parametrize("verb", ["check", "runs", "show", "package"])
def test_folders_inside_each_other_without_end_are_not_followed(deep: Path, run: Run, verb: str) -> None:
    code, out, err = run(verb, deep.parent if verb == "runs" else deep)
    assert code == (1 if verb in ("check", "package") else 0)
    assert "The folder is nested more than 64 levels deep in the run; it was not read." in out + err
