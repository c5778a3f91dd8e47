"""A receipt: which run it is about, what made it and where, what was found, and how much of the run that covers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evidence.proof.receipts import load_extent, measure_coverage, run_sha256
from schemas.catalog import VERSION
from trainer.recorder.code import code_identity
from trainer.recorder.environment import environment
from trainer.recorder.recorder import now


def receipt_of(folder: Path, kind: str, *, device: dict[str, Any], **found: Any) -> dict[str, Any]:
    """Return the document `receipt`, not sealed yet.

    Args:
        folder: of the run.
        kind: `replay` or `challenge`.
        device: the manifest's group `devices`, of this machine.
        found: the groups that state what was found: `covered`, `result`, `said` and those of the kind.
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
        **found,
    }
    return receipt | {"marks": measure_coverage(receipt, load_extent(folder)).to_document()}
