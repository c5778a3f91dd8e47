"""Passes standard input on to standard error, without XLA's alarms. Started as a process; imports nothing of ours.

An alarm of `slow_operation_alarm.cc` is its line, and those after it that are empty, a row of stars or its question.
What `cpu_aot_loader.cc` states of features that a processor only pretends to have is one line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

SLOW, FEATURES = b"slow_operation_alarm.cc", b"Loading XLA:CPU AOT result"
STARS, QUESTION = b"****************", b"low compile?"


def sift(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines that are not part of an alarm."""
    in_alarm = False
    for line in lines:
        if SLOW in line:
            in_alarm = True
        elif in_alarm and (not line.strip() or line.startswith(STARS) or QUESTION in line):
            continue
        elif FEATURES not in line:
            in_alarm = False
            yield line


def main() -> None:
    """Pass on line by line, at once."""
    for line in sift(sys.stdin.buffer):
        sys.stderr.buffer.write(line)
        sys.stderr.buffer.flush()


if __name__ == "__main__":
    main()
