"""The stage of a run, from its job to its end."""

from __future__ import annotations

import json
from pathlib import Path

from pages import Open, said
from queued_jobs import job_in
from synthetic import write_run

from dashboard.shared import state
from dashboard.shared.parts.progress import COMPILING
from evidence.layout import LOG
from evidence.lock import RunLock
from launch.jobs import OUTPUT, mark_ended


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
