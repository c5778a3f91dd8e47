"""A whole run in this process, and what its folder holds."""

import hashlib
import json
from pathlib import Path

import pytest

from evidence import layout
from evidence.grade import check_run
from evidence.run import read_run
from schemas.problems import ProblemError
from schemas.render import render_text
from trainer.recorder.progress import Watch
from trainer.run import RunRequest, run

QUIET = Watch(quiet=True)


def carried_out(order: RunRequest) -> int:
    with Watch(quiet=True) as watch:
        return run(order, watch)


def manifest_of(folder: Path) -> dict:
    return json.loads((folder / layout.MANIFEST).read_text())


def rows(folder: Path, name: str = layout.METRICS) -> list[dict]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def errors_of(folder: Path) -> list[str]:
    return [problem.what for problem in check_run(read_run(folder)).findings if problem.severity == "error"]


def error_codes(folder: Path) -> set[str]:
    return {problem.code for problem in check_run(read_run(folder)).findings if problem.severity == "error"}


def saved_steps(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / layout.CHECKPOINTS).iterdir())


def logged(folder: Path, event: str) -> list[dict]:
    log = folder / layout.LOG
    return [row for row in rows(folder, layout.LOG) if row["event"] == event] if log.is_file() else []


def refusal(order: RunRequest) -> tuple[int, str]:
    with pytest.raises(ProblemError) as caught:
        carried_out(order)
    return caught.value.exit_code, render_text(caught.value.problems)


def entry_hash(entry: dict) -> str:
    """Return the hash of an entry of the chain as sha256sum gives it, without the product's own function."""
    return hashlib.sha256(json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def link_at(folder: Path, step: int) -> str:
    """Return the link of the last entry of a run's chain at a step."""
    return entry_hash([entry for entry in rows(folder, layout.CHAIN) if entry["step"] == step][-1])
