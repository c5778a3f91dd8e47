"""A pasted text, read as an out-of-memory failure; one that is none is said to be none."""

from __future__ import annotations

import re

from schemas.problems.problem import Problem, ProblemError
from schemas.problems.rule import Rule, problem_of
from trainer.planning.out_of_memory.gpu import read_gpu, read_tensorflow
from trainer.planning.out_of_memory.host import read_host
from trainer.planning.out_of_memory.others import read_on_a_cpu, read_other
from trainer.planning.out_of_memory.pytorch import read_pytorch
from trainer.planning.out_of_memory.report import OutOfMemory
from trainer.planning.out_of_memory.tpu import read_tpu

NOT_OUT_OF_MEMORY = Rule(
    "TP745",
    "Not an out-of-memory text",
    "Only texts that tell of missing memory can be explained here.",
    "Paste the whole error, from its first line on.",
)

READERS = (read_tpu, read_pytorch, read_on_a_cpu, read_tensorflow, read_gpu, read_other, read_host)
"""The first that finds something speaks: a program that is refused on a device is often killed on the host too."""

OTHER_REASONS = (
    (re.compile(r"No space left on device|Disk quota exceeded", re.IGNORECASE), "the disk is full, not the memory"),
    (re.compile(r"The TPU is already in use|libtpu_lockfile", re.IGNORECASE), "another process holds the TPU"),
    (re.compile(r"this is not a failure"), "the allocator warns that it had to do without, and the program went on"),
    (re.compile(r"out of resource: shared memory"), "a kernel's block is too large for the small memory inside a GPU"),
    (re.compile(r"device-side assert"), "an index on the GPU is out of range"),
    (re.compile(r"no kernel image is available"), "the installed CUDA code has no version for this GPU"),
    (re.compile(r"RESOURCE_EXHAUSTED|Resource exhausted"), "a resource is exhausted, but the text does not say which"),
)
"""What is often pasted instead, and what it is."""

_PREFIX = re.compile(
    r"^(?:>\s?|\x1b\[[\d;]*m|(?:\(\w+ pid=\d+\) )|[EWIF]\d{4} [\d:.]+\s+\d+ \S+\] ?|"
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d+: [EWIF]\s+(?:\d+ )?\S+\] ?)+",
    re.MULTILINE,
)
"""What loggers, quotes and terminals put before each line."""

_COLOUR = re.compile(r"\x1b\[[\d;]*m")

MOST_CHARACTERS = 4_000_000
"""Of a longer text the end is read: that is where the failure stands."""


def read_out_of_memory(text: str, *, source: str) -> OutOfMemory:
    """Return what a pasted text says.

    Args:
        text: the whole error, a log, or the one sentence that matters.
        source: what it came from, as the user named it.

    Raises:
        ProblemError: exit code 1; it tells of no missing memory.
    """
    plain = without_prefixes(text[-MOST_CHARACTERS:])
    for reader in READERS:
        if (found := reader(plain)) is not None:
            return found
    raise ProblemError([_none(plain, source)], exit_code=1)


def without_prefixes(text: str) -> str:
    """Return the text without what loggers, quotes and terminals put before each line."""
    return _PREFIX.sub("", _COLOUR.sub("", text.replace("\r\n", "\n")))


def _none(text: str, source: str) -> Problem:
    """Return the problem of a text that tells of no missing memory, with what it does tell where that is known."""
    if not text.strip():
        return problem_of(NOT_OUT_OF_MEMORY, file=source, what="The text is empty.")
    reason = next((each for pattern, each in OTHER_REASONS if pattern.search(text)), None)
    last = text.strip().splitlines()[-1].strip()[:200]
    return problem_of(
        NOT_OUT_OF_MEMORY,
        file=source,
        what=f"The text tells of no missing memory: {reason}." if reason else "The text tells of no missing memory.",
        expected="an error of a TPU, a GPU, PyTorch, or of a machine whose main memory was full",
        why=f"Its last line is: {last}",
    )
