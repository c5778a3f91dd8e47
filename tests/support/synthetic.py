"""Synthetic run folders: valid, complete, small and fast, for the tests and benchmarks of every part.

`write_run` writes what a real run writes, from a model that only exists on paper. What the documents say of each other
is true: the result follows from the rows, the scores from the predictions, the hashes from the files.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from evidence import layout
from evidence.hashes import sha256_file, sha256_json, sha256_lines
from evidence.recompute import result_of, scores_of
from evidence.scoring import extract_answer, format_ok, is_correct

STARTED = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)
COMPILE_SECONDS = 4.0
STEP_SECONDS = 0.5
BATCH_SIZE = 8
SEQUENCE_LENGTH = 256
PARAMETERS = 100_000
EXIT_CODES = {"succeeded": 0, "failed": 4, "cancelled": 5, "interrupted": 5}


def write_run(
    root: Path,
    run_id: str,
    *,
    steps: int = 20,
    mode: str = "full",
    status: str = "succeeded",
    items: int = 12,
    correct: float = 0.6,
    baseline: bool = True,
    seed: int = 0,
    started: datetime = STARTED,
    **changes: Mapping[str, Any],
) -> Path:
    """Write `root/run_id`, a run folder that is graded `verified` unless the arguments say otherwise.

    Args:
        root: Folder of runs; made if it is missing.
        run_id: Name of the run and of its folder.
        steps: Steps planned. A run that did not succeed has done the first half of them.
        mode: `smoke` or `full`.
        status: As in the manifest; only a succeeded run is evaluated.
        items: Evaluation items; the same questions for every run with the same number. 0: no evaluation.
        correct: Probability that an item is answered rightly; `seed` decides which ones are.
        baseline: Whether the untrained model was evaluated too; it gets every item wrong.
        seed: Decides losses and answers.
        started: When the run started.
        changes: Values to change in a document before hashes are taken, nested as in it:
            `manifest={"code": {"dirty": True}}`, `config={...}`, `plan={...}`, `first_examples={...}`,
            `eval_summary={...}`.

    Returns:
        The folder.
    """
    folder = Path(root) / run_id
    folder.mkdir(parents=True)
    done = steps if status == "succeeded" else steps // 2
    items = items if status == "succeeded" else 0
    rows = metric_rows(done, steps, seed, started)
    end = started + timedelta(seconds=COMPILE_SECONDS + STEP_SECONDS * done + (20.0 if items else 1.0))
    config = _merged(config_of(run_id, steps, mode, seed, items, baseline=baseline), changes.get("config", {}))
    _write_text(folder / layout.CONFIG, yaml.safe_dump(config, sort_keys=False))
    write_document(folder / layout.PLAN, _merged(plan_of(config, started), changes.get("plan", {})))
    write_document(
        folder / layout.FIRST_EXAMPLES, _merged(first_examples_of(run_id), changes.get("first_examples", {}))
    )
    write_rows(folder / layout.METRICS, rows)
    write_rows(folder / layout.LOG, log_rows(run_id, status, done, started, end))
    if items:
        answers = prediction_rows(items, correct, random.Random(f"answers {seed}"))
        write_rows(folder / layout.PREDICTIONS, answers)
        if baseline:
            write_rows(folder / layout.BASELINE_PREDICTIONS, prediction_rows(items, 0.0, random.Random("baseline")))
        summary = eval_summary_of(folder, run_id, done, seed, end, baseline=baseline)
        write_document(folder / layout.EVAL_SUMMARY, _merged(summary, changes.get("eval_summary", {})))
    manifest = manifest_of(run_id, config, rows, status, started, None if status == "running" else end)
    write_document(folder / layout.MANIFEST, _merged(manifest, changes.get("manifest", {})))
    if status != "running":
        seal(folder)
    return folder


def seal(folder: Path) -> None:
    """State every evidence file of the folder in the manifest's artifact list, as the end of a run does."""
    path = folder / layout.MANIFEST
    manifest = json.loads(path.read_text("utf-8"))
    manifest["artifacts"] = [
        {
            "path": name,
            "bytes": (folder / name).stat().st_size,
            "sha256": sha256_file(folder / name),
            "role": layout.ROLES.get(name, "other"),
        }
        for name in sorted(item.name for item in folder.iterdir())
        if name not in (layout.MANIFEST, layout.LOCK)
    ]
    write_document(path, manifest)


def write_document(path: Path, value: Any) -> None:
    """Write a JSON document without the durability that `evidence.write` gives real runs."""
    _write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write a JSONL file."""
    _write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def metric_rows(done: int, planned: int, seed: int, started: datetime) -> list[dict[str, Any]]:
    """Return a row for each step done: a loss that falls from 5 towards 1 with some noise, two steps a second."""
    noise = random.Random(f"losses {seed}")
    tokens = BATCH_SIZE * SEQUENCE_LENGTH
    return [
        {
            "step": step,
            "tokens_seen": step * tokens,
            "loss": round(1 + 4 / (1 + 8 * step / planned) + noise.uniform(-0.05, 0.05), 6),
            "learning_rate": 0.001,
            "grad_norm": round(noise.uniform(0.5, 1.5), 6),
            "step_seconds": STEP_SECONDS,
            "tokens_per_second": tokens / STEP_SECONDS,
            "device_memory_bytes": None,
            "time": _time(started + timedelta(seconds=COMPILE_SECONDS + STEP_SECONDS * step)),
        }
        for step in range(1, done + 1)
    ]


def log_rows(run_id: str, status: str, done: int, started: datetime, end: datetime) -> list[dict[str, Any]]:
    """Return the first and the last event of a run; a running one has no last event yet."""
    first = {
        "time": _time(started),
        "level": "info",
        "event": "run_started",
        "message": f"Run {run_id} started.",
        "fields": {"run_id": run_id},
    }
    last = {
        "time": _time(end),
        "level": "info" if status == "succeeded" else "error",
        "event": "run_finished",
        "message": f"The run ended: {status} after {done} steps.",
        "fields": {"status": status, "steps_done": done},
    }
    return [first] if status == "running" else [first, last]


def prediction_rows(items: int, correct: float, choice: random.Random) -> list[dict[str, Any]]:
    """Return one answer to each of `items` fixed sums, right with probability `correct`, always in the right form."""
    rows = []
    for number in range(items):
        a, b = 17 + 3 * number, 5 + number
        answer = a + b if choice.random() < correct else a + b + 1
        output = f"<reasoning>\n{a} plus {b} is {answer}.\n</reasoning>\n<answer>{answer}</answer>"
        extracted = extract_answer(output)
        rows.append(
            {
                "id": f"item-{number:04d}",
                "prompt": f"What is {a} + {b}?",
                "expected": str(a + b),
                "output_text": output,
                "extracted_answer": extracted,
                "correct": is_correct(extracted, str(a + b)),
                "format_ok": format_ok(output, "stop"),
                "output_tokens": 24,
                "finish_reason": "stop",
                "section": "core" if number % 4 else "edge",
                "category": "arithmetic" if number % 2 else "comparison",
                "difficulty": ("easy", "medium", "hard")[number % 3],
                "error": None,
            }
        )
    return rows


def config_of(run_id: str, steps: int, mode: str, seed: int, items: int, *, baseline: bool) -> dict[str, Any]:
    """Return a resolved configuration, every key stated."""
    return {
        "schema_version": "1.0",
        "name": run_id[:64],
        "mode": mode,
        "seed": seed,
        "model": {"name": "demo", "revision": None, "weights": "random"},
        "data": {"dataset": "dev-reasoning-v2", "generated_rows": 0, "max_length": SEQUENCE_LENGTH, "shuffle": True},
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
            "eval_set": "eval_v2" if items else None,
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
        "made_at": _time(started),
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
                    {"id": number + 3, "text": text, "supervised": supervised}
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


def eval_summary_of(
    folder: Path, run_id: str, done: int, seed: int, end: datetime, *, baseline: bool
) -> dict[str, Any]:
    """Return the summary that follows from the prediction files in the folder."""
    rows = _rows(folder / layout.PREDICTIONS)
    generation = {
        "method": "greedy",
        "max_new_tokens": 160,
        "stop_token_id": 1,
        "prompt_template": "{prompt}\n",
    }
    return {
        "schema_version": "1.0",
        "run_id": run_id,
        "status": "complete",
        "started_at": _time(end - timedelta(seconds=15)),
        "finished_at": _time(end - timedelta(seconds=5)),
        "eval_set": {
            "name": "eval_v2",
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
        if baseline
        else None,
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
        "started_at": _time(started),
        "finished_at": _time(end) if end else None,
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
        "result": result_of(rows)
        | {
            "train_seconds": STEP_SECONDS * len(rows) if ended else None,
            "compile_seconds": COMPILE_SECONDS,
            "peak_memory_bytes": 2**29 if ended else None,
            "stopped_because": (message or "All steps were done.") if ended else None,
        },
        "exit": {
            "code": EXIT_CODES[status],
            "error": None if status == "succeeded" else status,
            "message": message,
        }
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


def _scored(path: Path) -> dict[str, Any]:
    rows = _rows(path)
    return {
        "predictions": {"path": path.name, "rows": len(rows), "sha256": sha256_file(path)},
        **scores_of(rows),
    }


def _untrained_sha256(seed: int) -> str:
    return sha256_lines(["random parameters", str(seed)])


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def _merged(value: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(value)
    for key, change in changes.items():
        nested = isinstance(change, Mapping) and isinstance(merged.get(key), dict)
        merged[key] = _merged(merged[key], change) if nested else change
    return merged


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")


def _write_text(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
