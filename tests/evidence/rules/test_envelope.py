"""Curves that were drawn, not trained: each is named as unusual, and none of the real ones is."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from leaves import Forger
from synthetic import write_run

from evidence.judge.judgement import check_run
from evidence.records.ours import read_run
from evidence.scores.recompute import result_of

REPOSITORY = Path(__file__).parents[3]
FULL = REPOSITORY / "tests" / "cases" / "earlier" / "demo-full"
HONEST = REPOSITORY / "benchmarks" / "results" / "honest_runs.json"


@pytest.fixture(scope="module")
def forger(tmp_path_factory: pytest.TempPathFactory) -> Forger:
    return Forger(FULL, tmp_path_factory.mktemp("envelope") / "run")


def with_losses(forger: Forger, change: Callable[[list[float]], list[float]]) -> set[str]:
    """Return what is found when the losses are others, of float32, and every figure follows from them."""
    rows = [dict(row) for row in forger.values["metrics.jsonl"]]
    losses = change([row["loss"] for row in rows])
    for row, loss in zip(rows, losses, strict=True):
        row["loss"] = float(np.float32(loss))
    (forger.folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    manifest = json.loads(json.dumps(forger.values["run_manifest.json"]))
    manifest["result"] |= result_of(rows)
    (forger.folder / "run_manifest.json").write_text(json.dumps(manifest), "utf-8")
    return {each.code for each in check_run(read_run(forger.folder)) if each.code.startswith("TP4")}


def smoothed(losses: list[float], width: int = 9) -> list[float]:
    padded = np.pad(np.array(losses), width // 2, mode="edge")
    return list(np.convolve(padded, np.ones(width) / width, "valid"))


def exponential(losses: list[float]) -> list[float]:
    return [losses[-1] + (losses[0] - losses[-1]) * math.exp(-6 * at / len(losses)) for at in range(len(losses))]


def test_the_real_curve_is_not_unusual(forger: Forger) -> None:
    assert with_losses(forger, lambda losses: losses) == set()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda losses: [loss / 2 for loss in losses], "TP434"),
        (lambda losses: [10 * loss for loss in losses], "TP434"),
        (lambda losses: losses[::-1], "TP434"),
        (smoothed, "TP436"),
        (exponential, "TP436"),
        (lambda losses: sorted(losses, reverse=True), "TP436"),
        (lambda losses: losses[:70] + losses[:71], "TP437"),
        (lambda losses: losses[:70] + losses[70::-1], "TP437"),
    ],
    ids=["halved", "tenfold", "reversed", "smoothed", "exponential", "sorted", "copied", "mirrored"],
)
def test_a_drawn_curve_is_unusual(forger: Forger, change: Callable[[list[float]], list[float]], code: str) -> None:
    assert code in with_losses(forger, change)


def test_a_number_between_two_of_float32_is_unusual(forger: Forger) -> None:
    rows = [row | {"grad_norm": row["grad_norm"] * 1.1} for row in forger.values["metrics.jsonl"]]
    with_losses(forger, lambda losses: losses)
    (forger.folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    found = [each for each in check_run(read_run(forger.folder)) if each.code == "TP435"]
    assert [(each.severity, each.pointer) for each in found] == [("warning", "/grad_norm")]


@pytest.mark.parametrize("days", [-173 * 365, 173 * 365])
def test_a_day_that_cannot_be_is_unusual(tmp_path: Path, days: int) -> None:
    started = datetime(2026, 11, 20, 12, tzinfo=UTC) + timedelta(days=days)
    run = write_run(tmp_path, "run", started=started)
    assert "TP442" in {each.code for each in check_run(read_run(run))}


OURS = {"code": {"version": version("trainproof")}}
"""What other versions need is not known here."""
QUANTUM = {"requested": "tpu", "platform": "tpu", "kind": "Quantum v9", "list": [{"id": 0, "kind": "Quantum v9"}]}


@pytest.mark.parametrize(
    ("manifest", "code", "said"),
    [
        ({"code": {"version": "99.0"}}, "TP444", "made by trainproof 99.0; this is"),
        ({**OURS, "environment": {"python": "2.7"}}, "TP444", "does not run on python 2.7 (at least 3.11)."),
        (
            {**OURS, "environment": {"packages": {"jax": "0.9.99"}}},
            "TP444",
            "does not run on jax 0.9.99 (at least 0.10).",
        ),
        ({"devices": QUANTUM}, "TP445", "the devices are called 'Quantum v9'."),
    ],
    ids=["version to come", "old python", "old jax", "chip of no maker"],
)
def test_software_and_chips_that_do_not_go_together_are_unusual(
    tmp_path: Path, manifest: dict[str, object], code: str, said: str
) -> None:
    unusual = [each for each in check_run(read_run(write_run(tmp_path, "run", manifest=manifest))) if each.code == code]
    assert [each.severity for each in unusual] == ["warning"]
    assert said in unusual[0].what
    plain = check_run(read_run(write_run(tmp_path, "plain")))
    assert {"TP444", "TP445"}.isdisjoint(each.code for each in plain)


def test_no_real_run_of_the_sample_is_unusual() -> None:
    """The sample was trained by benchmarks/honest_runs.py; what is kept of it states every code that was found."""
    sample = json.loads(HONEST.read_text("utf-8"))
    assert sample["runs"] == len(sample["rows"]) >= 150
    unusual = [
        row["name"] for row in sample["rows"] if any(code.startswith(("TP38", "TP43", "TP44")) for code in row["codes"])
    ]
    assert unusual == []
