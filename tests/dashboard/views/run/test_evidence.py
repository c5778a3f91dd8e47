"""The evidence strip: three documents with their state and their errors, and the grade."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from mutations import apply
from pages import Open, press, said
from synthetic import write_run

from dashboard.shared import state
from dashboard.views.run.evidence import excerpt
from evidence.layout import EVAL_SUMMARY, LOG, MANIFEST

FOREIGN = Path(__file__).parents[3] / "cases" / "foreign"


def test_a_sound_run_shows_three_valid_documents_and_its_grade(opened: Open, root: Path) -> None:
    write_run(root, "alpha", steps=20, items=12)
    app = opened(state.RUN, run="alpha")
    text = said(app)
    for card in ("Run manifest", "Eval summary", "Logs"):
        assert f"<h2>{card}<span" in text
    assert "metrics.jsonl ✓ valid · 20 rows · hash ✓ matches" in text
    assert "predictions.jsonl ✓ valid · 12 rows · hash ✓ matches" in text
    assert "<small>log_record, metric_row, prediction_row 1." in text
    assert '<li class="tp-here"' in text
    assert "● consistent</li>" in text
    assert "<b>Why consistent, from the folder alone:</b>" in text
    assert "<b>To reach verified:</b>" in text


def test_a_document_is_shown_beside_its_errors_with_secrets_masked(opened: Open, root: Path) -> None:
    path = write_run(root, "alpha") / EVAL_SUMMARY
    document = json.loads(path.read_text("utf-8"))
    document["metrics"]["exact_match"]["value"] = 0.99
    document["password"] = "hf_" + "Ab1" * 12
    path.write_text(json.dumps(document), "utf-8")
    app = press(opened(state.RUN, run="alpha"), "view Eval summary")
    text = said(app)
    assert "hash ✕ differs" in text
    assert "≠</span>contradictory" in text
    assert "at /password" in text
    shown = json.loads(app.json[0].value)
    assert shown["metrics"]["exact_match"]["value"] == 0.99
    assert "Ab1" not in app.json[0].value


def test_a_cut_manifest_and_a_torn_row_are_shown_by_their_lines(opened: Open, root: Path) -> None:
    folder = write_run(root, "alpha")
    lines = (folder / MANIFEST).read_text("utf-8").splitlines()[:12]
    (folder / MANIFEST).write_text("\n".join(lines), "utf-8")
    records = (folder / LOG).read_text("utf-8").splitlines()
    (folder / LOG).write_text("\n".join([records[0], records[0][:20], *records[1:]]) + "\n", "utf-8")
    app = opened(state.RUN, run="alpha")
    assert press(app, "view Run manifest").code[0].value.splitlines()[-1] == f"{12:>6}  {lines[-1]}"
    app = press(app, "view Logs")
    assert app.code[0].value == f"{2:>6}  {records[0][:20]}"


def test_a_run_that_a_copy_contradicts_names_both_folders_and_the_cure(opened: Open, root: Path) -> None:
    shutil.copytree(write_run(root, "alpha"), root / "beta")
    assert "● consistent</li>" in said(opened(state.RUN, run="alpha")), "an unchanged copy is a note"
    apply(root / "beta", {"file": "run_manifest.json", "pointer": "/dataset/split", "value": "validation"})
    text = said(opened(state.RUN, run="alpha"))
    assert "Every row of alpha has the time and the loss of the same row in beta." in text
    assert "<b>Next:</b> Remove the copy." in text


def test_a_run_of_another_tool_shows_what_its_files_contain(opened: Open, root: Path) -> None:
    shutil.copytree(FOREIGN / "hf_trainer" / "folder", root / "hf")
    text = said(opened(state.RUN, run="hf"))
    assert "≈ 4 rows, as stated" in text
    assert "<small>trainer_state.json</small>" in text
    assert "– no answers" in text
    assert "Run the same training with trainproof" in text


def test_an_excerpt_has_the_wrong_lines_or_the_first(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f"line {number}\n" for number in range(1, 101)), "utf-8")
    assert excerpt(path, {50}, around=1) == [(49, "line 49"), (50, "line 50"), (51, "line 51")]
    assert [number for number, _ in excerpt(path, set())] == [1, 2, 3]
