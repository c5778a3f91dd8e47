"""The closed-form memory estimate beside the compiler's own figure for the same program.

Compiles a run's real programs, without making a single array, for this CPU and for TPU v5e chips that are not there
(libtpu needed). Most TPU cases need about as much as a chip has: that is where a verdict can be wrong, and where the
compiler saves. With memory to spare it computes ahead and takes more than it needs. Each finished case is stored at
once in benchmarks/results/memory_estimate.json, and a stored case is not compiled again.

    python benchmarks/memory_estimate.py             # compile what is missing
    python benchmarks/memory_estimate.py --estimate  # compile nothing, only estimate anew
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"


from memory_estimate_parts.cases import CPU_CASES, TPU_CASES, Case

from evidence.targets import load_target
from trainer.config.load import parse_setting, set_path
from trainer.config.tree import Config, build_config
from trainer.loop.programs import list_programs
from trainer.loop.task import Task, build_mesh, shapes_mesh
from trainer.model.source import resolve
from trainer.planning.compile.ahead import Compiler
from trainer.planning.formula import FORMULA_ERROR, estimate, total_bytes
from trainer.planning.memory import verdict
from trainer.recorder.environment import environment
from trainer.runtime import choose_devices

RESULT = Path(__file__).parent / "results" / "memory_estimate.json"
MODELS = Path(__file__).parent / "models.json"
GIB = 2**30
V5E_BYTES = int(15.75 * GIB)
"""Usable memory of a v5e chip, as its compiler states it."""


def configured(case: Case, folder: Path) -> Config:
    """Return the configuration of a case; its model's `config.json` is written into the folder."""
    name, _, layers = case.model.partition("/")
    known = json.loads(MODELS.read_text())
    document: dict[str, Any] = {"model": {"name": name, "weights": "random"}}
    if name in known:
        sizes = known[name]
        if layers:
            sizes["n_layer" if "n_layer" in sizes else "num_hidden_layers"] = int(layers)
        (folder / "config.json").write_text(json.dumps(sizes))
        document["model"]["name"] = str(folder)
    for text in (*case.settings.split(), f"memory.attention={case.attention}"):
        key, _, value = text.partition("=")
        set_path(document, key, parse_setting(value))
    return build_config(document)


def task_of(config: Config, mesh: Any, platform: str | None = None) -> Task:
    """Return the task of a configuration with shapes in place of arrays."""
    source = resolve(config.model.name, config.model.revision, with_weights=False)
    return Task.of(config, source, mesh, platform=platform)


def estimated(case: Case, config: Config) -> dict[str, Any]:
    """Return what the closed form says of a case."""
    devices = 1 if case.chips is None else case.chips.devices
    platform = case.platform
    # As `compiled` has it: on a CPU every layer by itself.
    task = task_of(config, shapes_mesh(devices), None if case.chips is None else platform)
    parts = estimate(task, platform=platform, asked=case.asked)[case.program]
    need = total_bytes(parts)
    said = {"estimated_bytes": need, "parts": {part.name: part.bytes for part in parts if part.bytes}}
    there = load_target("t4").memory_bytes or 0 if platform == "gpu" else V5E_BYTES
    return said if case.chips is None else {**said, "verdict": verdict(need, there, FORMULA_ERROR)}


def compiled(case: Case, config: Config) -> dict[str, Any]:
    """Return what the compiler says of a case."""
    began = time.perf_counter()
    if case.chips is None:
        task = task_of(config, build_mesh(choose_devices("cpu", 1).list))
        analysis = list_programs(task, asked=case.asked)[case.program].compile().executable.memory_analysis()
        need = (
            analysis.argument_size_in_bytes
            + analysis.output_size_in_bytes
            + analysis.temp_size_in_bytes
            - analysis.alias_size_in_bytes
        )
        return {"compiled_bytes": need, "compile_seconds": round(time.perf_counter() - began, 1)}
    with Compiler() as compiler:
        answer = compiler.ask(case.program, config, case.chips, asked=case.asked, limit_seconds=1500)
    said = {"compile_seconds": round(answer.seconds, 1), "fits": answer.memory is not None}
    if answer.memory is None:
        return said | {"compiled_bytes": answer.need_bytes}
    return said | {
        "compiled_bytes": answer.peak_bytes,
        "allocated_bytes": answer.memory.allocated_bytes,
        "largest": [f"{each.shape} {each.bytes / GIB:.2f} GiB" for each in answer.memory.largest[:4]],
    }


def not_in_the_program(case: Case, row: dict[str, Any]) -> int:
    """Return what the estimate counts and a program does not have: opt_state, there while answers are made."""
    return int(row["parts"].get("opt_state", 0)) if case.program == "decode" else 0


def rows(*, compiling: bool) -> Iterator[dict[str, Any]]:
    """Yield every case that is stored or, if asked for, compiled now, estimated anew."""
    stored = {row["case"]: row for row in json.loads(RESULT.read_text())["cases"]} if RESULT.is_file() else {}
    for case in (*CPU_CASES, *TPU_CASES):
        known = {key: stored[case.name][key] for key in COMPILED if key in stored.get(case.name, {})}
        if not known and not compiling:
            continue
        with tempfile.TemporaryDirectory() as name:
            config = configured(case, Path(name))
            row = {"case": case.name, **estimated(case, config), **(known or compiled(case, config))}
        there = row["compiled_bytes"] + not_in_the_program(case, row)
        yield row | {"error_fraction": round((row["estimated_bytes"] - there) / there, 4)}


COMPILED = ("compiled_bytes", "allocated_bytes", "fits", "largest", "compile_seconds")
"""What a stored case keeps; everything else is computed anew."""


def summary(cases: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the errors over all cases, and the verdicts that the compiler contradicts."""
    errors = sorted(abs(row["error_fraction"]) for row in cases)
    wrong = [
        row["case"] for row in cases if "fits" in row and row["verdict"] == ("does_not_fit" if row["fits"] else "fits")
    ]
    return {
        "cases": len(cases),
        "median_error_fraction": round(statistics.median(errors), 4),
        "ninth_decile_error_fraction": errors[9 * len(errors) // 10],
        "worst_error_fraction": errors[-1],
        "lowest_error_fraction": min(row["error_fraction"] for row in cases),
        "outside_the_band": sum(error > FORMULA_ERROR for error in errors),
        "wrong_verdicts": wrong,
    }


def main() -> None:
    """Go through the cases, print their rows, write the file after each."""
    found: list[dict[str, Any]] = []
    for row in rows(compiling="--estimate" not in sys.argv):
        found.append(row)
        figures = (
            f"{row['estimated_bytes'] / GIB:8.3f} {row['compiled_bytes'] / GIB:8.3f} {row['error_fraction']:+7.1%}"
        )
        print(f"{figures}  {row.get('verdict', ''):<12} {row['case']}", flush=True)
        document = {"environment": environment(), "summary": summary(found), "cases": found}
        RESULT.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(summary(found), indent=1))


if __name__ == "__main__":
    main()
