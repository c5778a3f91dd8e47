"""How far a run is on the way from its start to its seal, from its job, the lines that it printed, its log and rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from schemas.formats import count, duration

STAGES = ("waiting", "loading", "compiling", "training", "evaluating", "sealed")
"""In the order in which they happen. A run compiles before it has a folder; only a job records the first two."""
State = Literal["done", "now", "ahead", "failed", "left out"]


@dataclass(frozen=True, kw_only=True)
class RunProgress:
    """What is known of a run; all moments are in seconds since 1970.

    Attributes:
        queued: When it was put into the queue. None: no job did it.
        started: When its process started. None: not yet, or no job did it.
        compiling: When it printed that it compiles. None: not yet, or not observed.
        events: When each event of its log happened, by name.
        compile_seconds: How long it compiled. None: it does not state it yet.
        steps: Steps done and planned. None: it does not state it yet.
        status: Status of its run; state of its job as long as there is no run.
    """

    queued: float | None = None
    started: float | None = None
    compiling: float | None = None
    events: Mapping[str, float]
    compile_seconds: float | None = None
    steps: tuple[float, float] | None = None
    status: str | None = None


@dataclass(frozen=True, kw_only=True)
class CourseStage:
    """One stage: its name, or `step 1 of 2` for training; and in words how it stands: `now, 3 s`."""

    name: str
    state: State
    said: str


def course(told: RunProgress, now: float) -> tuple[CourseStage, ...]:
    """Return the stages of a run.

    Worked example: queued at 100, started at 101, printed that it compiles at 105, and it is 117 now: waiting took 1 s,
    loading 4 s, compiling takes 12 s so far, and the others are ahead.
    """
    names = STAGES if told.queued is not None else STAGES[2:]
    began = {name: moment for name, moment in _began(told, now).items() if name in names and moment is not None}
    last = max(began, key=names.index, default=names[0])
    ended = dict(zip(began, [*list(began.values())[1:], now], strict=True))
    is_over = told.status not in {None, "running", "stopping", "waiting"}
    found = []
    for name in names:
        state: State = "left out" if is_over or names.index(name) < names.index(last) else "ahead"
        if name in began:
            state = "done" if name in {"sealed", *names[: names.index(last)]} else "failed" if is_over else "now"
        took = "" if name in {"sealed", *(set(names) - began.keys())} else _took(ended[name] - began[name])
        said = {"now": f"now, {took}", "done": took or "done", "failed": told.status or ""}.get(state, state)
        is_counted = name == "training" and told.steps is not None and state in {"now", "done"}
        found.append(CourseStage(name=_steps(told) if is_counted else name, state=state, said=said))
    return tuple(found)


def _began(told: RunProgress, now: float) -> Mapping[str, float | None]:
    """Return when each stage began, in their order; None: it has not, or the run does not state it."""
    events, first = told.events, told.events.get("run_started")
    compiling = None if first is None else first - (told.compile_seconds or 0.0)
    is_evaluated = "evaluated" in events or told.status == "running"
    return {
        "waiting": told.queued,
        "loading": told.started,
        "compiling": told.compiling or compiling,
        "training": events.get("compiled", first if told.steps else None),
        "evaluating": events.get("trained") if is_evaluated else None,
        "sealed": events.get("run_sealed", now if told.status == "succeeded" else None),
    }


def _steps(told: RunProgress) -> str:
    done, planned = told.steps or (0, 0)
    return f"step {count(done)} of {count(planned)}"


def _took(seconds: float) -> str:
    """Return a duration that moves each second: `0 s`, `0.4 s`, `12 s`, `1 min 05 s`."""
    return duration(seconds) if seconds >= 59.5 else f"{max(0.0, seconds):.{int(0.05 <= seconds < 1)}f} s"
