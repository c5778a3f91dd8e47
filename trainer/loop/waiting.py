"""A source of batches that counts how long the loop waits for them."""

from __future__ import annotations

import time

from trainer.data.source import BatchSource, HostBatch
from trainer.recorder.system import DataWait


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

    def tokens_before(self, step: int) -> int:
        """Return the tokens of all steps before this one, padding left out."""
        return self._source.tokens_before(step)
