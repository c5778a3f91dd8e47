"""Changes that make a run smaller, what each costs, and the cheapest ones with which a run fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from schemas.problems import ProblemError
from trainer.config.tree import Config
from trainer.loop.task import BLOCKWISE_FROM
from trainer.model.model import resolve_remat
from trainer.objectives import build_objective
from trainer.planning.memory import REMATS, WORST_FIRST, Estimator, ProgramMemory, deciding, worst
from trainer.planning.subject import Subject
from trainer.runtime import ALL_TYPES, half_type

SMALLEST_LENGTH = 256
SMALLEST_CHUNK = 256
SMALLEST_MLP_CHUNK = 2048
MAX_SETS = 4
"""Sets of changes that are compiled."""
LEAST_FREED = 0.01
"""Share of the need below which a change is not worth naming."""

COSTS = {
    "memory.donate": "nothing: the memory of the old state is reused",
    "memory.loss_chunk_tokens": "a few percent of speed",
    "evaluation.batch_size": "a slower evaluation",
    "memory.mlp_chunk_tokens": "smaller matrix products; with memory.remat=none the MLP is recomputed",
    "memory.attention": "attention is computed in blocks and recomputed in the backward pass",
    "batch.microbatch_size": "smaller matrix products, which are less efficient",
    "memory.remat=dots": "a few percent more arithmetic: activations and attention are recomputed",
    "memory.remat": "about a third more arithmetic: layers are recomputed",
    "precision.compute=bfloat16": "products are rounded to 2 to 3 decimal digits",
    "precision.compute=float16": "products are rounded to 3 to 4 decimal digits",
    "precision.params=bfloat16": "weights are rounded to 2 to 3 decimal digits, stochastically if trained",
    "precision.params=float16": "frozen weights are rounded to 3 to 4 decimal digits",
    "optimizer.max_grad_norm": "gradients are not clipped",
    "optimizer.state=bfloat16": "moments are rounded stochastically to 2 to 3 decimal digits",
    "optimizer.state=int8": "moments are quantised to 8 bits in blocks",
    "optimizer.name": "another optimizer: tune its learning rate and schedule",
    "method.kind": "adapters are trained instead of all parameters",
    "mesh.shard_params": "devices exchange parameters in each step",
    "data.max_length": "longer rows are cut or refused",
}
"""Cost of a setting, or of a setting with this value."""


def setting_cost(setting: str) -> str:
    """Return the cost of a change, written like the argument of `--set`."""
    return COSTS.get(setting) or COSTS[setting.partition("=")[0]]


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
    """Yield changes that may save memory, cheapest first. The element types are those that the device supports."""
    yield from _same_training(config)
    yield from _other_training(config, element_types)


def _change(config: Config, group: str, **values: Any) -> Change:
    changed = replace(config, **{group: replace(getattr(config, group), **values)})
    written = {key: "true" if value is True else "null" if value is None else value for key, value in values.items()}
    settings = tuple(f"{group}.{key}={value}" for key, value in written.items())
    return Change(settings=settings, config=changed)


def _same_training(config: Config) -> Iterator[Change]:
    """Yield changes after which the same is trained."""
    memory, batch = config.memory, config.batch
    if not memory.donate:
        yield _change(config, "memory", donate=True)
    if memory.loss_chunk_tokens is None or memory.loss_chunk_tokens > SMALLEST_CHUNK:
        yield _change(config, "memory", loss_chunk_tokens=SMALLEST_CHUNK)
    if config.evaluation.batch_size > 1:
        yield _change(config, "evaluation", batch_size=1)
    if (memory.mlp_chunk_tokens or batch.microbatch_size * config.data.max_length) > SMALLEST_MLP_CHUNK:
        yield _change(config, "memory", mlp_chunk_tokens=SMALLEST_MLP_CHUNK)
    if memory.attention == "plain":
        yield _change(config, "memory", attention="auto")
    elif memory.attention == "auto" and config.data.max_length < BLOCKWISE_FROM:
        yield _change(config, "memory", attention="blockwise")
    microbatch, steps = batch.microbatch_size, batch.accumulation_steps
    while microbatch % 2 == 0 and microbatch > smallest_microbatch(config):
        microbatch, steps = microbatch // 2, steps * 2
        yield _change(config, "batch", microbatch_size=microbatch, accumulation_steps=steps)
    for remat in REMATS[REMATS.index(resolve_remat(config)) + 1 :]:
        yield _change(config, "memory", remat=remat)


def _other_training(config: Config, element_types: Sequence[str]) -> Iterator[Change]:
    """Yield changes of precision, optimizer, method or data."""
    optimizer = config.optimizer
    for key, value in (("compute", config.precision.compute), ("params", config.precision.params)):
        if value == "float32" != (narrow := half_type(key, config, element_types)):
            yield _change(config, "precision", **{key: narrow})
    if optimizer.max_grad_norm is not None:
        yield _change(config, "optimizer", max_grad_norm=None)
    if optimizer.name == "adamw":
        for state in {"float32": ("bfloat16", "int8"), "bfloat16": ("int8",)}.get(optimizer.state, ()):
            yield _change(config, "optimizer", state=state)
        wide = {} if optimizer.state == "float32" else {"state": "float32"}
        yield _change(config, "optimizer", name="adafactor", **wide)
    if config.method.kind == "full":
        yield _change(config, "method", kind="lora")
    if config.data.max_length > SMALLEST_LENGTH:
        yield _change(config, "data", max_length=config.data.max_length // 2)


def advise(
    subject: Subject,
    estimator: Estimator,
    programs: Sequence[ProgramMemory],
    candidates: Callable[[Config], list[Change]] = lambda config: list(list_changes(config)),
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
        self.limit = estimator.available_bytes or 0
        self.formula, self.scale = estimator.formula_only(), 1.0
        self.scale = need / self.expected(subject.task.config)

    def expected(self, config: Config) -> float:
        """Return the scaled estimate; a configuration that cannot be built saves nothing."""
        try:
            programs = self._programs(config, self.formula)
        except ProblemError:
            return float("inf")
        return self.scale * max(program.peak_bytes for program in programs)

    def single(self, changes: Sequence[Change]) -> Iterator[dict[str, Any]]:
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

    def together(self, candidates: Callable[[Config], list[Change]]) -> Iterator[dict[str, Any]]:
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
        return estimator.programs(changed.task, changed.asked)
