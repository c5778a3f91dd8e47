"""Kills a run of each method with SIGKILL, continues it, and says how it and one that nobody stopped ended.

A program, because it forks: `python method_kills.py ROOT full lora` prints its outcomes as JSON.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

# A program that three runs share is compiled once; under pytest by one of its sessions.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(sys.argv[1], "compiled")))
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

from kills import finished, forked, killed, train

from evidence import layout
from trainer.loop.checkpoints import STATE_HASH

CONFIG = """
name: killed
model: {{name: tiny-gpt2}}
data: {{max_length: 64}}
optimizer: {{learning_rate: 0.01}}
batch: {{microbatch_size: 2}}
method: {method}
precision: {precision}
mesh: {{device: cpu, devices: 1}}
checkpoint: {{save_every_steps: 2, keep: 9}}
limits: {{steps: 8}}
"""
METHODS = {
    "full": ("{kind: full}", "{compute: float32}"),
    "lora": ("{kind: lora, dropout: 0.1}", "{params: bfloat16, compute: bfloat16}"),
    "nf4": ("{kind: lora, base: nf4}", "{params: bfloat16}"),
    "int8": ("{kind: lora, base: int8}", "{params: bfloat16}"),
    "float16": ("{kind: full}", "{compute: float16}"),
}
EXACT = ("step", "tokens_seen", "loss", "learning_rate", "grad_norm", "loss_scale")


def rows_of(folder: Path) -> list[list[Any]]:
    lines = (folder / layout.METRICS).read_text().splitlines()
    return [[row.get(key) for key in EXACT] for row in map(json.loads, lines)]


def state_of(folder: Path) -> str:
    """Return the hash over every bit of the last state: step, parameters, optimizer, loss scale."""
    metadata = json.loads((folder / layout.CHECKPOINTS / "8" / "_CHECKPOINT_METADATA").read_text())
    return str(metadata["custom_metadata"][STATE_HASH])


def outcome_of(method: str, root: Path) -> dict[str, Any]:
    """Carry out a run twice, once killed as soon as its first checkpoint is there and then continued."""
    config = root / f"{method}.yaml"
    settings = METHODS[method]
    config.write_text(CONFIG.format(method=settings[0], precision=settings[1]))
    whole, broken, rest = (root / method / name for name in ("whole", "broken", "rest"))
    exits = [finished(forked(lambda: train(config, whole)))]
    ended = killed(lambda: train(config, broken), 0, once_there=broken / layout.CHECKPOINTS / "2")
    exits.append(finished(forked(lambda: train(config, rest, resume=broken))))
    continued = rows_of(rest)
    before = [row for row in rows_of(broken) if row[0] < continued[0][0]]
    return {
        "ended": ended,
        "exits": exits,
        "rows": [rows_of(whole), before + continued],
        "states": [state_of(whole), state_of(rest)],
    }


if __name__ == "__main__":
    outcomes = {method: outcome_of(method, Path(sys.argv[1])) for method in sys.argv[2:]}
    sys.stdout.write(json.dumps(outcomes))
