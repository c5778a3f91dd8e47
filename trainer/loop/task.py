"""What is trained, toward what, and where: all that decides the programs of a run."""

from __future__ import annotations

from dataclasses import dataclass

from jax.sharding import Mesh

from trainer.config.tree import Config
from trainer.methods.model import Model, model_of
from trainer.objectives import objective_of
from trainer.objectives.objective import Objective


@dataclass(frozen=True, kw_only=True)
class Task:
    """The model as its method adapts it, the objective, and the devices that share the work."""

    config: Config
    model: Model
    objective: Objective
    mesh: Mesh

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one optimizer step over all devices, padding included."""
        sequences = self.config.batch.microbatch_size * self.mesh.size
        tokens: int = self.objective.described(sequences)["tokens"].size
        return self.config.batch.accumulation_steps * tokens

    def changed(self, config: Config) -> Task:
        """Return the task under another configuration of the same model, on the same devices."""
        model = model_of(config, self.model.source)
        return Task(config=config, model=model, objective=objective_of(config), mesh=self.mesh)
