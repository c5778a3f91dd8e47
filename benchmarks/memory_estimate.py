"""Compare the closed-form memory estimate with compilers, and planned with observed memory on this CPU.

    python benchmarks/memory_estimate.py                   # compile the programs that are not stored, and estimate all
    python benchmarks/memory_estimate.py --estimate        # compile nothing
    python benchmarks/memory_estimate.py --observe         # train small models on this CPU

The cases are in memory_cases.json. Programs of a run are compiled from shapes for this CPU, TPU v5e chips and T4 GPUs,
which need not be present. Most TPU cases need about as much as a chip has: a verdict can be wrong there, and with
memory to spare the compiler takes more than a program needs. Cases are stored in results/memory_estimate.json and
results/observed_memory.json, and a stored case is not repeated.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

os.environ |= {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}

from harness import REPOSITORY, RESULTS, build_parser, read_config, trainproof, write_json, write_model

from evidence.registry import known_model_folder
from evidence.targets import load_target
from trainer.config.tree import Config
from trainer.data.answers import EvalShape
from trainer.loop.programs import list_programs
from trainer.loop.task import Task, build_mesh, shapes_mesh
from trainer.model.source import resolve
from trainer.planning.compile.ahead import ask_compiler
from trainer.planning.compile.machines import V5E_1, V5E_8, Machine, describe_gpu
from trainer.planning.formula import FORMULA_ERROR, estimate, total_bytes
from trainer.planning.memory import verdict
from trainer.recorder.environment import environment
from trainer.runtime import choose_devices

CASES, SHAPES = (
    json.loads((REPOSITORY / "benchmarks" / f"{name}.json").read_text()) for name in ("memory_cases", "models")
)
RESULT, OBSERVED = RESULTS / "memory_estimate.json", RESULTS / "observed_memory.json"
GIB = 2**30
T4 = describe_gpu(load_target("t4"))
MACHINES = {
    "v5e:1x1": V5E_1,
    "v5e:2x4": V5E_8,
    "T4": Machine(platform="gpu", devices=1, description=T4),
    "2 T4": Machine(platform="gpu", devices=2, description=T4),
}
MEMORY = {"tpu": int(15.75 * GIB), "gpu": load_target("t4").memory_bytes}
"""Usable bytes of a v5e chip, as its compiler states it, and of a T4."""
COMPILED = ("compiled_bytes", "allocated_bytes", "fits", "largest", "compile_seconds")
"""Keys of a stored case that are kept; the others are computed again."""


class Case(NamedTuple):
    """One program of one run on one target.

    `model` is a built-in model or a key of models.json, with `/n` for its first n layers; `settings` are `key=value`
    texts; `asked` are the number of evaluation prompts and the tokens of the longest one.
    """

    model: str
    program: str
    target: str
    settings: str
    asked: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        """The name under which the case is stored."""
        asked = "" if self.asked is None else f" {self.asked[0]} prompts of {self.asked[1]}"
        return f"{self.model} {self.program} {self.target}{asked}: {self.settings}"

    @property
    def shape(self) -> EvalShape | None:
        """Shape of the evaluation prompts."""
        return None if self.asked is None else EvalShape(prompts=self.asked[0], longest_tokens=self.asked[1])

    def config(self, folder: Path) -> Config:
        """Return the configuration; the model's `config.json` is written into the folder."""
        name, _, layers = self.model.partition("/")
        if sizes := SHAPES.get(name):
            number = {"n_layer" if "n_layer" in sizes else "num_hidden_layers": int(layers)} if layers else {}
            (folder / "config.json").write_text(json.dumps(sizes | number))
            name = str(folder)
        return read_config(name, "model.weights=random memory.attention=plain", self.settings)


def build_task(config: Config, mesh: Any, platform: str | None) -> Task:
    """Build the task of a configuration from shapes alone."""
    source = resolve(config.model.name, config.model.revision, with_weights=False)
    return Task.of(config, source, mesh, platform=platform)


def estimate_case(case: Case, config: Config) -> dict[str, Any]:
    """Return the estimate of a case, and on accelerators its verdict."""
    machine = MACHINES.get(case.target)
    platform, devices = ("cpu", 1) if machine is None else (machine.platform, machine.devices)
    task = build_task(config, shapes_mesh(devices), None if machine is None else platform)
    parts = estimate(task, platform=platform, eval_shape=case.shape)[case.program]
    need = total_bytes(parts)
    found = {"estimated_bytes": need, "parts": {part.name: part.bytes for part in parts if part.bytes}}
    return found if machine is None else {**found, "verdict": verdict(need, MEMORY[platform], FORMULA_ERROR)}


def compile_case(case: Case, config: Config) -> dict[str, Any]:
    """Return the compiler's figures of a case."""
    machine = MACHINES.get(case.target)
    if machine is None:
        began = time.perf_counter()
        task = build_task(config, build_mesh(choose_devices("cpu", 1).list), None)
        need = list_programs(task, eval_shape=case.shape)[case.program].compile().peak_bytes
        return {"compiled_bytes": need, "compile_seconds": round(time.perf_counter() - began, 1)}
    answer = ask_compiler(case.program, config, machine, eval_shape=case.shape, limit_seconds=1500)
    found = {"compile_seconds": round(answer.seconds, 1), "fits": answer.memory is not None}
    if answer.memory is not None:
        found["allocated_bytes"] = answer.memory.allocated_bytes
        found["largest"] = [f"{each.shape} {each.bytes / GIB:.2f} GiB" for each in answer.memory.largest[:4]]
    return found | {"compiled_bytes": answer.peak_bytes}


def rows(*, compiling: bool) -> Iterator[dict[str, Any]]:
    """Yield every case that is stored, or compiled now if `compiling`, with a new estimate."""
    stored = {row["case"]: row for row in json.loads(RESULT.read_text())["cases"]} if RESULT.is_file() else {}
    for document in CASES["programs"]:
        case = Case(**document)
        known = {key: stored[case.name][key] for key in COMPILED if key in stored.get(case.name, {})}
        if not known and not compiling:
            continue
        with tempfile.TemporaryDirectory() as name:
            config = case.config(Path(name))
            row = {"case": case.name, **estimate_case(case, config), **(known or compile_case(case, config))}
        # The estimate of decoding counts the optimizer state, which is not an argument of the program.
        need = row["compiled_bytes"] + (row["parts"].get("opt_state", 0) if case.program == "decode" else 0)
        yield row | {"error_fraction": round((row["estimated_bytes"] - need) / need, 4)}


def summary(cases: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the errors over all cases, and the verdicts that the compiler contradicts."""
    errors = sorted(abs(row["error_fraction"]) for row in cases)
    wrong = {True: "does_not_fit", False: "fits"}
    return {
        "cases": len(cases),
        "median_error_fraction": round(statistics.median(errors), 4),
        "ninth_decile_error_fraction": errors[9 * len(errors) // 10],
        "worst_error_fraction": errors[-1],
        "lowest_error_fraction": min(row["error_fraction"] for row in cases),
        "outside_the_band": sum(error > FORMULA_ERROR for error in errors),
        "wrong_verdicts": [row["case"] for row in cases if "fits" in row and row["verdict"] == wrong[row["fits"]]],
    }


def compare_programs(*, compiling: bool) -> None:
    """Compare all cases, print their rows, and write the file after each."""
    found: list[dict[str, Any]] = []
    for row in rows(compiling=compiling):
        found.append(row)
        sizes = f"{row['estimated_bytes'] / GIB:8.3f} {row['compiled_bytes'] / GIB:8.3f} {row['error_fraction']:+7.1%}"
        print(f"{sizes}  {row.get('verdict', ''):<12} {row['case']}", flush=True)
        write_json(RESULT, {"environment": environment(), "summary": summary(found), "cases": found})
    print(json.dumps(summary(found), indent=1))


def observe_runs() -> None:
    """Run every case that is not stored, and compare plan.json with the growth of the process."""
    found: dict[str, Any] = json.loads(OBSERVED.read_text())["cases"] if OBSERVED.is_file() else {}
    for name, case in CASES["runs"].items():
        if name in found:
            continue
        found[name] = observe_run(case["model"], case["settings"])
        print(name, json.dumps(found[name]), flush=True)
        errors = [row["process_error_fraction"] for row in found.values()]
        figures = {"least_error_fraction": min(errors), "most_error_fraction": max(errors)}
        middle = {"median_error_fraction": round(statistics.median(map(abs, errors)), 4)}
        write_json(OBSERVED, {"environment": environment(), "cases": found} | middle | figures)


def observe_run(model: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Train three steps as a user would, and return planned and observed memory.

    Models of public shapes are read from files of random weights, because reading them takes memory too.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if (shapes := known_model_folder(model)) is not None:
            config = json.loads((shapes / "config.json").read_text())
            model = str(write_model(folder / "model", config, "float32"))
        items = folder / "items.jsonl"
        questions = ({"id": f"i{n}", "prompt": f"What is {n} + 5?", "expected": str(n + 5)} for n in range(8))
        items.write_text("".join(json.dumps(row) + "\n" for row in questions))
        (folder / "config.yaml").write_text(json.dumps({"model": {"name": model}}))
        evaluation = {"eval_set": str(items), "max_new_tokens": 16, "batch_size": 8}
        settings = {"limits.steps": 3, **{f"evaluation.{key}": value for key, value in evaluation.items()}, **settings}
        command = trainproof("train", "--config", "config.yaml", "--output", "run", settings=settings)
        subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder)
        plan = json.loads((folder / "run" / "plan.json").read_text())
        manifest = json.loads((folder / "run" / "run_manifest.json").read_text())
    observed = manifest["result"]["observed_memory"]
    process = plan["need_bytes"] + plan["target"]["process_bytes"]
    return {
        "parameters": manifest["model"]["parameters"],
        "arrays_bytes": plan["need_bytes"],
        "process_bytes": process,
        "observed_bytes": observed["bytes"],
        "observed_parts": {each["name"]: each["bytes"] for each in observed["parts"]},
        "process_error_fraction": round(process / observed["bytes"] - 1, 4),
    }


def main() -> None:
    """Read the command line."""
    parser = build_parser(__doc__)
    for flag in ("--estimate", "--observe"):
        parser.add_argument(flag, action="store_true")
    args = parser.parse_args()
    if args.observe:
        observe_runs()
    else:
        compare_programs(compiling=not args.estimate)


if __name__ == "__main__":
    main()
