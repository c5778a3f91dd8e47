"""Output of `trainproof init`: findings, warnings and the next commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from schemas.formats import join_words, quantity, short_count, size
from schemas.render import as_text
from trainer.config.convert import Conversion
from trainer.first_config import WrittenConfig, percentiles

DESCRIPTIONS = (
    "validate the configuration, model and data",
    "memory and time",
    "smoke run: two steps through the whole pipeline",
    "train",
    "one file to submit",
    "",
)
"""Descriptions of `WrittenConfig.commands`."""


def made_text(made: WrittenConfig) -> str:
    """Return the findings, the warnings and the next commands as text."""
    lines = [*found_lines(made), "", f"Written: {join_words(map(str, made.written), last='and')}.", ""]
    if made.warnings:
        lines += [*as_text(made.warnings).splitlines(), ""]
    commands = made.commands()
    width = max(map(len, commands))
    lines += [
        "Next:",
        *(f"  {each:{width}}  {what}".rstrip() for each, what in zip(commands, DESCRIPTIONS, strict=True)),
    ]
    return "\n".join(lines) + "\n"


def conversion_text(converted: Conversion, output: Path) -> str:
    """Return the number of converted keys, the keys without an equivalent by reason, and the next commands as text."""
    settings = quantity(len(converted.settings), "setting")
    lines = [
        f"{converted.source} ({converted.form}): {settings} converted; {output} says where each value is from.",
        "",
    ]
    reasons: dict[str, list[str]] = {}
    for each in converted.unconverted:
        reasons.setdefault(each.reason, []).append(each.name)
    if reasons:
        lines += ["Without an equivalent:", *(f"  {', '.join(names)}: {why}" for why, names in reasons.items()), ""]
    config = shlex.quote(str(output))
    lines += [
        f"Written: {output}.",
        "",
        "Next:",
        f"  trainproof train --config {config} --check          validate the configuration, model and data",
        f"  trainproof train --config {config} --smoke_steps 2  smoke run: two steps through the whole pipeline",
    ]
    return "\n".join(lines) + "\n"


def found_lines(made: WrittenConfig) -> Iterator[str]:
    """Yield a line each for model, rows, lengths, evaluation and memory."""
    looked, choice, config = made.looked, made.choice, made.choice.config
    lengths, rows, need = percentiles(looked.widths), looked.rows, made.choice.need
    learned = (
        f"method {config.method.kind}, {short_count(choice.trained)} of {short_count(choice.parameters)} parameters"
    )
    yield f"model       {made.order.model}: {looked.model.source.spec.family}, {learned}"
    repeated = looked.data.document()["duplicates"]
    twice = f", {quantity(repeated, 'question')} repeated" if repeated else ""
    yield f"rows        {quantity(len(rows.table), 'row')} with {join_words(rows.columns, last='and')}{twice}"
    spread = ", ".join(f"{share} % at most {lengths[f'p{share}']:,}" for share in (50, 90, 99))
    length = f"sequences of {config.data.max_length:,}{', packed' if config.data.packing else ''}"
    yield f"tokens      {spread}, the longest {lengths['longest']:,}; {length}"
    items = f"{quantity(len(looked.evaluated.items), 'item')}, " if looked.evaluated.items else ""
    yield f"evaluation  {items}{looked.evaluated.because}"
    steps = f"{quantity(config.limits.steps, 'step')} of {quantity(choice.batch_size, 'sequence')}"
    verdict = {"fits": "fits", "unknown": "limit not known", "tight": "tight"}.get(need.verdict, "does not fit")
    there = f" of {size(need.available_bytes)}" if need.available_bytes is not None else ""
    yield f"run         {steps}; {size(need.peak_bytes)}{there} by formulas: {verdict}"
