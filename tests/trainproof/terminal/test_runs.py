"""What the terminal shows, word for word."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from mutations import apply
from synthetic import STARTED, write_run

from evidence.index.index import check_paths, index_runs
from evidence.report import report_as, report_text
from evidence.run import read_run
from schemas.problems import ProblemError
from trainproof.cli.inspect import run_text, runs_json, runs_text


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    runs = Path("runs")
    write_run(runs, "good")
    bad = write_run(runs, "forged", seed=1, started=STARTED + timedelta(hours=1))
    apply(bad, {"file": "run_manifest.json", "pointer": "/result/best_loss", "value": 0.5})
    write_run(runs, "killed", seed=2, status="running", started=STARTED + timedelta(hours=2))
    return runs


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

RUN = """\
runs/forged
  run id                       forged
  mode                         full
  status                       succeeded
  model                        own-model
  dataset                      own-rows
  device                       cpu
  commit                       0123456789abcdef0123456789abcdef01234567
  started at                   2026-11-20T13:00:00.000000+00:00
  optimizer steps              20 of 20
  tokens seen                  40,960
  first loss                   3.8644
  last loss                    1.4735
  best loss                    –
"""


def test_report(root: Path) -> None:
    assert report_text(check_paths([root])) == REPORT


def test_list(root: Path) -> None:
    assert runs_text(index_runs(root)) == LIST


def test_list_as_json_has_the_names_of_the_fields(root: Path) -> None:
    first = json.loads(json.dumps(runs_json(index_runs(root))))[0]
    assert first["path"] == "runs/killed"
    assert first["first_problem"]["code"] == "TP513"
    assert (first["grade"], first["steps_done"], first["score"]) == ("partial", 10, None)


def test_one_run_without_the_figure_that_cannot_be_traced(root: Path) -> None:
    assert run_text(read_run(root / "forged")).startswith(RUN)


def test_one_form_at_a_time(root: Path) -> None:
    with pytest.raises(ProblemError) as refused:
        report_as(check_paths([root]), ["json", "sarif"])
    assert refused.value.exit_code == 2
    assert refused.value.problems[0].what == "--json and --sarif cannot be combined."


def test_sarif_explains_the_codes_that_occur(root: Path) -> None:
    log = json.loads(report_as(check_paths([root]), ["sarif"]))
    rules = {rule["id"]: rule["shortDescription"]["text"] for rule in log["runs"][0]["tool"]["driver"]["rules"]}
    assert rules == {"TP310": "Result does not follow from the rows", "TP513": "Run was killed"}


def test_run_that_was_killed_while_compiling_is_shown(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run", status="running", steps=1, manifest={"model": None, "training": None})
    text = run_text(read_run(folder))
    assert "  optimizer steps              –\n" in text
    assert "  grade                        template, from the folder alone\n" in text
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


def test_the_list_says_who_verified_a_run(root: Path) -> None:
    summaries = [
        replace(summary, grade="verified", coverage="all of it", reasons=("Checked by Ada on 2026-11-23.", "Finished."))
        if summary.path.name == "good"
        else summary
        for summary in index_runs(root)
    ]
    assert "\ngood: all of it. Checked by Ada on 2026-11-23.\n" in runs_text(summaries)
