"""A sweep whose trials are small programs with scripted metrics: `python scripted_sweep.py ROOT TRIALS`."""

import sys
from pathlib import Path
from typing import Any

from launch import queue
from trainer.sweep import Sweep

TRIAL = """
import json, sys, time
from pathlib import Path
import yaml
from synthetic import write_run

config, folder = yaml.safe_load(Path(sys.argv[3]).read_text("utf-8")), Path(sys.argv[5])
rate, rank = config["optimizer"]["learning_rate"], config["method"]["rank"]
if rank == 8:
    sys.exit("no memory for rank 8")
made = write_run(folder.parent / ".made", folder.name, steps=8, items=0)
rows = [json.loads(line) for line in (made / "metrics.jsonl").read_text("utf-8").splitlines()]
for row in rows:
    if row["step"] % 2 == 0:
        row["held_out_loss"] = abs(rate - 0.02) + 1 / row["step"]
folder.mkdir()
try:
    with (folder / "metrics.jsonl").open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row) + "\\n")
            file.flush()
            time.sleep(SECONDS)
    for path in made.iterdir():
        if path.name != "metrics.jsonl":
            path.rename(folder / path.name)
except KeyboardInterrupt:
    sys.exit(5)
"""
SETTINGS: dict[str, Any] = {
    "name": "scripted",
    "config": "base.yaml",
    "trials": 6,
    "parallel": 1,
    "metric": "held_out_loss",
    "search": {"optimizer.learning_rate": {"low": 0.001, "high": 0.1, "log": True}, "method.rank": [4, 8, 16]},
    "prune": {"min_steps": 2, "factor": 2},
    "seed": 6,
    "place": "local",
}
ITEMS = [{"id": f"item-{number}", "prompt": f"{number // 2} + 1?", "expected": "1"} for number in range(20)]


def scripted(root: Path, *, seconds: float = 0.05, **changes: Any) -> Sweep:
    """Return a sweep for a queue with stand-ins; a step takes some seconds."""
    base = {
        "name": "base",
        "code": TRIAL.replace("SECONDS", str(seconds)),
        "optimizer": {"learning_rate": 0.01},
        "method": {"rank": 4},
        "evaluation": {"eval_set": "own-items", "every_steps": 2},
        "limits": {"steps": 8},
    }
    return Sweep(root, {**SETTINGS, **changes}, base, ITEMS, say=lambda line: None)


if __name__ == "__main__":
    queue.WORKER = (sys.executable, str(Path(__file__).with_name("stand_in_worker.py")))
    scripted(Path(sys.argv[1]), trials=int(sys.argv[2])).run()
