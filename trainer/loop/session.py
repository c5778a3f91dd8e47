"""Decide when to stop early: signals, `limits.max_minutes`, and the end of a platform's session."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any, Self

import psutil

from evidence.targets import targets
from evidence.writing import remove_scratch

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""Signals that stop a run; SIGHUP means that the connection was lost, and does not exist on Windows."""

SESSIONS = MappingProxyType({"kaggle-tpu": "kaggle-tpu-v5e-8", "kaggle-gpu": "kaggle-t4x2"})
"""Values of `--session`, and the target that has the length of the session."""

SESSION_STARTED = "TRAINPROOF_SESSION_STARTED"
"""Environment variable with the start of the session in seconds since 1970; by default, the start of this process."""

PLACE = "TRAINPROOF_PLACE"
"""Environment variable with the manifest's group `place` as JSON, set by the script of a session."""
STOP_FILE = "TRAINPROOF_STOP_FILE"
"""Environment variable with a file that stops the run like a signal as soon as it exists; for processes in threads."""

BUNDLE_SECONDS = 600.0
"""Time reserved after the run to pack and verify its bundle, and for the platform to store it."""


@dataclass(frozen=True, kw_only=True)
class SessionLimit:
    """The end of a session on a platform."""

    name: str
    """A key of `SESSIONS`."""
    seconds: float
    """Length of the session."""
    ends: float
    """When a run must be done by `time.monotonic`: `BUNDLE_SECONDS` before the session ends."""

    @property
    def left_seconds(self) -> float:
        """Time that a run may still take; negative after the end."""
        return self.ends - time.monotonic()

    def describe(self, plan: Mapping[str, Any], *, steps: int) -> str:
        """Describe the time left, the time reserved, and whether so many steps of a plan fit."""
        left, reserved = self.left_seconds, closing_seconds(plan, evaluation_seconds=None)
        session, closing = (format_hours(each + BUNDLE_SECONDS) for each in (left, reserved))
        text = f"--session {self.name}: {session} of {self.seconds / 3600:g} h left, {closing} reserved"
        text += " for the last save, the evaluation and the bundle"
        if plan.get("time") is None:
            return text
        low, high = (plan["time"]["step_seconds"][end] * steps for end in ("low", "high"))
        fits = "fits" if high <= left - reserved else "may fit" if low <= left - reserved else "does not fit"
        again = "" if fits == "fits" else "; the next session continues with --resume auto"
        return f"{text}; training takes {format_hours(low)} to {format_hours(high)}, which {fits}{again}"


def session_limit(name: str) -> SessionLimit:
    """Return the end of a session, counted from `TRAINPROOF_SESSION_STARTED` or the start of this process."""
    seconds = targets()[SESSIONS[name]].session_seconds
    assert seconds is not None, "both targets have a session length"
    stated = os.environ.get(SESSION_STARTED, "")
    began = float(stated) if stated.replace(".", "", 1).isdecimal() else psutil.Process().create_time()
    left = began + seconds - time.time()
    return SessionLimit(name=name, seconds=seconds, ends=time.monotonic() + left - BUNDLE_SECONDS)


def read_place() -> dict[str, Any]:
    """Return the manifest's group `place`, or nothing if no session set `TRAINPROOF_PLACE`."""
    with suppress(KeyError, ValueError):
        return {"place": json.loads(os.environ[PLACE])}
    return {}


def closing_seconds(plan: Mapping[str, Any], *, evaluation_seconds: float | None) -> float:
    """Return the time to reserve for the last save and the evaluation, by the slowest estimates of a plan.

    `evaluation_seconds` is the time of the baseline evaluation in this run, or None to use the plan.
    """
    phases = {phase["name"]: phase["seconds"] for phase in (plan.get("time") or {}).get("session", ())}
    planned, saving = (phases.get(name, {}).get("high", 0.0) for name in ("evaluate", "save"))
    return float(saving + (planned if evaluation_seconds is None else evaluation_seconds))


def format_hours(seconds: float) -> str:
    """Format a duration: `8.7 h`, `14 min`."""
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{max(seconds, 0) / 60:.0f} min"


class StopRequest:
    """Whether and why a run should stop; a context manager that handles signals while it is open.

    The first signal lets the step finish, so that a checkpoint can be saved; a second one raises KeyboardInterrupt.
    """

    def __init__(self, *, max_minutes: float | None, session: SessionLimit | None = None) -> None:
        self.session = session
        self.closing_seconds = 0.0
        """Time that the session must still have after the current work."""
        self._deadline = None if max_minutes is None else time.monotonic() + 60 * max_minutes
        self._max_minutes = max_minutes
        self.signal: str | None = None
        """Name of the signal that was received, or None."""
        self._handlers: dict[signal.Signals, signal._HANDLER] = {}
        self.exchange: Callable[[str | None], list[str | None]] = lambda reason: [reason]
        """Exchanges reasons with the other processes of a run."""

    def __enter__(self) -> Self:
        for number in SIGNALS:
            # An ignored signal stays ignored: `nohup` means a run that outlives its terminal. Threads receive none.
            if signal.getsignal(number) != signal.SIG_IGN and _is_main_thread():
                self._handlers[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number).name

    def reason(self, *, reserve_seconds: float = 0.0) -> str | None:
        """Return why to stop now, or None; the next work and closing after it take `reserve_seconds`.

        All processes of a run stop if one of them has a reason.
        """
        return next(filter(None, self.exchange(self._own_reason(reserve_seconds))), None)

    def _own_reason(self, reserve_seconds: float) -> str | None:
        if self.signal is not None:
            return f"signal {self.signal}"
        if (file := os.environ.get(STOP_FILE)) and Path(file).exists():
            return "it was cancelled"
        if self._deadline is not None and time.monotonic() + reserve_seconds > self._deadline:
            return f"limits.max_minutes={self._max_minutes:g} reached"
        if self.session is not None and self.session.left_seconds < reserve_seconds + self.closing_seconds:
            return f"--session {self.session.name} ends"
        return None


@contextmanager
def exit_on_interrupt(verb: str, *, how: str = "before it began; nothing was written") -> Iterator[None]:
    """Exit with code 130 on Ctrl-C, with a message about the command `verb`, while nothing has been written yet.

    No exception is raised, because libraries do not survive one while they are imported or compile.
    """

    def exit_now(number: int, frame: FrameType | None) -> None:
        os.write(sys.stderr.fileno(), f"{verb} was stopped {how}.\n".encode())
        remove_scratch()
        os._exit(128 + number)

    if not _is_main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, exit_now)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
