"""Strict numerics for everything that touches arrays, and the smallest runs there are."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax
import pytest
from whole_runs import carried_out

from trainer.config.tree import (
    BatchConfig,
    Config,
    DataConfig,
    EvaluationConfig,
    LimitsConfig,
    MemoryConfig,
    MeshConfig,
    ModelConfig,
    OptimizerConfig,
    PrecisionConfig,
)
from trainer.run import RunRequest

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def config() -> Config:
    """A complete run of two steps on one device, without evaluation."""
    return Config(
        name="test",
        model=ModelConfig(name="tiny-gpt2"),
        data=DataConfig(max_length=128),
        optimizer=OptimizerConfig(learning_rate=1e-2),
        batch=BatchConfig(microbatch_size=4),
        precision=PrecisionConfig(),
        memory=MemoryConfig(),
        mesh=MeshConfig(device="cpu", devices=1),
        evaluation=EvaluationConfig(max_new_tokens=4, batch_size=50),
        limits=LimitsConfig(steps=2),
    )


@pytest.fixture
def order_of(tmp_path: Path) -> Callable[..., RunRequest]:
    """Return a function that makes an order for a configuration in a new folder."""

    def make(config: Config, name: str = "run", **fields) -> RunRequest:
        return replace(RunRequest(config=config, folder=tmp_path / name, command=["trainproof", "train"]), **fields)

    return make


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Config], Path]:
    """Return a function that gives the folder of a run that has all its steps; each configuration is trained once."""
    made: dict[Config, Path] = {}

    def train(config: Config) -> Path:
        if config not in made:
            folder = tmp_path_factory.mktemp("finished") / "run"
            assert carried_out(RunRequest(config=config, folder=folder, command=["trainproof", "train"])) == 0
            made[config] = folder
        return made[config]

    return train
