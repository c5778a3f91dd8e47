"""The tab Play, with a small program instead of `trainproof play`."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

import pytest
from pages import Open, labels, press, said
from stand_ins import wait_for
from streamlit.testing.v1 import AppTest
from synthetic import write_run

from dashboard.shared import state
from launch import process, tasks
from launch.jobs import mark_started
from launch.tasks import Task

ANSWER = {"event": "answer", "model": 0, "text": "<b>7</b>", "tokens": 3, "finish_reason": "stop"}
PROGRAM = f"""
import json, sys, time
def tell(event):
    print(json.dumps(event), flush=True)
tell({{"event": "ready", "models": [{{"name": "al<i>pha"}}]}})
[question] = map(json.loads, sys.stdin)
if question.get("prompt") == "wait":
    tell({{"event": "text", "model": 0, "text": "growing"}})
    time.sleep(60)
elif question.get("prompt") == "long":
    tell({{"event": "refused", "problems": [{{"what": "Too long.", "next": "Shorten it."}}]}})
elif question.get("prompt") == "fail":
    sys.exit("error TP710: no memory")
else:
    tell({ANSWER!r} | ({{"expected": "7", "correct": True}} if "item" in question else {{}}))
    tell({{"event": "done"}})
"""


def start_in_thread(task: Task) -> None:
    """Run a task in a thread of this process, where the program is replaced."""
    task.folder.mkdir(parents=True)
    (task.folder / tasks.INPUT).write_text(task.files[tasks.INPUT])
    own = process.identify(os.getpid())
    mark_started(task.folder, own, own)
    threading.Thread(target=tasks.main, args=(task.folder, Path.cwd(), 60.0, 60.0, list(task.arguments))).start()


@pytest.fixture
def play(opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    monkeypatch.setattr(tasks, "PROGRAM", (sys.executable, "-c", PROGRAM))
    monkeypatch.setattr(Task, "start", start_in_thread)
    write_run(root, "alpha")
    return opened(state.RUN, run="alpha", view="Play")


def ask(app: AppTest, prompt: str | None = None) -> AppTest:
    """Ask a question and wait until its task has ended, or has printed a text."""
    if prompt is not None:
        app.text_area(key="play prompt").set_value(prompt).run()
    press(app, "Ask")
    task = app.session_state["question to a model"].task
    wait_for(lambda: task.result().state != "running" or "growing" in str(task.result().answer))
    return app.run()


def test_answers_are_shown_as_text_and_then_removed(play: AppTest, root: Path) -> None:
    assert "Answers are not saved in the run and do not affect its grade." in said(play)
    press(play, "Ask")
    assert "question to a model" not in play.session_state, "without a prompt, nothing starts"
    ask(play, "3+4")
    assert "<b>7</b>" in [block.value for block in play.code]
    assert "al&lt;i&gt;pha" in said(play)
    assert "3 tokens, complete" in said(play)
    assert not list((root / ".launch" / "plays").iterdir())


def test_an_answer_grows_and_can_be_stopped(play: AppTest) -> None:
    ask(play, "wait")
    assert "growing" in [block.value for block in play.code]
    assert {"Stop"} == {"Ask", "Stop"} & set(labels(play))
    press(play, "Stop")
    wait_for(lambda: "Stopped." in said(play.run()))
    assert "Ask" in labels(play)


@pytest.mark.parametrize(("prompt", "reason"), [("long", "Too long. Shorten it."), ("fail", "error TP710: no memory")])
def test_a_question_without_an_answer_has_a_reason(play: AppTest, prompt: str, reason: str) -> None:
    ask(play, prompt)
    assert reason in said(play) + "".join(block.value for block in play.code)


def test_an_item_is_compared_with_its_expected_answer(play: AppTest, root: Path) -> None:
    row = json.loads((root / "alpha" / "predictions.jsonl").read_text().splitlines()[0])
    next(one for one in play.button_group if one.key == "play").set_value("Evaluation item").run()
    assert f"Expected: {row['expected']}" in said(play)
    assert "3 tokens, complete, ✓ correct" in said(ask(play))


def test_a_viewer_starts_nothing(play: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dashboard.shared.parts.gate.may_operate", lambda: False)
    play.run()
    assert "Ask" not in labels(play)
    assert "You are logged in as a viewer. Only operators can start a model." in said(play)
