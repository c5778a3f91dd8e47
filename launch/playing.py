"""Playing beside a page: one `trainproof play` that stays loaded while questions come, and ends when no one looks.

It is asked through its standard input, which closes when the dashboard ends, however that happens; then it ends too.
Nothing of it is kept on disk.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from launch.jobs.process import kill_all, start, started_now
from launch.jobs.program import PROGRAM

WATCHED_SECONDS = 150.0
"""What no page has looked at for so long is ended; a page in the background looks once a minute."""

IDLE_SECONDS = 300.0
"""After so long without a question the models are given back their memory."""

_LOOK_EVERY_SECONDS = 0.5
_ERROR_LINES = 40


@dataclass
class PlayScreen:
    """What a page shows of the newest question."""

    asked: str = ""
    """The prompt, or the id of the item."""
    models: list[str] = field(default_factory=list)
    """Names, once they are loaded."""
    texts: dict[int, str] = field(default_factory=dict)
    """What each has written so far, by its number."""
    answers: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    """Whole answers."""
    refused: list[str] = field(default_factory=list)
    """Why the question was not asked."""
    is_done: bool = True
    """Whether the question is answered, or none was asked."""


class PlaySession:
    """One process that plays."""

    def __init__(
        self,
        run: Path,
        *,
        beside: Path | None,
        untrained: bool,
        watched_seconds: float = WATCHED_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        """Start it.

        Args:
            run: Folder of the run.
            beside: Folder of another run whose model answers too. None: none does.
            untrained: Whether the untrained model answers too.
            watched_seconds: It ends after so long without `look`.
            idle_seconds: It ends so long after its last answer.

        Raises:
            OSError: It could not be started.
        """
        self.chosen = (run, beside, untrained)
        others = [*(["--beside", str(beside.resolve())] if beside else []), *(["--untrained"] if untrained else [])]
        self._process = start(
            [*PROGRAM, "play", str(run.resolve()), "--json-lines", *others],
            folder=Path.cwd(),
            output=subprocess.PIPE,
            errors=subprocess.PIPE,
            input=subprocess.PIPE,
        )
        self._started = started_now(self._process.pid)
        self._shown = PlayScreen()
        self._errors: deque[str] = deque(maxlen=_ERROR_LINES)
        self._looked = self._asked = time.monotonic()
        self._ended_why = ""
        for work in (self._read, self._read_errors):
            threading.Thread(target=work, name="read play", daemon=True).start()
        limits = (watched_seconds, idle_seconds)
        threading.Thread(target=self._watch, args=limits, name="watch play", daemon=True).start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    @property
    def why_ended(self) -> str:
        """Why it ended: what it printed, or a sentence. Empty while it runs, and after `stop`."""
        return "" if self.is_alive else self._ended_why or "\n".join(self._errors)

    def ask(self, **question: str) -> None:
        """Put a question: `prompt=` or `item=`.

        Raises:
            OSError: It has ended.
        """
        asked = " ".join(question.values())
        self._shown = PlayScreen(asked=asked, models=self._shown.models, is_done=False)
        self._looked = self._asked = time.monotonic()
        if not self.is_alive:
            message = "the process that plays has ended"
            raise OSError(message)
        pipe = _open(self._process.stdin)
        pipe.write(json.dumps(question).encode() + b"\n")
        pipe.flush()

    def look(self) -> PlayScreen:
        """Return what there is to show, and note that a user looks."""
        self._looked = time.monotonic()
        return self._shown

    def stop(self) -> None:
        """End it at once."""
        kill_all(self._started)

    def _read(self) -> None:
        with _open(self._process.stdout) as pipe:
            for line in pipe:
                with suppress(ValueError, KeyError, TypeError):
                    self._happened(json.loads(line))

    def _happened(self, event: Mapping[str, Any]) -> None:
        shown, kind = self._shown, event["event"]
        if kind == "ready":
            shown.models = [model["name"] for model in event["models"]]
        elif kind in ("text", "answer"):
            shown.texts[event["model"]] = event["text"]
            if kind == "answer":
                shown.answers[event["model"]] = event
        elif kind == "refused":
            shown.refused = [f"{each['what']} {each['next']}" for each in event["problems"]]
        if kind in ("done", "refused"):
            self._asked = time.monotonic()
            shown.is_done = True

    def _read_errors(self) -> None:
        with _open(self._process.stderr) as pipe:
            for line in pipe:
                self._errors.append(line.decode("utf-8", "replace").rstrip())

    def _watch(self, watched_seconds: float, idle_seconds: float) -> None:
        while self.is_alive:
            now = time.monotonic()
            if self._shown.is_done and now - self._asked > idle_seconds:
                self._ended_why = f"The models were put away after {idle_seconds / 60:.0f} minutes without a question."
                self.stop()
            elif now - self._looked > watched_seconds:
                self._ended_why = "The models were put away, since nobody looked any more."
                self.stop()
            time.sleep(_LOOK_EVERY_SECONDS)
        with suppress(OSError):  # A question that no one has read is still in it.
            _open(self._process.stdin).close()
        self._shown.is_done = True


def _open(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None, "it was started with pipes"
    return pipe
