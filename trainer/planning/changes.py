"""Changes that make a run smaller, the cheapest ones with which it fits, and the microbatches that fit."""

from __future__ import annotations

import json
import math
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from schemas.problems import ProblemError
from trainer.config.tree import Config
from trainer.loop.task import BLOCKWISE_FROM
from trainer.model.model import resolve_remat
from trainer.objectives import build_objective
from trainer.planning.memory import REMATS, WORST_FIRST, Estimator, ProgramMemory, deciding
from trainer.planning.out_of_memory import setting_cost
from trainer.planning.subject import Subject
from trainer.runtime import ALL_TYPES, half_type

SMALLEST_LENGTH, SMALLEST_CHUNK, SMALLEST_MLP_CHUNK = 256, 256, 2048
MAX_SETS, MAX_ASKED = 4, 4
"""Sets of changes, and sizes in one search, that are compiled."""
LEAST_FREED = 0.01
"""Share of the need below which a change is not worth naming."""
LARGEST = 4096
"""Sequences of the largest microbatch that is considered."""
GRID_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
GRID_LENGTHS = (128, 256, 512, 1024, 2048, 4096)
CONFIRM_SECONDS = 240.0
"""Time limit of all compilations of a grid."""


class Change(NamedTuple):
    """A change of a configuration: settings as `--set` takes them, and the changed configuration."""

    settings: tuple[str, ...]
    config: Config

    @property
    def kind(self) -> str:
        """The first setting's key."""
        return self.settings[0].partition("=")[0]


def smallest_microbatch(config: Config) -> int:
    """Return the smallest microbatch: one sequence, or two if the objective compares pairs."""
    return 2 if build_objective(config).takes_pairs else 1


def list_changes(config: Config, element_types: Sequence[str] = ALL_TYPES) -> Iterator[Change]:
    """Yield changes that may save memory on a device with these types, cheapest first.

    Up to `memory.remat` they do not change what is trained.
    """
    memory, batch, optimizer, length = config.memory, config.batch, config.optimizer, config.data.max_length
    smaller, microbatch = [], batch.microbatch_size
    while microbatch % 2 == 0 and microbatch > smallest_microbatch(config):
        microbatch //= 2
        steps = batch.accumulation_steps * batch.microbatch_size // microbatch
        smaller.append({"microbatch_size": microbatch, "accumulation_steps": steps})
    remats = REMATS[REMATS.index(resolve_remat(config)) + 1 :]
    compute, params = (half_type(key, config, element_types) for key in ("compute", "params"))
    states = {"float32": ("bfloat16", "int8"), "bfloat16": ("int8",)}.get(optimizer.state, ())
    adafactor = {"name": "adafactor"} | ({} if optimizer.state == "float32" else {"state": "float32"})
    tokens = memory.mlp_chunk_tokens or batch.microbatch_size * length
    changes: list[tuple[bool, str, dict[str, Any]]] = [
        (not memory.donate, "memory", {"donate": True}),
        ((memory.loss_chunk_tokens or math.inf) > SMALLEST_CHUNK, "memory", {"loss_chunk_tokens": SMALLEST_CHUNK}),
        (config.evaluation.batch_size > 1, "evaluation", {"batch_size": 1}),
        (tokens > SMALLEST_MLP_CHUNK, "memory", {"mlp_chunk_tokens": SMALLEST_MLP_CHUNK}),
        (memory.attention == "plain", "memory", {"attention": "auto"}),
        (memory.attention == "auto" and length < BLOCKWISE_FROM, "memory", {"attention": "blockwise"}),
        *((True, "batch", values) for values in smaller),
        *((True, "memory", {"remat": remat}) for remat in remats),
        (config.precision.compute == "float32" != compute, "precision", {"compute": compute}),
        (config.precision.params == "float32" != params, "precision", {"params": params}),
        (optimizer.max_grad_norm is not None, "optimizer", {"max_grad_norm": None}),
        *((optimizer.name == "adamw", "optimizer", {"state": state}) for state in states),
        (optimizer.name == "adamw", "optimizer", adafactor),
        (config.method.kind == "full", "method", {"kind": "lora"}),
        (length > SMALLEST_LENGTH, "data", {"max_length": length // 2}),
    ]
    for is_smaller, group, values in changes:
        if is_smaller:
            texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
            settings = tuple(f"{group}.{key}={text}" for key, text in texts.items())
            yield Change(settings, config.changed(**{group: values}))


def advise(
    subject: Subject, estimator: Estimator, need: int, element_types: Sequence[str] = ALL_TYPES
) -> list[dict[str, Any]]:
    """Return sets of changes as in plan.json, those that fit first: single changes, and the cheapest that fit together.

    The formula of the estimator, scaled to the need of the run in bytes, orders the candidates.
    """
    search = _Search(subject, estimator, need, element_types)
    found = [each for each in (*search.single(), *search.together()) if each["frees_bytes"] >= LEAST_FREED * need]
    return sorted(found, key=lambda each: -WORST_FIRST.index(each["verdict"]))[:MAX_SETS]


class _Search:
    """Candidates for changes of one run."""

    def __init__(self, subject: Subject, estimator: Estimator, need: int, element_types: Sequence[str]) -> None:
        self.subject, self.estimator, self.need, self.element_types = subject, estimator, need, element_types
        self.limit, self.scale = estimator.available_bytes or 0, 1.0
        self.scale = need / self.expected(subject.task.config)

    def expected(self, config: Config) -> float:
        """Return the scaled estimate; a configuration that cannot be built saves nothing."""
        try:
            return self.scale * _decide(self.subject.changed(config), self.estimator.formula_only()).peak_bytes
        except ProblemError:
            return math.inf

    def single(self) -> Iterator[dict[str, Any]]:
        """Yield changes that are enough alone, one of each setting."""
        by_kind: dict[str, list[Change]] = {}
        for change in list_changes(self.subject.task.config, self.element_types):
            if self.expected(change.config) <= min(self.limit, (1 - LEAST_FREED) * self.need):
                by_kind.setdefault(change.kind, []).append(change)
        for same in list(by_kind.values())[: MAX_SETS - 1]:
            # If the first value of a setting is refused, its last one is tried.
            for change in same[:1] + same[1:][-1:]:
                yield (found := self.verified(change))
                if found["verdict"] == "fits":
                    break

    def together(self) -> Iterator[dict[str, Any]]:
        """Add the cheapest change that saves memory, and yield each set, until one fits."""
        taken: list[Change] = []
        config, now = self.subject.task.config, float(self.need)
        while True:
            kinds = {change.kind for change in taken}
            for change in list_changes(config, self.element_types):
                if change.kind not in kinds and (less := self.expected(change.config)) < (1 - LEAST_FREED) * now:
                    break
            else:
                return
            taken, config, now = [*taken, change], change.config, less
            if now <= self.limit and len(taken) > 1:
                yield (found := self.verified(*taken))
                if found["verdict"] == "fits":
                    return

    def verified(self, *changes: Change) -> dict[str, Any]:
        """Plan the run with changes; the last one has the whole configuration."""
        decides = _decide(self.subject.changed(changes[-1].config), self.estimator)
        return {
            "set": [setting for change in changes for setting in change.settings],
            "verdict": decides.verdict,
            "method": decides.method,
            "need_bytes": decides.peak_bytes,
            "frees_bytes": self.need - decides.peak_bytes,
            "costs": "; ".join(dict.fromkeys(setting_cost(change.settings[0]) for change in changes)),
        }


def _decide(subject: Subject, estimator: Estimator) -> ProgramMemory:
    return deciding(estimator.programs(subject.task, subject.eval_shape))


def _sized(subject: Subject, size: int, length: int) -> Subject:
    sizes = {"batch": {"microbatch_size": size}, "data": {"max_length": length}}
    return subject.changed(subject.task.config.changed(**sizes))


def largest_microbatch(
    subject: Subject, estimator: Estimator, now: ProgramMemory, *, say: Callable[[str], None]
) -> dict[str, Any] | None:
    """Search the largest microbatch that fits at the configured length, with at most `MAX_ASKED` compilations.

    Return its size, need and method, or None if the smallest does not fit or the memory is unknown; `now` decides at
    the configured size.
    """
    limit, formula, config = estimator.available_bytes, estimator.formula_only(), subject.task.config
    if limit is None:
        return None
    length, each = config.data.max_length, smallest_microbatch(config)  # sizes are counted in pairs if it takes pairs

    def at(size: int, estimator: Estimator) -> ProgramMemory:
        return _decide(_sized(subject, each * size, length), estimator)

    size, answer, best = config.batch.microbatch_size // each, now, None
    fits, refused, asked = 0, LARGEST // each + 1, 0
    while True:
        if answer.verdict == "fits":
            fits, best = size, answer
        else:
            refused = size
        step = max(1, fits // 16)
        if refused - fits <= step or asked >= MAX_ASKED:
            break
        # The formula, scaled to the last answer, proposes the next size.
        scale = answer.peak_bytes / at(size, formula).peak_bytes
        room = limit / scale / (1 + answer.error_fraction)
        proposed = bisect_right(range(refused), room, lo=fits + 1, key=lambda size: at(size, formula).peak_bytes) - 1
        size = proposed if proposed > fits else min(fits + step, refused - 1)
        say(f"trying {each * size} sequences of {length} tokens")
        answer, asked = at(size, estimator), asked + 1
    if best is None:
        return None
    sizes = {"microbatch_size": each * fits, "max_length": length}
    return sizes | {"need_bytes": best.peak_bytes, "method": best.method}


def grid(subject: Subject, estimator: Estimator) -> dict[str, Any]:
    """Return which microbatches fit at which lengths: by formula, and compiled at the boundary of each length.

    The run's own size and length are included. The largest size that fits at each length is compiled, and its
    neighbours as far as they decide.
    """
    config, longest = subject.task.config, subject.task.model.source.spec.max_positions
    lengths = sorted({*(length for length in GRID_LENGTHS if length <= longest), config.data.max_length})
    allowed = (size for size in GRID_SIZES if size % smallest_microbatch(config) == 0)
    sizes, cells = sorted({*allowed, config.batch.microbatch_size}), []
    until = time.monotonic() + CONFIRM_SECONDS
    for length in lengths:
        row = [_decide(_sized(subject, size, length), estimator.formula_only()) for size in sizes]
        last = sum(answer.verdict in ("fits", "unknown") for answer in row) - 1
        # The largest size that fits, the next smaller one if it does not, and the next larger one if it may fit.
        for at in (last, last - 1, last + 1) if estimator.machine is not None else ():
            is_open = at == last or (
                row[last].verdict != "fits" if at < last else row[at:][:1] and row[at].verdict == "tight"
            )
            if at >= 0 and is_open and time.monotonic() < until:
                row[at] = _decide(_sized(subject, sizes[at], length), estimator)
        for size, answer in zip(sizes, row, strict=True):
            figures = {name: getattr(answer, name) for name in ("verdict", "method", "error_fraction")}
            sizing = {"microbatch_size": size, "max_length": length}
            cells.append(sizing | figures | {"need_bytes": answer.peak_bytes})
    limit = estimator.available_bytes
    return {"microbatch_sizes": sizes, "max_lengths": lengths, "cells": cells, "available_bytes": limit}
