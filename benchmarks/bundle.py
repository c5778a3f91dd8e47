"""Measure the search for secrets and the time to build and verify bundles: `python benchmarks/bundle.py`.

Prints the table in benchmarks/results/bundle.txt, which was measured on two shared cores.
"""

from __future__ import annotations

import io
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from synthetic import write_run

from evidence.bundle.build import build_bundle
from evidence.bundle.secrets import find_secrets
from evidence.bundle.verify import verify_bundle

ROWS = 200_000


def metric_rows() -> bytes:
    """Return rows like those of metrics.jsonl."""
    chance = random.Random(1)
    rows = (
        {"step": n, "tokens_seen": n * 4096, "loss": chance.random() * 10, "grad_norm": chance.random(), "time": "2026"}
        for n in range(ROWS)
    )
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def prediction_rows() -> bytes:
    """Return rows like those of predictions.jsonl."""
    text = "<reasoning>10 apples and 5 pears are 15 pieces of fruit.</reasoning>\n<answer>15</answer>"
    rows = ({"id": f"item-{n}", "prompt": "How many?", "output_text": text, "error": None} for n in range(ROWS))
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def search_speed(data: bytes) -> float:
    """Return megabytes per second of processor time, the best of three."""
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        if any(True for _ in find_secrets(io.BytesIO(data))):
            message = "the benchmark's own data raised an alarm"
            raise AssertionError(message)
        best = min(best, time.process_time() - start)
    return len(data) / 1e6 / best


def bundle_seconds(steps: int, weights_bytes: int) -> tuple[float, float]:
    """Return the seconds to build and to verify a bundle of one run."""
    with tempfile.TemporaryDirectory() as folder:
        run = write_run(Path(folder), "large", steps=steps, items=100)
        (run / "export").mkdir()
        with (run / "export" / "model.safetensors").open("wb") as file:
            for _ in range(weights_bytes >> 20):
                file.write(os.urandom(1 << 20))
        start = time.perf_counter()
        path = build_bundle([run], Path(folder) / "large.zip", with_weights=True).output
        built = time.perf_counter() - start
        start = time.perf_counter()
        if not verify_bundle(path).ok:
            message = "the bundle does not hold"
            raise AssertionError(message)
        return built, time.perf_counter() - start


def main() -> None:
    """Print the table."""
    for name, steps, weights_bytes in (("1 GiB", 2000, 1 << 30), ("40 MiB", 60_000, 22 << 20)):
        built, verified = bundle_seconds(steps, weights_bytes)
        print(f"build a bundle of {name:<8} {built:6.1f} s")
        print(f"verify a bundle of {name:<7} {verified:6.2f} s")
    print(f"search of metric rows      {search_speed(metric_rows()):6.1f} MB/s of processor time")
    print(f"search of prediction rows  {search_speed(prediction_rows()):6.1f} MB/s of processor time")


if __name__ == "__main__":
    main()
