"""How far fingerprints of the same answers are apart: computed in other ways, and by what did not give them.

A small decoder is trained for some hundred steps and answers prompts. The states that it wrote from are held against
those of one pass over the same text, computed in every way that changes the order of sums here, and against other
weights, prompts, element types and edited answers. The tolerances in `trainer/evaluation/tolerance.py` follow from the
largest figures of the first kind; docs/decisions/fingerprints.md says what they tell apart.

    python lab/fingerprints.py [--steps 300] [--prompts 40]   # writes benchmarks/results/fingerprints.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

DEVICES = 8
os.environ["JAX_PLATFORMS"] = "cpu"
if "host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={DEVICES}"

import numpy as np  # noqa: E402 - devices are counted before jax is imported
from fingerprint_parts.others import edited, noisy, quantised  # noqa: E402
from fingerprint_parts.ways import (  # noqa: E402
    Text,
    in_chunks,
    in_one_pass,
    packed,
    params_of,
    spread,
    task_of,
    written,
)

from evidence.scores.fingerprint import agreement, fingerprint_bytes, fingerprint_of  # noqa: E402
from trainer.config.load import load_config  # noqa: E402
from trainer.config.tree import Config  # noqa: E402
from trainer.data.kinds import WITH_NEWLINE  # noqa: E402
from trainer.data.prompts import prompts_of  # noqa: E402
from trainer.data.render import PromptForm  # noqa: E402
from trainer.data.rows import read_eval_set  # noqa: E402
from trainer.evaluation.one_pass import AnswerTrace  # noqa: E402
from trainer.evaluation.tolerance import TOLERANCE  # noqa: E402
from trainer.loop.task import Task  # noqa: E402
from trainer.model.params import Params  # noqa: E402

RESULT = Path(__file__).parents[1] / "benchmarks" / "results" / "fingerprints.json"
TYPES = ("float32", "bfloat16", "float16")
NEW_TOKENS = 48
ROWS = 20
OTHER_CPUS = ("AVX2", "SSE4_2")
"""Instruction sets that the compiler is held to in a process of its own: the nearest to another processor here."""


def trained(folder: Path, *, steps: int, seed: int) -> Path:
    """Train the demo's decoder and return the run folder, which keeps its parameters."""
    sets = [f"limits.steps={steps}", f"seed={seed}", "evaluation.eval_set=null", "data.generated_rows=2000"]
    flags = [flag for each in sets for flag in ("--set", each)]
    command = [sys.executable, "-m", "trainproof", "train", "--config", "trainer/configs/demo.yaml", *flags]
    environment = {**os.environ, "XLA_FLAGS": ""}
    subprocess.run([*command, "--device", "cpu", "--output", str(folder)], check=True, env=environment)
    return folder


def prompts(task: Task, count: int) -> list[list[int]]:
    """Return the first prompts of an evaluation set."""
    items = read_eval_set("eval_v2")
    return prompts_of(items, PromptForm(conversation=False, template=WITH_NEWLINE), task.model.source.tokenizer())[
        :count
    ]


def elsewhere(folder: Path, compute: str, texts: Sequence[Text], isa: str) -> list[AnswerTrace]:
    """Return what a process makes of the texts whose compiler is held to another instruction set."""
    with tempfile.TemporaryDirectory() as name:
        asked, found = Path(name) / "texts.json", Path(name) / "found.npz"
        asked.write_text(json.dumps(texts))
        environment = {**os.environ, "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} --xla_cpu_max_isa={isa}"}
        command = [sys.executable, __file__, "--follow", str(folder), compute, str(asked), str(found)]
        subprocess.run(command, check=True, env=environment)
        arrays = np.load(found)
        return [AnswerTrace(states=arrays[f"s{n}"], margins=arrays[f"m{n}"]) for n in range(len(texts))]


def follow(folder: str, compute: str, asked: str, found: str) -> None:
    """Write what this process makes of texts into a file."""
    task = task_of(load_config(Path(folder) / "config.yaml"), compute)
    texts = [(prompt, answer) for prompt, answer in json.loads(Path(asked).read_text())]
    passes = in_one_pass(task.model, params_of(Path(folder)), texts, rows=ROWS)
    arrays = {f"s{n}": each.states.astype(np.float32) for n, each in enumerate(passes)}
    np.savez(found, **arrays, **{f"m{n}": each.margins for n, each in enumerate(passes)})


def same(folder: Path, config: Config, compute: str, texts: list[Text]) -> Iterator[tuple[str, list[AnswerTrace]]]:
    """Yield the same weights and answers, computed in other ways; margins are those of one pass alone."""
    task, params = task_of(config, compute), params_of(folder)
    yield "one pass", in_one_pass(task.model, params, texts, rows=ROWS)
    yield "one pass, a row at a time", in_one_pass(task.model, params, texts, rows=1)
    for name, states in (
        ("two texts packed in a row", packed(task.model, params, texts)),
        ("in chunks of 16 with a cache", in_chunks(task.model, params, texts, chunk=16)),
    ):
        yield name, [AnswerTrace(states=each, margins=np.zeros(1, np.float32)) for each in states]
    parted = task_of(config, compute, DEVICES)
    yield f"{DEVICES} devices, parameters split", in_one_pass(parted.model, spread(params, parted), texts, rows=ROWS)
    # Without AVX the compiler has no conversion of float16.
    for isa in OTHER_CPUS[: 1 if compute == "float16" else None]:
        yield f"compiled for {isa}", elsewhere(folder, compute, texts, isa)


def others(
    folder: Path, other: Path, config: Config, compute: str, texts: list[Text]
) -> Iterator[tuple[str, list[AnswerTrace]]]:
    """Yield what did not give the answers."""
    task, params = task_of(config, compute), params_of(folder)

    def passed(params: Params, texts: Sequence[Text], task: Task = task) -> list[AnswerTrace]:
        return in_one_pass(task.model, params, texts, rows=ROWS)

    yield "another seed", passed(params_of(other), texts)
    for share in (0.01, 0.001):
        yield f"weights with {share:.1%} of noise", passed(noisy(params, share), texts)
    for kind in ("int8", "nf4"):
        yield f"weights kept in {kind}", passed(quantised(params, kind), texts)
    for precision in TYPES:
        if precision != compute:
            yield f"products in {precision}", passed(params, texts, task_of(config, precision))
    turned = [(texts[number - 1][0], answer) for number, (_, answer) in enumerate(texts)]
    yield "the prompt of another item", passed(params, turned)
    vocab = params["tokens.table"].shape[0]
    yield "one token of the prompt changed", passed(params, [(edited(p, vocab, at=2), a) for p, a in texts])
    yield "one token of the answer changed", passed(params, [(p, edited(a, vocab, at=len(a) // 2)) for p, a in texts])


def row(compute: str, fingerprints: Sequence[str], passes: Iterable[AnswerTrace]) -> dict[str, Any]:
    """Return the figures of one way: the largest and smallest distance, and how many answers are outside."""
    allowed, found = TOLERANCE[compute], []
    margins = []
    for fingerprint, each in zip(fingerprints, passes, strict=True):
        found.append(agreement(fingerprint, each.states))
        margins.append(float(each.margins.max()))
    outside = [not allowed.fingerprint.holds(each) for each in found]
    refused = [out or margin > allowed.margin for out, margin in zip(outside, margins, strict=True)]
    return {
        "far_share": ends(each.far_share for each in found),
        "mean_steps": ends(each.mean_steps for each in found),
        "margin": ends(margins),
        "outside": sum(outside),
        "refused": sum(refused),
        "of": len(found),
    }


def ends(values: Iterable[float]) -> list[float]:
    """Return the smallest, the middle and the largest of some values."""
    ordered = sorted(values)
    return [round(float(value), 6) for value in (ordered[0], ordered[len(ordered) // 2], ordered[-1])]


def measured(folder: Path, other: Path, compute: str, count: int) -> dict[str, Any]:
    """Return the figures of one element type."""
    config = load_config(folder / "config.yaml")
    task, params = task_of(config, compute), params_of(folder)
    asked, stop = prompts(task, count), task.model.source.tokenizer().eos_token_id
    answers = written(task.model, params, asked, new=NEW_TOKENS, stop=stop, rows=ROWS)
    texts = [(prompt, list(answer.tokens)) for prompt, answer in zip(asked, answers, strict=True)]
    fingerprints = [str(fingerprint_of(answer.states)) for answer in answers]
    found: dict[str, Any] = {"tokens": sum(len(answer) for _, answer in texts), "same": {}, "others": {}}
    for kind, ways in (
        ("same", same(folder, config, compute, texts)),
        ("others", others(folder, other, config, compute, texts)),
    ):
        for name, passes in ways:
            found[kind][name] = row(compute, fingerprints, passes)
            print(compute, kind, name, found[kind][name], flush=True)
    return found


def main() -> None:
    """Measure, print and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--prompts", type=int, default=40)
    parser.add_argument("--runs", nargs=2, type=Path, help="two runs of the demo's decoder, instead of training them")
    parser.add_argument("--follow", nargs=4, help="used by this program itself")
    given = parser.parse_args()
    if given.follow:
        follow(*given.follow)
        return
    with tempfile.TemporaryDirectory() as name:
        folder, other = given.runs or (
            trained(Path(name) / f"seed-{seed}", steps=given.steps, seed=seed) for seed in (0, 1)
        )
        types = {compute: measured(folder, other, compute, given.prompts) for compute in TYPES}
    result = {
        "model": "demo",
        "steps": given.steps,
        "prompts": given.prompts,
        "bytes_of_32_tokens": fingerprint_bytes(32),
        "machine": {"processor": platform.processor() or platform.machine(), "python": platform.python_version()},
        "types": types,
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
