"""The stages of a run from its start to its seal, by hand-worked moments."""

from __future__ import annotations

from typing import Any

import pytest

from dashboard.shared.tables.course import RunProgress, course

LATER = {"run_started": 120.0, "compiled": 120.5}
TRAINED = {**LATER, "trained": 124.5}


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({}, "waiting: now, 17 s | loading: ahead | compiling: ahead"),
        ({"started": 101.0}, "waiting: 1 s | loading: now, 16 s | compiling: ahead"),
        (
            {"started": 101.0, "compiling": 105.0},
            "waiting: 1 s | loading: 4 s | compiling: now, 12 s",
        ),
    ],
)
def test_before_its_folder_the_job_says_where_a_run_is(told: dict[str, Any], said: str) -> None:
    found = course(RunProgress(queued=100.0, events={}, status="running", **told), 117.0)
    assert " | ".join(f"{stage.name}: {stage.said}" for stage in found[:3]) == said
    assert [stage.state for stage in found[3:]] == ["ahead"] * 3


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"events": LATER}, "compiling: 12 s | step 1 of 2: now, 10 s | evaluating: ahead | sealed: ahead"),
        ({"events": TRAINED}, "compiling: 12 s | step 1 of 2: 4 s | evaluating: now, 6 s | sealed: ahead"),
        (
            {"events": {**TRAINED, "evaluated": 127.0, "run_sealed": 127.2}, "status": "succeeded"},
            "compiling: 12 s | step 1 of 2: 4 s | evaluating: 3 s | sealed: done",
        ),
        (
            {"events": {**TRAINED, "run_sealed": 124.6}, "status": "succeeded"},
            "compiling: 12 s | step 1 of 2: 4 s | evaluating: left out | sealed: done",
        ),
        (
            {"events": LATER, "status": "failed"},
            "compiling: 12 s | training: failed | evaluating: left out | sealed: left out",
        ),
    ],
)
def test_in_its_folder_the_log_says_where_a_run_is(told: dict[str, Any], said: str) -> None:
    whole = {"queued": 100.0, "started": 101.0, "compile_seconds": 11.5, "steps": (1, 2), "status": "running", **told}
    found = course(RunProgress(**whole), 130.5)
    assert " | ".join(f"{stage.name}: {stage.said}" for stage in found[2:]) == said
    assert [stage.said for stage in found[:2]] == ["1 s", "8 s"], "120 - 11.5 - 101 is 7.5 s of loading"


def test_a_run_of_a_terminal_has_no_queue_and_one_that_was_cancelled_there_never_loaded() -> None:
    assert [stage.name for stage in course(RunProgress(events=LATER, status="running"), 121.0)] == [
        "compiling",
        "training",
        "evaluating",
        "sealed",
    ]
    found = course(RunProgress(queued=100.0, events={}, status="cancelled"), 110.0)
    assert [(stage.name, stage.said) for stage in found[:2]] == [("waiting", "cancelled"), ("loading", "left out")]
