"""The rows of a synthetic run: metrics, log and predictions, from formulas that a test can repeat."""

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from evidence.scores.reading import extract_answer, format_ok

STARTED = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)
COMPILE_SECONDS = 4.0
STEP_SECONDS = 0.5
BATCH_SIZE = 8
SEQUENCE_LENGTH = 256


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
            "time": format_time(started + timedelta(seconds=COMPILE_SECONDS + STEP_SECONDS * step)),
        }
        for step in range(1, done + 1)
    ]


def log_rows(run_id: str, status: str, done: int, started: datetime, end: datetime) -> list[dict[str, Any]]:
    """Return the first and the last event of a run; a running one has no last event yet."""
    first = {
        "time": format_time(started),
        "level": "info",
        "event": "run_started",
        "message": f"Run {run_id} started.",
        "fields": {"run_id": run_id},
    }
    last = {
        "time": format_time(end),
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
                "correct": extracted == str(a + b),
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


def format_time(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read a JSONL file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
