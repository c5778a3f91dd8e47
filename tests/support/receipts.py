"""Receipts for tests: of a synthetic run whose folder they are for."""

import json
from pathlib import Path
from typing import Any

from evidence.layout import MANIFEST
from evidence.proof.receipts import run_sha256

Segments = tuple[tuple[int, int], ...]


def receipt(
    run: Path, *, result: str = "identical", segments: Segments = ((0, 10), (10, 20)), trained: int = 12, **more: Any
) -> dict[str, Any]:
    """Return the receipt of a replay that gave `trained` answers of the trained model again."""
    manifest = json.loads((run / MANIFEST).read_text())
    items = {"drawn": trained, "identical": trained, "within_tolerance": 0, "different": 0, "trained": trained}
    repeated = [{"first_step": first, "last_step": last, "verdict": result} for first, last in segments]
    return {
        "schema_version": "1.1",
        "kind": "replay",
        "run_id": manifest["run_id"],
        "run_sha256": run_sha256(run),
        "made_at": "2026-11-23T20:15:00.000+00:00",
        "made_by": {"version": "1", "commit": None},
        "environment": manifest["environment"],
        "device": {"platform": "cpu", "kind": "cpu", "count": 1},
        "covered": {"segments": repeated, "items": items},
        "result": result,
        "said": "5 of 5 segments are identical.",
        **more,
    }


def drawn_receipt(run: Path, detection_probability: float, segments: Segments, **more: Any) -> dict[str, Any]:
    """Return a receipt whose segments were drawn by a judge's random number, with all answers."""
    document = receipt(run, segments=segments, schema_version="1.2", **more)
    document["covered"]["items"]["given_again"] = {"trained": 12, "untrained": 12}
    draw = {"number": 4711, "parts": 20, "could_be_drawn": 18, "named": [first for first, _ in segments[1:-1]]}
    document["covered"]["draw"] = {**draw, "repeated": len(segments) - 2, "caught_half": detection_probability}
    return document
