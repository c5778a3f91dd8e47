"""What is changed of the forged fine-tuning; the first is the forgery itself."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np

from adversary_parts.forged_gpu import CHAIN, END, START, STOP, Change, at
from adversary_parts.lies import BASELINE, LOG, MANIFEST, METRICS, PLAN, PREDICTIONS, SUMMARY, Values, moved, one


def rows(file: str, **values: Any) -> Change:
    """Return a change of every row of a file; a value may be a function of the row's number."""

    def change(all_: Values) -> None:
        for place, row in enumerate(all_[file]):
            row.update({key: value(place) if callable(value) else value for key, value in values.items()})

    return change


def single(number: float) -> float:
    """Return the nearest number of float32."""
    return float(np.float32(number))


def logged(values: Values, event: str, **fields: Any) -> None:
    """Change what an event states."""
    next(record for record in values[LOG] if record["event"] == event)["fields"].update(fields)


def memory(size: int) -> Change:
    """Return another memory, in every place that states it."""

    def change(values: Values) -> None:
        rows(METRICS, device_memory_bytes=size)(values)
        values[MANIFEST]["result"]["peak_memory_bytes"] = size
        logged(values, "trained", peak_memory_bytes=size)

    return change


def chip(kind: str) -> Change:
    """Return another chip, in every place that states it."""

    def change(values: Values) -> None:
        values[MANIFEST]["devices"] |= {"kind": kind, "list": [{"id": 0, "kind": kind}]}
        values[PLAN]["target"]["name"] = kind

    return change


def packages(**versions: str) -> Change:
    """Return other versions."""
    return lambda values: values[MANIFEST]["environment"]["packages"].update(versions)


def size(values: Values) -> None:
    """State 900,000 parameters."""
    values[MANIFEST]["model"] |= {"parameters": 900_000, "trainable_parameters": 900_000}


def few_items(values: Values) -> None:
    """Ask three items."""
    for file in (PREDICTIONS, BASELINE):
        del values[file][3:]


def family(values: Values) -> None:
    """Call it a Mistral."""
    values[MANIFEST]["model"]["family"] = "mistral"
    logged(values, "compiled", family="mistral")


def untrained(values: Values) -> None:
    """End with the parameters of the start."""
    values[CHAIN][-1]["params_sha256"] = values[SUMMARY]["checkpoint"]["params_sha256"] = START
    logged(values, "evaluated", params_sha256=START)
    assert START != END


def ids(change: Any) -> Change:
    """Return another change of each answer's tokens."""

    def told(values: Values) -> None:
        for row in values[PREDICTIONS]:
            row["output_token_ids"] = " ".join(change(row["output_token_ids"].split()))

    return told


def again(values: Values) -> None:
    """Let the losses of the first half come again."""
    half = len(values[METRICS]) // 2
    for first, second in zip(values[METRICS], values[METRICS][half:], strict=False):
        second["loss"] = first["loss"]


def fast(values: Values) -> None:
    """Take a microsecond for each step."""
    for row in values[METRICS]:
        row["tokens_per_second"] *= row["step_seconds"] / 1e-6
        row |= {"step_seconds": 1e-6, "time": at(1e-6 * row["step"])}
    values[MANIFEST]["result"]["train_seconds"] = 5e-4
    logged(values, "trained", train_seconds=5e-4)


GPU_VARIANTS: dict[str, Change] = {
    "as told": lambda values: None,
    "900,000 parameters": size,
    "three items": few_items,
    "a first loss of 80": lambda values: values[METRICS][0].update(loss=80.0),
    "losses of next to nothing": rows(METRICS, loss=lambda place: single(1e-12 * (place + 1))),
    "80 GB of a 40 GB card": memory(80 << 30),
    "100 kB of memory": memory(100_000),
    "the year 1987": moved(-39 * 365),
    "the year 2090": moved(64 * 365),
    "steps of a microsecond": fast,
    "Python 2.7": one(f"{MANIFEST}/environment/python", "2.7.18"),
    "jax 0.1": packages(jax="0.1.0", jaxlib="0.1.0"),
    "a card of no name": chip("Quantum Z1"),
    "50 answers in no time": lambda values: values[SUMMARY].update(finished_at=values[SUMMARY]["started_at"]),
    "one gradient norm": rows(METRICS, grad_norm=1.0),
    "a half that comes again": again,
    "losses of three decimals": rows(METRICS, loss=lambda place: round(1 - place / 99 + random.random() / 9, 3)),
    "an exponential": rows(METRICS, loss=lambda place: single(2 * math.exp(-place / 20))),
    "items in the training data": one(f"{MANIFEST}/dataset/overlap_with_eval", 50),
    "answers without an end": ids(lambda tokens: [*tokens[:-1], "77"]),
    "answers that end twice": ids(lambda tokens: [str(STOP), *tokens[1:]]),
    "another family": family,
    "parameters of the start": untrained,
    "one state for every step": rows(CHAIN, state_sha256="cd" * 32),
    "one fingerprint": lambda values: rows(PREDICTIONS, fingerprint=values[PREDICTIONS][0]["fingerprint"])(values),
    "a commit of one digit": one(f"{MANIFEST}/code/commit", "f" * 40),
    "two rows of data": one(f"{MANIFEST}/dataset/rows", 2),
    "two billion tokens": rows(METRICS, tokens_seen=lambda place: 40_000_000 * (place + 1)),
}
"""Name and change."""
