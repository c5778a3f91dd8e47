"""Private temporary folders that are gone afterwards, also where a signal ends the process.

A signal without a handler ends a process without a word to Python, and a stranger's bundle would stay unpacked in
the temporary folder of the system. Only SIGKILL leaves something, since no process hears it.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""They end a process unless it listens; Python makes an exception of SIGINT by itself."""

_folders: list[Path] = []
"""Those of this process."""


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """Give a new folder that only this user can read, and remove it afterwards.

    Args:
        prefix: With which its name begins.

    Raises:
        OSError: It cannot be made.
    """
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name, _listening():
        folder = Path(name)
        _folders.append(folder)
        try:
            yield folder
        finally:
            _folders.remove(folder)


def remove_scratch() -> None:
    """Remove the folders of this process: for anyone who ends it without letting Python unwind."""
    for folder in _folders:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _listening() -> Iterator[None]:
    """Remove the folders before a signal without another handler ends this process, as it would have ended it."""
    if threading.current_thread() is not threading.main_thread():
        yield  # a page's: Python lets only the main thread listen
        return
    taken = [number for number in SIGNALS if signal.getsignal(number) == signal.SIG_DFL]
    for number in taken:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, frame: FrameType | None) -> None:
    remove_scratch()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
