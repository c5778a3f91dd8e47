"""How long a session of a free platform lasts, and what of it is kept for what follows the last step."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import psutil

from evidence.targets import targets

SESSIONS = MappingProxyType({"kaggle-tpu": "kaggle-tpu-v5e-8", "kaggle-gpu": "kaggle-t4x2"})
"""What `--session` takes, and the target whose table has its hours."""

STARTED = "TRAINPROOF_SESSION_STARTED"
"""Environment variable with the time when the session began, in seconds since 1970; else this process began it."""

BUNDLE_SECONDS = 600.0
"""Kept for what follows the run: packing and verifying its bundle, and what the platform itself takes to store it."""


@dataclass(frozen=True, kw_only=True)
class SessionLimit:
    """The end of a session."""

    name: str
    """A key of `SESSIONS`."""
    seconds: float
    """How long it lasts."""
    ends: float
    """By when a run must be done, by `time.monotonic`: `BUNDLE_SECONDS` before the session ends."""

    @property
    def left_seconds(self) -> float:
        """How long a run may still take; below 0 where the session is over."""
        return self.ends - time.monotonic()

    def in_words(self, plan: Mapping[str, Any], *, steps: int) -> str:
        """Return what is left, what of it is kept, and whether so many steps of a plan fit into the rest."""
        left, kept = self.left_seconds, closing_seconds(plan, evaluation_seconds=None)
        said = (
            f"--session {self.name}: {in_hours(left + BUNDLE_SECONDS)} of {self.seconds / 3600:g} h are left, "
            f"{in_hours(kept + BUNDLE_SECONDS)} of it for the last save, the evaluation and the bundle"
        )
        if plan.get("time") is None:
            return said
        low, high = (plan["time"]["step_seconds"][end] * steps for end in ("low", "high"))
        fits = "fits" if high <= left - kept else "may fit" if low <= left - kept else "does not fit"
        again = "" if fits == "fits" else "; the next session goes on with --resume auto"
        return f"{said}; training takes {in_hours(low)} to {in_hours(high)}, which {fits}{again}"


def session_limit(name: str) -> SessionLimit:
    """Return the end of a session, counted from its start where it is known, else from the start of this process."""
    seconds = targets()[SESSIONS[name]].session_seconds
    assert seconds is not None, "the table has the hours of both"
    stated = os.environ.get(STARTED, "")
    began = float(stated) if stated.replace(".", "", 1).isdecimal() else psutil.Process().create_time()
    left = began + seconds - time.time()
    return SessionLimit(name=name, seconds=seconds, ends=time.monotonic() + left - BUNDLE_SECONDS)


def parts_of(plan: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return `low`, `likely` and `high` seconds of each part of a plan's time; empty where none is known."""
    return {part["name"]: part["seconds"] for part in (plan.get("time") or {}).get("session", ())}


def closing_seconds(plan: Mapping[str, Any], *, evaluation_seconds: float | None) -> float:
    """Return what is kept for the last save and the evaluation after the last step.

    Args:
        plan: of the run; the slowest of its figures count.
        evaluation_seconds: that the untrained model's answers took in this run. None: they were not asked for.
    """
    parts = parts_of(plan)
    planned = parts.get("evaluate", {}).get("high", 0.0)
    saving = parts.get("save", {}).get("high", 0.0)
    return saving + (planned if evaluation_seconds is None else evaluation_seconds)


def in_hours(seconds: float) -> str:
    """Return a time in words: `8.7 h`, `14 min`."""
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{max(seconds, 0) / 60:.0f} min"
