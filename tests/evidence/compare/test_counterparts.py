"""What a run is worth comparing with."""

from __future__ import annotations

from pathlib import Path

from evidence.compare.pairing import counterparts
from evidence.index.summary import RunSummary

LIKE = {"model.name": "demo", "data.dataset": "arithmetic", "evaluation.eval_set": "arithmetic"}


def run(name: str, day: int, **more) -> RunSummary:
    stated = {"grade": "consistent", "mode": "full", "settings": LIKE, "started_at": f"2026-11-{day:02}T10:00:00Z"}
    return RunSummary(path=Path(name), run_id=name, reasons=(), **(stated | more))


def found(one: RunSummary, *others: RunSummary) -> dict[str, str]:
    return {what: other.run_id for what, other in counterparts(one, [one, *others]).items()}


def test_the_previous_run_is_the_newest_before_it_of_its_model_and_data() -> None:
    one = run("c", 3)
    late, other_model = run("d", 4), run("x", 2, settings=LIKE | {"model.name": "gemma"})
    assert found(one, late, other_model, run("b", 2), run("a", 1)) == {"previous run": "b"}
    assert "previous run" not in found(one, run("s", 2, mode="smoke"))


def test_the_best_is_of_other_runs_on_the_same_items_whatever_their_model() -> None:
    one = run("c", 1, score=0.9)
    other_items = run("x", 2, score=1.0, settings=LIKE | {"evaluation.eval_set": "own.jsonl"})
    gemma = run("g", 2, score=0.8, settings=LIKE | {"model.name": "gemma"})
    assert found(one, other_items, gemma, run("b", 2, score=0.7)) == {"best on its items": "g"}


def test_a_run_that_contradicts_itself_is_nothing_to_compare_with() -> None:
    assert found(run("c", 3), run("b", 2, score=1.0, grade="contradictory")) == {}


def test_parent_and_rehearsal_are_found_by_id_and_by_settings() -> None:
    one = run("c", 3, parent="a", steps_planned=100)
    assert found(one, run("a", 1)) == {"parent": "a", "previous run": "a"}
    smoke = run("s", 2, mode="smoke", steps_planned=2)
    assert found(one, smoke) == {"smoke run": "s"}
    assert found(smoke, one) == {"full run": "c"}
