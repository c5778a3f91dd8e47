"""The manifest before the first step: everything that is known by then, and null for everything that is not."""

from __future__ import annotations

from typing import Any

from schemas.catalog import VERSION
from trainer.config.tree import Config
from trainer.recorder.code import code_identity
from trainer.recorder.environment import environment
from trainer.recorder.processor import level_of
from trainer.recorder.recorder import NO_RESULT, now


def first_manifest(
    *,
    run_id: str,
    command: list[str],
    config: Config,
    devices: dict[str, Any],
    dataset: dict[str, Any],
    parent: dict[str, Any] | None,
) -> dict[str, Any]:
    """Return the document `run_manifest.json` of a run that has just begun."""
    level = level_of(config.precision.cpu_isa).name if devices["platform"] == "cpu" else None
    return {
        "schema_version": VERSION,
        "run_id": run_id,
        "mode": config.mode,
        "status": "running",
        "started_at": now(),
        "finished_at": None,
        "command": command,
        "code": code_identity(),
        "environment": environment(level),
        "devices": devices,
        "model": None,
        "dataset": dataset,
        "training": None,
        "result": dict(NO_RESULT),
        "exit": None,
        "parent": parent,
        "artifacts": [],
    }
