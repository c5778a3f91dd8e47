"""Compiler answers on disk, keyed by the lowered program, the device, and the versions that compile it."""

from __future__ import annotations

import hashlib
import json
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainer.recorder.environment import cache_folder
from trainer.runtime import versions


def cache_key(stablehlo: str, **device: Any) -> str:
    """Return the key of a lowered program for a device and compiler options."""
    program = hashlib.sha256(stablehlo.encode()).hexdigest()
    return hashlib.sha256(json.dumps([program, device, versions()], sort_keys=True).encode()).hexdigest()


def load(key: str) -> dict[str, Any] | None:
    """Return a stored answer, or None if there is none or it cannot be read."""
    with suppress(OSError, ValueError):
        found = json.loads((cache_folder() / "plans" / f"{key}.json").read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else None
    return None


def save(key: str, answer: dict[str, Any]) -> None:
    """Store an answer; a read-only cache folder stores nothing."""
    plans = cache_folder() / "plans"
    with suppress(OSError):
        plans.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=plans, suffix=".new", delete=False, encoding="utf-8") as file:
            json.dump(answer, file)
        Path(file.name).replace(plans / f"{key}.json")
