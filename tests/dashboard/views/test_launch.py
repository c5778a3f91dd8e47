"""The Launch page: configuration editor, facts about the inputs, starting runs; the queue, and who may change what."""

from __future__ import annotations

import re
import resource
import shlex
import shutil
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from mutations import apply
from pages import Open, job_in, labels, press, said
from plan_answers import grid_document, place, plan_document, put_answer
from streamlit.testing.v1 import AppTest
from synthetic import write_run

from dashboard.shared import configs, form, state
from dashboard.shared.words import plain
from evidence.bundle.secrets import strip_invisible
from evidence.lock import RunLock
from launch import tasks
from launch.jobs import jobs
from trainproof.cli import app as command

OTHERS = [setting.dotted for setting in form.fields() if setting.path not in form.ESSENTIAL]


def shown(app: AppTest) -> dict[str, Any]:
    """Return the configuration that the page would start."""
    return yaml.safe_load(app.code[-1].value)


def widget(app: AppTest, kind: str, label: str) -> Any:
    return next(each for each in app.get(kind) if each.label == label)


def edit_table(app: AppTest, source: str = "tiny.yaml", **values: str | None) -> AppTest:
    """Type values into the table of settings, with `__` for the dot of a key."""
    rows = {OTHERS.index(key.replace("__", ".")): {"Value": value} for key, value in values.items()}
    app.session_state[f"table 0 {source}"] = {"edited_rows": rows, "added_rows": [], "deleted_rows": []}
    return app.run()


def open_table(app: AppTest, source: str = "tiny.yaml") -> AppTest:
    app.session_state[f"more {source}"] = True
    return app.run()


def test_a_value_in_the_table_stays_when_it_is_folded_and_other_pages_are_opened(opened: Open, root: Path) -> None:
    app = opened(state.LAUNCH, source="tiny.yaml")
    before = shown(app)
    assert not app.get("arrow_data_frame"), "a folded table is not drawn"
    assert "Undo all changes" not in labels(app)
    app = edit_table(open_table(app), seed="41", optimizer__max_grad_norm=None)
    table = app.data_editor[0].value.set_index("Key")
    assert table.loc["seed"].tolist()[:2] == ["41", "0"]
    assert table.loc["optimizer.schedule", "Meaning"].endswith("One of: constant, linear, cosine.")
    changed = shown(app)
    assert changed == before | {"seed": 41, "optimizer": before["optimizer"] | {"max_grad_norm": None}}
    assert sorted(app.query_params["set"]) == ["optimizer.max_grad_norm=null", "seed=41"]

    app.session_state["more tiny.yaml"] = False
    assert shown(app.run()) == changed
    app.switch_page("views/package.py").run()
    assert "<h1>Package</h1>" in said(app)
    app.switch_page("views/launch.py")
    app.query_params["source"] = "tiny.yaml"
    assert shown(app.run()) == changed
    assert shown(press(app, "Undo all changes")) == before
    assert "Undo all changes" not in labels(app)


def test_a_link_shows_its_changes_and_not_earlier_ones(opened: Open, root: Path) -> None:
    app = opened(state.LAUNCH, source="tiny.yaml", set=["seed=7", "limits.steps=9", "colour=red", "mesh.device=x"])
    assert (shown(app)["seed"], shown(app)["limits"]["steps"]) == (7, 9)
    assert app.query_params["set"] == ["seed=7", "limits.steps=9"]
    assert widget(app, "number_input", "Steps").value == 9


def write_config(root: Path, config: dict[str, Any]) -> None:
    """Write the run a with this configuration."""
    (write_run(root, "a") / "config.yaml").write_text(yaml.safe_dump(config, allow_unicode=True), "utf-8")


TINY = yaml.safe_load((configs.SHIPPED / "tiny.yaml").read_text("utf-8"))
WRONG = {
    "mode": "bogus",
    "mesh": {"device": "gpuu"},
    "batch": {"microbatch_size": -5, "accumulation_steps": 1.5},
    "optimizer": {"name": "adamx", "learning_rate": 11, "max_grad_norm": "none"},
    "data": {"shuffle": "yes", "dataset": 7},
    "checkpoint": "often",
}


def test_wrong_values_stay_until_they_are_changed_and_are_marked_at_their_key(opened: Open, root: Path) -> None:
    write_config(root, TINY | WRONG)
    app = open_table(opened(state.LAUNCH, source="same as a"), "same as a")
    for key, wrong in WRONG.items():
        assert shown(app)[key] == (shown(app)[key] | wrong if isinstance(wrong, dict) else wrong), key
    text = said(app)
    essential = ("mode", "mesh.device", "batch.microbatch_size", "optimizer.learning_rate", "data.dataset")
    others = ("batch.accumulation_steps", "optimizer.name", "optimizer.max_grad_norm", "data.shuffle")
    assert [key for key in (*essential, *others, "checkpoint") if f"at {key}</p>" not in text] == []
    assert text.count("<p>✕ ") == len(essential), "beside their widgets"
    meanings = app.data_editor[0].value.set_index("Key")["Meaning"]
    assert [key for key in others if not meanings[key].startswith("✕ ")] == []
    assert "All other settings (87): ✕ 4 not valid" in [part.label for part in app.expander]
    assert not {"Start", "Undo all changes"} & set(labels(app))
    mode = widget(app, "button_group", "Mode")
    assert mode.value is None
    assert "at mode</p>" not in said(mode.set_value("full").run())
    app = edit_table(app, source="same as a", data__shuffle="false")
    assert shown(app)["data"]["shuffle"] is False
    assert "at data.shuffle</p>" not in said(app)


def test_a_smoke_run_is_one_choice(opened: Open, root: Path) -> None:
    app = opened(state.LAUNCH, source="tiny.yaml")
    full = shown(app)
    app = widget(app, "button_group", "Mode").set_value("smoke").run()
    smoke = configs.make_smoke_config(full)
    assert shown(app) == smoke
    steps = widget(app, "number_input", "Steps")
    assert (steps.value, steps.disabled, app.query_params["set"]) == (2, True, "mode=smoke")
    assert shown(widget(app, "button_group", "Mode").set_value("full").run()) == full


@pytest.mark.parametrize("bad", [".inf", "100000000000000000000000", '"text"', "{}"])
def test_any_configuration_can_be_opened(opened: Open, root: Path, bad: str) -> None:
    stated: dict[str, Any] = {}
    for setting in form.fields():
        inside = stated if len(setting.path) == 1 else stated.setdefault(setting.path[0], {})
        inside[setting.path[-1]] = yaml.safe_load(bad)
    write_config(root, stated)
    app = open_table(opened(state.LAUNCH, source="same as a"), "same as a")
    assert not app.exception
    assert "Start" not in labels(app)
    assert len(app.data_editor[0].value) == len(OTHERS)


def test_invisible_characters_are_removed_from_the_command_and_the_configuration(opened: Open, root: Path) -> None:
    write_config(root, TINY | {"name": "\u202egpj.exe", "data": {"dataset": "a\u200b\u2066b"}})
    app = opened(state.LAUNCH, source="same as a")
    assert app.code[0].value == f"trainproof queue add --config 'gpj.exe.yaml' --root {root}"
    assert "dataset: ab\n" in app.code[-1].value
    assert strip_invisible(app.code[-1].value) == app.code[-1].value


def test_a_missing_file_prevents_the_start_until_it_exists(opened: Open, root: Path, tmp_path: Path) -> None:
    app = opened(state.LAUNCH, source="tiny.yaml", set=["data.dataset=rows.jsonl"])
    dataset = widget(app, "selectbox", "Dataset")
    assert dataset.value == "rows.jsonl"
    assert f"Relative paths start at {plain(str(tmp_path))}. Key: `data.dataset`" in dataset.help
    assert "Error TP010: There is no dataset rows.jsonl: it is not built in, and no such file exi" in said(app)
    assert not {"Start", "Plan"} & set(labels(app))
    (tmp_path / "rows.jsonl").touch()
    assert "Start" in labels(app.run())


def test_an_uploaded_dataset_is_named_by_its_content_and_selected(opened: Open, root: Path) -> None:
    content = b'{"prompt": "a", "completion": "b"}\n'
    app = opened(state.LAUNCH, source="tiny.yaml")
    app.file_uploader[0].set_value(("../my rows.JSONL", content, "application/json")).run()
    [kept] = (root / ".launch" / "rows").iterdir()
    assert re.fullmatch(r"my-rows-[0-9a-f]{8}\.jsonl", kept.name)
    assert kept.read_bytes() == content
    assert shown(app)["data"]["dataset"] == str(kept)


TOKENS = [{"id": 1, "text": "2 + 2 = <b>", "supervised": False}, {"id": 2, "text": "4", "supervised": True}]
CHECKED = {
    "can_begin": True,
    "training_rows": 12_550,
    "evaluation_items": 100,
    "findings": [],
    "model": {"family": "gemma", "origin": "random", "parameters": 1_123_456, "trained_parameters": 98_304},
    "dataset": {"tokens": 477_006, "generated_rows": 12_000},
    "first_examples": {"examples": [{"row": 7, "truncated": False, "tokens": TOKENS}]},
}


def test_facts_about_model_and_data_and_the_first_examples_are_shown(opened: Open, root: Path) -> None:
    put_answer(root, shown(opened(state.LAUNCH, source="tiny.yaml")), tasks.CHECK, CHECKED)
    text = said(opened(state.LAUNCH, source="tiny.yaml", rows="true"))
    assert "Model: 1.12 M parameters, 98.3 k trainable; gemma, random weights." in text
    assert "Data: 12,550 examples (12,000 generated), 477 k tokens; 100 evaluation items." in text
    assert '<span class="" title="id 1, context">2 + 2 = &lt;b&gt;</span>' in text
    assert '<span class="tp-on" title="id 2, supervised">4</span>' in text
    assert "Row 7" not in said(opened(state.LAUNCH, source="tiny.yaml")), "folded at first"


def test_a_run_that_the_check_refuses_cannot_be_started(opened: Open, root: Path) -> None:
    finding = {"code": "TP034", "severity": "error", "what": "The rows are empty.", "next": "Name others."}
    refused = {"can_begin": False, "findings": [finding | {"file": "mine.jsonl", "line": 2}]}
    put_answer(root, shown(opened(state.LAUNCH, source="tiny.yaml")), tasks.CHECK, refused, code=2)
    app = opened(state.LAUNCH, source="tiny.yaml")
    assert "Error TP034: The rows are empty." in said(app)
    assert "mine.jsonl line 2" in said(app)
    assert not app.get("status"), "it is not planned"
    assert "Start" not in labels(app)


def test_each_value_of_a_setting_is_started_as_a_run(opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, Any]] = []
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
        ("0.001, fast", "Learning rate cannot be fast. Allowed: number."),
        ("0.001, 11", "11"),
        (", ".join(str(0.001 + each / 1e6) for each in range(33)), "These are 33 values. You can start up to 32 runs"),
    ],
)
def test_wrong_values_of_a_setting_start_nothing(opened: Open, root: Path, values: str, line: str) -> None:
    app = opened(state.LAUNCH, source="tiny.yaml", over="optimizer.learning_rate", values=values)
    assert line in said(app)
    assert not [label for label in labels(app) if label.startswith("Start ") and "runs" in label]


def test_the_equivalent_command_does_what_start_does(opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = opened(state.LAUNCH, source="tiny.yaml")
    assert app.code[0].value == f"trainproof queue add --config tiny.yaml --root {root}"
    app = widget(app, "toggle", "Start even if memory may run out").set_value(True).run()
    command_line = app.code[0].value
    assert command_line == f"trainproof queue add --config tiny.yaml --root {root} --force"
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr("launch.queue.start", lambda *given, **flags: calls.append((*given, flags)) or job_in(root))
    Path("tiny.yaml").write_text(app.code[-1].value, "utf-8")
    press(app, "Start")
    monkeypatch.setattr(sys, "argv", shlex.split(command_line))
    with pytest.raises(SystemExit):
        command.main()
    assert len(calls) == 2
    assert calls[0] == calls[1]


# Places


def place_answer(name: str, **changes: Any) -> dict[str, Any]:
    return {"place": name, "account": "ada", "left_hours": 12.5, "refreshes_at": "2026-12-05T00:00:00Z", **changes}


def test_each_place_has_a_card_with_device_hours_quota_and_queue(opened: Open, root: Path) -> None:
    job_in(root)
    config = shown(opened(state.LAUNCH, source="tiny.yaml"))
    absent = {"what": "The command `kaggle` is not installed.", "next": "Install it.", "severity": "error"}
    places = [place_answer("kaggle-gpu"), place_answer("kaggle-tpu", findings=[absent])]
    put_answer(root, {}, tasks.PLACES, {"asked_at": "2026-11-27T10:00:00Z", "places": places})
    where = [place("kaggle-t4x2", "fits", 2, 13, 0.5), place("kaggle-tpu-v5e-8", "does_not_fit", 28, 15, 1)]
    put_answer(root, config, ("--where", "--quick"), {"where": where})
    put_answer(root, config, ("--quick",), {"verdict": "fits", "target": {"name": "cpu"}, "time": None})
    text = said(opened(state.LAUNCH, source="tiny.yaml"))
    chosen = '<h2>This machine<span class="tp-sign tp-good">✓ chosen</span></h2><p>cpu</p><p>✓ fits, time unknown</p>'
    assert f"{chosen}<p>Queue: 1 waiting, 0 running</p>" in text
    gpu = "<p>✓ fits, takes 15 min 00 s to 1 h 00 min</p><p>Quota: 12.5 h left until 2026-12-05</p><p>Account: ada</p>"
    assert f"<p>kaggle-gpu</p>{gpu}<p>Queue: empty</p>" in text
    unusable = "<p>✕ does not fit</p><p>✕ The command <code>kaggle</code> is not installed. Install it.</p>"
    assert f"<p>kaggle-tpu</p>{unusable}" in text


def test_nothing_is_sent_before_its_cost_was_shown_a_short_time_ago(
    opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    monkeypatch.setattr("launch.queue.start", lambda *_, place, **__: sent.append(place) or job_in(root))
    config = shown(opened(state.LAUNCH, source="tiny.yaml"))
    options, now = ("push", "--check", "--to", "kaggle-gpu"), datetime.now(UTC)
    refused = {"asked_at": now.isoformat(), "rows": [], "findings": [{"code": "TP771", "what": "No hours are left."}]}
    answer = {"rows": [["account", "ada"], ["uploads", "config.yaml"]], "findings": []}
    old = answer | {"asked_at": (now - timedelta(hours=2)).isoformat()}
    for told, line in ((refused, "No hours are left."), (old, "more than an hour old")):
        folder = put_answer(root, config, options, told)
        app = opened(state.LAUNCH, source="tiny.yaml", place="kaggle-gpu")
        assert line in said(app)
        assert "Send to kaggle-gpu" not in labels(app)
        shutil.rmtree(folder)
    put_answer(root, config, options, answer | {"asked_at": now.isoformat()})
    app = opened(state.LAUNCH, source="tiny.yaml", place="kaggle-gpu")
    assert app.code[0].value == f"trainproof push --config tiny.yaml --to kaggle-gpu --root {root}"
    press(app, "Send to kaggle-gpu")
    assert sent == ["kaggle-gpu"]


def test_runs_of_the_model_calibrate_the_time(opened: Open, root: Path) -> None:
    write_run(root, "elsewhere", manifest={"model": {"name": "tiny-gpt2"}})
    (root / "elsewhere" / "session.json").write_text("{}")
    here = write_run(root, "here", manifest={"model": {"name": "tiny-gpt2"}})
    write_run(root, "other")
    config = shown(opened(state.LAUNCH, source="tiny.yaml"))
    put_answer(root, config, ("--quick", "--calibrate", str(here)), plan_document())
    assert "takes about" in said(opened(state.LAUNCH, source="tiny.yaml"))


# The queue


def test_a_failed_job_shows_its_output_and_can_be_retried(opened: Open, root: Path) -> None:
    job_in(root, exit_code=4, output="step 3\nerror TP301: The loss is not finite.\ntoken=abcdefghijklmnop\n")
    app = opened(state.LAUNCH)
    assert "on a GPU" in said(app)
    assert "exit code 4" in said(app)
    assert app.code[0].value == "step 3\nerror TP301: The loss is not finite.\ntoken=[hidden]"
    assert "Retry" in labels(app)


def test_a_job_of_another_user_is_only_started_by_the_reader(opened: Open, root: Path) -> None:
    apply(job_in(root).folder, {"file": "job.json", "pointer": "/seal", "value": "0" * 64})
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
    assert [f"up {job.job_id}" in [button.key for button in app.button] for job in (first, third)] == [False, True]
    app = press(app, f"remove {second.job_id}")
    assert {job.run: job.state for job in jobs(root)} == {"one": "waiting", "three": "waiting", "two": "cancelled"}
    assert "cancelled" in said(app)


@pytest.mark.parametrize(("button", "failed"), [("up", "moved"), ("remove", "removed")])
def test_a_button_that_fails_on_a_full_disk_says_why(opened: Open, root: Path, button: str, failed: str) -> None:
    job_in(root)
    job = job_in(root, run="last")
    app = opened(state.LAUNCH)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        app = press(app, f"{button} {job.job_id}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    expected = f"The job could not be {failed}: [Errno 27] File too large. Fix the error and try again."
    assert expected in said(app)
    assert [job.state for job in jobs(root)] == ["waiting", "waiting"]


def test_a_job_is_queued_once_if_no_worker_can_be_started(opened: Open, root: Path) -> None:
    (root / ".launch" / "worker.log").mkdir(parents=True)
    app = press(opened(state.LAUNCH, source="tiny.yaml"), "Start")
    assert [job.state for job in jobs(root)] == ["waiting"]
    assert "could not be started" not in said(app)
    assert "The queue is not running" in said(app)


def test_a_root_that_cannot_hold_jobs_breaks_no_page(opened: Open, root: Path) -> None:
    root.mkdir()
    (root / ".launch").write_text("")
    text = said(press(opened(state.LAUNCH, source="tiny.yaml"), "Start"))
    assert "The run could not be started: [Errno 20] Not a directory: " in text
    stopped = write_run(root, "alpha", status="interrupted")
    (stopped / "checkpoints" / "10").mkdir(parents=True)
    text = said(press(opened(state.RUN, run="alpha"), "Resume"))
    assert "The run could not be resumed: [Errno 20] Not a directory: " in text


CHANGING = re.compile(
    "Start|Plan|Estimate|Compile|Ask|Replay|Retry|Stop|Remove|Continue the queue|Build|Resume|Tags|Archive|Save"
)
OPERATOR, VIEWER, STRANGER = "ann@example.com", "bob@example.com", "eve@elsewhere.org"
PLACES = pytest.mark.parametrize(
    ("page", "parameters"),
    [
        (state.RUNS, {}),
        (state.LAUNCH, {}),
        (state.PLAN, {"source": "tiny.yaml"}),
        (state.PACKAGE, {"runs": "beta"}),
        (state.RUN, {"run": "alpha"}),
        (state.RUN, {"run": "alpha", "view": "Play"}),
        (state.RUN, {"run": "alpha", "view": "Reproduce"}),
    ],
    ids=lambda value: value.title if isinstance(value, state.Page) else value.get("view", ""),
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


@PLACES
def test_a_viewer_changes_nothing_even_by_the_clicks_of_an_operator(
    opened: Open, root: Path, tmp_path: Path, page: state.Page, parameters: dict
) -> None:
    """A client can send any click over the socket; the server draws the page for the user who sends it."""
    (write_run(root, "alpha", status="interrupted") / "checkpoints" / "20").mkdir(parents=True)
    write_run(root, "beta")
    job_in(root)
    job_in(root, exit_code=4)
    config = form.fill_defaults(configs.read(configs.StartConfig("tiny.yaml", configs.SHIPPED / "tiny.yaml")))
    for options in (("--on", "kaggle-tpu-v5e-8", "--grid", "--quick"), ("--where", "--quick")):
        put_answer(root, config, options, grid_document())
    app = logged_in(opened, page, OPERATOR, **parameters)
    assert "Logged in as ann@example.com, operator." in said(app)
    changing = [button for button in app.button if CHANGING.match(button.label) and not button.disabled]
    clicked = [button.click() for button in changing]
    assert clicked
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    app.user = {"is_logged_in": True, "email": VIEWER}
    app.run()
    assert not app.exception
    assert "Logged in as bob@example.com, viewer." in said(app)
    assert "alpha" in said(app) or page is not state.RUN
    assert not [button.label for button in app.button if CHANGING.match(button.label)]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize(("email", "button"), [(None, "Log in"), (STRANGER, "Log out")])
def test_without_a_login_or_a_role_nothing_is_shown(opened: Open, root: Path, email: str | None, button: str) -> None:
    write_run(root, "alpha")
    app = logged_in(opened, state.RUN, email, run="alpha")
    assert [found.label for found in app.button] == [button]
    assert "alpha" not in said(app)
