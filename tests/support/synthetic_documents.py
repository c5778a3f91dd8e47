"""The documents of a synthetic run: those in synthetic_run/, with what follows from configuration and rows."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from synthetic_rows import COMPILE_SECONDS, STEP_SECONDS, format_time, read_rows

from evidence import layout
from evidence.hashes import sha256_file, sha256_json, sha256_lines
from evidence.scores.recompute import compute_result, compute_scores

EXIT_CODES = {"succeeded": 0, "failed": 4, "cancelled": 5, "interrupted": 5}


def merged(value: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a nested document with changes."""
    result = dict(value)
    for key, change in changes.items():
        nested = isinstance(change, Mapping) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], change) if nested else change
    return result


@cache
def _text(file: str) -> str:
    return (Path(__file__).with_name("synthetic_run") / file).read_text("utf-8")


def stored(file: str, /, **changes: Any) -> dict[str, Any]:
    return merged(json.loads(_text(file)), changes)


def build_config(run_id: str, steps: int, mode: str, seed: int, items: int, *, baseline: bool) -> dict[str, Any]:
    """Return a resolved configuration, every key stated."""
    evaluation = {"eval_set": "own-items" if items else None, "baseline": baseline}
    limits = {"steps": steps}
    return stored("config.json", name=run_id[:64], mode=mode, seed=seed, evaluation=evaluation, limits=limits)


def build_plan(config: dict[str, Any], started: datetime) -> dict[str, Any]:
    """Return a plan in closed form whose parts add up."""
    return stored("plan.json", made_at=format_time(started), config_sha256=sha256_json(config))


def build_first_examples(run_id: str) -> dict[str, Any]:
    """Return one rendered example of four tokens; the answer and the end token are supervised."""
    return stored("first_examples.json", run_id=run_id)


def build_manifest(
    run_id: str,
    config: dict[str, Any],
    rows: list[dict[str, Any]],
    status: str,
    started: datetime,
    end: datetime | None,
) -> dict[str, Any]:
    """Return a manifest that agrees with the configuration and the rows, without artifacts."""
    message = None if status == "succeeded" else f"The run was {status}."
    asked, rate = config["optimizer"], config["optimizer"]["learning_rate"]
    result = compute_result(rows) | {"compile_seconds": COMPILE_SECONDS}
    unended = dict.fromkeys(("train_seconds", "peak_memory_bytes", "stopped_because"))
    ended = {"train_seconds": STEP_SECONDS * len(rows), "stopped_because": message or "All steps were done."}
    exited = {"code": EXIT_CODES[status], "error": message and status, "message": message} if end else None
    return stored(
        "manifest.json",
        run_id=run_id,
        mode=config["mode"],
        status=status,
        started_at=format_time(started),
        finished_at=format_time(end) if end else None,
        model={key: config["model"][key] for key in ("name", "revision", "weights")}
        | {"weights_sha256": _untrained_sha256(config["seed"]), "dtypes": config["precision"]},
        dataset={
            "name": config["data"]["dataset"],
            "overlap_with_eval": 0 if config["evaluation"]["eval_set"] else None,
        },
        training={
            "method": config["method"]["kind"],
            "optimizer": {"name": asked["name"]},
            "schedule": {
                "name": asked["schedule"],
                "warmup_steps": asked["warmup_steps"],
                "peak_learning_rate": rate,
                "final_learning_rate": rate,
            },
            "steps_planned": config["limits"]["steps"],
            "steps_done": len(rows),
            "microbatch_size": config["batch"]["microbatch_size"],
            "accumulation_steps": config["batch"]["accumulation_steps"],
            "remat": config["memory"]["remat"],
            "loss_chunk_tokens": config["memory"]["loss_chunk_tokens"],
            "seed": config["seed"],
        },
        result=result | (ended if end else unended),
        exit=exited,
    )


def build_eval_summary(folder: Path, run_id: str, done: int, seed: int, end: datetime) -> dict[str, Any]:
    """Return the summary that follows from the prediction files in the folder."""
    rows = read_rows(folder / layout.PREDICTIONS)
    generation = {"method": "greedy", "max_new_tokens": 160, "stop_token_id": 1, "prompt_template": "{prompt}\n"}
    baseline = folder / layout.BASELINE_PREDICTIONS
    untrained = {"checkpoint": {"step": 0, "params_sha256": _untrained_sha256(seed)}}
    return {
        "schema_version": "1.0",
        "run_id": run_id,
        "status": "complete",
        "started_at": format_time(end - timedelta(seconds=15)),
        "finished_at": format_time(end - timedelta(seconds=5)),
        "eval_set": {
            "name": "own-items",
            "items": len(rows),
            "sha256": sha256_lines(["the file of the set", str(len(rows))]),
            "ids_sha256": sha256_lines(row["id"] for row in rows),
            "prompts_sha256": sha256_lines(row["prompt"] for row in rows),
            "expected_sha256": sha256_lines(row["expected"] for row in rows),
        },
        "generation": generation | {"sha256": sha256_json(generation)},
        "checkpoint": {"step": done, "params_sha256": sha256_lines(["trained parameters", str(seed)])},
        **_scored(folder / layout.PREDICTIONS),
        "baseline": untrained | _scored(baseline) if baseline.exists() else None,
    }


def _scored(path: Path) -> dict[str, Any]:
    rows = read_rows(path)
    return {"predictions": {"path": path.name, "rows": len(rows), "sha256": sha256_file(path)}, **compute_scores(rows)}


def _untrained_sha256(seed: int) -> str:
    return sha256_lines(["random parameters", str(seed)])


def stored_sweep(**changes: Any) -> dict[str, Any]:
    """Return the sweep.json of a finished sweep with changes."""
    path = Path(__file__).parents[1] / "cases" / "documents" / "valid" / "sweep.finished.json"
    return {**json.loads(path.read_text("utf-8")), **changes}


def write_sweep(root: Path, document: Mapping[str, Any]) -> Path:
    """Write a sweep.json and return its folder."""
    folder = root / layout.SWEEPS / document["name"]
    folder.mkdir(parents=True)
    (folder / layout.SWEEP).write_text(json.dumps(document), "utf-8")
    return folder
