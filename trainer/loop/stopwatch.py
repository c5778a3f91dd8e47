"""How long a step takes, without what is done between steps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Mean time of a step since the last row."""

    def __init__(self, done: int) -> None:
        """Start at once, with `done` steps done."""
        self.step_seconds = 0.0
        self.done = done
        """The step of the last row."""
        self.computed = 0
        """Tokens of the steps since then, padding included."""
        self._since = time.perf_counter()

    def lap(self, done: int) -> float:
        """Return seconds per step since the last lap."""
        at = time.perf_counter()
        self.step_seconds = (at - self._since) / (done - self.done)
        self._since, self.done, self.computed = at, done, 0
        return self.step_seconds

    @contextmanager
    def left_out(self) -> Iterator[None]:
        """Leave out the time of what happens inside, which is not spent on steps."""
        began = time.perf_counter()
        yield
        self._since += time.perf_counter() - began
