"""What learning from rewards costs: this trainer's roll-outs and step beside TRL with generate of transformers.

    python benchmarks/grpo.py --environments FOLDER [--rounds 5] [--steps 1] [--only NAME …] [--find-links WHEELS]

Loops (`grpo_parts/`) of an equal Llama, of two sizes, draw equally many tokens to the same prompts, reward them by the
same function and take a step of dapo; TRL's is `trainer.train()`, ours what a run calls. With --uneven prompts have
different lengths and completions end at different places; seconds are compared for each new token. Each is a process of
its own and uses one core: torch's threads spin while they wait for another, and on a busy machine that was most of
what they took. In every round each loop takes some steps while the others wait, and the next goes through them in the
opposite order. CPU seconds are compared within a round; wall seconds are upper bounds. Writes
benchmarks/results/grpo.json; exit code 1 if a roll-out or a step of ours takes longer.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from grpo_parts.turns import ADAMW, EPSILONS, GROUP, NEW_TOKENS, PROMPT_TOKENS, PROMPTS, SHAPES
from throughput_parts.peers import Loop, answer, made, spread, started, taken

from trainer.model.tokenizer import FOLDER as TOKENIZER
from trainer.recorder.environment import environment

RESULT = Path(__file__).parent / "results" / "grpo.json"
ENVIRONMENTS = {"trl": ("trl==1.16.0", "torch==2.13.0", "transformers==5.23.0")}
SCRIPTS = {"trl": "grpo_parts/trl_loop.py", "trainproof": "grpo_parts/trainproof_loop.py"}
LOOPS = {
    f"{who} {size}": Loop(
        script=SCRIPTS[who],
        arguments=(size, str(TOKENIZER)),
        environment="trl" if who == "trl" else None,
        one_core=True,
    )
    for size in SHAPES
    for who in SCRIPTS
}
PARTS = ("rollout", "update", "step")


def main() -> int:
    """Make the environment, measure, print, write."""
    asked = arguments()
    sizes = ["uneven"] if asked.uneven else [size for size in SHAPES if size != "uneven"]
    names = [name for name in LOOPS if name.split()[1] in sizes and (not asked.only or name in asked.only)]
    absent = made(asked.environments, ENVIRONMENTS, asked.find_links)
    if absent:
        raise SystemExit(absent["trl"])
    load = os.getloadavg()
    # One after another: what a loop compiles is no part of it.
    processes, facts = {}, {}
    for name in names:
        processes[name] = started(LOOPS[name], asked.environments)
        facts[name] = answer(processes[name])
        print(name, facts[name], flush=True)
    rounds: list[dict[str, dict[str, float]]] = []
    for number in range(asked.rounds):
        order = names if number % 2 == 0 else names[::-1]
        rounds.append({name: divided(taken(processes[name], asked.steps), asked.steps) for name in order})
        spent = "  ".join(
            f"{name} {rounds[-1][name]['rollout_cpu']:.2f} + {rounds[-1][name]['update_cpu']:.2f}" for name in names
        )
        print(f"round {number + 1}/{asked.rounds}, CPU s rolling out and updating: {spent}", flush=True)
    for process in processes.values():
        process.communicate()
    result = {
        "machine": environment() | {"load_average_before": load, "load_average_after": os.getloadavg()},
        "shapes": {size: SHAPES[size] for size in sizes},
        "adamw": ADAMW,
        "loss": {"loss_type": "dapo", "beta": 0.0, **EPSILONS},
        "step": {
            "prompts": PROMPTS,
            "group": GROUP,
            "prompt_tokens": PROMPT_TOKENS[sizes[0]],
            "new_tokens": NEW_TOKENS,
        },
        "rounds": asked.rounds,
        "steps_a_round": asked.steps,
        "loops": {name: figures(facts[name], [one[name] for one in rounds]) for name in names},
        "trl_over_trainproof": ratios(rounds),
    }
    for size, parts in result["trl_over_trainproof"].items():
        print(size, {part: parts[part]["cpu"]["median"] for part in PARTS})
    if not asked.only:
        result_file = RESULT.with_name("grpo_uneven.json") if asked.uneven else RESULT
        result_file.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    lost = behind(result["trl_over_trainproof"])
    for line in lost:
        print(line)
    return 1 if lost else 0


def arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--environments", type=Path, required=True, help="where TRL is installed, 1 GB with torch for CPUs"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1, help="of each loop in each round")
    parser.add_argument("--uneven", action="store_true", help="lengths differ; writes results/grpo_uneven.json")
    parser.add_argument("--only", nargs="+", choices=LOOPS, help="measure these and write nothing")
    parser.add_argument("--find-links", type=Path, help="a folder with wheels, such as torch for CPUs")
    return parser.parse_args()


def divided(cost: dict[str, float], steps: int) -> dict[str, float]:
    """Return what one of some steps cost, by part and clock."""
    found = {"peak_rss_mib": cost["peak_rss_mib"], "new_tokens": cost["new_tokens"] / steps}
    for clock in ("cpu", "wall"):
        found[f"step_{clock}"] = cost[clock] / steps
        found[f"rollout_{clock}"] = cost[f"rollout_{clock}"] / steps
        found[f"update_{clock}"] = found[f"step_{clock}"] - found[f"rollout_{clock}"]
    return found


def figures(facts: dict[str, Any], rounds: list[dict[str, float]]) -> dict[str, Any]:
    """Return the figures of one loop."""
    seconds = {
        f"{part}_{clock}_seconds": spread([one[f"{part}_{clock}"] for one in rounds])
        for part in PARTS
        for clock in ("cpu", "wall")
    }
    return (
        facts
        | seconds
        | {
            "new_tokens_a_cpu_second": spread([one["new_tokens"] / one["rollout_cpu"] for one in rounds]),
            "peak_rss_mib": rounds[-1]["peak_rss_mib"],
        }
    )


def ratios(rounds: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Return of each size and part how many times our seconds for a new token TRL takes, round by round."""
    return {
        size: {
            part: {
                clock: spread(
                    [
                        a_token(one[f"trl {size}"], part, clock) / a_token(one[f"trainproof {size}"], part, clock)
                        for one in rounds
                    ]
                )
                for clock in ("cpu", "wall")
            }
            for part in PARTS
        }
        for size in SHAPES
        if all(f"{who} {size}" in rounds[0] for who in SCRIPTS)
    }


def a_token(one: dict[str, float], part: str, clock: str) -> float:
    """Return the seconds of a part for each new token; the loops have not as many where completions end."""
    return one[f"{part}_{clock}"] / one["new_tokens"]


def behind(found: dict[str, Any]) -> list[str]:
    """Return a line for each roll-out or step of ours that takes longer."""
    return [
        f"{size}: our {part} takes {1 / parts[part]['cpu']['median']:.2f} times the CPU seconds of TRL's."
        for size, parts in found.items()
        for part in ("rollout", "step")
        if parts[part]["cpu"]["median"] < 1
    ]


if __name__ == "__main__":
    sys.exit(main())
