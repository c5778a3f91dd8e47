"""Strict jax, as in the tests of the model, and its tiny models."""

from collections.abc import Iterator

import jax
import pytest
from tiny_models import GEMMA, GPT2

from trainer.model.families import spec_from_config
from trainer.model.spec import ModelSpec


@pytest.fixture(autouse=True)
def _strict() -> Iterator[None]:
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture(params=["gpt2", "gemma"])
def spec(request: pytest.FixtureRequest) -> ModelSpec:
    """A tiny model of each family."""
    return spec_from_config({"gpt2": GPT2, "gemma": GEMMA}[request.param])
