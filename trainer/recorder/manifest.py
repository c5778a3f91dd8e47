"""Build the first manifest of a run, and the receipts of replays and challenges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evidence.proof.receipts import load_extent, measure_coverage, run_sha256
from schemas.catalog import VERSION
from trainer.config.tree import Config
from trainer.recorder.code import code_identity
from trainer.recorder.environment import environment, level_of
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
    """Return the document `run_manifest.json` before the first step, with null for what is not known yet."""
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


def build_receipt(folder: Path, kind: str, *, device: dict[str, Any], **groups: Any) -> dict[str, Any]:
    """Return the document `receipt`, not sealed yet.

    Args:
        folder: Run folder.
        kind: `replay` or `challenge`.
        device: Group `devices` of a manifest, of this machine.
        groups: Groups of this kind of receipt: `covered`, `result`, `said` and more.
    """
    code = code_identity()
    receipt = {
        "schema_version": VERSION,
        "kind": kind,
        "run_id": folder.resolve().name,
        "run_sha256": run_sha256(folder),
        "made_at": now(),
        "made_by": {"version": code["version"], "commit": code["commit"]},
        "environment": environment(),
        "device": {key: device[key] for key in ("platform", "kind", "count")},
        **groups,
    }
    return receipt | {"marks": measure_coverage(receipt, load_extent(folder)).to_document()}
