"""What a training step costs: this trainer beside torch, google-tunix and transformers' Flax model.

    python benchmarks/throughput.py --environments FOLDER [--find-links WHEELS] [--rounds 5] [--steps 2] [--only NAME …]

Each loop (`throughput_parts/`) is a process of its own with an environment of its own, which is made in FOLDER where it
is not there yet. All have equal shapes and take equal batches. In every round each loop takes some steps alone while
the others wait, and the next round goes through them in the opposite order, so that noise meets them all; two loops are
compared within a round. CPU seconds count all threads of a loop: beside other work they are the fair figure, and wall
seconds are upper bounds. About five minutes on two quiet cores, with 17 GB of memory. Writes
benchmarks/results/throughput.json; exit code 1 if a ratio that has to hold does not.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from throughput_parts.peers import Loop, answer, made, spread, started, taken
from throughput_parts.serving import ADAMW, SHAPE

from trainer.recorder.environment import environment

HERE = Path(__file__).parent
RESULT = HERE / "results" / "throughput.json"

TORCH = ("torch==2.13.0", "transformers==5.23.0")
ENVIRONMENTS: dict[str, tuple[str, ...]] = {
    "torch": TORCH,
    "tunix": ("google-tunix==0.1.7", "jax==0.10.2", "flax==0.12.8", "optax==0.2.8"),
    # The last version with Flax models.
    "flax": ("transformers==4.57.6", "jax==0.10.2", "flax==0.12.8", "optax==0.2.8"),
}
"""What is installed into each; a loop without one runs in the environment of this script."""


OURS, THEIRS = "throughput_parts/trainproof_loop.py", "throughput_parts/torch_loop.py"
LOOPS = {
    "trainproof gemma": Loop(script=OURS, arguments=("gemma", "random")),
    # As the peers do, with the logits of all tokens there at a time; by default a chunk of 1,024 tokens has them.
    "trainproof gemma, all logits": Loop(script=OURS, arguments=("gemma", "random", "all_logits")),
    "torch gemma": Loop(script=THEIRS, arguments=("gemma", "eager"), environment="torch"),
    "torch gemma, compiled": Loop(script=THEIRS, arguments=("gemma", "sdpa", "compiled"), environment="torch"),
    "transformers flax gemma": Loop(script="throughput_parts/flax_loop.py", environment="flax"),
    "trainproof qwen3": Loop(script=OURS, arguments=("qwen3", "random")),
    "trainproof qwen3, all logits": Loop(script=OURS, arguments=("qwen3", "random", "all_logits")),
    "tunix qwen3": Loop(script="throughput_parts/tunix_loop.py", environment="tunix"),
    "trainproof gemma, rows unpacked": Loop(script=OURS, arguments=("gemma", "unpacked")),
    "trainproof gemma, rows packed": Loop(script=OURS, arguments=("gemma", "packed")),
}

PAIRS = (
    ("torch gemma", "trainproof gemma, all logits"),
    ("torch gemma, compiled", "trainproof gemma, all logits"),
    ("transformers flax gemma", "trainproof gemma, all logits"),
    ("tunix qwen3", "trainproof qwen3, all logits"),
    ("torch gemma", "trainproof gemma"),
    ("torch gemma, compiled", "trainproof gemma"),
    ("transformers flax gemma", "trainproof gemma"),
    ("tunix qwen3", "trainproof qwen3"),
    ("trainproof gemma, rows unpacked", "trainproof gemma, rows packed"),
)
"""Seconds of a token, the first against the second: ours with all logits there at a time as the peers have them, then
as it is by default, with the logits of 1,024 tokens."""

BARS = {
    "torch gemma / trainproof gemma, all logits": 2.0,
    "tunix qwen3 / trainproof qwen3, all logits": 1.3,
    "transformers flax gemma / trainproof gemma, all logits": 1.15,
}
"""CPU time of a token that a peer has to take, like for like, in the middle round."""


def main() -> int:
    """Make environments, measure, print, write."""
    asked = arguments()
    names = [name for name in LOOPS if not asked.only or name in asked.only]
    wanted = {LOOPS[name].environment for name in names} - {None}
    absent = made(asked.environments, {name: ENVIRONMENTS[name] for name in wanted}, asked.find_links)
    names = [name for name in names if LOOPS[name].environment not in absent]
    load = os.getloadavg()
    processes = {name: started(LOOPS[name], asked.environments) for name in names}
    facts = {name: answer(process) for name, process in processes.items()}
    rounds: list[dict[str, dict[str, float]]] = []
    for number in range(asked.rounds):
        order = names if number % 2 == 0 else names[::-1]
        rounds.append({name: taken(processes[name], asked.steps) for name in order})
        said = "  ".join(f"{name} {rounds[-1][name]['cpu'] / asked.steps:.2f}" for name in names)
        print(f"round {number + 1}/{asked.rounds}, CPU s a step: {said}", flush=True)
    for process in processes.values():
        process.communicate()
    result = {
        "machine": environment() | {"load_average_before": load, "load_average_after": os.getloadavg()},
        "shape": SHAPE,
        "adamw": ADAMW,
        "rounds": asked.rounds,
        "steps_a_round": asked.steps,
        "not_installed": absent,
        "loops": {name: figures(facts[name], [one[name] for one in rounds], asked.steps) for name in names},
        "ratios": ratios(rounds, facts),
    }
    for pair, found in result["ratios"].items():
        print(f"{pair}: CPU {found['cpu']['median']:.2f} [{found['cpu']['min']:.2f}-{found['cpu']['max']:.2f}]")
    lost = below(result["ratios"])
    result["below_their_bars"] = lost
    if not asked.only:
        RESULT.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    for line in lost:
        print(line)
    return 1 if lost else 0


def arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=Path, required=True, help="where the peers are installed, 5 GB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2, help="of each loop in each round")
    parser.add_argument("--only", nargs="+", choices=LOOPS, help="measure these and write nothing")
    parser.add_argument("--find-links", type=Path, help="a folder with wheels, such as torch for CPUs")
    return parser.parse_args()


def figures(facts: dict[str, Any], rounds: list[dict[str, float]], steps: int) -> dict[str, Any]:
    """Return the figures of one loop."""
    cpu = [one["cpu"] / steps for one in rounds]
    return facts | {
        "cpu_seconds_a_step": spread(cpu),
        "wall_seconds_a_step": spread([one["wall"] / steps for one in rounds]),
        "tokens_a_cpu_second": spread([facts["tokens_per_step"] / one for one in cpu]),
        "last_loss": rounds[-1]["loss"],
        "peak_rss_mib": rounds[-1]["peak_rss_mib"],
    }


def ratios(rounds: list[dict[str, dict[str, float]]], facts: dict[str, Any]) -> dict[str, Any]:
    """Return of each pair how many times the seconds of a token the first takes, round by round."""
    found = {}
    for slow, quick in PAIRS:
        if slow in facts and quick in facts:
            tokens = facts[quick]["tokens_per_step"] / facts[slow]["tokens_per_step"]
            found[f"{slow} / {quick}"] = {
                kind: spread([tokens * one[slow][kind] / one[quick][kind] for one in rounds])
                for kind in ("cpu", "wall")
            }
    return found


def below(found: dict[str, Any]) -> list[str]:
    """Return a line for each ratio that is below its bar."""
    return [
        f"{pair} has to be {bar} in CPU time and is {found[pair]['cpu']['median']}."
        for pair, bar in BARS.items()
        if pair in found and found[pair]["cpu"]["median"] < bar
    ]


if __name__ == "__main__":
    sys.exit(main())
