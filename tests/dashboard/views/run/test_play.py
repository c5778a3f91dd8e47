"""The tab Play: what is asked of which models, answers as they grow, what ends them, and what a viewer may not."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import psutil
import pytest
from pages import Open, labels, press, said
from stand_ins import wait_for
from streamlit.testing.v1 import AppTest
from synthetic import write_run

from dashboard.shared.session import state
from launch import playing
from launch.playing import PlaySession

READY = {"event": "ready", "models": [{"name": "alpha", "where": "seed 0"}], "evidence": False}
ANSWER = {"event": "answer", "model": 0, "text": "<b>7</b>", "tokens": 3, "finish_reason": "stop"}
STAND_IN = f"""
import json, sys
def tell(event):
    print(json.dumps(event), flush=True)
tell({READY!r})
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("prompt") == "wait":
        tell({{"event": "text", "model": 0, "text": "grow"}})
        continue
    if asked.get("prompt") == "long":
        tell({{"event": "refused", "problems": [{{"code": "TP118", "what": "Too long.", "next": "Shorten it."}}]}})
        continue
    more = {{"expected": "7", "correct": True}} if "item" in asked else {{}}
    tell({ANSWER!r} | more)
    tell({{"event": "done"}})
"""


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "PROGRAM", (sys.executable, "-c", STAND_IN))


def asked(app: AppTest, prompt: str) -> AppTest:
    """Put a prompt and wait for what comes of it."""
    app.text_area(key="play prompt").set_value(prompt).run()
    press(app, "Ask")
    session: PlaySession = app.session_state["models that play"]
    wait_for(lambda: bool(session.look().texts or session.look().refused))
    return app.run()


def test_an_answer_grows_and_is_shown_as_text(opened: Open, root: Path) -> None:
    write_run(root, "alpha")
    app = opened(state.RUN, run="alpha", view="Play")
    text = said(app)
    assert "Play is never evidence: nothing is recorded, the run stays as it is, and no answer here counts" in text
    press(app, "Ask")
    assert "models that play" not in app.session_state, "there is no prompt yet"
    asked(app, "wait")
    assert [block.value for block in app.code] == ["grow"]
    assert "Stop" in labels(app)
    session: PlaySession = app.session_state["models that play"]
    press(app, "Stop")
    wait_for(lambda: not session.is_alive)
    asked(app, "3+4")
    assert [block.value for block in app.code] == ["<b>7</b>"]
    assert "3 tokens, ended by itself." in said(app)
    asked(app, "long")
    assert "Too long. Shorten it." in said(app)


def test_an_item_has_its_expected_answer_beside_it(opened: Open, root: Path) -> None:
    folder = write_run(root, "alpha")
    row = json.loads((folder / "predictions.jsonl").read_text().splitlines()[0])
    app = opened(state.RUN, run="alpha", view="Play")
    next(one for one in app.button_group if one.key == "play way").set_value("An item of its evaluation").run()
    assert f"<b>Expected</b> {row['expected']}" in said(app)
    press(app, "Ask")
    session: PlaySession = app.session_state["models that play"]
    wait_for(lambda: bool(session.look().answers))
    app.run()
    assert "3 tokens, ended by itself; right, expected 7." in said(app)


def test_a_training_row_is_asked_by_the_prompt_that_it_was_written_from(opened: Open, root: Path) -> None:
    folder = write_run(root, "alpha")
    document = json.loads((folder / "first_examples.json").read_text("utf-8"))
    whole = "<b>3+4=</b>\n"
    row = {"row": 6, "text": f"{whole}7<eos>", "template": "{prompt}\n", "prompt_utf8": whole.encode().hex()}
    document["examples"] = [row | {"tokens": [], "truncated": False}, row | {"row": 7, "template": None}]
    (folder / "first_examples.json").write_text(json.dumps(document), "utf-8")
    app = opened(state.RUN, run="alpha", view="Play")
    next(one for one in app.button_group if one.key == "play way").set_value("A training row").run()
    assert app.selectbox(key="play row").options == ["row 6: <b>3+4=</b>"], "a chat template may have written row 7"
    assert "<b>It was taught</b> 7&lt;eos&gt;" in said(app)
    press(app, "Ask")
    session: PlaySession = app.session_state["models that play"]
    wait_for(lambda: bool(session.look().answers))
    assert session.look().asked == "<b>3+4=</b>"


@pytest.mark.parametrize("elsewhere", ["tab", "page", "run"])
def test_who_leaves_ends_the_process(opened: Open, root: Path, elsewhere: str) -> None:
    write_run(root, "alpha")
    write_run(root, "beta", seed=1)
    app = asked(opened(state.RUN, run="alpha", view="Play"), "3+4")
    session: PlaySession = app.session_state["models that play"]
    assert session.is_alive
    if elsewhere == "page":
        app.switch_page("views/plan.py")
    elif elsewhere == "tab":
        app.query_params["view"] = "Log"
        app.session_state["view"] = "Log"
    else:
        app.query_params["run"] = "beta"
    app.run()
    wait_for(lambda: not session.is_alive)
    assert "models that play" not in app.session_state


def test_a_viewer_starts_nothing(opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(root, "alpha")
    monkeypatch.setattr("dashboard.shared.parts.gate.may_operate", lambda: False)
    app = opened(state.RUN, run="alpha", view="Play")
    assert "Ask" not in labels(app)
    expected = "You are logged in as a viewer: you can look at everything, but only an operator may start a model."
    assert expected in said(app)


def session_of(root: Path, **limits: float) -> PlaySession:
    return PlaySession(root, beside=None, untrained=False, **limits)


def test_nobody_looking_or_asking_ends_it_with_a_reason(tmp_path: Path) -> None:
    unwatched = session_of(tmp_path, watched_seconds=0.2)
    wait_for(lambda: not unwatched.is_alive)
    assert unwatched.why_ended == "The models were put away, since nobody looked any more."
    idle = session_of(tmp_path, idle_seconds=0.2)
    wait_for(lambda: not idle.is_alive)
    assert idle.why_ended == "The models were put away after 0 minutes without a question."


def test_a_refusal_of_the_program_is_shown_in_its_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code = "import sys; sys.exit('error TP710: no room')"
    monkeypatch.setattr(playing, "PROGRAM", (sys.executable, "-c", code))
    session = session_of(tmp_path)
    wait_for(lambda: session.why_ended == "error TP710: no room")
    assert session.look().is_done


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    """Even one that was killed: its end of the pipe closes."""
    session = session_of(tmp_path)
    process = psutil.Process(session.pid)
    assert session._process.stdin is not None
    session._process.stdin.close()
    process.wait(timeout=20)
