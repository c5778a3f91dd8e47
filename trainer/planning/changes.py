"""Changes that make a run smaller, the cheapest ones with which it fits, and the microbatches that fit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from schemas.problems import ProblemError
from trainer.config.tree import Config
from trainer.loop.task import BLOCKWISE_FROM
from trainer.model.model import resolve_remat
from trainer.objectives import build_objective
from trainer.planning.memory import REMATS, WORST_FIRST, Estimator, ProgramMemory, deciding, worst
from trainer.planning.subject import Subject
from trainer.planning.words import setting_cost
from trainer.runtime import ALL_TYPES, half_type

SMALLEST_LENGTH = 256
SMALLEST_CHUNK = 256
SMALLEST_MLP_CHUNK = 2048
MAX_SETS = 4
"""Sets of changes that are compiled."""
LEAST_FREED = 0.01
"""Share of the need below which a change is not worth naming."""

LARGEST = 4096
"""Sequences of the largest microbatch that is considered."""
GRID_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
GRID_LENGTHS = (128, 256, 512, 1024, 2048, 4096)
MAX_ASKED = 4
"""Sizes that are compiled in one search."""
CONFIRM_SECONDS = 240.0
"""Time limit of all compilations of a grid."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of a configuration: settings as `--set` takes them, and the changed configuration."""

    settings: tuple[str, ...]
    config: Config

    @property
    def kind(self) -> str:
        """The first setting's key."""
        return self.settings[0].partition("=")[0]

    @property
    def costs(self) -> str:
        """What the change costs."""
        return setting_cost(self.settings[0])


def smallest_microbatch(config: Config) -> int:
    """Return the smallest microbatch: one sequence, or two if the objective compares pairs."""
    return 2 if build_objective(config).takes_pairs else 1


def list_changes(config: Config, element_types: Sequence[str] = ALL_TYPES) -> Iterator[Change]:
    """Yield changes that may save memory, cheapest first.

    Up to `memory.remat` they do not change what is trained.

    Args:
        config: The run.
        element_types: Types that the device supports.
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
    changes: list[tuple[bool, str, dict[str, Any]]] = [
        (not memory.donate, "memory", {"donate": True}),
        (
            memory.loss_chunk_tokens is None or memory.loss_chunk_tokens > SMALLEST_CHUNK,
            "memory",
            {"loss_chunk_tokens": SMALLEST_CHUNK},
        ),
        (config.evaluation.batch_size > 1, "evaluation", {"batch_size": 1}),
        (
            (memory.mlp_chunk_tokens or batch.microbatch_size * length) > SMALLEST_MLP_CHUNK,
            "memory",
            {"mlp_chunk_tokens": SMALLEST_MLP_CHUNK},
        ),
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
            changed = replace(config, **{group: replace(getattr(config, group), **values)})
            yield Change(
                settings=tuple(
                    f"{group}.{key}={'true' if value is True else 'null' if value is None else value}"
                    for key, value in values.items()
                ),
                config=changed,
            )


def advise(
    subject: Subject,
    estimator: Estimator,
    programs: Sequence[ProgramMemory],
    candidates: Callable[[Config], Iterable[Change]] = list_changes,
) -> list[dict[str, Any]]:
    """Return sets of changes as in plan.json, those that fit first: single changes, and the cheapest that fit together.

    Args:
        subject: A run that does not fit, or may not.
        estimator: Verifies sets; its formula, scaled to the programs of the run, orders the candidates.
        programs: Memory of the run.
        candidates: Changes of a configuration that the device can compute, cheapest first.
    """
    search = _Search(subject, estimator, deciding(programs).peak_bytes)
    found = [*search.single(candidates(subject.task.config)), *search.together(candidates)]
    found = [each for each in found if each["frees_bytes"] >= LEAST_FREED * search.need]
    return sorted(found, key=lambda each: -WORST_FIRST.index(each["verdict"]))[:MAX_SETS]


class _Search:
    """Candidates for changes of one run."""

    def __init__(self, subject: Subject, estimator: Estimator, need: int) -> None:
        self.subject, self.estimator, self.need = subject, estimator, need
        self.limit, self.scale = estimator.available_bytes or 0, 1.0
        self.scale = need / self.expected(subject.task.config)

    def expected(self, config: Config) -> float:
        """Return the scaled estimate; a configuration that cannot be built saves nothing."""
        try:
            programs = self._programs(config, self.estimator.formula_only())
        except ProblemError:
            return float("inf")
        return self.scale * max(program.peak_bytes for program in programs)

    def single(self, changes: Iterable[Change]) -> Iterator[dict[str, Any]]:
        """Yield changes that are enough alone, one of each setting."""
        by_kind: dict[str, list[Change]] = {}
        for change in changes:
            if self.expected(change.config) <= min(self.limit, (1 - LEAST_FREED) * self.need):
                by_kind.setdefault(change.kind, []).append(change)
        for same in list(by_kind.values())[: MAX_SETS - 1]:
            # If the first value of a setting is refused, its last one is tried.
            for change in same[:1] + same[1:][-1:]:
                yield (found := self.verified((change,)))
                if found["verdict"] == "fits":
                    break

    def together(self, candidates: Callable[[Config], Iterable[Change]]) -> Iterator[dict[str, Any]]:
        """Add the cheapest change that saves memory, and yield each set, until one fits."""
        taken: tuple[Change, ...] = ()
        config, now = self.subject.task.config, float(self.need)
        while True:
            kinds = {change.kind for change in taken}
            saving = (
                change
                for change in candidates(config)
                if change.kind not in kinds and self.expected(change.config) < (1 - LEAST_FREED) * now
            )
            if (change := next(saving, None)) is None:
                return
            taken, config, now = (*taken, change), change.config, self.expected(change.config)
            if now <= self.limit and len(taken) > 1:
                yield (found := self.verified(taken))
                if found["verdict"] == "fits":
                    return

    def verified(self, changes: tuple[Change, ...]) -> dict[str, Any]:
        """Plan the run with changes; the last one has the whole configuration."""
        programs = self._programs(changes[-1].config, self.estimator)
        decides = deciding(programs)
        return {
            "set": [setting for change in changes for setting in change.settings],
            "verdict": worst(program.verdict for program in programs),
            "method": decides.method,
            "need_bytes": decides.peak_bytes,
            "frees_bytes": self.need - decides.peak_bytes,
            "costs": "; ".join(dict.fromkeys(change.costs for change in changes)),
        }

    def _programs(self, config: Config, estimator: Estimator) -> list[ProgramMemory]:
        changed = self.subject.changed(config)
        return estimator.programs(changed.task, changed.eval_shape)


def largest_microbatch(
    subject: Subject, estimator: Estimator, now: ProgramMemory, *, say: Callable[[str], None]
) -> dict[str, Any] | None:
    """Search the largest microbatch that fits at the configured length, with at most `MAX_ASKED` compilations.

    Args:
        subject: The run.
        estimator: Decides.
        now: The program that decides at the configured size.
        say: Called with lines about progress.

    Returns:
        Its size, need and method; None if the smallest does not fit or the memory is unknown.
    """
    if estimator.available_bytes is None:
        return None
    config, formula = subject.task.config, estimator.formula_only()
    length, each = config.data.max_length, smallest_microbatch(config)  # sizes are counted in pairs if it takes pairs
    size = config.batch.microbatch_size // each
    answer, best = now, None
    fits, refused, asked = 0, LARGEST // each + 1, 0
    while True:
        if answer.verdict == "fits":
            fits, best = size, answer
        else:
            refused = size
        if refused - fits <= max(1, fits // 16) or asked >= MAX_ASKED:
            break
        # The formula, scaled to the last answer, proposes the next size.
        scale = answer.peak_bytes / _decide(subject, formula, each * size, length).peak_bytes
        low, high = fits, refused - 1
        while low < high:
            middle = (low + high + 1) // 2
            need = scale * _decide(subject, formula, each * middle, length).peak_bytes * (1 + answer.error_fraction)
            low, high = (middle, high) if need <= estimator.available_bytes else (low, middle - 1)
        size = low if low > fits else min(fits + max(1, fits // 16), refused - 1)
        say(f"trying {each * size} sequences of {length} tokens")
        answer, asked = _decide(subject, estimator, each * size, length), asked + 1
    if best is None:
        return None
    return {
        "microbatch_size": each * fits,
        "max_length": length,
        "need_bytes": best.peak_bytes,
        "method": best.method,
    }


def grid(subject: Subject, estimator: Estimator) -> dict[str, Any]:
    """Return which microbatches fit at which lengths: by formula, and compiled at the boundary of each length.

    Args:
        subject: The run; its own size and length are included.
        estimator: Confirms the largest size that fits at each length, and the next one if it may fit.
    """
    config, longest = subject.task.config, subject.task.model.source.spec.max_positions
    lengths = sorted({*(length for length in GRID_LENGTHS if length <= longest), config.data.max_length})
    allowed = (size for size in GRID_SIZES if size % smallest_microbatch(config) == 0)
    sizes = sorted({*allowed, config.batch.microbatch_size})
    cells = []
    until = time.monotonic() + CONFIRM_SECONDS
    for length in lengths:
        row = [_decide(subject, estimator.formula_only(), size, length) for size in sizes]
        last = sum(answer.verdict in ("fits", "unknown") for answer in row) - 1
        # The largest size that fits, the next smaller one if it does not, and the next larger one if it may fit.
        for at in (last, last - 1, last + 1) if estimator.machine is not None else ():
            is_open = at == last or (
                row[last].verdict != "fits" if at < last else row[at:][:1] and row[at].verdict == "tight"
            )
            if at >= 0 and is_open and time.monotonic() < until:
                row[at] = _decide(subject, estimator, sizes[at], length)
        cells += [
            {
                "microbatch_size": size,
                "max_length": length,
                "verdict": answer.verdict,
                "method": answer.method,
                "need_bytes": answer.peak_bytes,
                "error_fraction": answer.error_fraction,
            }
            for size, answer in zip(sizes, row, strict=True)
        ]
    return {
        "microbatch_sizes": sizes,
        "max_lengths": lengths,
        "cells": cells,
        "available_bytes": estimator.available_bytes,
    }


def _decide(subject: Subject, estimator: Estimator, size: int, length: int) -> ProgramMemory:
    """Return the program that decides with another microbatch and length."""
    config = subject.task.config
    batch, data = replace(config.batch, microbatch_size=size), replace(config.data, max_length=length)
    changed = subject.changed(replace(config, batch=batch, data=data))
    return deciding(estimator.programs(changed.task, changed.eval_shape))
