"""The last lines that a job printed, ready for a page, and in words what killed it, if something did."""

from __future__ import annotations

import json
import re
import shlex
import signal
from contextlib import suppress
from pathlib import Path

from evidence.bundle.secrets import hide_secrets, strip_invisible
from evidence.layout import CONFIG, SYSTEM
from launch.jobs.files import no_link
from launch.jobs.folder import Job, is_cancelled
from schemas.formats import size
from schemas.reading import get_path, read_yaml

_TAIL_BYTES = 16_384
_CONTROL = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)")


def what_killed(job: Job) -> str | None:
    """Return in words what killed a job, the memory that was taken last and how to go on; None if nothing did."""
    number = -(job.exit_code or 0)
    if number <= 0:
        return None
    known = f" ({signal.Signals(number).name})" if number in list(signal.Signals) else ""
    what = f"{job.run} was killed by signal {number}{known}"
    if is_cancelled(job):
        return f"{what}, as the queue was told to."
    if number != signal.SIGKILL:
        return f"{what}."
    run = job.root / job.run
    return f"{what}, usually by the kernel for want of memory: see `dmesg`.{_last_memory(run)} Next: {_go_on(run)}"


def _last_memory(run: Path) -> str:
    """Return the last memory in system.jsonl as a sentence, or nothing."""
    for line in reversed(tail(run / SYSTEM).splitlines()):
        with suppress(ValueError, RecursionError):  # the last line may be cut off by the kill
            row = json.loads(line)
            own, used, whole = (
                get_path(row, f"{name}_bytes") for name in ("process_memory", "host_memory_used", "host_memory")
            )
            if all(isinstance(each, int) for each in (own, used, whole)):
                return f" {SYSTEM} said last: {size(own)} of the run, {size(used)} of {size(whole)} on the machine."
    return ""


def _go_on(run: Path) -> str:
    """Return the command that goes on with less memory and as many rows in a step."""
    less, config = "--set memory.remat=layer", None
    with suppress(OSError):
        config = read_yaml(no_link(run / CONFIG).read_text("utf-8", "replace"), file=CONFIG).value
    rows, times = get_path(config, "batch", "microbatch_size"), get_path(config, "batch", "accumulation_steps")
    if type(rows) is int and type(times) is int and rows > 0 and rows % 2 == 0:
        less = f"--set batch.microbatch_size={rows // 2} --set batch.accumulation_steps={times * 2}"
    return f"trainproof train --resume {shlex.quote(str(run))} --output NEW_FOLDER {less}"


def tail(path: Path, lines: int = 40) -> str:
    """Return the last lines of a file, a redrawn line in its last state; empty if the file is missing or a link."""
    try:
        with no_link(path).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    whole = _CONTROL.sub("", text).split("\n")
    if size > _TAIL_BYTES:
        whole = whole[1:]  # The first line is likely cut.
    shown = [line.rstrip("\r").rpartition("\r")[2] for line in whole]
    while shown and not shown[-1].strip():
        shown.pop()
    return hide_secrets(strip_invisible("\n".join(shown[-lines:])))
