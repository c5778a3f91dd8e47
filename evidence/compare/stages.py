"""How far a run came through the eight stages of every run, and how long each took, from its rows and its log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from evidence.records.facts import Facts
from schemas.reading import column, get_number, get_str, seconds_between

State = Literal["passed", "not exercised", "failed"]

STAGES = ("load", "compile", "first step", "steps", "save", "resume", "evaluate", "seal")
"""In the order in which they happen."""


@dataclass(frozen=True, kw_only=True)
class RunStage:
    """One stage of one run.

    Attributes:
        name: One of `STAGES`; `steps` with their number, `2 steps`.
        state: Not exercised: it was not requested, or the run ended before it.
        seconds: How long it took. None: the run does not state it.
    """

    name: str
    state: State
    seconds: float | None = None


def stages_of(facts: Facts) -> tuple[RunStage, ...]:
    """Return the stages of a run; where it failed or broke off, the first that it did not pass is the failed one.

    Args:
        facts: What may be shown of the run (`evidence.judge.record`).
    """
    manifest, events = facts.manifest or {}, {record["event"]: record for record in facts.log or []}
    steps, losses = (column(facts.metrics or [], name) for name in ("step", "loss"))
    done, planned = get_number(manifest, "training", "steps_done"), get_number(manifest, "training", "steps_planned")
    has_rows, is_finite = bool(len(steps)), bool(np.isfinite(losses).all())
    has_run = has_rows or "compiled" in events
    first = column(facts.metrics or [], "step_seconds")[:1]
    passed = {
        "load": (has_run or "planned" in events, _between(events, "run_started", "planned")),
        "compile": (has_run, get_number(manifest, "result", "compile_seconds")),
        "first step": (has_rows, float(first[0]) if has_rows and steps[0] == 1 else None),
        "steps": (bool(done) and done == planned and is_finite, get_number(manifest, "result", "train_seconds")),
        "save": ("checkpoint_saved" in events, get_number(events.get("checkpoint_saved"), "fields", "seconds")),
        "resume": (manifest.get("parent") is not None, None),
        "evaluate": (facts.eval_summary is not None, _between(events, "trained", "evaluated")),
        "seal": (facts.is_sealed and bool(facts.succeeded), _between(events, "evaluated", "run_sealed")),
    }
    broke = get_str(manifest, "status") == "failed" or facts.status in {"failed", "interrupted"}
    optional = {"resume", *(["evaluate"] if not _is_asked(facts) else []), *(["save"] if passed["evaluate"][0] else [])}
    failed = next((name for name in STAGES if not passed[name][0] and name not in optional), None) if broke else None
    return tuple(
        RunStage(
            name=f"{int(done or 0):,} steps" if name == "steps" else name,
            state="passed" if passed[name][0] else "failed" if name == failed else "not exercised",
            seconds=passed[name][1] if passed[name][0] else None,
        )
        for name in STAGES
    )


def _is_asked(facts: Facts) -> bool:
    return get_str(facts.config, "evaluation", "eval_set") is not None


def _between(events: Mapping[str, Mapping[str, Any]], first: str, last: str) -> float | None:
    """Return the seconds between two events of a log; None if one of them is missing."""
    if first not in events or last not in events:
        return None
    return seconds_between(events[first]["time"], events[last]["time"])
