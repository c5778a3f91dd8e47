"""Eight virtual CPU devices and strict jax for the tests of the model."""

import jax
import pytest

from trainer.model.families import spec_from_config
from trainer.model.spec import ModelSpec

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_num_cpu_devices", 8)


@pytest.fixture(params=["gpt2", "gemma"])
def spec(request: pytest.FixtureRequest) -> ModelSpec:
    """A tiny model of each family."""
    from tiny_models import GEMMA, GPT2

    return spec_from_config({"gpt2": GPT2, "gemma": GEMMA}[request.param])
