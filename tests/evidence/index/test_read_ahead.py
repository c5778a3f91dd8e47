"""Files of runs are fetched from the disk before they are asked for; what stands in their place does no harm."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import time
from pathlib import Path

import pytest

from evidence.index.parallel import read_ahead
from evidence.layout import LOG, MANIFEST, METRICS, PLAN


def is_in_memory(path: Path) -> bool:
    """Return whether the system has the file's first page, without asking for it."""
    libc = ctypes.CDLL(None, use_errno=True)
    with path.open("rb+") as file, mmap.mmap(file.fileno(), mmap.PAGESIZE) as pages:
        first = (ctypes.c_char * mmap.PAGESIZE).from_buffer(pages)
        answer = (ctypes.c_ubyte * 1)()
        assert libc.mincore(ctypes.byref(first), ctypes.c_size_t(mmap.PAGESIZE), answer) == 0
        del first  # Or the map could not be closed.
    return bool(answer[0] & 1)


def forget(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux is asked whether a file is in memory")
def test_files_of_a_run_are_in_memory_soon_and_others_are_not(tmp_path: Path) -> None:
    ours, weights = tmp_path / METRICS, tmp_path / "model.safetensors"
    for path in (ours, weights):
        path.write_bytes(b"x" * 100_000)
        forget(path)
        if is_in_memory(path):
            pytest.skip("this file system keeps its files in memory")
    read_ahead([tmp_path])
    deadline = time.monotonic() + 20
    while not is_in_memory(ours):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert not is_in_memory(weights)


def test_what_stands_in_the_place_of_a_file_is_passed_over(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / METRICS)
    (tmp_path / LOG).mkdir()
    (tmp_path / PLAN).symlink_to("/dev/zero")
    (tmp_path / MANIFEST).symlink_to(MANIFEST)
    read_ahead([tmp_path, tmp_path / "missing", tmp_path / METRICS])


def test_a_system_without_such_a_word_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / METRICS).write_text("{}\n")
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    read_ahead([tmp_path])
