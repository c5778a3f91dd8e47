"""The run page: from its job to its end, resumed, foreign and hostile runs; settings and figures of the machine."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from changed_schema import changed_schema, with_row_field
from pages import Open, labels, press, said
from queued_jobs import job_in
from synthetic import STARTED, write_rows, write_run

from dashboard.shared import state
from dashboard.shared.charts.curves import RunLine, curves_csv
from dashboard.shared.charts.theme import LIGHT
from dashboard.shared.files import Tail
from dashboard.shared.parts.progress import COMPILING
from dashboard.views.run.sections import machine_figure, settings_frame
from evidence.layout import LOG, MANIFEST, METRICS
from evidence.lock import RunLock
from evidence.notes import NotesEdit, change_notes
from evidence.run import read_run
from launch.jobs import OUTPUT, enqueue, mark_ended, mark_started
from launch.process import identify
from schemas.reading import read_rows

FOREIGN = Path(__file__).parents[3] / "cases" / "foreign"
SECRET = "hf_" + "Ab1" * 12


def rows_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def change(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | values), "utf-8")


def options(app) -> dict:
    """Return the Plotly figure of the curves."""
    return json.loads(app.get("plotly_chart")[0].proto.spec)


def test_a_resumed_run_goes_on_from_its_parent(opened: Open, root: Path) -> None:
    write_run(root, "first", steps=40, status="interrupted")
    change(write_run(root, "second", steps=40) / MANIFEST, parent={"run_id": "first", "step": 12})
    drawn = options(opened(state.RUN, run="second"))
    lines = [trace for trace in drawn["data"] if trace.get("yaxis") == "y"]
    # It says that it goes on after step 12, and its rows begin at step 1: a contradiction, which is drawn as one.
    assert [trace["line"]["dash"] for trace in lines] == ["dash", "3px,4px"]
    assert drawn["layout"]["annotations"][-1]["text"] == "resumed after step 12"
    shutil.rmtree(root / "first")
    text = said(opened(state.RUN, run="second"))
    assert "Its parent first is not in this folder" in text


def test_the_view_of_a_curve_stands_in_the_address(opened: Open, root: Path) -> None:
    write_run(root, "alpha", steps=300)
    app = opened(state.RUN, run="alpha", scale="hide outliers", loss="log", x="Tokens", smooth="0.9")
    drawn = options(app)
    assert drawn["layout"]["yaxis"]["type"] == "log"
    assert drawn["layout"]["xaxis"]["title"]["text"] == "thousand tokens"
    assert "1 point is outside the axis range." in said(app)
    assert "CSV, every row" in [button.label for button in app.get("download_button")]


def test_a_log_is_followed_with_secrets_hidden(opened: Open, root: Path) -> None:
    folder = write_run(root, "alpha", steps=40, status="running")
    rows = rows_of(folder / LOG)
    with RunLock(folder):
        app = opened(state.RUN, run="alpha", view="Log")
        assert "1 of 1 record, newest first." in said(app)
        write_rows(folder / LOG, [*rows, rows[0] | {"level": "warning", "message": f"token={SECRET} <b>bold</b>"}])
        table = app.run().dataframe[0].value
    assert table["Message"].tolist() == ["token=[hidden] <b>bold</b>", "Run alpha started."]
    assert table["Level"].tolist() == ["warning", "info"]


def test_a_record_of_an_unknown_level_is_shown(opened: Open, root: Path) -> None:
    path = write_run(root, "alpha") / LOG
    write_rows(path, [*rows_of(path), rows_of(path)[0] | {"level": "critical", "message": "the disk is full"}])
    app = opened(state.RUN, run="alpha", view="Log")
    assert app.dataframe[0].value["Message"].tolist()[-1] == "the disk is full"
    app = opened(state.RUN, run="alpha", view="Log", levels="other")
    assert app.dataframe[0].value["Level"].tolist() == ["critical"]


def test_lines_that_cannot_be_read_are_counted(opened: Open, root: Path) -> None:
    folder = write_run(root, "alpha", steps=4)
    for name in (METRICS, LOG):
        with (folder / name).open("a") as file:
            file.write("not json\n")
    assert "Not drawn: 1 line of metrics.jsonl that cannot be read." in said(opened(state.RUN, run="alpha"))
    assert "1 line could not be read." in said(opened(state.RUN, run="alpha", view="Log"))


def test_dragging_over_curves_zooms_until_it_is_reset(opened: Open, root: Path) -> None:
    write_run(root, "alpha", steps=300)
    app = opened(state.RUN, run="alpha")
    app.session_state["zooms of curves"] = {("alpha", "step"): (10.0, 20.0)}
    app.run()
    assert options(app)["layout"]["xaxis"]["range"] == [9.9, 20.1]
    press(app, "Reset zoom")
    assert options(app)["layout"]["xaxis"]["range"][1] > 300


@pytest.mark.parametrize(
    ("case", "view"),
    [
        ("hf_trainer", "Curves"),
        ("hf_trainer", "Sources"),
        ("predictions_jsonl", "Predictions"),
        ("broken_files", "Sources"),
        ("broken_files", "Problems"),
    ],
)
def test_a_run_of_another_tool_shows_the_facts_of_its_files(opened: Open, root: Path, case: str, view: str) -> None:
    shutil.copytree(FOREIGN / case / "folder", root / "other")
    text = said(opened(state.RUN, run="other", view=view))
    if view == "Sources" and case == "hf_trainer":
        assert "trainer_state.json at /global_step (line 7)" in text
    if view == "Curves" and case == "hf_trainer":
        assert "Read from trainer_state.json, lines" in text


# Heard also where the tests were started in the background of a shell, whose processes ignore SIGINT.
HEARS_SIGINT = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_DFL); print(flush=True); time.sleep(60)"


@contextmanager
def at_work_in_the_queue(root: Path) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """Yield a job that is at work on the run alpha, and its process."""
    folder = enqueue(root, run="alpha", working_folder=root, now=datetime.now(UTC)).folder
    command = [sys.executable, "-c", HEARS_SIGINT]
    with (
        RunLock(write_run(root, "alpha", status="running")),
        subprocess.Popen(command, stdout=subprocess.PIPE) as process,
    ):
        assert process.stdout is not None
        process.stdout.readline()
        mark_started(folder, identify(process.pid), identify(process.pid))
        yield folder, process
        process.kill()


def test_a_run_of_the_queue_is_stopped_where_it_is_watched(opened: Open, root: Path) -> None:
    with at_work_in_the_queue(root) as (job, process):
        app = press(opened(state.RUN, run="alpha"), "Stop")
        assert process.wait(timeout=10) == -signal.SIGINT
        assert (job / "cancelled").exists()
        assert "Stop" not in labels(app)


def test_a_run_that_is_asked_to_stop_is_not_asked_again(opened: Open, root: Path) -> None:
    with at_work_in_the_queue(root) as (job, _):
        (job / "cancelled").touch()
        app = opened(state.RUN, run="alpha")
    assert [button.disabled for button in app.button if button.label == "Stopping"] == [True]


def test_a_run_of_a_terminal_has_no_button_to_stop(opened: Open, root: Path) -> None:
    folder = write_run(root, "alpha", status="running")
    with RunLock(folder):
        assert not {"Stop", "Stopping"} & set(labels(opened(state.RUN, run="alpha")))


def test_the_heading_shows_why_a_run_failed_and_its_notes(opened: Open, root: Path) -> None:
    failed = write_run(root, "alpha", status="failed")
    why = "The loss at step 13 is not finite: *NaN*."
    change(failed / MANIFEST, exit={"code": 4, "error": "non_finite_loss", "message": why})
    change_notes([failed], NotesEdit(add=("baseline",), note="Seed <3> was unlucky."), datetime.now(UTC))
    app = opened(state.RUN, run="alpha")
    assert f"Ended with: {why}" in said(app)
    assert "Tags: baseline" in said(app)
    assert "Note: Seed &lt;3&gt; was unlucky." in said(app)
    assert "Tags and note" in labels(app)


def test_a_stopped_run_shows_the_step_and_how_to_continue(opened: Open, root: Path) -> None:
    stopped = write_run(root, "alpha", status="interrupted")
    message = "signal SIGINT, before the evaluation was complete"
    change(stopped / MANIFEST, exit={"code": 6, "error": "interrupted", "message": message})
    step = json.loads((stopped / MANIFEST).read_text("utf-8"))["training"]["steps_done"]
    assert f"Stopped by a user at step {step}, before the evaluation.</p>" in said(opened(state.RUN, run="alpha"))
    (stopped / "checkpoints" / "20").mkdir(parents=True)
    text = said(opened(state.RUN, run="alpha"))
    assert f"Stopped by a user at step {step}, before the evaluation. Resume continues from there." in text


def test_the_reasons_of_a_running_run_are_not_shown(opened: Open, root: Path) -> None:
    folder = write_run(root, "alpha", steps=40, status="running")
    with RunLock(folder):
        text = said(opened(state.RUN, run="alpha"))
    assert "The run has not finished." in text
    assert "it is at" not in text


def test_a_continued_run_links_to_its_continuation(opened: Open, root: Path) -> None:
    stopped = write_run(root, "alpha", status="interrupted")
    (stopped / "checkpoints" / "20").mkdir(parents=True)
    assert "Resume" in labels(opened(state.RUN, run="alpha"))
    later = write_run(root, "beta", seed=2)
    change(later / MANIFEST, parent={"run_id": "alpha", "step": 20})
    app = opened(state.RUN, run="alpha")
    assert "Resume" not in labels(app)
    press(app, "Continuation")
    assert app.query_params["run"] == "beta"


def test_a_field_that_an_objective_adds_to_the_schema_is_drawn_and_taken_as_csv(opened: Open, root: Path) -> None:
    """Stated once, in the schema: rows without it stay valid, and rows with it have a curve of their own."""
    folder = write_run(root, "alpha", steps=20)
    write_run(root, "beta", seed=2)
    rows = rows_of(folder / METRICS)
    write_rows(folder / METRICS, [row | {"invented_share": 0.01 * number} for number, row in enumerate(rows)])
    reward = {"title": "Mean reward", "description": "Of a step.", "x-unit": "points", "x-panel": {}, "type": "number"}
    with changed_schema("metric_row", with_row_field("invented_share", reward)):
        app = opened(state.RUN, run="alpha")
        drawn = options(app)
        without = options(opened(state.RUN, run="beta"))
        text = curves_csv([RunLine(name="alpha", series=Tail(folder / METRICS).series())])
    assert "<b>Mean reward (points)</b>" in [title["text"] for title in drawn["layout"]["annotations"]]
    assert text.splitlines()[0].endswith(",invented_share")
    assert text.splitlines()[2].endswith(",0.01")
    assert len(without["layout"]["annotations"]) == len(drawn["layout"]["annotations"]) - 1


def test_a_run_is_held_against_its_parent_and_the_one_before_it(opened: Open, root: Path) -> None:
    write_run(root, "before", started=STARTED)
    write_run(root, "now", seed=2, started=STARTED + timedelta(hours=1))
    app = opened(state.RUN, run="now")
    (menu,) = app.get("menu_button")
    assert list(menu.proto.options) == ["previous run: before", "best on its items: before", "another run"]


ROWS = read_rows(Path("tests/cases/documents/valid/system_row.plain.jsonl"), "system_row").values
"""A row of a machine with two devices, and a row without device sensors."""


def test_each_line_is_in_the_unit_of_its_panel():
    drawn = {(trace.yaxis or "y", trace.name): list(trace.y) for trace in machine_figure(ROWS, LIGHT).data}
    assert drawn["y", "host memory"] == [row["host_memory_used_bytes"] / 2**30 for row in ROWS]
    assert drawn["y", "memory of device 0"] == [8123456789 / 2**30, None]
    assert drawn["y", "memory of device 1"] == [None, None]
    assert drawn["y2", "load of device 0"] == [97.0, None]
    assert drawn["y3", "waiting for data"] == [0.4, None]


def test_a_cpu_has_no_device_lines():
    assert not [trace.name for trace in machine_figure(ROWS[1:], LIGHT).data if "device" in trace.name]


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
    rows = [json.loads(line) for line in (folder / LOG).read_text("utf-8").splitlines()]
    with RunLock(folder):
        assert stage(opened).startswith("Training, ")
        app = opened(state.RUN, run="alpha")
        assert app.get("progress")[0].proto.text.startswith("20 of 40 steps, loss ")
        last = rows[-1] | {"event": "trained", "message": "<b>done</b>"}
        (folder / LOG).write_text("".join(json.dumps(row) + "\n" for row in [*rows, last]))
        assert stage(opened).startswith("Evaluating, ")
        assert '<p class="tp-sub">&lt;b&gt;done&lt;/b&gt;</p>' in said(opened(state.RUN, run="alpha"))
