"""An invented, self-consistent run (Gemma 2B on a TPU chip), and implausible variants of it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from synthetic import write_run
from synthetic_rows import STARTED

PARAMETERS, KIND, CHIP_BYTES = 2_506_172_416, "TPU v5 lite", 16_911_433_728
FORGERY: dict[str, Any] = {
    "config": {"mesh": {"device": "tpu"}, "model": {"name": "google/gemma-2b", "weights": "pretrained"}},
    "manifest": {
        "devices": {
            "requested": "tpu",
            "platform": "tpu",
            "kind": KIND,
            "memory_bytes": CHIP_BYTES,
            "list": [{"id": 0, "kind": KIND}],
        },
        "model": {"family": "gemma", "parameters": PARAMETERS, "trainable_parameters": PARAMETERS},
        "training": {
            "optimizer": {"state_bytes": 8 * PARAMETERS},
            "donation": {"state_bytes": 12 * PARAMETERS, "aliased_bytes": 12 * PARAMETERS},
        },
        "result": {"peak_memory_bytes": 15_000_000_000},
    },
    "plan": {
        "target": {
            "name": KIND,
            "platform": "tpu",
            "memory_bytes": CHIP_BYTES,
            "memory_source": "limit reported by the device",
        },
        "available_bytes": CHIP_BYTES,
    },
}


def forge_run(root: Path, name: str, changes: dict[str, Any]) -> Path:
    """Write the forged run with changes, nested as in `write_run`."""
    return write_run(root, name.replace(" ", "-"), **_merge(FORGERY, changes))


def _merge(value: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = dict(value)
    for key, change in changes.items():
        is_nested = isinstance(change, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], change) if is_nested else change
    return merged


def _manifest(group: str, **values: Any) -> dict[str, Any]:
    return {"manifest": {group: values}}


EVAL_V2 = {"config": {"evaluation": {"eval_set": "eval_v2"}}, "eval_summary": {"eval_set": {"name": "eval_v2"}}}
UNKNOWN_CHIP = _manifest("devices", kind="Quantum v9", list=[{"id": 0, "kind": "Quantum v9"}])
VARIANTS: dict[str, dict[str, Any]] = {
    "unchanged": {},
    "7,000 parameters": _manifest("model", parameters=7000, trainable_parameters=7000),
    "a trillion parameters": _manifest("model", parameters=10**12, trainable_parameters=10**12),
    "one byte of memory": _manifest("result", peak_memory_bytes=1),
    "99 GB of a 16 GB chip": _manifest("result", peak_memory_bytes=99 * 10**9),
    "the year 1999": {"started": datetime(1999, 1, 1, tzinfo=UTC)},
    "the year 2199": {"started": datetime(2199, 1, 1, tzinfo=UTC)},
    "items called eval_v2": EVAL_V2,
    "one item called eval_v2": {"items": 1, **EVAL_V2},
    "rows called dev-reasoning-v2": {"config": {"data": {"dataset": "dev-reasoning-v2"}}},
    "a built-in model": {"config": {"model": {"name": "demo"}}},
    "random weights": {"config": {"model": {"weights": "random"}}},
    "400 answers in no time": {"items": 400, "eval_summary": {"finished_at": STARTED.isoformat()}},
    "a day after its last event": {"manifest": {"finished_at": "2026-11-21T12:00:34+00:00"}},
    "trained in a millisecond": _manifest("result", train_seconds=0.001),
    "an unknown commit": _manifest("code", commit="f" * 40),
    "version 99": _manifest("code", version="99.0"),
    "jax 0.0.1 on Python 2.7": _manifest("environment", python="2.7", packages={"jax": "0.0.1"}),
    "an unknown chip": {**UNKNOWN_CHIP, "plan": {"target": {"name": "Quantum v9"}}},
    "generated rows of another seed": _manifest("dataset", generated_rows=100, generator_seed=1),
    "evaluation items in the training data": _manifest("dataset", overlap_with_eval=12),
}
"""Changes of the forged run; the first is the forgery itself."""
