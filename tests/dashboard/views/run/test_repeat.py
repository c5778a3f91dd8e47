"""The tab Repeat: who repeated a run, the command, how far it is, what came of it, and what a viewer may not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from pages import Open, labels, press, said
from stand_ins import wait_for
from synthetic import write_run

from dashboard.shared.session import state
from evidence.proof.receipts import run_sha256
from launch import asking, repeating

EVENTS = (
    {"event": "planned", "segments": [{"first_step": 0, "last_step": 20}], "items": 2},
    {"event": "step", "step": 7, "of": 20},
)


def receipt(verdict: str) -> dict[str, Any]:
    difference = {"difference": "Step 8: loss 2.5 here, 2.25 in the run."} if verdict == "different" else {}
    return {
        "made_at": "2026-11-23T20:15:00.000+00:00",
        "covered": {"segments": [{"first_step": 0, "last_step": 20, "verdict": verdict, **difference}], "items": {}},
        "result": verdict,
        "said": "1 of 1 segments.",
    }


def stands_in(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(asking, "PROGRAM", (sys.executable, "-c", code))


def answer(root: Path, folder: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a stand-in for the command answer the question that the page asks at first."""
    stands_in(monkeypatch, code)
    asked = repeating.folder_of(root, folder, run_sha256(folder) or "", "replay", ("--minutes", "5"))
    asked.mkdir(parents=True)
    asking.main(asked, root, 60.0, ["replay"])


@pytest.mark.parametrize("verdict", ["identical", "within tolerance", "different"])
def test_what_came_of_it_is_a_strip_with_words(
    opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch, verdict: str
) -> None:
    folder = write_run(root, "alpha")
    code = 0 if verdict != "different" else 1
    answer(root, folder, f"print({json.dumps(receipt(verdict))!r}); raise SystemExit({code})", monkeypatch)
    text = said(opened(state.RUN, run="alpha", view="Repeat"))
    assert f"steps 1 to 20: {verdict}" in text
    assert ("Step 8: loss 2.5 here" in text) == (verdict == "different")


def test_a_refusal_is_shown_in_its_words(opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(root, "alpha")
    lines = f"{json.dumps(EVENTS[0])}\nNo such data.\n"
    code = f"import sys; sys.stderr.write({lines!r}); sys.exit(3)"
    answer(root, folder, code, monkeypatch)
    app = opened(state.RUN, run="alpha", view="Repeat")
    assert "It ended with exit code 3." in said(app)
    assert "No such data." in [block.value for block in app.code]


def test_it_is_started_watched_and_cancelled(opened: Open, root: Path, tmp_path: Path) -> None:
    folder = write_run(root, "alpha")
    app = opened(state.RUN, run="alpha", view="Repeat")
    assert [block.value for block in app.code] == [f"trainproof replay {folder} --minutes 5"]
    asked = (root, folder, run_sha256(folder) or "", "replay", ("--minutes", "5"))
    press(app, "Repeat")
    wait_for(lambda: repeating.repeating(*asked).state != "none")
    repeating.cancel(*asked)
    wait_for(lambda: repeating.repeating(*asked).state != "running")


def test_a_viewer_sees_and_starts_nothing(opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(root, "alpha")
    monkeypatch.setattr("dashboard.shared.parts.gate.may_operate", lambda: False)
    app = opened(state.RUN, run="alpha", view="Repeat")
    assert "Repeat" not in labels(app)
    assert "An operator who opens this page may repeat the run." in said(app)


def test_progress_is_read_from_lines_of_json_among_words() -> None:
    output = "\n".join(["Reading the rows", *map(json.dumps, EVENTS), "{broken", "[1]"])
    assert list(repeating.progress_of(output)) == list(EVENTS)
