"""Long sequences on one chip that is not here: no scores of a whole sequence are there."""

import pytest

from trainer.config.tree import BatchConfig, Config, DataConfig, ModelConfig, OptimizerConfig, PrecisionConfig
from trainer.planning.compile.ahead import V5E_1, Compiler, CompileRequest

HEADS, LENGTH = 32, 8192


@pytest.mark.compiler("tpu")
def test_llama_3_2_1b_reads_packed_texts_of_8192_tokens_on_a_tpu_v5e():
    """Two of its layers; benchmarks/memory_estimate.py has all sixteen."""
    config = Config(
        model=ModelConfig(name="meta-llama/Llama-3.2-1B", weights="random"),
        data=DataConfig(max_length=LENGTH, packing=True),
        optimizer=OptimizerConfig(name="adafactor", max_grad_norm=None),
        batch=BatchConfig(microbatch_size=1),
        precision=PrecisionConfig(compute="bfloat16"),
    )
    with Compiler() as compiler:
        answer = compiler.ask(CompileRequest(program="train", config=config, machine=V5E_1, layers=2))
    assert answer.memory is not None
    # One layer's scores take 8 GiB.
    assert answer.memory.peak_bytes - answer.memory.arguments_bytes < HEADS * LENGTH**2 * 4 / 2
