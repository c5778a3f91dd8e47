"""The queue on the Launch page, who may change what, and the message on any page when a run has ended."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from pages import Open, labels, press, said
from queued_jobs import job_in
from streamlit.testing.v1 import AppTest
from synthetic import write_run

from dashboard.shared import state
from evidence.lock import RunLock
from launch.jobs import jobs


def keys(app: AppTest) -> list[str]:
    return [button.key for button in app.button]


def test_a_failed_job_shows_its_output_and_can_be_retried(opened: Open, root: Path) -> None:
    job_in(root, exit_code=4, output="step 3\nerror TP301: The loss is not finite.\ntoken=abcdefghijklmnop\n")
    app = opened(state.LAUNCH)
    assert "on a GPU" in said(app)
    assert "exit code 4" in said(app)
    assert app.code[0].value == "step 3\nerror TP301: The loss is not finite.\ntoken=[hidden]"
    assert "Retry" in labels(app)


def test_a_job_of_another_user_is_only_started_by_the_reader(opened: Open, root: Path) -> None:
    job = job_in(root)
    stated = json.loads((job.folder / "job.json").read_text("utf-8"))
    (job.folder / "job.json").write_text(json.dumps(stated | {"seal": "0" * 64}))
    app = opened(state.LAUNCH)
    assert "You did not queue it on this machine, so it is not started; Retry starts it." in said(app)
    assert "The queue is not running" not in said(app)
    assert {"Retry"} == {"Retry", "Continue the queue", "Stop", "Remove"} & set(labels(app))


def test_a_stopped_queue_can_be_continued(opened: Open, root: Path) -> None:
    log = job_in(root).folder.parent / "worker.log"
    app = opened(state.LAUNCH)
    assert "The queue is not running" in said(app)
    assert {"Continue the queue", "Remove"} <= set(labels(app))
    log.mkdir()
    app = press(app, "Continue the queue")
    assert f"The queue could not be continued: [Errno 21] Is a directory: &#x27;{log}&#x27;. Fix the error" in said(app)


def test_a_full_disk_is_reported(opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunLock(job_in(root).folder.parent):
        assert "No job can start" not in said(opened(state.LAUNCH))
        monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1000))
        assert f"No job can start: the disk of {root} has only " in said(opened(state.LAUNCH))


def test_a_waiting_job_can_be_moved_and_removed(opened: Open, root: Path) -> None:
    first, second, third = (job_in(root, run=name) for name in ("one", "two", "three"))
    app = press(opened(state.LAUNCH), f"up {third.job_id}")
    assert [job.run for job in jobs(root)] == ["one", "three", "two"]
    assert [f"up {job.job_id}" in keys(app) for job in (first, third)] == [False, True]
    app = press(app, f"remove {second.job_id}")
    assert {job.run: job.state for job in jobs(root)} == {"one": "waiting", "three": "waiting", "two": "cancelled"}
    assert "cancelled" in said(app)


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file grow, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(("button", "failed"), [("up", "moved"), ("remove", "removed")])
def test_a_button_that_fails_says_why(opened: Open, root: Path, button: str, failed: str) -> None:
    job_in(root)
    job = job_in(root, run="last")
    app = opened(state.LAUNCH)
    with full_disk():
        app = press(app, f"{button} {job.job_id}")
    expected = f"The job could not be {failed}: [Errno 27] File too large. Fix the error and try again."
    assert expected in said(app)
    assert [job.state for job in jobs(root)] == ["waiting", "waiting"]


def test_a_job_is_queued_once_if_no_worker_can_be_started(opened: Open, root: Path) -> None:
    (root / ".launch" / "worker.log").mkdir(parents=True)
    app = press(opened(state.LAUNCH), "Start a smoke run now")
    assert [job.state for job in jobs(root)] == ["waiting"]
    assert "could not be started" not in said(app)
    assert "The queue is not running" in said(app)


def test_a_root_that_cannot_hold_jobs_breaks_no_page(opened: Open, root: Path) -> None:
    root.mkdir()
    (root / ".launch").write_text("")
    text = said(press(opened(state.LAUNCH), "Start a smoke run now"))
    assert "The run could not be started: [Errno 20] Not a directory: " in text
    stopped = write_run(root, "alpha", status="interrupted")
    (stopped / "checkpoints" / "10").mkdir(parents=True)
    text = said(press(opened(state.RUN, run="alpha"), "Resume"))
    assert "The run could not be resumed: [Errno 20] Not a directory: " in text


CHANGING = frozenset(
    ("Start", "Plan", "Retry", "Stop", "Remove", "Start a smoke run now", "Continue the queue", "Build", "Resume")
) | {"Tags and note", "Archive", "Save"}
OPERATOR, VIEWER, STRANGER = "ann@example.com", "bob@example.com", "eve@elsewhere.org"
PAGES = pytest.mark.parametrize(
    "page", [state.RUNS, state.LAUNCH, state.RUN, state.PACKAGE], ids=lambda page: page.title
)


def logged_in(opened: Open, page: state.Page, email: str | None, **parameters: str) -> AppTest:
    """Open a page that needs a login, as a user or logged out."""
    app = opened(page, **parameters)
    app.secrets["auth"] = {"client_id": "x"}
    app.secrets["roles"] = {"operators": [OPERATOR], "viewers": ["*@example.com"]}
    app.user = {"is_logged_in": email is not None, **({"email": email} if email else {})}
    if page is state.RUNS:
        app.session_state["selected runs"] = ["alpha"]
        app.session_state["rows and number of the grid"] = ([], 1)
    return app.run()


@PAGES
def test_a_viewer_sees_everything_and_changes_nothing(opened: Open, root: Path, page: state.Page) -> None:
    (write_run(root, "alpha", status="interrupted") / "checkpoints" / "20").mkdir(parents=True)
    job_in(root)
    job_in(root, exit_code=4)
    parameters = {"runs": "alpha"} if page is state.PACKAGE else {"run": "alpha"}
    app = logged_in(opened, page, OPERATOR, **parameters)
    assert [label for label in labels(app) if label.startswith(tuple(CHANGING))]
    assert "Logged in as ann@example.com, operator." in said(app)
    app = logged_in(opened, page, VIEWER, **parameters)
    assert not [button.label for button in app.button if button.label.startswith(tuple(CHANGING))]
    assert "Logged in as bob@example.com, viewer." in said(app)
    assert "alpha" in said(app) or page is not state.RUN


@PAGES
def test_buttons_drawn_for_an_operator_do_nothing_if_a_viewer_sends_their_clicks(
    opened: Open, root: Path, tmp_path: Path, page: state.Page
) -> None:
    """A client can send any click over the socket; the server draws the page for the user who sends it."""
    (write_run(root, "alpha", status="interrupted") / "checkpoints" / "20").mkdir(parents=True)
    write_run(root, "beta")
    job_in(root)
    job_in(root, exit_code=4)
    parameters = {"runs": "beta"} if page is state.PACKAGE else {"run": "alpha"}
    app = logged_in(opened, page, OPERATOR, **parameters)
    changing = [button for button in app.button if button.label.startswith(tuple(CHANGING)) and not button.disabled]
    clicked = [button.click() for button in changing]
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    app.user = {"is_logged_in": True, "email": VIEWER}
    app.run()
    assert clicked
    assert not app.exception
    assert "Logged in as bob@example.com, viewer." in said(app)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize(("email", "button"), [(None, "Log in"), (STRANGER, "Log out")])
def test_without_a_login_or_a_role_nothing_is_shown(opened: Open, root: Path, email: str | None, button: str) -> None:
    write_run(root, "alpha")
    app = logged_in(opened, state.RUN, email, run="alpha")
    assert [found.label for found in app.button] == [button]
    assert "alpha" not in said(app)
