"""Values for a run that has not been tried: which fit the memory of a machine by the planner's formulas, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from evidence.targets import Target
from trainer.config.tree import (
    BatchConfig,
    Config,
    DataConfig,
    EvaluationConfig,
    MethodConfig,
    ModelConfig,
    ObjectiveConfig,
)
from trainer.data.prompts import Asked
from trainer.first_config.look import ModelAndData
from trainer.first_config.values import (
    evaluation_of,
    length_and_packing,
    methods_of,
    precision_of,
    sequences_of,
    sizes,
    with_steps,
)
from trainer.loop.mesh import shapes_mesh
from trainer.loop.task import Task
from trainer.model.params import parameter_count
from trainer.model.stacks import Remat
from trainer.planning.memory import Estimator, ProgramMemory, deciding
from trainer.runtime import available_bytes


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A configuration with the figures that it was chosen by."""

    config: Config
    need: ProgramMemory
    """Of the program that needs most memory, by formulas."""
    devices: int
    sequences: int
    """Of one pass over the rows."""
    parameters: int
    trained: int
    """Parameters that learn."""

    @property
    def fits(self) -> bool:
        """Whether the need is within the memory, or nothing is known against it."""
        return self.need.verdict in ("fits", "unknown")

    @property
    def batch_size(self) -> int:
        """Sequences of an optimizer step over all devices."""
        return self.config.batch.microbatch_size * self.config.batch.accumulation_steps * self.devices


def choose(looked: ModelAndData, target: Target, config: Config) -> Choice:
    """Return the first of the candidates that fits a machine; of those that do not, the one that needs least.

    Args:
        looked: the model and its data.
        target: the machine.
        config: names model, dataset and evaluation set.
    """
    length, packing = length_and_packing(looked)
    kind: Any = "dpo" if looked.rows.kind == "pairs" else "supervised"
    config = replace(
        config,
        data=replace(
            config.data, kind="text" if looked.rows.kind == "text" else "rows", max_length=length, packing=packing
        ),
        objective=ObjectiveConfig(kind=kind),
        evaluation=evaluation_of(config.evaluation, looked),
    )
    least: Choice | None = None
    for candidate in candidates(config, looked, target):
        choice = measure(candidate, looked, target)
        if choice.fits:
            return choice
        if least is None or choice.need.peak_bytes <= least.need.peak_bytes:
            least = choice
    assert least is not None, "there is always a candidate"
    return least


def candidates(config: Config, looked: ModelAndData, target: Target) -> Iterator[Config]:
    """Yield configurations to try, the best first: by method, and of each from the largest microbatch down."""
    for method, base in methods_of(looked, target):
        adapted = replace(
            config,
            method=MethodConfig(kind="lora", rank=16, alpha=32.0, base=base)
            if method == "lora"
            else MethodConfig(kind="full"),
        )
        # A frozen model whole on each card: dividing it would send all of it between them at every step.
        divided = method == "full" or target.platform != "gpu"
        mesh = replace(config.mesh, shard_params=divided or target.devices == 1)
        adapted = replace(adapted, precision=precision_of(adapted, looked, target), mesh=mesh)
        # A CPU has much memory for its speed: it keeps what another pass would cost, if that fits.
        remats: list[Remat] = ["none", "layer"] if target.platform == "cpu" else ["layer"]
        for remat in remats:
            kept = replace(adapted, memory=replace(adapted.memory, remat=remat))
            for size in sizes(kept, looked, target):
                yield with_steps(replace(kept, batch=BatchConfig(microbatch_size=size)), looked, target)


def measure(config: Config, looked: ModelAndData, target: Target) -> Choice:
    """Return a configuration with what it needs on a machine."""
    task = Task.of(config, looked.model.source, shapes_mesh(target.devices), platform=target.platform)
    asked = Asked(prompts=len(looked.evaluated.items), longest_tokens=longest_prompt(looked, config.data))
    asking = Estimator(
        platform=target.platform, available_bytes=available_bytes(target), why_not="a first look compiles nothing"
    )
    need = deciding(asking.programs(task, asked if config.evaluation.eval_set else None))
    return Choice(
        config=config,
        need=need,
        devices=target.devices,
        sequences=sequences_of(config, looked),
        parameters=parameter_count(looked.model.base),
        trained=parameter_count(task.model.trained),
    )


def longest_prompt(looked: ModelAndData, data: DataConfig) -> int:
    """Return the tokens of the longest question: counted, or at most those of a row."""
    return looked.data.asked.longest_tokens if looked.data.asked else min(int(looked.widths.max()), data.max_length)


def base_config(model: str, data: str, eval_set: str | None, name: str) -> Config:
    """Return the configuration that is chosen from: names, and defaults for everything else."""
    return Config(
        name=name,
        model=ModelConfig(name=model),
        data=DataConfig(dataset=data),
        evaluation=EvaluationConfig(eval_set=eval_set),
    )
