"""The public failure's program, compiled for one TPU v5e chip: Gemma-2B in bfloat16, 1 × 64 tokens, nothing donated.

It is not a program of this project: optax's AdamW as it comes, whose moments have the parameters' type, every logit at
once, no layer recomputed. On the hardware: 28.59 GiB of 15.75. Prints what the compiler says, as a line of JSON.
"""

from __future__ import annotations

import json
import os

os.environ |= {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from trainer.config.tree import Config, MemoryConfig, ModelConfig, PrecisionConfig
from trainer.model.decoder import bind
from trainer.model.model import build_model
from trainer.model.source import resolve_for_planning


def main() -> None:
    """Compile it and say what came of it."""
    config = Config(
        model=ModelConfig(name="google/gemma-2b"),
        precision=PrecisionConfig(params="bfloat16", compute="bfloat16"),
        memory=MemoryConfig(remat="none"),
    )
    model = build_model(config, resolve_for_planning(config.model.name))
    chip = topologies.get_topology_desc("v5e:1x1", "tpu", chips_per_host_bounds=(1, 1, 1)).devices[0]
    here = NamedSharding(Mesh(np.array([chip]), ("devices",)), PartitionSpec())
    optimizer = optax.adamw(5e-5)

    def step(params: Any, opt_state: Any, tokens: Any) -> Any:
        def loss(params: Any) -> Any:
            decoder = bind(model.graphdef, params)
            logits = decoder.logits(decoder.hidden(tokens))
            return optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], tokens[:, 1:]).mean()

        value, gradients = jax.value_and_grad(loss)(params)
        updates, opt_state = optimizer.update(gradients, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    def placed(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=here), tree)

    tokens = jax.ShapeDtypeStruct((1, 64), jnp.int32, sharding=here)
    arguments = (placed(dict(model.shapes)), placed(jax.eval_shape(optimizer.init, dict(model.shapes))), tokens)
    refusal = ""
    try:
        jax.jit(step).lower(*arguments).compile()
    except jax.errors.JaxRuntimeError as error:
        refusal = str(error)
    print(json.dumps({"refusal": refusal}))


if __name__ == "__main__":
    main()
