"""How long a step takes, without what is done between steps, and how long the loop waits for batches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from trainer.data.order import BatchSource, HostBatch
from trainer.recorder.sensors import DataWait


class Stopwatch:
    """Mean time of a step since the last row."""

    def __init__(self, done: int) -> None:
        """Start at once, with `done` steps done."""
        self.step_seconds = 0.0
        self.done = done
        """The step of the last row."""
        self.computed = 0
        """Tokens of the steps since then, padding included."""
        self._since = self._update_since = time.perf_counter()

    def begins_update(self, tokens: int) -> None:
        """Count the tokens of the step that begins now, padding included."""
        self.computed += tokens
        self._update_since = time.perf_counter()

    @property
    def update_seconds(self) -> float:
        """How long ago the last step began, its batch made."""
        return time.perf_counter() - self._update_since

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
        spent = time.perf_counter() - began
        self._since, self._update_since = self._since + spent, self._update_since + spent


class TimedSource:
    """The same batches as those of another source, and the time until each was there."""

    def __init__(self, source: BatchSource, wait: DataWait) -> None:
        self._source = source
        self._wait = wait

    def batch(self, step: int) -> HostBatch:
        """Return the batch of a step."""
        began = time.perf_counter()
        batch = self._source.batch(step)
        self._wait.add(time.perf_counter() - began)
        return batch

    def rows(self, step: int) -> list[int]:
        """Return the rows of a step, by their number."""
        return self._source.rows(step)

    def tokens_before(self, step: int) -> int:
        """Return the tokens of all steps before this one, padding left out."""
        return self._source.tokens_before(step)
