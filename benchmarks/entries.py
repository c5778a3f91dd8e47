"""How long a loop waits for an entry of the chain, and for one with a checkpoint: in place, and beside the devices.

The state is AdamW's of 89 million parameters in float32, 1 GiB, on this machine's CPU, where the run itself works in
place. On an accelerator the copy goes over its link to the host besides, and the cores that hash are otherwise idle.

    python benchmarks/entries.py             # prints the figures and writes benchmarks/results/entries.json
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp

from evidence.hashes import Chain
from trainer.loop.checkpoint_format import bytes_of
from trainer.loop.entries import Entries
from trainer.loop.saving import Checkpoints
from trainer.loop.step import TrainState
from trainer.recorder.environment import environment

RESULT = Path(__file__).parent / "results" / "entries.json"
LAYERS, ROWS, ROUNDS = 32, 2796, 2
"""Matrices of as many rows and 1,000 columns; times that each is measured."""


class KeptChain:
    """Takes entries and says nothing."""

    def __init__(self) -> None:
        self.chain = Chain()
        self.rows_so_far = self.chain.rows_so_far
        self.link = self.chain.entry

    def log(self, *said: Any, **fields: Any) -> None:
        """Take an event."""

    def sync(self) -> None:
        """Have nothing to put on a disk."""


def state_of(step: int) -> TrainState:
    """Return a state whose numbers differ from step to step."""
    names = [f"{part} {layer}" for part in "pmv" for layer in range(LAYERS)]
    parts = {name: jnp.full((ROWS, 1000), step + number, jnp.float32) for number, name in enumerate(names)}
    trained = {name: value for name, value in parts.items() if name.startswith("p")}
    moments = {name: value for name, value in parts.items() if not name.startswith("p")}
    return TrainState(step=jnp.int32(step), trained=trained, opt_state=(moments,))


def measured(*, beside: bool, saved: bool) -> dict[str, Any]:
    """Return how long the loop waits, and how long everything takes, each the median of a few times."""
    waited, written = [], []
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder), keep=1)
        entries = Entries(
            recorder=KeptChain(),  # type: ignore[arg-type]  # its methods are the chain's own
            checkpoints=checkpoints,
            kept=None,
            memory=None,
            position=int,
            beside=beside,
        )
        with entries:
            for step in range(1, ROUNDS + 1):
                state = jax.block_until_ready(state_of(step))
                began = time.perf_counter()
                entries.take(state, saved=saved)
                waited.append(time.perf_counter() - began)
                entries.settle()
                written.append(time.perf_counter() - began)
        checkpoints.close()
    return {"wait_seconds": round(median(waited), 3), "until_written_seconds": round(median(written), 3)}


def main() -> None:
    """Measure, print and write."""
    load = os.getloadavg()
    found = {
        "machine": environment() | {"load_average_before": load},
        "state_bytes": bytes_of(jax.eval_shape(state_of, 1)),
        "rounds": ROUNDS,
        **{
            what: {
                "in_place": measured(beside=False, saved=saved),
                "beside": measured(beside=True, saved=saved),
            }
            for what, saved in (("entry", False), ("entry_and_checkpoint", True))
        },
    }
    found["machine"]["load_average_after"] = os.getloadavg()
    RESULT.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps({name: value for name, value in found.items() if name != "machine"}, indent=1))


if __name__ == "__main__":
    main()
