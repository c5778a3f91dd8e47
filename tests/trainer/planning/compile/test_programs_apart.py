"""What a program's kept answer leaves out of its key does not change the program: read from the traced programs."""

from dataclasses import replace
from typing import Any

import jax
import pytest

from trainer.config.tree import (
    BatchConfig,
    Config,
    DataConfig,
    EvaluationConfig,
    LimitsConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimizerConfig,
)
from trainer.data.answers import EvalShape
from trainer.loop.mesh import build_mesh
from trainer.loop.programs import programs_of
from trainer.loop.task import Task
from trainer.model.model import build_model
from trainer.model.source import resolve_for_planning
from trainer.objectives import build_objective
from trainer.planning.compile.cache import NO_PART_OF

BASE = Config(model=ModelConfig(name="demo"), data=DataConfig(max_length=32), batch=BatchConfig(microbatch_size=2))
REWARDED = ObjectiveConfig(kind="grpo", rewards="exact", group_size=2, max_completion_tokens=8)
OTHERS: dict[str, Any] = {
    "batch": BatchConfig(microbatch_size=4, accumulation_steps=2),
    "data": DataConfig(max_length=64, packing=True),
    "evaluation": EvaluationConfig(batch_size=1, max_new_tokens=4),
    "limits": LimitsConfig(steps=7),
    "optimizer": OptimizerConfig(name="adafactor"),
}


def traced(config: Config, name: str) -> str:
    """Return a program as JAX traces it, with the shapes that it is called with."""
    model = build_model(config, resolve_for_planning(config.model.name, config.model.revision))
    mesh = build_mesh(jax.devices("cpu")[:1])
    task = Task(config=config, model=model, objective=build_objective(config), mesh=mesh)
    program = programs_of(task, asked=EvalShape(prompts=8, longest_tokens=8))[name]
    text: str = program.function.trace(*program.arguments, **program.settings).lower().as_text()
    return text


@pytest.mark.parametrize("name", NO_PART_OF)
def test_a_group_that_is_no_part_of_a_program_leaves_it_as_it_is(name: str):
    base = replace(BASE, objective=REWARDED) if name == "rollout" else BASE
    plain = traced(base, name)
    for group in NO_PART_OF[name]:
        assert traced(replace(base, **{group: OTHERS[group]}), name) == plain, group


@pytest.mark.slow
def test_a_group_that_is_part_of_a_program_changes_it():
    assert traced(replace(BASE, batch=OTHERS["batch"]), "train") != traced(BASE, "train")
    assert traced(replace(BASE, evaluation=OTHERS["evaluation"]), "decode") != traced(BASE, "decode")
