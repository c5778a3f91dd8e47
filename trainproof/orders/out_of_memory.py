"""`trainproof plan --explain-oom`: from a pasted text, and a configuration if one is given, to the answer."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evidence.run import layout
from evidence.run.extras import need
from trainer.planning.out_of_memory.explain import explanation
from trainer.planning.out_of_memory.read import read_out_of_memory

STANDARD_INPUT = "-"


def explained(source: str, *, config: Path | None, settings: Sequence[str]) -> dict[str, Any]:
    """Return the answer to an out-of-memory text, as plain values.

    Args:
        source: the file that holds it, the folder of a run that failed, or `-` for the standard input.
        config: the configuration of the run that failed. None: that of the folder; without one the text alone is
            explained, which needs no extra.
        settings: `key=value` texts of `--set`.

    Raises:
        ProblemError: exit code 1 where the text tells of no missing memory, 2 where the configuration cannot be used.
    """
    failure = read_out_of_memory(_text(source), source=source)
    if config is None and (Path(source) / layout.CONFIG).is_file():
        config = Path(source) / layout.CONFIG
    if config is None:
        return explanation(failure)
    need("plan --config", "train")
    from trainer.config.load import load_config
    from trainer.planning.accounting import account_of

    return explanation(failure, account_of(load_config(config, settings=settings), failure))


def _text(source: str) -> str:
    """Return the pasted text; bytes that are not UTF-8 do not matter to what is looked for."""
    if Path(source).is_dir():
        return _said_in(Path(source) / layout.LOG)
    if source != STANDARD_INPUT:
        return Path(source).read_text(encoding="utf-8", errors="replace")
    if sys.stdin.isatty():
        sys.stderr.write("Paste the text, then press Ctrl-D.\n")
    return sys.stdin.buffer.read().decode("utf-8", errors="replace")


def _said_in(log: Path) -> str:
    """Return what the last failure in a run's log says in full; the whole log where no row holds it."""
    text = log.read_text(encoding="utf-8", errors="replace")
    for line in reversed(text.splitlines()):
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue  # a torn row: the run was killed while it wrote
        fields = row.get("fields") if isinstance(row, dict) else None
        if isinstance(fields, dict) and isinstance(fields.get("traceback"), str):
            return str(fields["traceback"])
    return text
