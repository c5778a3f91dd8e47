"""The launch page: planning, the queue, who may do what, and the word on any page when a run has ended."""

from __future__ import annotations

import json
import re
import resource
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from pages import Open, labels, press, said
from stand_ins import wait_for
from streamlit.testing.v1 import AppTest
from synthetic import write_run

from dashboard.shared.config import configs, form
from dashboard.shared.session import state
from dashboard.shared.words.text import plain
from evidence.bundle.secrets import strip_invisible
from evidence.lock import RunLock
from launch import queue, tasks
from launch.jobs import OUTPUT, Job, enqueue, jobs, mark_ended
from schemas.catalog import DATASETS
from trainproof.cli import app as command


def job_in(root: Path, run: str = "a-run", exit_code: int | None = None, output: str = "") -> Job:
    now = datetime.now(UTC)
    job = enqueue(root, run=run, working_folder=root, now=now, device="gpu")
    (job.folder / OUTPUT).write_text(output)
    if exit_code is not None:
        mark_ended(job.folder, exit_code)
    return job


def test_a_failed_job_shows_why_and_can_be_tried_again(opened: Open, root: Path) -> None:
    job_in(root, exit_code=4, output="step 3\nerror TP301: The loss is not finite.\ntoken=abcdefghijklmnop\n")
    app = opened(state.LAUNCH)
    assert "on a GPU" in said(app)
    assert "exit code 4" in said(app)
    assert "error TP301: The loss is not finite.\ntoken=[hidden]" in [
        block.value.partition("step 3\n")[2] for block in app.code
    ]
    assert "Retry" in labels(app)


def test_what_came_with_the_root_is_shown_and_started_by_nobody_but_its_reader(opened: Open, root: Path) -> None:
    job = job_in(root)
    stated = json.loads((job.folder / "job.json").read_text("utf-8"))
    (job.folder / "job.json").write_text(json.dumps(stated | {"seal": "0" * 64}))
    app = opened(state.LAUNCH)
    assert '<p class="tp-sub">You did not queue it on this machine, so it is not started; Retry starts it.</p>' in said(
        app
    )
    assert "The queue stands still" not in said(app)
    assert {"Retry"} == {"Retry", "Continue the queue", "Stop", "Remove"} & set(labels(app))


def test_a_run_that_was_stopped_before_it_began_did_not_fail(opened: Open, root: Path) -> None:
    job = job_in(root)
    (job.folder / "cancelled").write_text("")
    mark_ended(job.folder, 130)
    assert "· Stopped by you before it began<" in said(opened(state.LAUNCH))
    app = opened(state.RUN, run="a-run")
    assert "Stopped by you before it began.</p>" in said(app)
    assert "failed" not in said(app)
    assert "exit code" not in said(app)


def test_another_configuration_is_not_planned_beside_a_run_at_work(opened: Open, root: Path) -> None:
    job = job_in(root)
    app = opened(state.LAUNCH, source="tiny.yaml")
    assert "Not planned beside a-run, which is at work here. Change the form, or plan it now." in said(app)
    assert not app.get("progress")
    assert app.get("progress") or press(app, "Plan now").get("progress")
    mark_ended(job.folder, 0)
    assert opened(state.LAUNCH, source="tiny.yaml").get("progress")
    job_in(root, run="another")
    touched = opened(state.LAUNCH, source="tiny.yaml", set=["limits.steps=7"])
    assert touched.get("progress")
    assert "Not planned beside" not in said(touched)


def test_a_queue_that_nobody_works_through_can_be_continued(opened: Open, root: Path) -> None:
    job_in(root)
    app = opened(state.LAUNCH)
    assert "The queue stands still" in said(app)
    assert {"Continue the queue", "Remove"} <= set(labels(app))


def test_a_queue_that_stands_still_because_the_disk_is_full_says_so(
    opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = job_in(root).folder.parent
    with RunLock(held):
        assert "Nothing is started" not in said(opened(state.LAUNCH))
        monkeypatch.setattr("dashboard.views.launch.parts.jobs.LEAST_FREE_BYTES", 2**62)
        text = said(opened(state.LAUNCH))
    assert f"Nothing is started: the disk of {root} is full, " in text
    assert "are free. Make room there, and the queue continues by itself." in text


def test_a_waiting_job_goes_before_another_and_out_of_the_queue(opened: Open, root: Path) -> None:
    first, second, third = (job_in(root, run=name) for name in ("one", "two", "three"))
    app = press(opened(state.LAUNCH), f"up {third.job_id}")
    assert [job.run for job in jobs(root)] == ["one", "three", "two"]
    assert f"up {third.job_id}" in [button.key for button in app.button]
    assert f"up {first.job_id}" not in [button.key for button in app.button], "the first has nowhere to go"
    app = press(app, f"remove {second.job_id}")
    assert {job.run: job.state for job in jobs(root)} == {"one": "waiting", "three": "waiting", "two": "cancelled"}
    assert "cancelled" in said(app)


def test_of_a_long_queue_the_next_jobs_are_shown_and_the_rest_is_folded(opened: Open, root: Path) -> None:
    queued = [job_in(root, run=f"run-{number}") for number in range(30)]
    app = opened(state.LAUNCH)
    assert [button.key for button in app.button if button.label == "Remove"] == [
        f"remove {job.job_id}" for job in queued[:3]
    ]
    assert "Waiting behind these: 27" in [expander.label for expander in app.expander]
    app = press(opened(state.LAUNCH, later="true"), f"up {queued[3].job_id}")
    assert [job.run for job in jobs(root)][:4] == ["run-0", "run-1", "run-3", "run-2"]
    app = press(app, f"remove {queued[29].job_id}")
    assert "Waiting behind these: 26" in [expander.label for expander in app.expander]
    assert len([button for button in app.button if button.label == "Remove"]) == 29, "it stays open"


def test_one_that_was_started_a_moment_ago_is_not_said_to_be_left_alone(opened: Open, root: Path) -> None:
    app = press(opened(state.LAUNCH), "Just start a smoke run")
    try:
        # The page was drawn while the job waited or, on a quick machine, when it had begun.
        assert "The queue stands still" not in said(app)
    finally:
        wait_for(lambda: jobs(root)[0].started is not None)
        queue.kill(jobs(root)[0])
        wait_for(lambda: not queue.has_worker(root))


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file grow meanwhile, as where the disk is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(("button", "failed"), [("up", "It could not be moved"), ("remove", "It could not be removed")])
def test_where_the_disk_is_full_a_button_says_so_and_the_page_goes_on(
    opened: Open, root: Path, button: str, failed: str
) -> None:
    job_in(root)
    job = job_in(root, run="last")
    app = opened(state.LAUNCH)
    with full_disk():
        app = press(app, f"{button} {job.job_id}")
    assert f"{failed}: [Errno 27] File too large. Fix that and press the button again." in said(app)
    assert [job.state for job in jobs(root)] == ["waiting", "waiting"]


def test_a_queue_that_cannot_be_continued_says_why(opened: Open, root: Path) -> None:
    log = job_in(root).folder.parent / "worker.log"
    log.mkdir()
    app = press(opened(state.LAUNCH), "Continue the queue")
    said_so = f"The queue could not be continued: [Errno 21] Is a directory: &#x27;{log}&#x27;. Fix that and press"
    assert said_so in said(app)


def test_what_is_queued_while_no_worker_can_be_started_is_queued_once(opened: Open, root: Path) -> None:
    (root / ".launch" / "worker.log").mkdir(parents=True)
    app = press(opened(state.LAUNCH), "Just start a smoke run")
    assert [job.state for job in jobs(root)] == ["waiting"]
    assert "could not be started" not in said(app)
    assert "The queue stands still" in said(app)


def test_a_root_that_cannot_hold_jobs_stops_no_page(opened: Open, root: Path) -> None:
    root.mkdir()
    (root / ".launch").write_text("")
    text = said(press(opened(state.LAUNCH), "Just start a smoke run"))
    assert "The run could not be started: [Errno 20] Not a directory: " in text
    stopped = write_run(root, "alpha", status="interrupted")
    (stopped / "checkpoints" / "10").mkdir(parents=True)
    text = said(press(opened(state.RUN, run="alpha"), "Resume"))
    assert "The run could not be resumed: [Errno 20] Not a directory: " in text


def test_a_job_is_resumed_where_its_run_can_be(opened: Open, root: Path) -> None:
    job = job_in(root, run="alpha", exit_code=5)
    folder = write_run(root, "alpha", status="interrupted")
    assert "Resume" not in labels(opened(state.LAUNCH)), "there is no checkpoint"
    (folder / "checkpoints" / "10").mkdir(parents=True)
    assert f"resume {job.job_id}" in [button.key for button in opened(state.LAUNCH).button]


def test_the_command_says_that_somebody_insists_on_what_does_not_fit(opened: Open, root: Path) -> None:
    app = opened(state.LAUNCH, source="tiny.yaml")
    before = app.code[0].value
    assert "--force" not in before
    insist = next(toggle for toggle in app.toggle if toggle.label == "Start even if it may run out of memory")
    assert insist.set_value(True).run().code[0].value == f"{before} --force"


CHECKED = {
    "can_begin": True,
    "training_rows": 12_550,
    "evaluation_items": 100,
    "findings": [],
    "model": {"family": "gemma", "origin": "random", "parameters": 1_123_456, "trained_parameters": 98_304},
    "dataset": {"tokens": 477_006, "generated_rows": 12_000},
    "first_examples": {
        "examples": [
            {
                "row": 7,
                "truncated": False,
                "tokens": [
                    {"id": 1, "text": "2 + 2 = <b>", "supervised": False},
                    {"id": 2, "text": "4", "supervised": True},
                ],
            }
        ]
    },
}


def answer_check(root: Path, config: str, answer: dict[str, object]) -> None:
    folder = tasks.plan_task(root, yaml.safe_load(config), tasks.CHECK).folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "answer.json").write_text(json.dumps(answer))
    (folder / "output.log").write_text("")
    tasks.finish(folder, 0 if answer["can_begin"] else 2)


def test_cards_state_what_was_read_of_model_and_rows(opened: Open, root: Path) -> None:
    answer_check(root, opened(state.LAUNCH, source="tiny.yaml").code[-1].value, CHECKED)
    app = opened(state.LAUNCH, source="tiny.yaml", rows="true")
    text = said(app)
    for line in (
        "1.12 M parameters, 98.3 k learn",
        "gemma, random weights",
        "12,550 rows, 477 k tokens, 12,000 rows generated",
        "100 items are evaluated",
    ):
        assert f"<p>{line}</p>" in text
    assert '<span class="" title="id 1, only read">2 + 2 = &lt;b&gt;</span>' in text
    assert '<span class="tp-on" title="id 2, supervised">4</span>' in text
    assert "Row 7" not in said(opened(state.LAUNCH, source="tiny.yaml")), "rows are folded at first"


def test_what_the_check_refuses_is_not_started(opened: Open, root: Path) -> None:
    config = opened(state.LAUNCH, source="tiny.yaml").code[-1].value
    finding = {"code": "TP034", "severity": "error", "what": "The rows are empty.", "next": "Name others."}
    found = [finding | {"file": "mine.jsonl", "line": 2}]
    answer_check(root, config, {"can_begin": False, "findings": found})
    app = opened(state.LAUNCH, source="tiny.yaml")
    assert "Error TP034: The rows are empty." in said(app)
    assert "mine.jsonl line 2" in said(app)
    assert not app.get("progress"), "what cannot begin is not planned"
    assert "Start" not in labels(app)


def test_another_model_and_other_rows_go_into_the_form(opened: Open, root: Path) -> None:
    Path("mine.jsonl").write_text('{"prompt": "a", "completion": "b"}\n\n{"prompt": "c", "completion": "d"}\n')
    app = opened(state.LAUNCH, source="tiny.yaml")
    rows = next(box for box in app.selectbox if box.label == "Other rows that are here")
    built_in = [f"{name}, built in" for name in DATASETS]
    assert rows.options == [*built_in, "mine.jsonl, 2 rows, 71 B"]
    app = rows.set_value("mine.jsonl").run()
    assert yaml.safe_load(app.code[-1].value)["data"]["dataset"] == "mine.jsonl"
    model = next(box for box in app.selectbox if box.label == "Another model that is here")
    app = model.set_value("demo").run()
    assert yaml.safe_load(app.code[-1].value)["model"]["name"] == "demo"


def test_a_dropped_file_is_kept_by_its_content_and_put_into_the_form(opened: Open, root: Path) -> None:
    content = b'{"prompt": "a", "completion": "b"}\n'
    app = opened(state.LAUNCH, source="tiny.yaml")
    app.file_uploader[0].set_value(("../my rows.JSONL", content, "application/json")).run()
    [kept] = (root / ".launch" / "rows").iterdir()
    assert re.fullmatch(r"my-rows-[0-9a-f]{8}\.jsonl", kept.name)
    assert kept.read_bytes() == content
    assert yaml.safe_load(app.code[-1].value)["data"]["dataset"] == str(kept)


def test_a_name_is_proposed_of_what_was_changed(opened: Open, root: Path) -> None:
    app = opened(state.LAUNCH, source="tiny.yaml")
    assert not [label for label in labels(app) if label.startswith("Name it")]
    app = press(opened(state.LAUNCH, source="tiny.yaml", set=["limits.steps=7"]), f"Name it {plain('tiny-steps-7')}")
    assert yaml.safe_load(app.code[-1].value)["name"] == "tiny-steps-7"
    assert not [label for label in labels(app) if label.startswith("Name it")]


def test_each_value_of_a_setting_becomes_a_run(opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, object]] = []
    monkeypatch.setattr("launch.queue.start", lambda _root, config, **_: started.append(config) or job_in(root))
    app = opened(state.LAUNCH, source="tiny.yaml", over="optimizer.learning_rate", values="0.001, 0.002, 0.001")
    press(app, "Start 2 runs")
    assert [(one["name"], one["optimizer"]["learning_rate"]) for one in started] == [
        ("tiny-learning_rate-0.001", 0.001),
        ("tiny-learning_rate-0.002", 0.002),
    ]


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ("0.001, fast", "Learning rate cannot be fast; it takes: number."),
        (", ".join(str(0.001 + each / 1e6) for each in range(33)), "33 values are given; one click starts at most 32."),
    ],
)
def test_values_that_a_setting_cannot_have_start_nothing(opened: Open, root: Path, values: str, line: str) -> None:
    app = opened(state.LAUNCH, source="tiny.yaml", over="optimizer.learning_rate", values=values)
    assert line in said(app)
    assert not [label for label in labels(app) if label.startswith("Start ") and "runs" in label]


def test_the_answer_of_a_plan_is_shown_with_what_would_make_it_smaller(opened: Open, root: Path) -> None:
    resolved = opened(state.LAUNCH, source="tiny.yaml").code[-1].value
    folder = tasks.plan_task(root, yaml.safe_load(resolved)).folder
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("name: x\n")
    (folder / "answer.json").write_text(
        '{"verdict": "does_not_fit", "need_bytes": 30064771072, "available_bytes": 16911433728, "error_fraction": 0.25,'
        '"method": "compiler", "target": {"name": "TPU v5e", "devices": 8},'
        '"parts": [{"name": "logits", "bytes": 1073741824, "because": "<b>tokens</b> × words"}],'
        '"changes": [{"set": "memory.donate=true", "saves_bytes": 9663676416, "fits": true}]}'
    )
    (folder / "output.log").write_text("")
    tasks.finish(folder, 3)
    answer_check(root, resolved, CHECKED)
    app = opened(state.LAUNCH, source="tiny.yaml")
    text = said(app)
    assert "does not fit" in text
    assert "28.00 GiB needed on each device ± 25 %" in text
    assert "15.75 GiB available on each of 8 × TPU v5e; read from the compiled program." in text
    assert "&lt;b&gt;tokens&lt;/b&gt; × words" in text
    assert "memory.donate=true" in text
    assert "Check again" in labels(app)
    assert "Start" in labels(app)


def test_a_plan_whose_error_reaches_the_limit_is_called_tight(opened: Open, root: Path) -> None:
    resolved = opened(state.LAUNCH, source="tiny.yaml").code[-1].value
    folder = tasks.plan_task(root, yaml.safe_load(resolved)).folder
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("name: x\n")
    (folder / "answer.json").write_text(
        '{"verdict": "tight", "need_bytes": 17931691622, "available_bytes": 22333829939, "error_fraction": 0.3,'
        '"target": {"name": "CPU", "devices": 1}, "parts": [], "changes": []}'
    )
    (folder / "output.log").write_text("")
    tasks.finish(folder, 0)
    text = said(opened(state.LAUNCH, source="tiny.yaml"))
    assert "16.70 GiB needed on each device ± 30 %" in text
    assert 'title="It may run out of memory: the plan&#x27;s error reaches beyond what there is."' in text
    assert "</span>tight</span>" in text


def test_the_shown_command_gives_the_folder_its_name_as_start_does(opened: Open, root: Path, monkeypatch) -> None:
    """It names no folder of its own: the queue gives both the time of their start as an ending."""
    app = opened(state.LAUNCH, source="tiny.yaml")
    command_line = app.code[0].value
    assert command_line == f"trainproof queue add --config tiny.yaml --root {root}"
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr("launch.queue.start", lambda *given, **flags: asked.append((*given, flags)) or job_in(root))
    Path("tiny.yaml").write_text(app.code[-1].value, "utf-8")
    press(app, "Start")
    monkeypatch.setattr(sys, "argv", shlex.split(command_line))
    with pytest.raises(SystemExit):
        command.main()
    assert len(asked) == 2
    assert asked[0] == asked[1]


def test_of_many_runs_the_newest_are_offered_and_the_one_that_a_link_asks_for(opened: Open, root: Path) -> None:
    for number in range(104):
        folder = root / f"run-{number:03}"
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text("name: x\n")
    offered = opened(state.LAUNCH, source="same as run-000").selectbox[0]
    earlier = [option for option in offered.options if option.startswith("same as")]
    assert offered.value == "same as run-000"
    assert len(earlier) == 101


def test_any_page_says_once_that_a_run_has_ended(opened: Open, root: Path) -> None:
    write_run(root, "alpha")
    first = job_in(root, run="first")
    job_in(root, run="ended-before", exit_code=0)
    app = opened(state.RUN, run="alpha")
    assert [toast.value for toast in app.toast] == []
    mark_ended(first.folder, 4)
    app.run()
    assert [toast.value for toast in app.toast] == ["first: failed. It ended with an error."]
    app.run()
    assert [toast.value for toast in app.toast] == []


def test_any_page_says_once_that_a_run_of_a_terminal_has_ended(opened: Open, root: Path) -> None:
    write_run(root, "alpha")
    folder = write_run(root, "beta *1*", status="running")
    with RunLock(folder):
        app = opened(state.RUN, run="alpha")
        assert [toast.value for toast in app.toast] == []
    app.run()
    said_once = r"beta \*1\*: interrupted. A signal, a time limit or a kill stopped it; it may be resumed."
    assert [toast.value for toast in app.toast] == [said_once]
    app.run()
    assert [toast.value for toast in app.toast] == []


CHANGING = frozenset(
    ("Start", "Plan", "Retry", "Stop", "Remove", "Just start a smoke run", "Continue the queue", "Build", "Resume")
) | {"Tags and note", "Archive", "Save"}
OPERATOR, VIEWER, STRANGER = "ann@example.com", "bob@example.com", "eve@elsewhere.org"


def logged_in(opened: Open, page: state.Page, email: str | None, **parameters: str) -> AppTest:
    """Open a page where a login is configured, as somebody who has logged in, or has not."""
    app = opened(page, **parameters)
    app.secrets["auth"] = {"client_id": "x"}
    app.secrets["roles"] = {"operators": [OPERATOR], "viewers": ["*@example.com"]}
    app.user = {"is_logged_in": email is not None, **({"email": email} if email else {})}
    if page is state.RUNS:
        app.session_state["selected runs"] = ["alpha"]
        app.session_state["rows and number of the grid"] = ([], 1)
    return app.run()


@pytest.mark.parametrize("page", [state.RUNS, state.LAUNCH, state.RUN, state.PACKAGE], ids=lambda page: page.title)
def test_a_viewer_sees_everything_and_changes_nothing(opened: Open, root: Path, page: state.Page) -> None:
    (write_run(root, "alpha", status="interrupted") / "checkpoints" / "20").mkdir(parents=True)
    job_in(root)
    job_in(root, exit_code=4)
    parameters = {"runs": "alpha"} if page is state.PACKAGE else {"run": "alpha"}
    app = logged_in(opened, page, OPERATOR, **parameters)
    assert CHANGING & {button.label for button in app.button}
    assert "Logged in as ann@example.com, operator." in said(app)
    app = logged_in(opened, page, VIEWER, **parameters)
    assert not CHANGING & {button.label for button in app.button}
    assert "Logged in as bob@example.com, viewer." in said(app)
    assert "alpha" in said(app) or page is not state.RUN


@pytest.mark.parametrize("page", [state.RUNS, state.LAUNCH, state.RUN, state.PACKAGE], ids=lambda page: page.title)
def test_what_an_operator_was_drawn_does_nothing_when_a_viewer_sends_it(
    opened: Open, root: Path, tmp_path: Path, page: state.Page
) -> None:
    """Whoever speaks to the socket without the page can send any click; the page is drawn for who sends it."""
    (write_run(root, "alpha", status="interrupted") / "checkpoints" / "20").mkdir(parents=True)
    write_run(root, "beta")
    job_in(root)
    job_in(root, exit_code=4)
    parameters = {"runs": "beta"} if page is state.PACKAGE else {"run": "alpha"}
    app = logged_in(opened, page, OPERATOR, **parameters)
    drawn = [button.click() for button in app.button if button.label in CHANGING and not button.disabled]
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    app.user = {"is_logged_in": True, "email": VIEWER}
    app.run()
    assert drawn
    assert not app.exception
    assert "Logged in as bob@example.com, viewer." in said(app)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize(("email", "button"), [(None, "Log in"), (STRANGER, "Log out")])
def test_who_has_not_logged_in_or_has_no_role_sees_nothing(
    opened: Open, root: Path, email: str | None, button: str
) -> None:
    write_run(root, "alpha")
    app = logged_in(opened, state.RUN, email, run="alpha")
    assert [found.label for found in app.button] == [button]
    assert "alpha" not in said(app)


def test_what_was_changed_stays_when_its_group_is_folded_and_other_pages_are_seen(opened: Open, root: Path) -> None:
    app = opened(state.LAUNCH, source="tiny.yaml")
    before = app.code[-1].value
    assert not [field for field in app.number_input if field.label == "Seed"], "a folded group has no widgets"
    assert "Undo all changes" not in labels(app)

    app.session_state["more tiny.yaml"] = True
    app.session_state["group tiny.yaml Run"] = True
    seed = next(field for field in app.run().number_input if field.label == "Seed")
    app = seed.set_value(seed.value + 41).run()
    changed = app.code[-1].value
    assert yaml.safe_load(changed) == yaml.safe_load(before) | {"seed": yaml.safe_load(before)["seed"] + 41}

    app.session_state["group tiny.yaml Run"] = False
    assert app.run().code[-1].value == changed
    app.switch_page("views/package/view.py").run()
    assert "<h1>Package</h1>" in said(app)
    app.switch_page("views/launch/view.py")
    app.query_params["source"] = "tiny.yaml"
    assert app.run().code[-1].value == changed

    next(button for button in app.button if button.label == "Undo all changes").click()
    assert app.run().code[-1].value == before
    assert "Undo all changes" not in labels(app)


WRONG = {
    "mode": "bogus",
    "mesh": {"device": "gpuu"},
    "batch": {"microbatch_size": -5, "accumulation_steps": 1.5},
    "optimizer": {"name": "adamx", "learning_rate": 11, "max_grad_norm": "none"},
    "data": {"shuffle": "yes", "dataset": 7},
    "checkpoint": "often",
}


def test_what_is_wrong_in_a_configuration_stays_wrong_until_it_is_changed(opened: Open, root: Path) -> None:
    stated = yaml.safe_load((configs.SHIPPED / "tiny.yaml").read_text("utf-8")) | WRONG
    (write_run(root, "a") / "config.yaml").write_text(yaml.safe_dump(stated))
    app = opened(state.LAUNCH, source="same as a")
    folded = said(app)
    app.session_state["more same as a"] = True
    for group in form.groups():
        app.session_state[f"group same as a {group.title}"] = True
    unfolded = said(app.run())
    resolved = yaml.safe_load(app.code[-1].value)
    for key, wrong in WRONG.items():
        assert resolved[key] == (resolved[key] | wrong if isinstance(wrong, dict) else wrong), key
    for text in (folded, unfolded):
        found = ("mode", "mesh.device", "batch.microbatch_size", "batch.accumulation_steps", "optimizer.name")
        more = ("optimizer.learning_rate", "optimizer.max_grad_norm", "data.shuffle", "data.dataset", "checkpoint")
        assert [place for place in (*found, *more) if f"at {place}</p>" not in text] == []
    assert "Start" not in labels(app)
    assert "Undo all changes" not in labels(app)
    mode = next(box for box in app.selectbox if box.label == "Mode")
    assert mode.options == ["bogus (not allowed)", "smoke", "full"]
    assert "at /mode</p>" not in said(mode.set_value("smoke").run())
    switch = next(box for box in app.selectbox if box.label == "Shuffle")
    assert switch.options == ["yes (not allowed)", "true", "false"]
    app = switch.set_value(False).run()
    assert yaml.safe_load(app.code[-1].value)["data"]["shuffle"] is False


@pytest.mark.parametrize("bad", [".inf", "100000000000000000000000", '"text"', "{}"])
def test_whatever_a_configuration_states_the_form_opens_and_the_check_names_it(
    opened: Open, root: Path, bad: str
) -> None:
    stated: dict[str, object] = {}
    for field in form.fields():
        inside = stated if len(field.path) == 1 else stated.setdefault(field.path[0], {})
        assert isinstance(inside, dict)
        inside[field.path[-1]] = yaml.safe_load(bad)
    (write_run(root, "a") / "config.yaml").write_text(yaml.safe_dump(stated))
    app = opened(state.LAUNCH, source="same as a")
    assert "Start" not in labels(app)
    app.session_state["more same as a"] = True
    for group in form.groups():
        app.session_state[f"group same as a {group.title}"] = True
    app.run()
    assert not app.exception
    assert [field for field in app.number_input if field.label == "Seed"]


def test_no_name_turns_the_command_or_the_configuration_around(opened: Open, root: Path) -> None:
    stated = yaml.safe_load((configs.SHIPPED / "tiny.yaml").read_text("utf-8"))
    turned = stated | {"name": "\u202egpj.exe", "data": {"dataset": "a\u200b\u2066b"}}
    (write_run(root, "a") / "config.yaml").write_text(yaml.safe_dump(turned, allow_unicode=True), "utf-8")
    app = opened(state.LAUNCH, source="same as a")
    assert app.code[0].value == f"trainproof queue add --config 'gpj.exe.yaml' --root {root}"
    assert "dataset: ab\n" in app.code[-1].value
    assert strip_invisible(app.code[-1].value) == app.code[-1].value


def number(app: AppTest, label: str):
    return next(field for field in app.number_input if field.label == label)


def test_a_number_out_of_range_is_kept_and_the_check_says_what_is_allowed(opened: Open, root: Path) -> None:
    app = opened(state.LAUNCH, source="tiny.yaml")
    assert not number(app, "Learning rate").proto.has_max, "the browser would drop what is above it, without a word"
    app = number(app, "Learning rate").set_value(11.0).run()
    app = number(app, "Steps").set_value(-3).run()
    assert (number(app, "Learning rate").value, number(app, "Steps").value) == (11.0, -3)
    text = said(app)
    assert "Expected: a number above 0 and up to 10.</p>" in text
    assert "Expected: a whole number from 1 to 10000000.</p>" in text
    assert [place for place in ("optimizer.learning_rate", "limits.steps") if f"at {place}</p>" not in text] == []
    assert "Start" not in labels(app)


def test_what_is_named_and_is_not_there_keeps_the_run_from_being_started(
    opened: Open, root: Path, tmp_path: Path
) -> None:
    app = opened(state.LAUNCH, source="tiny.yaml")
    dataset = next(field for field in app.text_input if field.label == "Dataset")
    assert f"A relative path starts at {plain(str(tmp_path))}. Key: `data.dataset`" in dataset.help
    app = dataset.set_value("rows.jsonl").run()
    text = said(app)
    assert "Error TP010: There is no dataset rows.jsonl: it is not built in, and no such file exi" in text
    assert f"Relative paths start at {tmp_path}, where the dashboard was started." in text
    assert "config.yaml at data.dataset</p>" in text
    assert not {"Start", "Plan"} & set(labels(app))
    (tmp_path / "rows.jsonl").write_text("")
    assert "Start" in labels(app.run())


def test_a_smoke_run_says_which_values_of_the_form_it_replaces(opened: Open, root: Path) -> None:
    app = opened(state.LAUNCH, source="demo.yaml")
    assert "In the smoke run" not in said(app)
    app = app.get("button_group")[0].set_value("two steps, as a smoke run").run()
    rows = re.findall(r"<tr class=\"\">(.*?)</tr>", said(app))
    replaced = {tuple(re.findall(r"<td[^>]*>(.*?)</td>", row)) for row in rows}
    assert {("Name", "demo", "demo-smoke"), ("Mode", "full", "smoke"), ("Steps", "2800", "2")} <= replaced
    runs = form.with_defaults(yaml.safe_load(app.code[-1].value))
    shown = form.with_defaults(configs.read(next(one for one in configs.sources() if one.key == "demo.yaml")))
    assert len(replaced) == len(form.differing_fields(shown, runs)) == 5, "the rows of each step and the shape too"
