"""Show progress: a bar on a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any, Self, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

PLAIN_SECONDS = 10.0
"""Seconds between plain lines."""


class SafeOutput:
    """Standard output that ignores a closed pipe or a lost terminal, so that work continues."""

    def write(self, text: str) -> int:
        """Write, or discard the text after the first failure."""
        self._try(lambda: sys.stdout.write(text))
        return len(text)

    def flush(self) -> None:
        """Flush, or do nothing after the first failure."""
        self._try(sys.stdout.flush)

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except OSError:
            # Python flushes once more at exit, so the file descriptor itself must accept it.
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stdout, name)


class Watch:
    """Shows messages and progress on standard output; a context manager."""

    def __init__(self, *, quiet: bool = False) -> None:
        """Draw bars only on a terminal; show nothing if `quiet`."""
        self._output = cast("IO[str]", SafeOutput())
        self._console = Console(file=self._output, highlight=False, soft_wrap=True, quiet=quiet)
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
        )
        self._task: tuple[str, TaskID] | None = None
        self._shown_at = time.monotonic()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._bars.stop()

    def say(self, message: str) -> None:
        """Print one line and flush it."""
        self._console.print(message, markup=False)
        self._output.flush()

    def done(self, what: str, count: int, total: int, note: str = "") -> None:
        """Show that `count` of `total` are done, with the name of the work and a note behind the count."""
        if self._console.is_terminal:
            if self._task is None or self._task[0] != what:
                self._task = (what, self._bars.add_task(what, total=total, note=note))
            self._bars.update(self._task[1], completed=count, note=note, visible=count < total)
        elif count == total or time.monotonic() - self._shown_at >= PLAIN_SECONDS:
            self.say(f"{what} {count}/{total}{'  ' if note else ''}{note}")
            self._shown_at = time.monotonic()
