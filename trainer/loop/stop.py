"""When to stop early: a signal, or the time limit coming near.

The first signal lets the step finish, so that a checkpoint can be saved; a second one stops at once. Before there is a
run, a signal ends the command at once, with a word.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self

from evidence.writing import remove_scratch
from trainer.loop.session_limit import SessionLimit

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""SIGHUP is what a lost connection sends; Windows does not have it."""


class StopRequest:
    """Whether and why this run should stop, as a context manager that listens to signals while it is open."""

    def __init__(self, *, max_minutes: float | None, session: SessionLimit | None = None) -> None:
        """Start the clock; no limit if `max_minutes` is None, and the end of a session besides where there is one."""
        self.session = session
        self.closing_seconds = 0.0
        """What the session must still have when the work at hand is done."""
        self._deadline = None if max_minutes is None else time.monotonic() + 60 * max_minutes
        self._max_minutes = max_minutes
        self._signal: str | None = None
        self._before: dict[signal.Signals, signal._HANDLER] = {}

    def __enter__(self) -> Self:
        for number in SIGNALS:
            # One that is ignored stays so: `nohup` means a run that outlives its terminal.
            if signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._received)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _received(self, number: int, frame: FrameType | None) -> None:
        if self._signal is not None:
            raise KeyboardInterrupt
        self._signal = signal.Signals(number).name

    @property
    def is_signalled(self) -> bool:
        """Whether a signal requested it."""
        return self._signal is not None

    def reason(self, *, reserve_seconds: float = 0.0) -> str | None:
        """Return why to stop now, None to go on.

        Args:
            reserve_seconds: how long the next piece of work and the closing after it will take.
        """
        if self._signal is not None:
            return f"signal {self._signal}"
        if self._deadline is not None and time.monotonic() + reserve_seconds > self._deadline:
            return f"limits.max_minutes={self._max_minutes:g} reached"
        if self.session is not None and self.session.left_seconds < reserve_seconds + self.closing_seconds:
            return f"--session {self.session.name} ends"
        return None


@contextmanager
def ending_at_once(verb: str, *, how: str = "before it began; nothing was written") -> Iterator[None]:
    """End this process at Ctrl-C with exit code 130 and a sentence, as long as nothing has been written.

    Libraries that are being imported, or compile, do not survive an exception at any place, so none is raised.

    Args:
        verb: what is stopped.
        how: the end of the sentence.
    """

    def end(number: int, frame: FrameType | None) -> None:
        os.write(sys.stderr.fileno(), f"{verb} was stopped {how}.\n".encode())
        remove_scratch()
        os._exit(128 + number)

    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
