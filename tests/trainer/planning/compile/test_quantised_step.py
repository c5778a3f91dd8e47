"""QLoRA's train step, compiled for devices that are not here: kernels in few bits are never all there in full size."""

from pathlib import Path
from typing import Any

import pytest
from model_folders import llama_folder

from evidence.targets import load_target
from trainer.config.tree import BatchConfig, Config, DataConfig, MethodConfig, ModelConfig, PrecisionConfig
from trainer.planning.compile.ahead import V5E_1, compile_ahead
from trainer.planning.compile.buffers import CompiledMemory
from trainer.planning.compile.machines import Machine, machine_of

EMBED, MLP, VOCAB, RANK = 1024, 4096, 512, 8
LAYER = 4 * EMBED**2 + 3 * EMBED * MLP
"""Numbers in the projections of one layer."""
BASES = (("nf4", 0.5 + 4 / 64), ("int8", 1.0))
"""Kinds of a frozen base, with the bytes of a number."""


def memory_of(base: Any, dtype: Any, machine: Machine, folder: Path, *, layers: int) -> CompiledMemory:
    """Return what a step over few tokens needs: what is large in it are kernels."""
    llama = llama_folder(folder, layers=layers, embed=EMBED, mlp=MLP, vocab=VOCAB)
    config = Config(
        model=ModelConfig(name=llama, weights="random"),
        data=DataConfig(max_length=128),
        method=MethodConfig(kind="lora", base=base, rank=RANK),
        batch=BatchConfig(microbatch_size=1),
        precision=PrecisionConfig(params=dtype, compute=dtype),
    )
    memory = compile_ahead("train", config, machine).memory
    assert memory is not None
    return memory


@pytest.mark.compiler("tpu")
@pytest.mark.parametrize(("base", "bytes_each"), BASES)
def test_on_a_tpu_v5e_not_even_one_dense_layer_is_there(base: str, bytes_each: float, tmp_path: Path):
    memory = memory_of(base, "bfloat16", V5E_1, tmp_path, layers=2)
    assert memory.peak_bytes - memory.arguments_bytes < 2 * LAYER / 4
    # Codes and magnitudes, the table in bfloat16, and adapters with two moments in float32.
    adapters = 12 * RANK * 2 * (4 * 2 * EMBED + 3 * (EMBED + MLP))
    stored = 2 * LAYER * bytes_each + 2 * VOCAB * EMBED + adapters
    assert memory.arguments_bytes == pytest.approx(stored, rel=0.03)


@pytest.mark.compiler("gpu")
@pytest.mark.parametrize(("base", "bytes_each"), BASES)
def test_on_a_t4_dense_kernels_come_and_go_one_layer_after_the_other(base: str, bytes_each: float, tmp_path: Path):
    """cuBLAS multiplies dense kernels only: measured 1.1 layers of them in nf4, 1.6 in int8, whatever the depth."""
    machine = machine_of(load_target("t4"), devices=1)
    assert machine is not None
    memory = memory_of(base, "float16", machine, tmp_path, layers=4)
    assert memory.peak_bytes - memory.arguments_bytes < 1.8 * 2 * LAYER
    assert memory.peak_bytes < 4 * 2 * LAYER * (bytes_each / 2 + 0.5)
