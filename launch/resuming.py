"""Whether a run can be continued, and what its continuation must state again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evidence.layout import CHECKPOINTS, CONFIG
from evidence.run import Run
from schemas.reading import get_bool

_PAST = frozenset({"running", "succeeded"})
"""Statuses of a run that has nothing left, or nothing yet, to be continued."""


def can_resume(run: Run) -> bool:
    """Return whether a run stopped before its end, with a configuration and a complete checkpoint to go on from."""
    return run.status not in _PAST and CONFIG in run.files and _has_checkpoint(run.path)


def is_forced(plan: Mapping[str, Any] | None, manifest: Mapping[str, Any] | None) -> bool:
    """Return whether a run was started although it was planned not to fit; without stating it again it is refused."""
    return get_bool(plan, "forced") is True or get_bool(manifest, "training", "forced") is True


def _has_checkpoint(folder: Path) -> bool:
    """Return whether there is a complete checkpoint; only a complete one is named by its number."""
    try:
        return any(path.name.isdecimal() for path in (folder / CHECKPOINTS).iterdir())
    except OSError:
        return False
