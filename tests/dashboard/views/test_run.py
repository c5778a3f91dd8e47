"""The run page: from its job to its end, resumed, foreign and hostile runs; grade, documents, settings and machine."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from changed_schema import changed_schema, with_row_field
from mutations import apply
from pages import Open, figure, job_in, labels, press, said
from synthetic import read_rows, write_rows, write_run

from dashboard.shared import state
from dashboard.shared.charts.theme import LIGHT
from dashboard.shared.files import Tail
from dashboard.shared.parts.curves import RunLine, curves_csv
from dashboard.shared.parts.progress import COMPILING
from dashboard.views.run.sections import machine_figure, machine_rows, settings_frame
from evidence.layout import EVAL_SUMMARY, LOG, MANIFEST, METRICS
from evidence.lock import RunLock
from evidence.notes import NotesEdit, change_notes
from evidence.run import read_run
from launch.jobs import OUTPUT, mark_ended, mark_started
from launch.process import identify
from schemas import reading

FOREIGN = Path(__file__).parents[2] / "cases" / "foreign"
SECRET = "hf_" + "Ab1" * 12


def test_a_resumed_run_goes_on_from_its_parent(opened: Open, root: Path) -> None:
    write_run(root, "first", steps=40, status="interrupted")
    parent = {"run_id": "first", "step": 12}
    write_run(root, "second", steps=40, manifest={"parent": parent})
    drawn = figure(opened(state.RUN, run="second"))
    lines = [trace for trace in drawn["data"] if trace.get("yaxis") == "y"]
    # It says that it goes on after step 12, and its rows begin at step 1: a contradiction, which is drawn as one.
    assert [trace["line"]["dash"] for trace in lines] == ["dash", "3px,4px"]
    assert drawn["layout"]["annotations"][-1]["text"] == "resumed after step 12"
    shutil.rmtree(root / "first")
    text = said(opened(state.RUN, run="second"))
    assert "Its parent first is not in this folder" in text


def test_the_view_of_a_curve_stands_in_the_address(opened: Open, root: Path) -> None:
    apply(write_run(root, "alpha", steps=300), {"file": METRICS, "append": "not json\n"})
    app = opened(state.RUN, run="alpha", scale="hide outliers", loss="log", x="Tokens", smooth="0.9")
    drawn = figure(app)
    assert drawn["layout"]["yaxis"]["type"] == "log"
    assert drawn["layout"]["xaxis"]["title"]["text"] == "thousand tokens"
    assert "1 point is outside the axis range." in said(app)
    assert "Not drawn: 1 line of metrics.jsonl that cannot be read." in said(app)
    assert "CSV, every row" in [button.label for button in app.get("download_button")]


def test_a_log_is_followed_with_secrets_hidden_unknown_levels_and_unreadable_lines(opened: Open, root: Path) -> None:
    folder = write_run(root, "alpha", steps=40, status="running")
    (row,) = read_rows(folder / LOG)
    odd = {"warning": f"token={SECRET} <b>bold</b>", "critical": "the disk is full"}
    with RunLock(folder):
        app = opened(state.RUN, run="alpha", view="Log")
        assert "1 of 1 record, newest first." in said(app)
        write_rows(folder / LOG, [row, *(row | {"level": level, "message": text} for level, text in odd.items())])
        apply(folder, {"file": LOG, "append": "not json\n"})
        table = app.run().dataframe[0].value
    assert table["Message"].tolist() == ["the disk is full", "token=[hidden] <b>bold</b>", "Run alpha started."]
    assert table["Level"].tolist() == ["critical", "warning", "info"]
    assert "1 line could not be read." in said(app)
    app = opened(state.RUN, run="alpha", view="Log", levels="other")
    assert app.dataframe[0].value["Level"].tolist() == ["critical"]


TOOL = ["≈ 4 rows, as stated", "<small>trainer_state.json</small>", "– no answers", "training with trainproof"]


@pytest.mark.parametrize(
    ("case", "view", "texts"),
    [
        ("hf_trainer", "Curves", ["Read from trainer_state.json, lines", *TOOL]),
        ("hf_trainer", "Sources", ["trainer_state.json at /global_step (line 7)"]),
        ("predictions_jsonl", "Predictions", []),
        ("broken_files", "Sources", []),
        ("broken_files", "Problems", []),
    ],
)
def test_a_run_of_another_tool_shows_what_its_files_contain(
    opened: Open, root: Path, case: str, view: str, texts: list[str]
) -> None:
    shutil.copytree(FOREIGN / case / "folder", root / "other")
    shown = said(opened(state.RUN, run="other", view=view))
    assert [text for text in texts if text not in shown] == []


# Heard also where the tests were started in the background of a shell, whose processes ignore SIGINT.
HEARS_SIGINT = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_DFL); print(flush=True); time.sleep(60)"


def test_a_run_of_the_queue_is_stopped_once_where_it_is_watched(opened: Open, root: Path) -> None:
    command = [sys.executable, "-c", HEARS_SIGINT]
    folder = write_run(root, "alpha", status="running")
    with RunLock(folder), subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = labels(opened(state.RUN, run="alpha"))
        assert not {"Stop", "Stopping"} & set(found), "it runs in a terminal"
        job = job_in(root, run="alpha").folder
        mark_started(job, identify(process.pid), identify(process.pid))
        (job / "cancelled").touch()
        app = opened(state.RUN, run="alpha")
        assert [button.disabled for button in app.button if button.label == "Stopping"] == [True]
        (job / "cancelled").unlink()
        app = press(opened(state.RUN, run="alpha"), "Stop")
        assert process.wait(timeout=10) == -signal.SIGINT
        assert (job / "cancelled").exists()
        assert "Stop" not in labels(app)


def test_the_heading_shows_why_a_run_failed_and_its_notes(opened: Open, root: Path) -> None:
    why = "The loss at step 13 is not finite: *NaN*."
    failed = write_run(root, "alpha", status="failed", manifest={"exit": {"message": why}})
    change_notes([failed], NotesEdit(add=("baseline",), note="Seed <3> was unlucky."), datetime.now(UTC))
    app = opened(state.RUN, run="alpha")
    assert f"Ended with: {why}" in said(app)
    assert "Tags: baseline" in said(app)
    assert "Note: Seed &lt;3&gt; was unlucky." in said(app)
    assert "Tags and note" in labels(app)


def test_a_stopped_run_shows_the_step_and_how_to_continue_until_it_is_continued(opened: Open, root: Path) -> None:
    message = "signal SIGINT, before the evaluation was complete"
    stopped = write_run(root, "alpha", status="interrupted", manifest={"exit": {"message": message}})
    assert "Stopped by a user at step 10, before the evaluation.</p>" in said(opened(state.RUN, run="alpha"))
    (stopped / "checkpoints" / "10").mkdir(parents=True)
    app = opened(state.RUN, run="alpha")
    assert "Stopped by a user at step 10, before the evaluation. Resume continues from there." in said(app)
    assert "Resume" in labels(app)
    write_run(root, "beta", seed=2, manifest={"parent": {"run_id": "alpha", "step": 10}})
    app = opened(state.RUN, run="alpha")
    assert "Resume" not in labels(app)
    press(app, "Continuation")
    assert app.query_params["run"] == "beta"


def test_a_field_that_an_objective_adds_to_the_schema_is_drawn_and_taken_as_csv(opened: Open, root: Path) -> None:
    """Stated once, in the schema: rows without it stay valid, and rows with it have a curve of their own."""
    path = write_run(root, "alpha", steps=20) / METRICS
    write_run(root, "beta", seed=2)
    write_rows(path, [row | {"invented_share": 0.25} for row in read_rows(path)])
    reward = {"title": "Mean reward", "description": "Of a step.", "x-unit": "points", "x-panel": {}, "type": "number"}
    with changed_schema("metric_row", with_row_field("invented_share", reward)):
        titles = [
            [title["text"] for title in figure(opened(state.RUN, run=name))["layout"]["annotations"]]
            for name in ("beta", "alpha")
        ]
        header, first, *_ = curves_csv([RunLine(name="alpha", series=Tail(path).series())]).splitlines()
    assert titles[1] == [*titles[0], "<b>Mean reward (points)</b>"]
    assert (header.rpartition(",")[2], first.rpartition(",")[2]) == ("invented_share", "0.25")


ROWS = reading.read_rows(Path("tests/cases/documents/valid/system_row.plain.jsonl"), "system_row").values
"""A row of a machine with two devices, and a row without device sensors."""


def test_each_line_is_in_the_unit_of_its_panel_and_a_cpu_has_no_device_lines() -> None:
    drawn = {(trace.yaxis or "y", trace.name): list(trace.y) for trace in machine_figure(ROWS, LIGHT).data}
    assert drawn["y", "host memory"] == [row["host_memory_used_bytes"] / 2**30 for row in ROWS]
    assert drawn["y", "memory of device 0"] == [8123456789 / 2**30, None]
    assert drawn["y", "memory of device 1"] == [None, None]
    assert drawn["y2", "load of device 0"] == [97.0, None]
    assert drawn["y3", "waiting for data"] == [0.4, None]
    assert not [trace.name for trace in machine_figure(ROWS[1:], LIGHT).data if "device" in trace.name]
    table = {name: values for name, *values in machine_rows(ROWS)}
    assert table["CPU load"] == [f"{row['host_cpu_percent']:.1f} %" for row in ROWS], "too few for a chart"
    assert table["load of device 1"][1] == "–"


def test_settings_three_times_over_and_where_they_disagree(tmp_path: Path) -> None:
    config = {"optimizer": {"name": "adafactor"}, "mesh": {"device": "auto"}}
    run = read_run(write_run(tmp_path, "alpha", config=config, manifest={"training": {"optimizer": {"name": "adamw"}}}))
    found = settings_frame(run).set_index("Setting")
    assert found.loc["optimizer.name"].tolist()[:4] == ["≠", "adafactor", "adamw", "adamw"]
    assert found.isna().loc["optimizer.beta1", "Effective"]
    assert found.isna().loc["model.name", "Default"]
    assert found.loc["limits.max_minutes", "Declared"] == "null"
    # mesh.device is auto, and one device has nothing to shard over.
    assert found.index[found["Differs"] == "≠"].tolist() == ["optimizer.name"]
    assert "optimizer.name" in settings_frame(run, only_changed=True)["Setting"].tolist()
    without = settings_frame(read_run(tmp_path))
    assert without["Declared"].isna().all()
    assert without["Effective"].isna().all()


def stage(opened: Open) -> str:
    app = opened(state.RUN, run="alpha")
    (box,) = app.status
    assert box.state == "running"
    return box.label


def test_before_it_has_a_folder_a_run_shows_the_state_and_output_of_its_job(opened: Open, root: Path) -> None:
    job = job_in(root, run="alpha")
    assert stage(opened) == "Waiting in the queue"
    assert "The queue is not running. Open it to continue." in said(opened(state.RUN, run="alpha"))
    with RunLock(job.folder):
        (job.folder / "process.json").write_text(json.dumps({}))
    (job.folder / OUTPUT).write_text(f"first line\n{COMPILING}\n")
    assert COMPILING in said(opened(state.RUN, run="alpha"))
    mark_ended(job.folder, 4)
    app = opened(state.RUN, run="alpha")
    assert not app.status
    assert "Ended with exit code 4." in said(app)
    assert app.code[-1].value == f"first line\n{COMPILING}"


def test_in_its_folder_a_run_shows_its_stage_steps_and_last_log_line(opened: Open, root: Path) -> None:
    folder = write_run(root, "alpha", steps=40, status="running")
    rows = read_rows(folder / LOG)
    with RunLock(folder):
        assert stage(opened).startswith("Training, ")
        app = opened(state.RUN, run="alpha")
        assert app.get("progress")[0].proto.text.startswith("20 of 40 steps, loss ")
        assert "The run has not finished." in said(app)
        assert "it is at" not in said(app), "the reasons of its grade"
        write_rows(folder / LOG, [*rows, rows[-1] | {"event": "trained", "message": "<b>done</b>"}])
        assert stage(opened).startswith("Evaluating, ")
        assert '<p class="tp-sub">&lt;b&gt;done&lt;/b&gt;</p>' in said(opened(state.RUN, run="alpha"))


# Documents and grade


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
    assert "<b>Why consistent, judged by its files:</b>" in text
    assert "<b>To reach verified:</b>" in text


def test_a_document_is_shown_beside_its_errors_with_secrets_masked(opened: Open, root: Path) -> None:
    folder = write_run(root, "alpha")
    for pointer, value in (("/metrics/exact_match/value", 0.99), ("/password", "hf_" + "Ab1" * 12)):
        apply(folder, {"file": EVAL_SUMMARY, "pointer": pointer, "value": value})
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
    apply(folder, {"file": LOG, "text": "\n".join([records[0], records[0][:20], *records[1:], ""])})
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


def test_the_session_of_a_run_is_described_with_a_safe_link(opened: Open, root: Path) -> None:
    place = {"name": "kaggle-gpu", "requested": ["Tesla T4", "Tesla T4"], "received": ["Tesla P100"]}
    folder = write_run(root, "alpha", manifest={"place": place})
    session = {
        "schema_version": "1.2",
        "place": "kaggle-gpu",
        "fetched_at": "2026-11-27T10:00:00Z",
        "bundle_sha256": "0" * 64,
        "is_in_log": False,
        "received": None,
    }
    for reference, link in (("ada/tiny/1", True), ("javascript:alert(1)//a/1", False)):
        (folder / "session.json").write_text(json.dumps(session | {"reference": reference}))
        text = said(opened(state.RUN, run="alpha"))
        assert "1 × Tesla P100; requested were 2 × Tesla T4 · its log does not state the hash of the bundle" in text
        assert ('Ran at kaggle-gpu · <a href="https://www.kaggle.com/code/ada/tiny"' in text) == link
        assert "javascript" not in text
