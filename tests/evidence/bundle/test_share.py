"""One page about runs without their bundle, and the sentence that says what is wrong with a bundle."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bundles import contents, listed_again, pack, small_bundle
from synthetic import write_run

from evidence.bundle.headline import headline
from evidence.bundle.share import shared_report, write_report
from evidence.bundle.verify import verify_bundle
from evidence.run.layout import CONFIG
from schemas.problems import ProblemError
from trainproof.command import main

MOST_BYTES = 6_000_000


def test_a_page_about_two_runs_says_how_they_compare_and_loads_nothing(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, name, items=60, correct=right) for name, right in (("alpha", 0.1), ("beta", 0.9))]
    page = shared_report(runs).decode()
    assert "<h2>alpha " in page
    assert "<h2>beta " in page
    assert "<strong>beta is better than alpha: exact match differs by +" in page
    assert "This page is written from the documents of their folders and adds nothing to them" in page
    assert not [word for word in ("<script", "src=", 'http-equiv="refresh', "@import", "url(") if word in page]
    assert len(page) < MOST_BYTES
    smoke = write_run(tmp_path, "gamma-smoke", mode="smoke", items=60, correct=0.1)
    assert "gamma-smoke is worse" not in shared_report([runs[1], smoke]).decode(), "it is of another mode"


def test_what_differs_by_chance_is_not_called_better(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, name, items=12, correct=right) for name, right in (("alpha", 0.5), ("beta", 0.6))]
    page = shared_report(runs).decode()
    assert "<strong>alpha and beta: cannot tell: exact match differs by " in page
    assert "points could hardly be seen with these items.</strong>" in page


def test_secrets_and_home_folders_are_masked(tmp_path: Path) -> None:
    secret = "hf_" + "Ab1" * 12
    run = write_run(tmp_path, "alpha", config={"data": {"dataset": f"/home/ada/{secret}.jsonl"}})
    assert secret in (run / CONFIG).read_text("utf-8")
    page = shared_report([run]).decode()
    assert secret not in page
    assert "/home/ada" not in page


def test_the_verb_writes_the_page_and_says_all_that_stands_in_the_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, page = write_run(tmp_path, "alpha"), tmp_path / "out" / "page.html"
    with pytest.raises(SystemExit) as ended:
        main(["report", str(run), "-o", str(page)])
    assert ended.value.code in {0, None}
    assert capsys.readouterr().out.startswith(f"Written: {page}, ")
    assert page.read_bytes() == shared_report([run])
    before = (run / CONFIG).read_bytes()
    with pytest.raises(ProblemError) as refused:
        write_report([run, tmp_path / "none"], run / CONFIG)
    assert refused.value.exit_code == 2
    said = [problem.what for problem in refused.value.problems]
    assert said[1:] == [
        "The file there is not HTML, and would be replaced.",
        f"The output lies inside the run folder {run}.",
    ]
    assert "none" in refused.value.problems[0].file
    assert (run / CONFIG).read_bytes() == before


def test_a_forged_score_is_the_headline_even_where_every_list_was_written_anew(tmp_path: Path) -> None:
    bundle = small_bundle(tmp_path)
    assert headline(verify_bundle(bundle)) == ""
    files = contents(bundle)
    place = "runs/demo-1/eval_summary.json"
    summary = json.loads(files[place])
    right = summary["metrics"]["exact_match"]["value"]
    summary["metrics"]["exact_match"]["value"] = 0.99
    files[place] = json.dumps(summary).encode()
    verdict = verify_bundle(pack(listed_again(files), tmp_path / "forged.zip"))
    assert headline(verdict) == f"demo-1 claims 0.99; its 6 predictions give {right:.4g}."
    [other_grade] = [found for found in verdict.findings if found.code == "TP825"]
    assert other_grade.next == "Rely on the grade that was found, and ask for a bundle of the run as it was written."


def test_where_no_run_contradicts_itself_the_first_cause_is_the_headline(tmp_path: Path) -> None:
    files = contents(small_bundle(tmp_path))
    files["REPORT.html"] += b"\n"
    changed = verify_bundle(pack(files, tmp_path / "changed.zip"))
    assert headline(changed) == "REPORT.html changed since the bundle was built."
    (tmp_path / "none.zip").write_text("no zip")
    refused = verify_bundle(tmp_path / "none.zip")
    assert headline(refused) == refused.findings[0].what


def test_a_run_that_cannot_be_read_has_a_page_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "run_manifest.json").write_text('{"run_id": ')
    assert "The run has no valid manifest." in shared_report([tmp_path / "torn"]).decode()
