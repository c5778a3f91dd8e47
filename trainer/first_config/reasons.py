"""Each value of a first configuration with the reason why it is this one, from the figures of model and rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from evidence.targets import Target
from schemas.formats import join_words, quantity, short_count, size
from trainer.config.tree import Config
from trainer.first_config.choice import Choice
from trainer.first_config.look import ModelAndData
from trainer.first_config.values import SMALL_PARAMETERS, percentiles


@dataclass(frozen=True, kw_only=True)
class Reason:
    """One line of the file."""

    key: str
    """Dotted: `data.max_length`."""
    value: Any
    because: str


def reasons_of(choice: Choice, looked: ModelAndData, target: Target) -> Iterator[Reason]:
    """Yield the lines of the file in its order; keys that keep their default for a plain reason are left out."""
    config = choice.config
    yield from model_reasons(choice, looked)
    yield from data_reasons(config, looked)
    yield from method_reasons(choice, looked)
    yield from step_reasons(choice, target)
    yield from machine_reasons(choice, looked, target)
    yield from evaluation_reasons(config, looked)
    yield Reason(
        key="limits.steps",
        value=config.limits.steps,
        because=f"{config.limits.steps * choice.batch_size / choice.sequences:.1f} passes over the rows; a pass takes "
        f"{choice.sequences / choice.batch_size:,.1f} steps",
    )


def model_reasons(choice: Choice, looked: ModelAndData) -> Iterator[Reason]:
    """Yield the lines on the run and its model."""
    config, source = choice.config, looked.model.source
    yield Reason(key="name", value=config.name, because="the run's folder begins with it")
    yield Reason(key="seed", value=config.seed, because="another seed gives other random choices; repeat with 1, 2, …")
    positions = source.spec.max_positions
    yield Reason(
        key="model.name",
        value=config.model.name,
        because=f"{short_count(choice.parameters)} parameters of the family {source.spec.family}, {positions:,} "
        f"positions, {'its own weights' if looked.model.reads_weights else 'random weights: it knows nothing yet'}",
    )


def data_reasons(config: Config, looked: ModelAndData) -> Iterator[Reason]:
    """Yield the lines on the rows."""
    rows, lengths = looked.rows, percentiles(looked.widths)
    repeated = looked.data.document()["duplicates"]
    twice = f"; {quantity(repeated, 'row')} with a question of an earlier one" if repeated else ""
    held = "; those of the evaluation are taken out" if looked.evaluated.split else ""
    told = f"{quantity(len(rows.table), 'row')} with {join_words(rows.columns, last='and')}{twice}{held}"
    yield Reason(key="data.dataset", value=config.data.dataset, because=told)
    if config.data.kind == "text":
        yield Reason(key="data.kind", value="text", because="plain text, of which every token is learned")
    spread = f"half of the rows have at most {lengths['p50']:,} tokens, 99 % {lengths['p99']:,}, the longest "
    whole = "cut into parts" if config.data.kind == "text" else "every row is whole"
    yield Reason(
        key="data.max_length",
        value=config.data.max_length,
        because=f"{spread}{lengths['longest']:,}: {whole}; a shorter one saves memory and cuts rows",
    )
    padded = 100 * (1 - min(float(looked.widths.mean()) / config.data.max_length, 1))
    yield Reason(
        key="data.packing",
        value=config.data.packing,
        because=f"alone in its sequence a row would leave {padded:.0f} % of it empty"
        if config.data.packing
        else f"rows fill {100 - padded:.0f} % of their sequences; packing pays where many rows are short",
    )


def method_reasons(choice: Choice, looked: ModelAndData) -> Iterator[Reason]:
    """Yield the lines on what learns, and how fast."""
    config, small = choice.config, choice.parameters < SMALL_PARAMETERS
    if config.objective.kind == "dpo":
        yield Reason(key="objective.kind", value="dpo", because="the rows say which of two answers is preferred")
    lora = config.method.kind == "lora"
    share = f"{short_count(choice.trained)} of {short_count(choice.parameters)} parameters learn"
    if not lora:
        why = "the model is small" if looked.model.reads_weights else "random weights must all learn"
    else:
        why = "with every parameter it does not fit" if small else "the model is large; adapters are quick and small"
    yield Reason(key="method.kind", value=config.method.kind, because=f"{why}: {share}")
    if lora:
        yield Reason(key="method.rank", value=config.method.rank, because="usual; 8 is smaller, 64 learns more")
        yield Reason(key="method.alpha", value=config.method.alpha, because="twice the rank, as is usual")
    if config.method.base != "plain":
        yield Reason(key="method.base", value=config.method.base, because="in 16 bits the frozen model does not fit")
    if not looked.model.reads_weights:
        usual = "from random weights"
    else:
        usual = f"{'with adapters' if lora else 'where every parameter of a pretrained model learns'}"
    rate = config.optimizer.learning_rate
    yield Reason(
        key="optimizer.learning_rate", value=rate, because=f"usual {usual}; if the loss jumps up, take a third of it"
    )
    yield Reason(
        key="optimizer.warmup_steps",
        value=config.optimizer.warmup_steps,
        because="a twentieth of the steps, so that the first ones do no harm",
    )


def step_reasons(choice: Choice, target: Target) -> Iterator[Reason]:
    """Yield the lines on how much a step takes in."""
    config, need = choice.config, choice.need
    there = f" of {size(need.available_bytes)}" if need.available_bytes is not None else ""
    verdict = "" if choice.fits else ", which is too much or close to it"
    yield Reason(
        key="batch.microbatch_size",
        value=config.batch.microbatch_size,
        because=f"by formulas the run needs {size(need.peak_bytes)}{there} on {target.title}{verdict}; "
        "`trainproof plan` asks the compiler",
    )
    on = f" on {choice.devices} devices" if choice.devices > 1 else ""
    yield Reason(
        key="batch.accumulation_steps",
        value=config.batch.accumulation_steps,
        because=f"{quantity(choice.batch_size, 'sequence')} a step{on}",
    )


def machine_reasons(choice: Choice, looked: ModelAndData, target: Target) -> Iterator[Reason]:
    """Yield the lines that follow from the machine: element types, recomputing, saving."""
    config = choice.config
    if target.platform != "cpu":
        if config.precision.params != "float32":
            because = "of the frozen model; adapters learn in float32"
            yield Reason(key="precision.params", value=config.precision.params, because=because)
        because = f"the fastest type that {target.title} has and {looked.model.source.spec.family} bears"
        yield Reason(key="precision.compute", value=config.precision.compute, because=because)
    kept = "quicker: recomputing takes a third more" if config.memory.remat == "none" else "saves most of the memory"
    yield Reason(key="memory.remat", value=config.memory.remat, because=kept)
    if not config.mesh.shard_params:
        because = "each card holds the whole frozen model; sending parts of it would take longer than the step"
        yield Reason(key="mesh.shard_params", value=False, because=because)
    if saved := config.checkpoint.save_every_steps:
        because = "what an interruption can cost; `trainproof train --resume RUN` goes on from there"
        yield Reason(key="checkpoint.save_every_steps", value=saved, because=because)
    if (logged := config.recording.log_every_steps) > 1:
        yield Reason(key="recording.log_every_steps", value=logged, because="about a hundred points on each curve")


def evaluation_reasons(config: Config, looked: ModelAndData) -> Iterator[Reason]:
    """Yield the lines on the evaluation, or the one that states why it is missing."""
    evaluated = looked.evaluated
    yield Reason(key="evaluation.eval_set", value=config.evaluation.eval_set, because=evaluated.because)
    if config.evaluation.eval_set is None:
        return
    tokens = config.evaluation.max_new_tokens
    longest = f"the longest answer of the rows has {looked.longest_answer:,} tokens"
    yield Reason(key="evaluation.max_new_tokens", value=tokens, because=longest)
