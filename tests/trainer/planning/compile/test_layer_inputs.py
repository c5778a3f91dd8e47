"""What a layer leaves for the way back on a chip that is not here: its input, once."""

import pytest

from trainer.config.tree import (
    BatchConfig,
    Config,
    DataConfig,
    MemoryConfig,
    MethodConfig,
    ModelConfig,
    OptimizerConfig,
    PrecisionConfig,
)
from trainer.planning.compile.ahead import V5E_1, Compiler, CompileRequest

ROWS, LENGTH, EMBED = 16, 1024, 2048


@pytest.mark.compiler("tpu")
def test_beside_frozen_weights_a_layer_of_gemma_2b_keeps_one_array_on_a_tpu_v5e():
    config = Config(
        model=ModelConfig(name="google/gemma-2b", weights="random"),
        data=DataConfig(max_length=LENGTH),
        method=MethodConfig(kind="lora"),
        optimizer=OptimizerConfig(max_grad_norm=None),
        batch=BatchConfig(microbatch_size=ROWS),
        precision=PrecisionConfig(params="bfloat16", compute="bfloat16"),
        memory=MemoryConfig(attention="splash", mlp_chunk_tokens=2048, loss_chunk_tokens=256),
    )

    def beside_arguments(layers):
        request = CompileRequest(program="train", config=config, machine=V5E_1, layers=layers)
        memory = compiler.ask(request).memory
        return memory.peak_bytes - memory.arguments_bytes

    with Compiler() as compiler:
        per_layer = (beside_arguments(8) - beside_arguments(4)) / 4
    # The compiler would keep the two terms of the sum that the next layer's input is.
    assert per_layer == pytest.approx(ROWS * LENGTH * EMBED * 2, rel=0.25)
