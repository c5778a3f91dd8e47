"""What waits for a GPU: speed and memory of Gemma-2B's own programs, decoding, ways of attending, and torch beside it.

    benchmarks/on_gpu.sh [--results FILE] [--minutes 9.5] [--only NAME …] [--tiny]

Each measurement is a process of its own and a line of JSON of its own, written as soon as it has ended, so that one
that fails or is cut off costs no other. Weights and tokens are random: neither time nor memory depends on them. With
--tiny the same code takes small shapes on any device, and writes only where --results says.

| line | what |
|---|---|
| products | the largest product of matrices that the device does, in bfloat16: the peak that shares are of |
| full, lora, qlora | a training step: seconds, share of the peak, planned and observed memory |
| decode | an evaluation's answers: tokens a second |
| torch | the loop of torch and transformers with the shapes of `full`, by TORCH_PYTHON where another Python has them |
| attention | forward and backward of each way of attending |
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from on_gpu_parts.of_torch import torch_step
from on_gpu_parts.ours import attention, decode, products, step

RESULT = Path(__file__).parent / "results" / "on_gpu.jsonl"
STARTED_BELOW_SECONDS = 20
"""With less time left nothing is begun."""


def main() -> int:
    """Run every measurement in turn, or one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, help="lines are added to it; benchmarks/results/on_gpu.jsonl")
    parser.add_argument("--minutes", type=float, default=9.5, help="of all together")
    parser.add_argument("--only", nargs="+", choices=MEASURED, default=list(MEASURED))
    parser.add_argument("--tiny", action="store_true", help="small shapes, on any device")
    parser.add_argument("--one", choices=MEASURED, help="measure this in this process and print it")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(MEASURED[asked.one](tiny=asked.tiny)))
        return 0
    results = asked.results or (None if asked.tiny else RESULT)
    deadline = time.monotonic() + 60 * asked.minutes
    lines = [measured_apart(name, deadline, tiny=asked.tiny, results=results) for name in asked.only]
    return 1 if any("error" in line for line in lines) else 0


def measured_apart(name: str, deadline: float, *, tiny: bool, results: Path | None) -> dict[str, Any]:
    """Return the line of a measurement that is made in its own process, and write it down."""
    began, left = time.monotonic(), deadline - time.monotonic()
    line: dict[str, Any] = {"measurement": name, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    if left < STARTED_BELOW_SECONDS:
        line |= {"error": "no time was left"}
    else:
        python = os.environ.get("TORCH_PYTHON", sys.executable) if name == "torch" else sys.executable
        command = [python, __file__, "--one", name, *(["--tiny"] if tiny else [])]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=left, check=False)
            said = done.stdout.strip().splitlines()
            whole = done.returncode == 0 and bool(said)
            line |= json.loads(said[-1]) if whole else {"error": done.stderr.strip()[-1500:]}
        except subprocess.TimeoutExpired:
            line |= {"error": f"not done in the {left:.0f} s that were left"}
    line["took_seconds"] = round(time.monotonic() - began, 1)
    text = json.dumps(line)
    print(text, flush=True)
    if results is not None:
        with results.open("a", encoding="utf-8") as file:
            file.write(text + "\n")
    return line


MEASURED: dict[str, Callable[..., dict[str, Any]]] = {
    "products": products,
    "full": partial(step, "full"),
    "torch": torch_step,
    "decode": decode,
    "lora": partial(step, "lora"),
    "attention": attention,
    "qlora": partial(step, "qlora"),
}
"""In the order in which they are made: what matters most comes first."""


if __name__ == "__main__":
    sys.exit(main())
