"""Strict numerics for everything that touches arrays, and the smallest runs there are."""

import hashlib
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax
import pytest
from filelock import FileLock
from tiny_models import GEMMA, GPT2
from whole_runs import carried_out, error_codes

from trainer.config.load import config_text
from trainer.config.tree import Config, ModelConfig
from trainer.model.families import spec_from_config
from trainer.model.spec import ModelSpec
from trainer.run import RunRequest

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

LEARNED_ITEMS = {"TP408"}
"""The only error that a run may have unless its test names others: some evaluate what they train on."""


@pytest.fixture(scope="session")
def config() -> Config:
    """A complete run of two steps on one device, without evaluation."""
    return Config(name="test", model=ModelConfig(name="tiny-gpt2")).changed(
        data={"max_length": 128},
        optimizer={"learning_rate": 1e-2},
        batch={"microbatch_size": 4},
        mesh={"device": "cpu", "devices": 1},
        evaluation={"max_new_tokens": 4, "batch_size": 50},
        limits={"steps": 2},
    )


@pytest.fixture(params=["gpt2", "gemma"])
def spec(request: pytest.FixtureRequest) -> ModelSpec:
    """A tiny model of each family."""
    return spec_from_config({"gpt2": GPT2, "gemma": GEMMA}[request.param])


@pytest.fixture
def order_of(tmp_path: Path) -> Callable[..., RunRequest]:
    """Return a function that makes an order for a configuration in a new folder."""

    def make(config: Config, name: str = "run", **fields) -> RunRequest:
        return replace(RunRequest(config=config, folder=tmp_path / name, command=["trainproof", "train"]), **fields)

    return make


@pytest.fixture
def train(order_of: Callable[..., RunRequest]) -> Callable[..., Path]:
    """Return a function that trains a configuration in a new folder, checks the run and returns the folder."""

    def carry_out(config: Config, name: str = "run", *, ends_with: int = 0, errors=LEARNED_ITEMS, **fields) -> Path:
        order = order_of(config, name, **fields)
        assert carried_out(order) == ends_with
        assert error_codes(order.folder) <= errors
        return order.folder

    return carry_out


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Config], Path]:
    """Return a function that gives the folder of a finished and checked run.

    Each configuration is trained once in a session, by the worker that needs it first. A test that writes into the
    folder takes a copy.
    """
    base = tmp_path_factory.getbasetemp()
    shared_folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    shared_folder.mkdir(exist_ok=True)

    def train(config: Config) -> Path:
        folder = shared_folder / hashlib.sha256(config_text(config).encode()).hexdigest()[:16]
        with FileLock(f"{folder}.lock"):
            if not (folder / "succeeded").exists():
                shutil.rmtree(folder, ignore_errors=True)
                request = RunRequest(config=config, folder=folder / "run", command=["trainproof", "train"])
                assert carried_out(request) == 0
                assert error_codes(request.folder) <= LEARNED_ITEMS
                (folder / "succeeded").touch()
        return folder / "run"

    return train
