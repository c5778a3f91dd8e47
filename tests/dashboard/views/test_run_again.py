"""The tabs Reproduce and Play: recorded commands and their gaps; replays and questions with small programs."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

import pytest
from pages import Open, labels, press, said
from receipts import receipt
from stand_ins import wait_for
from streamlit.testing.v1 import AppTest
from synthetic import write_run

from dashboard.shared import state
from dashboard.shared.parts.replay import commands, gaps, original_command, pip_requirements
from evidence.proof.receipts import run_sha256
from evidence.run import read_run
from launch import process, tasks
from launch.jobs import mark_started
from launch.tasks import Task, TaskResult, replay_task


def answer(root: Path, folder: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer the first question of the page with a small program."""
    monkeypatch.setattr(tasks, "PROGRAM", (sys.executable, "-c", code))
    task = replay_task(root, folder, run_sha256(folder) or "", "replay", ["--minutes", "5"])
    task.folder.mkdir(parents=True)
    tasks.main(task.folder, root, 60.0, 60.0, list(task.arguments))


@pytest.mark.parametrize("verdict", ["✓ identical", "≈ within tolerance", "✕ different"])
def test_the_segments_of_a_receipt_are_a_table(
    opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch, verdict: str
) -> None:
    folder = write_run(root, "alpha")
    document = receipt(folder, result=verdict[2:], segments=((0, 20),))
    document["covered"]["segments"][0]["difference"] = "Step 8: loss 2.5 here, 2.25 in the run."
    answer(root, folder, f"print({json.dumps(document)!r}); raise SystemExit(1)", monkeypatch)
    app = opened(state.RUN, run="alpha", view="Reproduce")
    assert f"{verdict}: {document['said']}" in said(app)
    table = app.dataframe[0].value
    assert table["Steps"].tolist() == ["1 to 20"]
    assert table["Result"].tolist() == [verdict]
    assert table["First difference"].tolist() == ["Step 8: loss 2.5 here, 2.25 in the run."]


def test_a_failed_replay_shows_its_reason(opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(root, "alpha")
    lines = '{"event": "planned"}\nNo such data.\n'
    answer(root, folder, f"import sys; sys.stderr.write({lines!r}); sys.exit(3)", monkeypatch)
    app = opened(state.RUN, run="alpha", view="Reproduce")
    assert "The replay failed with exit code 3." in said(app)
    assert "No such data." in [block.value for block in app.code]


def test_a_replay_is_started_shown_and_cancelled(opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(root, "alpha")
    app = opened(state.RUN, run="alpha", view="Reproduce")
    assert app.code[0].value == f"trainproof replay {folder} --minutes 5"
    called: list[str] = []
    for name in ("start", "cancel"):
        monkeypatch.setattr(Task, name, lambda _task, name=name: called.append(name))
    press(app, "Replay")
    output = 'Reading\n{"event": "step", "step": 7, "of": 20}\n{"event": "segment", "number": 1}\n'
    monkeypatch.setattr(Task, "result", lambda _task: TaskResult(state="running", output=output, seconds=65.0))
    press(app.run(), "Cancel")
    assert called == ["start", "cancel"]
    assert "Step 7 of 20, 1 min 05 s" in [bar.proto.text for bar in app.get("progress")]


def test_a_clean_run_has_all_commands_and_no_gaps(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, "alpha"))
    manifest = run.manifest or {}
    assert list(gaps(manifest, run.config)) == []
    assert original_command(manifest) == "trainproof train --config demo.yaml"
    assert pip_requirements(manifest) == "flax==0.12.8\njax==0.10.2\n"
    assert commands(manifest, run.plan, "alpha") == [
        "git checkout 0123456789abcdef0123456789abcdef01234567",
        "pip install -r requirements.txt",
        "trainproof train --config config.yaml --output alpha-again",
        "trainproof compare alpha alpha-again",
    ]


def test_a_forced_run_is_forced_again() -> None:
    expected = "trainproof train --config config.yaml --output x-again --force"
    assert commands({}, {"forced": True}, "x")[0] == expected
    assert commands({"training": {"forced": True}}, None, "x")[0] == expected
    assert commands({"training": {"forced": False}}, {"forced": False}, "x")[0] == expected.removesuffix(" --force")


def test_gaps_are_listed_worst_first() -> None:
    manifest = {
        "code": {"dirty": True, "diff_sha256": "dddd", "commit": None},
        "model": {"weights": "pretrained", "revision": None},
        "devices": {"platform": "tpu"},
        "parent": {"run_id": "before", "step": 1200},
    }
    assert list(gaps(manifest, None)) == [
        "The code had uncommitted changes. Only their hash is recorded: dddd. Commit before you train.",
        "No commit is recorded, so the code is unknown. Train in a git checkout.",
        "config.yaml is missing or cannot be read, so some settings are unknown.",
        "No package versions are recorded. Other versions may give other numbers.",
        "No hash of the training data is recorded, so you cannot check that your data is the same.",
        "No revision of the model is recorded, so its name may now refer to other weights.",
        "The run continues before from step 1,200. Reproduce that run first: its checkpoint is needed.",
        "Other devices sum in a different order, so the last digits will differ.",
    ]


def test_text_of_an_untrusted_run_does_not_become_a_command() -> None:
    packages = {"jax": "1 @ http://evil.example/x.whl", "--index-url": "http://evil.example", "ok": "1.0"}
    manifest = {
        "command": ["trainproof", "train; rm -rf /", "--set", "token=abcdefghijkl"],
        "code": {"commit": "main; rm -rf /"},
        "environment": {"packages": packages, "flags": {"XLA_FLAGS": "--token=abcdefghijkl"}},
    }
    assert original_command(manifest) == "trainproof 'train; rm -rf /' --set token=[hidden]"
    assert pip_requirements(manifest) == "ok==1.0\n"
    assert commands(manifest, None, "a b") == [
        "pip install -r requirements.txt",
        "trainproof train --config config.yaml --output 'a b-again'",
        "trainproof compare 'a b' 'a b-again'",
    ]
    name = "\u202ekcab\n"
    assert commands({"parent": {"run_id": name}}, None, name) == [
        "trainproof train --resume 'kcab ' --output 'kcab -again'",
        "trainproof compare 'kcab ' 'kcab -again'",
    ]


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
