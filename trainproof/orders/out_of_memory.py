"""`trainproof plan --explain-oom`: from a pasted text, and a configuration if one is given, to the answer."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from evidence import layout
from evidence.extras import need
from schemas.problems import ProblemError, problem_of
from trainer.planning.out_of_memory import MAX_CHARACTERS, explanation, read_out_of_memory

STANDARD_INPUT = "-"


def explain(source: str, *, config: Path | None, settings: Sequence[str]) -> dict[str, Any]:
    """Return the answer to an out-of-memory text, as plain values.

    Args:
        source: the file that holds it, the folder of a run that failed, or `-` for the standard input.
        config: the configuration of the run that failed. None: that of the folder; without one the text alone is
            explained, which needs no extra.
        settings: `key=value` texts of `--set`.

    Raises:
        ProblemError: exit code 1 where the text is not an out-of-memory error, 2 where the configuration cannot be
            used.
    """
    failure = read_out_of_memory(_text(source), source=source)
    if config is None and (Path(source) / layout.CONFIG).is_file():
        config = Path(source) / layout.CONFIG
    if config is None:
        return explanation(failure)
    need("plan --config", "train")
    from trainer.config.load import load_config

    return explanation(failure, load_config(config, settings=settings))


def _text(source: str) -> str:
    """Return the pasted text, of a long one its end; bytes that are not UTF-8 do not matter to what is looked for.

    Raises:
        ProblemError: exit code 2; a folder that is not a run's.
    """
    if source == STANDARD_INPUT:
        if sys.stdin.isatty():
            sys.stderr.write("Paste the text, then press Ctrl-D.\n")
        return _end_of(sys.stdin.buffer)
    if not Path(source).is_dir():
        with Path(source).open("rb") as file:
            return _end_of(file)
    log = Path(source) / layout.LOG
    if not source or not log.is_file():
        what = f"{source} is a folder without a {layout.LOG}." if source else "No file is named."
        problem = problem_of(
            "TP745",
            file=source or "--explain-oom",
            what=what,
            why=None,
            next=f"Name the file with the text, the folder of a run, or {STANDARD_INPUT} for the standard input.",
        )
        raise ProblemError([problem], exit_code=2)
    return _said_in(log)


def _end_of(file: BinaryIO) -> str:
    """Return the last `MAX_CHARACTERS` bytes of a file or a pipe, which may be longer than memory is."""
    end, seen = b"", 0
    while piece := file.read(MAX_CHARACTERS):
        end, seen = (end + piece)[-MAX_CHARACTERS:], seen + len(piece)
    if seen > MAX_CHARACTERS:
        sys.stderr.write(f"Of {seen:,} bytes the last {MAX_CHARACTERS:,} are read.\n")
    return end.decode("utf-8", errors="replace")


def _said_in(log: Path) -> str:
    """Return what the last failure in a run's log states in full; the whole log where no row holds it."""
    with log.open("rb") as file:
        text = _end_of(file)
    for line in reversed(text.splitlines()):
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue  # a torn row: the run was killed while it wrote
        fields = row.get("fields") if isinstance(row, dict) else None
        if isinstance(fields, dict) and isinstance(fields.get("traceback"), str):
            return str(fields["traceback"])
    return text
