"""Values that usually serve: lengths, batch, steps, learning rate, element types, inferred from rows and model."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from evidence.targets import Target
from trainer.config.tree import Config, ElementType, EvaluationConfig, LimitsConfig, OptimizerConfig, PrecisionConfig
from trainer.first_config.look import ModelAndData
from trainer.model.decoder import parameter_count
from trainer.planning.subject import PACKED_FRACTION

SMALL_PARAMETERS = 100_000_000
"""Below it every parameter of a pretrained model may learn at little cost; from it on adapters do."""
TINY_PARAMETERS = 10_000_000
PASSES = 3
"""Over the rows: fewer seldom suffice for a few hundred rows, and many more learn them by heart."""
STEPS_A_PASS = 25
"""Batches are kept small enough for as many steps in a pass."""
FEWEST_STEPS, MOST_STEPS = 10, 5_000
SEQUENCES_A_STEP = 16
TOKENS_A_MICROBATCH = {"cpu": 4_096, "gpu": 16_384, "tpu": 16_384}
"""Beyond so many tokens a device is busy, and more of them gain no speed."""
LENGTH_STEP = 32
TEXT_LENGTH = 512
PACKED_LENGTH = 256
PADDING_WORTH_PACKING = 0.3
SEQUENCES_WORTH_PACKING = 200

LONGEST_NAME = 40

Base = Literal["plain", "nf4"]


def length_and_packing(looked: ModelAndData) -> tuple[int, bool]:
    """Return `data.max_length`, and whether rows share sequences.

    The length holds every row whole. Rows of 20 to 93 tokens, 40 on average, would be padded to 96, 58 % of it empty;
    2,000 of them are packed into sequences of 256.
    """
    positions = looked.model.source.spec.max_positions
    widths = looked.widths
    longest = int(widths.max())
    if looked.rows.kind == "text":
        return min(positions, TEXT_LENGTH), True
    step = LENGTH_STEP if longest > 4 * LENGTH_STEP else LENGTH_STEP // 4
    length = min(positions, max(LENGTH_STEP, math.ceil(longest / step) * step))
    packed = min(positions, max(length, PACKED_LENGTH))
    enough = float(widths.sum()) / (PACKED_FRACTION * packed) >= SEQUENCES_WORTH_PACKING
    if looked.rows.kind == "rows" and enough and widths.mean() < (1 - PADDING_WORTH_PACKING) * length:
        return packed, True
    return length, False


def methods_of(looked: ModelAndData, target: Target) -> list[tuple[Literal["full", "lora"], Base]]:
    """Return methods to try in order; four bits save memory on accelerators alone."""
    small = not looked.model.reads_weights or parameter_count(looked.model.shapes) < SMALL_PARAMETERS
    found: list[tuple[Literal["full", "lora"], Base]] = [("full", "plain")] if small else []
    if looked.model.reads_weights:
        found.append(("lora", "plain"))
        found += [("lora", "nf4")] if target.platform != "cpu" else []
    return found


def precision_of(config: Config, looked: ModelAndData, target: Target) -> PrecisionConfig:
    """Return the element types: 16 bits where the device has them, for parameters only those that do not learn."""
    if target.platform == "cpu":
        return PrecisionConfig()
    compute: ElementType = "bfloat16" if "bfloat16" in target.element_types else "float16"
    if compute == "float16" and ("float16" not in target.element_types or "gemma3" in looked.model.source.spec.family):
        compute = "float32"
    return PrecisionConfig(params="float32" if config.method.kind == "full" else compute, compute=compute)


def sizes(config: Config, looked: ModelAndData, target: Target) -> Iterator[int]:
    """Yield microbatches from the largest worth trying down to one sequence, or one pair."""
    each = 2 if looked.rows.kind == "pairs" else 1
    worth = sequences_a_step(config, looked, target)
    in_tokens = TOKENS_A_MICROBATCH[target.platform] // config.data.max_length
    size = 2 ** int(math.log2(max(1, min(math.ceil(worth / target.devices), in_tokens))))
    while size >= 1:
        yield max(size, each)
        size = 0 if size <= each else size // 2


def sequences_a_step(config: Config, looked: ModelAndData, target: Target) -> int:
    """Return how many sequences a step is to have: few enough for 25 steps a pass, one on each device at least."""
    return max(min(SEQUENCES_A_STEP, sequences_of(config, looked) // STEPS_A_PASS), target.devices, 1)


def sequences_of(config: Config, looked: ModelAndData) -> int:
    """Return the sequences of one pass over the rows that are learned from."""
    rows = len(looked.widths)
    held_back = len(looked.evaluated.items) if looked.evaluated.split else 0
    if config.data.packing or looked.rows.kind == "text":
        tokens = float(looked.data.encoded.lengths.sum()) * (rows - held_back) / rows
        return max(1, math.ceil(tokens / (PACKED_FRACTION * config.data.max_length)))
    return (rows - held_back) * (2 if looked.rows.kind == "pairs" else 1)


def with_steps(config: Config, looked: ModelAndData, target: Target) -> Config:
    """Return a configuration with the steps of some passes over the rows, and a learning rate for its method."""
    at_once = config.batch.microbatch_size * target.devices
    accumulation = max(1, sequences_a_step(config, looked, target) // at_once)
    sequences = sequences_of(config, looked)
    steps = math.ceil(PASSES * sequences / (at_once * accumulation))
    steps = min(MOST_STEPS, max(FEWEST_STEPS, steps))
    return replace(
        config,
        batch=replace(config.batch, accumulation_steps=accumulation),
        optimizer=OptimizerConfig(learning_rate=learning_rate_of(config, looked), warmup_steps=max(1, steps // 20)),
        limits=LimitsConfig(steps=steps),
        recording=replace(config.recording, log_every_steps=max(1, steps // 100)),
        checkpoint=replace(config.checkpoint, save_every_steps=steps // 4 if steps >= 100 else 0),
    )


def learning_rate_of(config: Config, looked: ModelAndData) -> float:
    """Return a usual learning rate: large from random weights, smaller for adapters, small for a pretrained model."""
    lora = config.method.kind == "lora"
    if looked.rows.kind == "pairs":
        return 1e-5 if lora else 1e-6
    if not looked.model.reads_weights:
        return 1e-3
    tiny = parameter_count(looked.model.shapes) < TINY_PARAMETERS
    return 2e-4 if lora else 5e-4 if tiny else 5e-5


def evaluation_of(evaluation: EvaluationConfig, looked: ModelAndData) -> EvaluationConfig:
    """Return how many tokens an output may have: a quarter more than the longest answer of the rows."""
    if evaluation.eval_set is None:
        return evaluation
    room = math.ceil(1.25 * looked.longest_answer / 8) * 8
    positions = looked.model.source.spec.max_positions
    return replace(evaluation, max_new_tokens=max(8, min(room, positions // 2)))


def percentiles(widths: np.ndarray) -> dict[str, int]:
    """Return how long rows are: half of them have at most `p50` tokens."""
    found = {f"p{share}": int(np.percentile(widths, share, method="inverted_cdf")) for share in (50, 90, 99)}
    return {**found, "longest": int(widths.max())}


def run_name(model: str, data: str) -> str:
    """Return what a run's id begins with: `run_name("models/SmolLM2", "my rows.jsonl")` is `SmolLM2-my-rows`."""
    words = [Path(model).name.removesuffix(".gguf"), Path(data).stem if Path(data).suffix else Path(data).name]
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(words)).strip("._-")
    return plain[:LONGEST_NAME].rstrip("._-") or "first"
