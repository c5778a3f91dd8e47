"""A smoke run beside the full run: stages, figures in their bands, what is open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from synthetic import write_rows, write_run

from evidence.compare.rehearsal import Rehearsal, RehearsedFigure, rehearsal
from evidence.compare.stages import STAGES
from evidence.layout import LOG
from evidence.proof.verification import standing_of
from evidence.run import read_run


def told(smoke: Path, full: Path) -> Rehearsal:
    ours, theirs = read_run(smoke), read_run(full)
    return rehearsal(ours, standing_of(ours), theirs, standing_of(theirs))


def pair(root: Path, **smoke: Any) -> Rehearsal:
    return told(write_run(root, "s", mode="smoke", **({"steps": 2} | smoke)), write_run(root, "f", steps=200))


def figures(found: Rehearsal) -> dict[str, RehearsedFigure]:
    return {figure.name: figure for figure in found.figures}


def test_a_sound_smoke_run_passes_all_but_what_it_did_not_do(tmp_path: Path) -> None:
    found = pair(tmp_path)
    assert [stage.name for stage in found.smoke] == [*STAGES[:3], "2 steps", *STAGES[4:]]
    assert [stage.state for stage in found.smoke] == [
        "passed",
        "passed",
        "passed",
        "passed",
        "not exercised",
        "not exercised",
        "passed",
        "passed",
    ]
    assert found.smoke[1].seconds == 4.0
    assert found.said == "The smoke run rehearsed 6 of 8 stages of f, but of another first loss."


def test_seconds_are_read_from_the_log(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "s", mode="smoke", steps=2)
    times = {"run_started": 0, "planned": 3, "checkpoint_saved": 5, "trained": 6, "evaluated": 8, "run_sealed": 9}
    records = [
        {
            "time": f"2026-11-20T12:00:0{second}.000+00:00",
            "level": "info",
            "event": event,
            "message": event,
            "fields": {"seconds": 0.25},
        }
        for event, second in times.items()
    ]
    write_rows(folder / LOG, records)
    stages = {stage.name: stage for stage in told(folder, write_run(tmp_path, "f", steps=200, seed=1)).smoke}
    assert [stages[name].seconds for name in ("load", "save", "evaluate", "seal")] == [3.0, 0.25, 2.0, 1.0]
    assert stages["save"].state == "passed"


def test_a_failed_smoke_run_failed_at_one_stage(tmp_path: Path) -> None:
    found = pair(tmp_path, steps=10, status="failed")
    assert [stage.state for stage in found.smoke].count("failed") == 1
    assert found.smoke[3].state == "failed"
    assert found.smoke[3].name == "5 steps"


@pytest.mark.parametrize(
    ("model", "name"),
    [({"parameters": 7}, "parameters"), ({"dtypes": {"compute": "bfloat16"}}, "number types")],
)
def test_what_must_agree_and_does_not_is_found(tmp_path: Path, model: dict[str, Any], name: str) -> None:
    assert figures(pair(tmp_path, manifest={"model": model}))[name].agrees is False


def test_first_losses_are_held_against_each_other_only_from_one_start_and_rows(tmp_path: Path) -> None:
    found = figures(pair(tmp_path, manifest={"model": {"weights_sha256": "a" * 64}}))["first loss"]
    assert (found.agrees, found.remark) == (None, "other first parameters")


def test_a_first_loss_agrees_within_the_rounding_of_its_products(tmp_path: Path) -> None:
    smoke, full = (write_run(tmp_path, name, steps=40, mode=mode) for name, mode in (("s", "smoke"), ("f", "full")))
    for folder in (smoke, full):
        assert json.loads((folder / "run_manifest.json").read_text("utf-8"))["model"]["weights_sha256"]
    assert figures(told(smoke, full))["first loss"].agrees is True


def test_a_contradictory_smoke_run_rehearsed_nothing(tmp_path: Path) -> None:
    found = pair(tmp_path, manifest={"result": {"last_loss": 0.001}})
    assert found.said == "The smoke run s contradicts itself, so it rehearsed nothing of f."


def test_another_program_is_named_with_what_differs(tmp_path: Path) -> None:
    found = pair(tmp_path, manifest={"devices": {"kind": "TPU v5e", "count": 8}})
    assert any("device cpu, not TPU v5e; devices 1, not 8" in line for line in found.not_proved)
