"""Plans as `trainproof plan` prints them, made by hand for the tests of the pages, and put where a page finds them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launch import tasks

GIB = 2**30


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
    train = [part("params", 4.67), part("activations", 3.5), part("opt_state", 0.6), part("logits", 1.0)]
    hour = 3600.0
    return {
        "schema_version": "1.1",
        "made_at": "2026-11-23T12:00:00.000000+00:00",
        "config_sha256": "0" * 64,
        "target": {
            "name": "TPU v5 lite",
            "platform": "tpu",
            "devices": 8,
            "memory_bytes": int(15.75 * GIB),
            "memory_source": "table of targets",
            "title": "Kaggle, TPU v5e-8",
            "table_name": "kaggle-tpu-v5e-8",
        },
        "method": "compiler",
        "verdict": "fits",
        "need_bytes": sum(one["bytes"] for one in train),
        "available_bytes": int(15.75 * GIB),
        "error_fraction": 0.03,
        "parts": train,
        "changes": [],
        "forced": False,
        "programs": [
            program("start", "fits", [part("params", 4.67), part("opt_state", 0.6)]),
            program("train", "fits", train),
            program("decode", "fits", [part("params", 4.67), part("key_value_cache", 2.2), part("activations", 0.4)]),
            program(
                "export", "fits", [part("params", 5.1)], on="host", available_bytes=300 * GIB, method="closed_form"
            ),
        ],
        "time": {
            "step_seconds": band(20.0, 40.0, 80.0),
            "hours": band(2.6, 5.2, 10.4),
            "because": "arithmetic decides",
            "tokens": 262_144,
            "real_tokens": 244_000.0,
            "tokens_source": "counted in the rows",
            "flops": 6.6e14,
            "moved_bytes": 2.0e11,
            "session": [
                {"name": "install", "seconds": band(120, 180, 300), "because": "wheels"},
                {"name": "compile", "seconds": band(100, 300, 600), "because": "3 programs"},
                {"name": "load", "seconds": band(50, 120, 250), "because": "5 GB at 50 MB/s"},
                {"name": "train", "seconds": band(2.0 * hour, 4.5 * hour, 9.0 * hour), "because": "200 steps × 40 s"},
                {"name": "save", "seconds": band(200, 600, 900), "because": "4 × 5 GB"},
                {"name": "evaluate", "seconds": band(300, 900, 1800), "because": "2 × 1 batch"},
                {"name": "export", "seconds": band(60, 120, 240), "because": "5 GB"},
            ],
            "session_seconds": 9 * hour,
            "session_fraction": band(0.29, 0.58, 1.16),
            "week_seconds": 20 * hour,
            "week_fraction": band(0.13, 0.26, 0.52),
            "sessions": [1, 1, 2],
            "weeks": 1,
        },
        "disk": {"need_bytes": 15_000_000_000, "available_bytes": 20_900_000_000, "because": "3 × 5.0 GB"},
        "advice": [],
        "max_batch": None,
        "grid": None,
        "findings": [],
    } | changed


def too_large(**changed: Any) -> dict[str, Any]:
    """Return a plan that does not fit on one chip: 28.12 GiB of 15.75, and what cures it."""
    train = [part("opt_state", 9.34), part("params", 9.34), part("gradients", 4.67), part("logits", 4.77)]
    fitting = {"set": ["optimizer.name=adafactor", "memory.donate=true"], "verdict": "fits", "method": "compiler"}
    alone = {"set": ["memory.donate=true"], "verdict": "tight", "method": "compiler"}
    return (
        plan_document(
            verdict="does_not_fit",
            need_bytes=sum(one["bytes"] for one in train),
            parts=train,
            programs=[program("train", "does_not_fit", train)],
            advice=[
                fitting | {"need_bytes": int(5.7 * GIB), "frees_bytes": int(22.42 * GIB), "costs": "no momentum"},
                alone | {"need_bytes": int(15.5 * GIB), "frees_bytes": int(12.62 * GIB), "costs": "nothing"},
            ],
            findings=[
                {
                    "code": "TP731",
                    "severity": "warning",
                    "what": "A checkpoint is saved every 17 h; a session is 9 h.",
                    "why": "A session that is taken away loses all of it.",
                    "next": "Save every 100 steps.",
                }
            ],
        )
        | changed
    )


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
    return {
        "schema_version": "1.1",
        "config_sha256": "0" * 64,
        "where": [
            place("kaggle-tpu-v5e-8", "fits", 9.77, 15.75, 5.2),
            place("tpu-v5e-1", "does_not_fit", 28.12, 15.75, 40.0),
            place("tpu-v3-8", "fits", 10.1, 15.48, 9.0),
            place("tpu-v4-8", "fits", 9.9, 30.75, 4.0),
            place("tpu-v5p-8", "fits", 9.8, 95.73, 2.0),
            place("tpu-v6e-8", "fits", 9.8, 31.24, 1.5),
            place("kaggle-t4x2", "unsupported", 14.9, 14.56, None),
            place("t4", "unsupported", 29.0, 14.56, None),
            place("p100", "unsupported", 29.0, 15.89, None),
            place("l4", "does_not_fit", 28.0, 22.0, 60.0),
            place("a100-40", "fits", 28.0, 39.39, 20.0),
            place("a100-80", "fits", 28.0, 79.25, 20.0),
            place("h100", "fits", 28.0, 79.18, 9.0),
            place("h200", "fits", 28.0, 139.0, 8.0),
            place("rtx-3090", "does_not_fit", 28.0, 23.5, 70.0),
            place("rtx-4090", "does_not_fit", 28.0, 23.52, 50.0),
            place("rtx-5090", "tight", 28.0, 31.36, 40.0),
            place("this-machine", "unknown", 28.0, None, None),
        ],
    }


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
