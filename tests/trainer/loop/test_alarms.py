"""XLA's alarms stay off the terminal; all else arrives, the last words of a process that dies too."""

import subprocess
import sys
from pathlib import Path

from trainer.loop.sieve import sift

STARS = "*" * 32
ALARM = f"""\
2025-03-19 07:30:02.045318: E external/xla/xla/service/slow_operation_alarm.cc:73] 
{STARS}
[Compiling module jit_step] Very slow compile? If you want to file a bug, run with envvar XLA_FLAGS=--xla_dump_to=/tmp/a
{STARS}
2025-03-19 07:30:14.895694: E external/xla/xla/service/slow_operation_alarm.cc:140] The operation took 2m12.850942799s

{STARS}
[Compiling module jit_step] Very slow compile? If you want to file a bug, run with envvar XLA_FLAGS=--xla_dump_to=/tmp/a
{STARS}
"""  # noqa: W291 - as XLA writes it
FEATURES = (
    "E0000 00:00:17 cpu_aot_loader.cc:229] Loading XLA:CPU AOT result. Target machine feature +prefer-no-gather\n"
)


def test_alarms_are_left_out_and_nothing_else():
    others = ["E0000 real error: out of memory\n", f"{STARS}\n", "\n", "Very slow compile? my own words\n"]
    given = [others[0], *ALARM.splitlines(keepends=True), *others[:1], FEATURES, *others[1:]]
    found = [line.decode() for line in sift(line.encode() for line in given)]
    assert found == [others[0], *others[:1], *others[1:]]


DYING = """
import os, sys
from trainer.loop.alarms import without_alarms
sys.stderr.write("before\\n")
with without_alarms():
    os.write(2, sys.argv[1].encode())
    os.write(2, b"F0000 check failed\\n")
    os.abort()
"""


def test_the_last_words_of_a_process_that_dies_arrive():
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", DYING, ALARM], cwd=root, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode < 0
    assert done.stderr == "before\nF0000 check failed\n"
