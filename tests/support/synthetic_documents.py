"""The documents of a synthetic run: what each states follows from the configuration and the rows."""

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from synthetic_rows import BATCH_SIZE, COMPILE_SECONDS, SEQUENCE_LENGTH, STEP_SECONDS, time_of

from evidence import layout
from evidence.hashes import sha256_file, sha256_json, sha256_lines
from evidence.scores.recompute import compute_result, compute_scores

PARAMETERS = 100_000
EXIT_CODES = {"succeeded": 0, "failed": 4, "cancelled": 5, "interrupted": 5}


def config_of(run_id: str, steps: int, mode: str, seed: int, items: int, *, baseline: bool) -> dict[str, Any]:
    """Return a resolved configuration, every key stated."""
    return {
        "schema_version": "1.0",
        "name": run_id[:64],
        "mode": mode,
        "seed": seed,
        "model": {"name": "own-model", "revision": None, "weights": "random"},
        "data": {"dataset": "own-rows", "generated_rows": 0, "max_length": SEQUENCE_LENGTH, "shuffle": True},
        "method": {"kind": "full"},
        "optimizer": {
            "name": "adamw",
            "learning_rate": 0.001,
            "schedule": "constant",
            "warmup_steps": 0,
            "final_learning_rate_fraction": 0,
            "weight_decay": 0.0,
            "beta1": 0.9,
            "beta2": 0.999,
            "epsilon": 1.0e-8,
            "max_grad_norm": 1.0,
        },
        "batch": {"microbatch_size": BATCH_SIZE, "accumulation_steps": 1},
        "precision": {"params": "float32", "compute": "float32"},
        "memory": {"remat": "layer", "loss_chunk_tokens": 1024, "donate": True},
        "mesh": {"device": "cpu", "devices": 1, "shard_params": True},
        "checkpoint": {"save_every_steps": 0, "keep": 2},
        "recording": {"log_every_steps": 1, "first_examples": 1},
        "evaluation": {
            "eval_set": "own-items" if items else None,
            "baseline": baseline,
            "max_new_tokens": 160,
            "batch_size": 32,
        },
        "limits": {"steps": steps, "max_minutes": None},
    }


def plan_of(config: dict[str, Any], started: datetime) -> dict[str, Any]:
    """Return a plan in closed form whose parts add up."""
    parts = {"opt_state": 8, "params": 4, "gradients": 4}
    return {
        "schema_version": "1.0",
        "made_at": time_of(started),
        "config_sha256": sha256_json(config),
        "target": {
            "name": "cpu",
            "platform": "cpu",
            "devices": 1,
            "memory_bytes": 8 * 2**30,
            "memory_source": "memory of this machine",
        },
        "method": "closed_form",
        "verdict": "fits",
        "need_bytes": sum(parts.values()) * PARAMETERS,
        "available_bytes": 8 * 2**30,
        "error_fraction": 0.2,
        "parts": [
            {"name": name, "bytes": size * PARAMETERS, "because": f"{PARAMETERS} parameters × {size} bytes"}
            for name, size in parts.items()
        ],
        "changes": [],
        "forced": False,
    }


def first_examples_of(run_id: str) -> dict[str, Any]:
    """Return one rendered example of four tokens, two of them supervised, the end token among these."""
    pieces = [("What is 1 + 1?", False), ("\n", False), ("<answer>2</answer>", True), ("<end>", True)]
    return {
        "schema_version": "1.0",
        "run_id": run_id,
        "examples": [
            {
                "row": 0,
                "text": "".join(text for text, _ in pieces),
                "tokens": [
                    {"id": 1 if text == "<end>" else number + 3, "text": text, "supervised": supervised}
                    for number, (text, supervised) in enumerate(pieces)
                ],
                "truncated": False,
            }
        ],
        "counts": {
            "rows": 550,
            "prompt_tokens": 1100,
            "supervised_tokens": 1100,
            "truncated_rows": 0,
            "rows_without_answer": 0,
            "end_token_supervised": True,
        },
    }


def manifest_of(
    run_id: str,
    config: dict[str, Any],
    rows: list[dict[str, Any]],
    status: str,
    started: datetime,
    end: datetime | None,
) -> dict[str, Any]:
    """Return a manifest that states what the configuration asked for and what the rows say; without artifacts."""
    ended = end is not None
    message = None if status == "succeeded" else f"The run was {status}."
    return {
        "schema_version": "1.0",
        "run_id": run_id,
        "mode": config["mode"],
        "status": status,
        "started_at": time_of(started),
        "finished_at": time_of(end) if end else None,
        "command": ["trainproof", "train", "--config", "demo.yaml"],
        "code": {
            "version": "0.1.0",
            "commit": "0123456789abcdef0123456789abcdef01234567",
            "branch": "main",
            "dirty": False,
            "diff_sha256": None,
        },
        "environment": {
            "os": "Linux 6.1",
            "python": "3.11.7",
            "cpu_count": 2,
            "memory_bytes": 8 * 2**30,
            "packages": {"jax": "0.10.2", "flax": "0.12.8"},
            "flags": {},
        },
        "devices": {
            "requested": "cpu",
            "platform": "cpu",
            "kind": "cpu",
            "count": 1,
            "memory_bytes": None,
            "chosen_because": "asked for",
            "list": [{"id": 0, "kind": "cpu"}],
        },
        "model": {
            "name": config["model"]["name"],
            "revision": config["model"]["revision"],
            "family": "gpt2",
            "parameters": PARAMETERS,
            "trainable_parameters": PARAMETERS,
            "weights": config["model"]["weights"],
            "weights_sha256": _untrained_sha256(config["seed"]),
            "dtypes": {"params": config["precision"]["params"], "compute": config["precision"]["compute"]},
        },
        "dataset": {
            "name": config["data"]["dataset"],
            "rows": 550,
            "sha256": sha256_lines(["the file of the dataset"]),
            "split": "train",
            "duplicates": 0,
            "overlap_with_eval": 0 if config["evaluation"]["eval_set"] else None,
            "generated_rows": 0,
            "generator_seed": None,
        },
        "training": _training_of(config, len(rows)),
        "result": compute_result(rows)
        | {
            "train_seconds": STEP_SECONDS * len(rows) if ended else None,
            "compile_seconds": COMPILE_SECONDS,
            "peak_memory_bytes": 2**29 if ended else None,
            "stopped_because": (message or "All steps were done.") if ended else None,
        },
        "exit": {"code": EXIT_CODES[status], "error": None if status == "succeeded" else status, "message": message}
        if ended
        else None,
        "parent": None,
        "artifacts": [],
    }


def _training_of(config: dict[str, Any], done: int) -> dict[str, Any]:
    rate = config["optimizer"]["learning_rate"]
    state_bytes = 12 * PARAMETERS
    return {
        "method": config["method"]["kind"],
        "optimizer": {
            "name": config["optimizer"]["name"],
            "state_bytes": 8 * PARAMETERS,
            "state_bytes_per_parameter": 8.0,
        },
        "schedule": {
            "name": config["optimizer"]["schedule"],
            "warmup_steps": config["optimizer"]["warmup_steps"],
            "peak_learning_rate": rate,
            "final_learning_rate": rate,
        },
        "steps_planned": config["limits"]["steps"],
        "steps_done": done,
        "batch_size": BATCH_SIZE,
        "microbatch_size": config["batch"]["microbatch_size"],
        "accumulation_steps": config["batch"]["accumulation_steps"],
        "tokens_per_step": BATCH_SIZE * SEQUENCE_LENGTH,
        "sequence_length": SEQUENCE_LENGTH,
        "remat": config["memory"]["remat"],
        "loss_chunk_tokens": config["memory"]["loss_chunk_tokens"],
        "donation": {"state_bytes": state_bytes, "aliased_bytes": state_bytes, "effective": True},
        "mesh": {"devices": 1, "shard_params": False},
        "seed": config["seed"],
        "forced": False,
    }


def eval_summary_of(folder: Path, run_id: str, done: int, seed: int, end: datetime) -> dict[str, Any]:
    """Return the summary that follows from the prediction files in the folder."""
    rows = _rows(folder / layout.PREDICTIONS)
    generation = {"method": "greedy", "max_new_tokens": 160, "stop_token_id": 1, "prompt_template": "{prompt}\n"}
    return {
        "schema_version": "1.0",
        "run_id": run_id,
        "status": "complete",
        "started_at": time_of(end - timedelta(seconds=15)),
        "finished_at": time_of(end - timedelta(seconds=5)),
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
        "baseline": {
            "checkpoint": {"step": 0, "params_sha256": _untrained_sha256(seed)},
            **_scored(folder / layout.BASELINE_PREDICTIONS),
        }
        if (folder / layout.BASELINE_PREDICTIONS).exists()
        else None,
    }


def _scored(path: Path) -> dict[str, Any]:
    rows = _rows(path)
    return {"predictions": {"path": path.name, "rows": len(rows), "sha256": sha256_file(path)}, **compute_scores(rows)}


def _untrained_sha256(seed: int) -> str:
    return sha256_lines(["random parameters", str(seed)])


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
