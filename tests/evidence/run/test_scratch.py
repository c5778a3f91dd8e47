"""A temporary folder is gone afterwards: at its end, at an error, and where a signal ends the process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from evidence.writing import scratch_folder

HOLD = """
import sys, threading
from evidence.writing import scratch_folder
from trainer.loop.stop import ending_at_once
with ending_at_once("replay", how="and nothing was written"):
    with scratch_folder("outer-") as outer, scratch_folder("inner-") as inner:
        (outer / "weights").write_bytes(b"x")
        print(outer, inner, flush=True)
        threading.Event().wait()
"""


def test_it_is_removed_at_the_end_and_at_an_error():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyError), scratch_folder("a-") as folder:
        {}["absent"]
    assert not folder.exists()
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_it_is_removed_where_a_signal_ends_the_process(number: signal.Signals, tmp_path: Path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    folders = [Path(name) for name in process.stdout.readline().split()]
    assert [folder.is_dir() for folder in folders] == [True, True]
    process.send_signal(number)
    _, said = process.communicate()
    assert list(tmp_path.iterdir()) == []
    if number is signal.SIGINT:
        assert (process.returncode, said) == (130, "replay was stopped and nothing was written.\n")
    else:
        assert process.returncode == -number
