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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

os.environ["JAX_PLATFORMS"] = "cpu"


from evidence.targets.target import target_of
from trainer.config.load import setting_value
from trainer.config.seed_names import set_at
from trainer.config.tree import Config, config_of
from trainer.data.prompts import Asked
from trainer.loop.mesh import build_mesh, shapes_mesh
from trainer.loop.programs import programs_of
from trainer.loop.task import Task
from trainer.model.files.source import resolve
from trainer.planning.compile.ahead import compile_ahead
from trainer.planning.compile.machines import V5E_1, V5E_8, Cards, Chips, description_of
from trainer.planning.devices import choose_devices
from trainer.planning.estimate.part import ERROR_FRACTION, error_of, total_bytes
from trainer.planning.estimate.plain_model import export_parts
from trainer.planning.estimate.programs import estimates
from trainer.planning.program_memory import verdict
from trainer.recorder.environment import environment

RESULT = Path(__file__).parent / "results" / "memory_estimate.json"
MODELS = Path(__file__).parent / "models.json"
GIB = 2**30
V5E_BYTES = int(15.75 * GIB)
"""Usable memory of a v5e chip, as its compiler states it."""

ADAFACTOR = "optimizer.name=adafactor precision.compute=bfloat16"
FREE = f"{ADAFACTOR} optimizer.max_grad_norm=null"
BF16 = "precision.params=bfloat16"


def shaped(length: int, sequences: int) -> str:
    """Return the settings of a microbatch."""
    return f"data.max_length={length} batch.microbatch_size={sequences}"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One program of one run on one target."""

    model: str
    """A key of models.json, with `/n` for its first n layers; or a built-in model."""
    settings: str
    """`key=value` texts, a space between them."""
    program: str = "train"
    chips: Chips | Cards | None = V5E_1
    """None: this CPU."""
    asked: Asked | None = None
    attention: Literal["plain", "splash", "blockwise"] = "plain"
    """`memory.attention`: plain, where the sums have most to say."""

    @property
    def name(self) -> str:
        """What tells the case from all others."""
        target = "CPU" if self.chips is None else self.chips.topology if isinstance(self.chips, Chips) else "T4"
        asked = "" if self.asked is None else f" {self.asked.prompts} prompts of {self.asked.longest_tokens}"
        attention = "" if self.attention == "plain" else f" memory.attention={self.attention}"
        return f"{self.model} {self.program} {target}{asked}: {self.settings}{attention}"

    @property
    def platform(self) -> str:
        """cpu, gpu or tpu."""
        return "cpu" if self.chips is None else "tpu" if isinstance(self.chips, Chips) else "gpu"


ANSWER = "evaluation.max_new_tokens=160 evaluation.batch_size=32"
LONG_ANSWER = "evaluation.max_new_tokens=512 evaluation.batch_size=96"
HUNDRED = Asked(prompts=100, longest_tokens=64)
LORA = f"method.kind=lora method.rank=16 {ADAFACTOR} {BF16}"
QLORA = "method.kind=lora method.base=nf4 precision.params=float16 precision.compute=float16"
IN_CHUNKS = "memory.mlp_chunk_tokens=2048 memory.loss_chunk_tokens=256"
ADAPTERS = f"method.kind=lora method.rank=16 precision.compute=bfloat16 {BF16} {IN_CHUNKS}"
T4 = Cards(description=description_of(target_of("t4")), devices=1)
TPU_CASES = (
    Case(model="gemma-2b", settings=f"{FREE} {shaped(512, 1)}"),
    Case(model="gemma-2b", settings=f"{FREE} {shaped(512, 16)}"),
    Case(model="gemma-2b", settings=f"{FREE} {BF16} {shaped(2048, 16)}"),
    Case(model="gemma-2b", settings=f"{ADAFACTOR} {shaped(512, 1)}"),
    Case(model="gemma-2b", settings=f"{FREE} {shaped(512, 1)}", program="start"),
    Case(model="gemma-2b", settings=f"{FREE} {ANSWER}", program="decode", asked=Asked(prompts=100, longest_tokens=64)),
    Case(model="gemma-2b/6", settings=f"{FREE} {shaped(2048, 16)}"),
    Case(model="gemma-2b/6", settings=f"{FREE} {shaped(2048, 24)}"),
    Case(model="gemma-2b/3", settings=f"{ADAFACTOR} {shaped(2048, 16)}"),
    Case(model="gemma-2b/3", settings=f"{FREE} {shaped(2048, 4)}"),
    Case(model="gemma-2b/3", settings=f"{FREE} {BF16} {shaped(512, 16)}"),
    Case(model="gemma-2b/3", settings=f"{FREE} {shaped(1024, 24)} batch.accumulation_steps=4"),
    Case(model="gemma-2b/3", settings=f"precision.compute=bfloat16 {shaped(64, 1)} memory.donate=false"),
    Case(model="llama-3.2-1b/4", settings=f"{ADAFACTOR} {shaped(1024, 32)}"),
    Case(model="llama-3.2-1b/4", settings=f"precision.compute=bfloat16 {shaped(1024, 20)}"),
    Case(model="llama-3.2-1b/4", settings=f"{FREE} {BF16} {shaped(2048, 16)}"),
    Case(model="llama-3.2-1b/4", settings=f"{FREE} {shaped(1024, 8)} memory.remat=none"),
    Case(
        model="llama-3.2-1b/4",
        settings=f"{FREE} {BF16} evaluation.max_new_tokens=512 evaluation.batch_size=96",
        program="decode",
        asked=Asked(prompts=256, longest_tokens=512),
    ),
    Case(model="qwen2.5-0.5b/6", settings=f"precision.compute=bfloat16 {shaped(2048, 22)}"),
    Case(model="qwen2.5-1.5b/6", settings=f"{ADAFACTOR} {BF16} {shaped(1024, 80)}"),
    Case(model="qwen3-0.6b/6", settings=f"{FREE} {shaped(1024, 72)}"),
    Case(model="gpt2", settings=f"precision.compute=bfloat16 {shaped(1024, 96)}"),
    Case(model="gemma-2b/3", settings=f"precision.compute=bfloat16 {shaped(2048, 16)}", chips=V5E_8),
    Case(model="llama-3-8b/4", settings=f"{ADAFACTOR} {shaped(2048, 10)}", chips=V5E_8),
    Case(
        model="gemma-2b",
        settings=f"precision.compute=bfloat16 optimizer.max_grad_norm=null {shaped(2048, 4)}",
        chips=V5E_8,
    ),
    Case(model="gemma-2b", settings=f"{ADAFACTOR} {BF16} {shaped(128, 256)}", chips=V5E_8),  # submission_tpu.yaml
    Case(model="gemma-2b", settings=f"{ADAFACTOR} {shaped(128, 256)}", chips=V5E_8),
    Case(model="gemma-2b", settings=f"precision.compute=bfloat16 {shaped(128, 256)}", chips=V5E_8),
    Case(model="gemma-2b", settings=f"precision.compute=bfloat16 {BF16} {shaped(128, 256)}", chips=V5E_8),
    Case(model="gemma-2b", settings=f"precision.compute=bfloat16 {shaped(128, 128)}", chips=V5E_8),
    Case(
        model="gemma-2b",
        settings=f"precision.compute=bfloat16 {ANSWER}",
        program="decode",
        chips=V5E_8,
        asked=HUNDRED,
    ),
    Case(model="gemma-2-9b", settings=f"{ADAFACTOR} {ANSWER}", program="decode", chips=V5E_8, asked=HUNDRED),
    Case(
        model="gemma-2-9b",
        settings=f"{ADAFACTOR} {LONG_ANSWER}",
        program="decode",
        chips=V5E_8,
        asked=Asked(prompts=256, longest_tokens=512),
    ),
    Case(model="llama-3.2-1b", settings=f"{FREE} {shaped(8192, 1)}", attention="splash"),
    Case(model="llama-3.2-1b", settings=f"{FREE} {BF16} {shaped(8192, 1)}", attention="splash"),
    Case(model="gemma-2b", settings=f"{FREE} {BF16} {shaped(2048, 16)}", attention="splash"),
    Case(model="gemma-2b", settings=f"{FREE} {BF16} {shaped(4096, 16)}", attention="splash"),
    Case(model="gemma-2b", settings=f"{FREE} {BF16} {shaped(2048, 16)} {IN_CHUNKS}", attention="splash"),
    Case(model="gemma-2b", settings=f"{FREE} {BF16} {shaped(4096, 16)} {IN_CHUNKS}", attention="splash"),
    Case(
        model="gemma-2b",
        settings=f"precision.compute=bfloat16 optimizer.max_grad_norm=null {shaped(2048, 4)} {IN_CHUNKS}",
        attention="splash",
        chips=V5E_8,
    ),
    Case(model="gemma-2b", settings=f"{ADAPTERS} {shaped(1024, 16)}", attention="splash"),
    Case(model="gemma-2b", settings=f"{ADAPTERS} method.base=nf4 {shaped(1024, 16)}", attention="splash"),
    Case(model="gemma-2b/6", settings=f"{FREE} {BF16} {shaped(512, 64)}"),
    Case(model="gemma-2b/6", settings=f"{FREE} {BF16} {shaped(512, 64)} memory.mlp_chunk_tokens=4096"),
    Case(model="gemma-2-9b", settings=f"{FREE} {BF16} {shaped(1024, 1)}", attention="splash", chips=V5E_8),
    Case(model="qwen2.5-3b", settings=f"{QLORA} {shaped(8192, 1)}", attention="blockwise", chips=T4),
    Case(model="gemma-2b", settings=LORA, program="export"),
    Case(model="gemma-2b", settings=f"{LORA} method.base=nf4", program="export"),
    Case(model="gemma-2b", settings=f"{LORA} method.base=nf4", program="export", chips=V5E_8),
)
SMALL = shaped(128, 16)
CPU_CASES = tuple(
    Case(model=model, settings=settings, program=program, chips=None, asked=asked)
    for model, settings, program, asked in (
        ("demo", SMALL, "train", None),
        ("demo", shaped(64, 32), "train", None),
        ("demo", f"{SMALL} memory.remat=none", "train", None),
        ("demo", f"{SMALL} memory.donate=false", "train", None),
        ("demo", f"{SMALL} batch.accumulation_steps=4", "train", None),
        ("demo", f"{SMALL} precision.compute=bfloat16 {BF16}", "train", None),
        ("demo", f"{shaped(256, 8)} optimizer.name=adafactor optimizer.max_grad_norm=null", "train", None),
        ("tiny-gpt2", SMALL, "train", None),
        ("tiny-gpt2", f"{SMALL} memory.loss_chunk_tokens=null", "train", None),
        ("gpt2", shaped(256, 2), "train", None),
        ("demo", ANSWER, "decode", Asked(prompts=100, longest_tokens=60)),
        ("gpt2", "evaluation.batch_size=8", "decode", Asked(prompts=8, longest_tokens=128)),
    )
)


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
        set_at(document, key, setting_value(value))
    return config_of(document)


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
    sums = {"export": export_parts(task, platform), **estimates(task, platform=platform, asked=case.asked)}
    parts = sums[case.program]
    need = total_bytes(parts)
    said = {"estimated_bytes": need, "parts": {part.name: part.bytes for part in parts if part.bytes}}
    there = target_of("t4").memory_bytes or 0 if platform == "gpu" else V5E_BYTES
    return said if case.chips is None else {**said, "verdict": verdict(need, there, error_of(parts, there))}


def compiled(case: Case, config: Config) -> dict[str, Any]:
    """Return what the compiler says of a case."""
    began = time.perf_counter()
    if case.chips is None:
        task = task_of(config, build_mesh(choose_devices("cpu", 1).list))
        analysis = programs_of(task, asked=case.asked)[case.program].compile().executable.memory_analysis()
        need = (
            analysis.argument_size_in_bytes
            + analysis.output_size_in_bytes
            + analysis.temp_size_in_bytes
            - analysis.alias_size_in_bytes
        )
        return {"compiled_bytes": need, "compile_seconds": round(time.perf_counter() - began, 1)}
    answer = compile_ahead(case.program, config, case.chips, asked=case.asked, limit_seconds=1500)
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
    errors = [abs(row["error_fraction"]) for row in cases]
    wrong = [
        row["case"] for row in cases if "fits" in row and row["verdict"] == ("does_not_fit" if row["fits"] else "fits")
    ]
    return {
        "cases": len(cases),
        "median_error_fraction": round(statistics.median(errors), 4),
        "worst_error_fraction": max(errors),
        "error_fraction_of_the_verdict": ERROR_FRACTION,
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
