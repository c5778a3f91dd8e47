"""The evidence strip of the run page: three documents with their state, what is wrong lit, and the ladder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from mutations import apply
from pages import Open, press, said
from synthetic import write_run

from dashboard.shared.session import state
from dashboard.views.run.logic.excerpt import excerpt
from dashboard.views.run.parts.evidence import tree
from evidence.layout import EVAL_SUMMARY, LOG, MANIFEST
from schemas.problems import Problem

FOREIGN = Path(__file__).parents[3] / "cases" / "foreign"


def problem(pointer: str) -> Problem:
    return Problem(
        code="TP120", severity="error", file="x", what="It is <b>wrong</b>.", next="Mend it.", pointer=pointer
    )


def test_a_sound_run_shows_three_valid_documents_and_its_rung(opened: Open, root: Path) -> None:
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
    assert "Replay the run here, or get a signed receipt" in text
    names = [button.label for button in app.get("download_button")]
    assert [names.count("Download"), *map(names.count, ("log.jsonl", "metrics.jsonl"))] == [2, 1, 1]


def test_view_lights_the_failing_value(opened: Open, root: Path) -> None:
    path = write_run(root, "alpha") / EVAL_SUMMARY
    document = json.loads(path.read_text("utf-8"))
    document["metrics"]["exact_match"]["value"] = 0.99
    path.write_text(json.dumps(document), "utf-8")
    text = said(press(opened(state.RUN, run="alpha"), "view Eval summary"))
    assert "hash ✕ differs" in text
    assert "<div class=tp-lit><b>value</b> 0.99</div>" in text
    assert "≠</span>contradictory" in text


def test_view_shows_where_a_cut_manifest_ends_and_which_row_is_torn(opened: Open, root: Path) -> None:
    folder = write_run(root, "alpha")
    lines = (folder / MANIFEST).read_text("utf-8").splitlines()[:12]
    (folder / MANIFEST).write_text("\n".join(lines), "utf-8")
    records = (folder / LOG).read_text("utf-8").splitlines()
    (folder / LOG).write_text("\n".join([records[0], records[0][:20], *records[1:]]) + "\n", "utf-8")
    app = opened(state.RUN, run="alpha")
    assert "<div class=tp-lit>" in said(press(app, "view Run manifest"))
    text = said(press(app, "view Logs"))
    assert "The rows that are wrong." in text
    assert "<div class=tp-lit><b>2</b> " in text


def test_a_run_that_a_copy_contradicts_names_both_folders_and_the_cure(opened: Open, root: Path) -> None:
    shutil.copytree(write_run(root, "alpha"), root / "beta")
    assert "● consistent</li>" in said(opened(state.RUN, run="alpha")), "an unchanged copy is a note"
    apply(root / "beta", {"file": "run_manifest.json", "pointer": "/dataset/split", "value": "validation"})
    text = said(opened(state.RUN, run="alpha"))
    assert "Found by comparing the runs of this root:" in text
    assert "Every row of alpha has the time and the loss of the same row in beta." in text
    assert "<b>What lifts it:</b> Remove the copy." in text


def test_another_tools_run_shows_what_stands_in_their_place(opened: Open, root: Path) -> None:
    shutil.copytree(FOREIGN / "hf_trainer" / "folder", root / "hf")
    text = said(opened(state.RUN, run="hf"))
    assert "≈ 4 rows, as stated" in text
    assert "<small>trainer_state.json</small>" in text
    assert "– no answers" in text
    assert "Run the same training with trainproof" in text


def test_a_folder_with_nothing_in_it_has_a_strip_of_missing_documents(opened: Open, root: Path) -> None:
    (root / "alpha").mkdir(parents=True)
    text = said(opened(state.RUN, run="alpha"))
    assert text.count("– not written by this run") == 5


def test_the_list_and_the_package_page_have_the_same_three_marks(opened: Open, root: Path) -> None:
    write_run(root, "alpha", items=0)
    assert [list(cell) for cell in opened(state.RUNS).dataframe[0].value["evidence"]] == [["M ✓", "E –", "L ✓"]]
    text = said(opened(state.PACKAGE, runs=["alpha"]))
    assert '<th scope="col" class="">Run manifest</th>' in text
    assert "– missing" in text


def test_a_tree_opens_the_way_to_what_is_wrong_and_only_that() -> None:
    drawn = tree({"a": {"b": [1, {"c": 2}]}, "d": {"e": 3}}, [problem("/a/b/1/c")])
    assert drawn.count("<details open>") == 4, "the document, a, b and its second item"
    assert drawn.count("<details>") == 1, "d"
    assert '<div class=tp-lit><b>c</b> 2</div><p class="tp-lit">✕ TP120: It is &lt;b&gt;wrong&lt;/b&gt;.</p>' in drawn


def test_what_is_missing_lights_the_group_that_lacks_it_and_a_large_document_is_cut() -> None:
    drawn = tree({"a": {"b": 1}}, [problem("/a/gone/x")])
    assert '<b>a</b> <span class="tp-dim">1 values</span></summary><p class="tp-lit">' in drawn
    assert tree(list(range(100_000)), []).count("<div>") < 3_001


def test_an_excerpt_is_of_the_wrong_lines_or_the_first(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f"line {number}\n" for number in range(1, 101)), "utf-8")
    assert excerpt(path, {50}, around=1) == [(49, "line 49"), (50, "line 50"), (51, "line 51")]
    assert [number for number, _ in excerpt(path, set())] == [1, 2, 3]
