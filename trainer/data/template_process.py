"""Chat templates at work, in a process of their own: one for all rows, started at the first conversation."""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("template_child.py")
DEADLINE_SECONDS = 60.0
"""For one conversation, where the system cannot limit the time of the processor."""
REMEMBERED = 64
"""Conversations whose text is kept: what is asked about the template itself is asked again for every row."""


class TemplateProcess:
    """Runs chat templates within the limits that `template_child.py` sets itself.

    Args:
        most_seconds: of the processor, for one conversation. A template of a real model takes a thousandth.
    """

    def __init__(self, *, most_seconds: float = 10.0) -> None:
        self._most_seconds = most_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._alone = threading.Lock()
        self._remembered: dict[bytes, dict[str, str]] = {}

    def written(
        self,
        messages: Sequence[Mapping[str, Any]],
        template: str,
        variables: Mapping[str, Any],
        *,
        opened: bool,
        now: str | None = None,
    ) -> dict[str, str]:
        """Return a conversation as a template writes it, under `text`; otherwise the reason.

        The key of a reason states what it is of: `refused` of these turns, `broken` of the template, `beyond` of what
        it took beyond its limits.

        Args:
            messages: the turns.
            template: the program, in jinja2.
            variables: special tokens by their names, and what else the template is given, such as tools.
            opened: begin the assistant's next turn after them.
            now: the time that `strftime_now` writes, as ISO 8601. None: the present.
        """
        asked = {"messages": messages, "template": template, "variables": variables, "opened": opened, "now": now}
        question = json.dumps(asked).encode() + b"\n"
        with self._alone:
            if question in self._remembered and (now or "strftime_now" not in template):
                return self._remembered[question]
            line = self._answered(question)
            if not line.endswith(b"\n"):
                return {"beyond": f"more than {self._most_seconds:g} seconds of the processor"}
            answer: dict[str, str] = json.loads(line)
            self._remembered[question] = answer
            if len(self._remembered) > REMEMBERED:
                del self._remembered[next(iter(self._remembered))]
        return answer

    def close(self) -> None:
        """End the process; the next conversation starts another."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _answered(self, question: bytes) -> bytes:
        """Return the line that answers a question, without its end where the process ended before it."""
        process = self._started()
        assert process.stdin is not None, "it was asked for"
        assert process.stdout is not None, "it was asked for"
        watchdog = threading.Timer(DEADLINE_SECONDS, process.kill) if sys.platform == "win32" else None
        try:
            if watchdog is not None:
                watchdog.start()
            process.stdin.write(question)
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = b""
        finally:
            if watchdog is not None:
                watchdog.cancel()
        if not line.endswith(b"\n"):
            self.close()
        return line

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(PROGRAM), str(self._most_seconds)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            atexit.register(self.close)
        return self._process


TEMPLATES = TemplateProcess()
"""The one process of this program."""
