"""Compiled steps for devices that are not here: the large arrays in them."""

import json
from pathlib import Path
from typing import Any

import pytest
from configs import changed
from model_folders import llama_folder

from evidence.registry import known_model_folder
from evidence.targets import load_target
from trainer.config.tree import Config, ModelConfig
from trainer.planning.compile.ahead import CompiledMemory, ask_compiler
from trainer.planning.compile.machines import V5E_1, Machine, find_machine


def compile_step(config: Config, machine: Machine = V5E_1) -> CompiledMemory:
    memory = ask_compiler("train", config, machine).memory
    assert memory is not None
    return memory


def first_layers(name: str, layers: int, folder: Path) -> ModelConfig:
    """Return a known model with only its first layers."""
    folder = folder / f"{layers}"
    folder.mkdir()
    described = json.loads((known_model_folder(name) / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(described | {"num_hidden_layers": layers}))
    return ModelConfig(name=str(folder), weights="random")


@pytest.mark.compiler("tpu")
def test_a_layer_of_gemma_2b_keeps_one_array_beside_frozen_weights(tmp_path: Path):
    rows, length, embed = 16, 1024, 2048

    def temporaries(layers: int) -> int:
        memory = compile_step(
            changed(
                Config(model=first_layers("google/gemma-2b", layers, tmp_path)),
                data={"max_length": length},
                method={"kind": "lora"},
                optimizer={"max_grad_norm": None},
                batch={"microbatch_size": rows},
                precision={"params": "bfloat16", "compute": "bfloat16"},
                memory={"attention": "splash", "mlp_chunk_tokens": 2048, "loss_chunk_tokens": 256},
            )
        )
        return memory.peak_bytes - memory.arguments_bytes

    # The compiler would keep the two terms of the sum that the next layer's input is.
    assert (temporaries(8) - temporaries(4)) / 4 == pytest.approx(rows * length * embed * 2, rel=0.25)


@pytest.mark.compiler("tpu")
def test_llama_3_2_1b_has_no_scores_of_whole_sequences_of_8192_tokens(tmp_path: Path):
    heads, length = 32, 8192
    memory = compile_step(
        changed(
            Config(model=first_layers("meta-llama/Llama-3.2-1B", 2, tmp_path)),
            data={"max_length": length, "packing": True},
            optimizer={"name": "adafactor", "max_grad_norm": None},
            batch={"microbatch_size": 1},
            precision={"compute": "bfloat16"},
        )
    )
    # One layer's scores take 8 GiB.
    assert memory.peak_bytes - memory.arguments_bytes < heads * length**2 * 4 / 2


EMBED, MLP, VOCAB, RANK = 1024, 4096, 512, 8
LAYER = 4 * EMBED**2 + 3 * EMBED * MLP
"""Numbers in the projections of one layer."""
BASES = (("nf4", 0.5 + 4 / 64), ("int8", 1.0))
"""Kinds of a frozen base, with the bytes of a number."""


def quantised(base: Any, dtype: Any, folder: Path, *, layers: int) -> Config:
    """Return a step over few tokens, whose large arrays are kernels."""
    llama = llama_folder(folder, layers=layers, embed=EMBED, mlp=MLP, vocab=VOCAB)
    return changed(
        Config(model=ModelConfig(name=llama, weights="random")),
        data={"max_length": 128},
        method={"kind": "lora", "base": base, "rank": RANK},
        batch={"microbatch_size": 1},
        precision={"params": dtype, "compute": dtype},
    )


@pytest.mark.compiler("tpu")
@pytest.mark.parametrize(("base", "bytes_each"), BASES)
def test_no_dense_kernels_of_a_layer_exist_on_a_tpu(base: str, bytes_each: float, tmp_path: Path):
    memory = compile_step(quantised(base, "bfloat16", tmp_path, layers=2))
    assert memory.peak_bytes - memory.arguments_bytes < 2 * LAYER / 4
    # Codes and scales, the table in bfloat16, and adapters with two moments in float32.
    adapters = 12 * RANK * 2 * (4 * 2 * EMBED + 3 * (EMBED + MLP))
    stored = 2 * LAYER * bytes_each + 2 * VOCAB * EMBED + adapters
    assert memory.arguments_bytes == pytest.approx(stored, rel=0.03)


@pytest.mark.compiler("gpu")
@pytest.mark.parametrize(("base", "bytes_each"), BASES)
def test_dense_kernels_exist_one_layer_after_the_other_on_a_t4(base: str, bytes_each: float, tmp_path: Path):
    """cuBLAS multiplies dense kernels only: measured 1.1 layers of them in nf4, 1.6 in int8, at any depth."""
    machine = find_machine(load_target("t4"), devices=1)
    assert machine is not None
    memory = compile_step(quantised(base, "float16", tmp_path, layers=4), machine)
    assert memory.peak_bytes - memory.arguments_bytes < 1.8 * 2 * LAYER
    assert memory.peak_bytes < 4 * 2 * LAYER * (bytes_each / 2 + 0.5)
