"""XLA's alarms about its own speed and its own cache, kept off the terminal while it compiles; all else passes.

XLA writes them to the process's standard error without Python. A process of its own looks through the lines, because
the last words of one that dies must arrive, and nothing inside it could still pass them on.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

SIEVE = Path(__file__).with_name("sieve.py")

STANDARD_ERROR = 2

PROCESSES: list[subprocess.Popen[bytes]] = []
"""The sieve, once it is started."""


@contextmanager
def without_alarms() -> Iterator[None]:
    """While it is open, standard error goes through the sieve, which passes lines on a moment later."""
    sys.stderr.flush()
    try:
        kept = os.dup(STANDARD_ERROR)
    except OSError:  # a process without standard error has no terminal to keep clean
        yield
        return
    try:
        os.dup2(sieve(), STANDARD_ERROR)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, STANDARD_ERROR)
        os.close(kept)


@cache
def sieve() -> int:
    """Return where to write what the sieve passes on to standard error as it is now; it ends with this process."""
    reading, writing = os.pipe()
    # In a session of its own: Ctrl-C is for the run alone.
    PROCESSES.append(subprocess.Popen([sys.executable, "-IS", str(SIEVE)], stdin=reading, start_new_session=True))
    os.close(reading)
    return writing
