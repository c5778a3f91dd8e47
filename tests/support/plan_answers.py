"""Plans as `trainproof plan` prints them, made by hand for the tests of the pages, and put where a page finds them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launch import tasks

GIB = 2**30
PLANS = Path(__file__).parents[1] / "cases" / "plans"


def band(low: float, likely: float, high: float) -> dict[str, float]:
    return {"low": low, "likely": likely, "high": high}


def part(name: str, gib: float, because: str = "by hand") -> dict[str, Any]:
    return {"name": name, "bytes": int(gib * GIB), "because": because}


def program(name: str, verdict: str, parts: Sequence[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "on": "device",
        "verdict": verdict,
        "method": "compiler",
        "peak_bytes": sum(one["bytes"] for one in parts),
        "available_bytes": int(15.75 * GIB),
        "error_fraction": 0.03,
        "because": "compiled for a v5e chip",
        "seconds": 21.5,
        "parts": list(parts),
        "buffers": [],
    } | more


def plan_document(**changed: Any) -> dict[str, Any]:
    """Return a plan that fits: 8 chips of 15.75 GiB, a session of 9 hours of which it takes 5.2."""
    return _read("fits.json") | changed


def too_large(**changed: Any) -> dict[str, Any]:
    """Return a plan that does not fit on one chip: 28.12 GiB of 15.75, and what cures it."""
    return _read("too_large.json") | changed


def _read(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((PLANS / name).read_text("utf-8"))
    return document


def place(target: str, verdict: str, need: float | None, limit: float | None, hours: float | None) -> dict[str, Any]:
    return {
        "target": target,
        "title": f"the {target}",
        "devices": 1,
        "verdict": verdict,
        "need_bytes": None if need is None else int(need * GIB),
        "available_bytes": None if limit is None else int(limit * GIB),
        "error_fraction": 0.1,
        "method": "closed_form",
        "because": "no bfloat16 products" if verdict == "unsupported" else "the train step needs most",
        "program": "train",
        "hours": None if hours is None else band(hours / 2, hours, hours * 2),
        "session_fraction": band(0.1, 0.2, 0.4) if "kaggle" in target else None,
        "week_fraction": band(0.05, 0.1, 0.2) if "kaggle" in target else None,
        "sessions": [1, 1, 1] if "kaggle" in target else None,
    }


def where_document() -> dict[str, Any]:
    """Return a plan for every machine of the table; it fits on 9 of 18."""
    return _read("where.json")


def grid_document() -> dict[str, Any]:
    """Return a map in which what fits is decided by the tokens: 4 GiB and 0.7 MiB a token, of 15.75 GiB."""
    batches, lengths = [1, 2, 4, 8, 16, 32, 64, 128, 256], [128, 256, 512, 1024, 2048, 4096]
    cells = []
    for batch in batches:
        for length in lengths:
            need = 4 + batch * length * 0.7 / 1024
            verdict = "fits" if need * 1.1 <= 15.75 else "tight" if need * 0.9 <= 15.75 else "does_not_fit"
            cells.append(
                {
                    "microbatch_size": batch,
                    "max_length": length,
                    "verdict": verdict,
                    "method": "closed_form",
                    "need_bytes": int(need * GIB),
                    "error_fraction": 0.1,
                }
            )
    sizes = {"microbatch_sizes": batches, "max_lengths": lengths}
    return plan_document(grid=sizes | {"cells": cells, "available_bytes": int(15.75 * GIB)})


def put_answer(
    root: Path, config: Mapping[str, Any], options: Sequence[str], document: Any, *, code: int = 0, output: str = ""
) -> Path:
    """Put an answer where the pages look for it, with this user's seal, and return its folder."""
    folder = tasks.plan_task(root, config, options).folder
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("name: x\n")
    (folder / "answer.json").write_text(json.dumps(document) if document is not None else "")
    (folder / "output.log").write_text(output)
    tasks.finish(folder, code)
    return folder
