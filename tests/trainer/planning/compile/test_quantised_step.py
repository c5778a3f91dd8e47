"""QLoRA's train step, compiled for a TPU that is not here: kernels in few bits are never there in full size."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from trainer.config.tree import Batch, Config, Data, Method, Model, Precision
from trainer.planning.compile.ahead import V5E_1, compile_ahead

LAYERS, EMBED, MLP = 2, 1024, 4096
KERNELS = LAYERS * (4 * EMBED**2 + 3 * EMBED * MLP)
"""Numbers in the projections of all layers."""
VOCAB = 512
RANK = 8


def small_llama(folder: Path) -> str:
    config = {
        "model_type": "llama",
        "vocab_size": VOCAB,
        "hidden_size": EMBED,
        "intermediate_size": MLP,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("libtpu") is None, reason="libtpu is not installed: pip install trainproof[plan]")
@pytest.mark.parametrize(("base", "bytes_each"), [("nf4", 0.5 + 4 / 64), ("int8", 1.0)])
def test_the_temporaries_of_a_step_are_smaller_than_one_dense_layer(base: str, bytes_each: float, tmp_path: Path):
    config = Config(
        model=Model(name=small_llama(tmp_path), weights="random"),
        data=Data(max_length=128),
        method=Method(kind="lora", base=base, rank=RANK),  # type: ignore[arg-type]
        batch=Batch(microbatch_size=1),
        precision=Precision(params="bfloat16", compute="bfloat16"),
    )
    memory = compile_ahead("train", config, V5E_1).memory
    assert memory is not None
    dense_layer = 2 * KERNELS // LAYERS
    assert memory.peak_bytes - memory.arguments_bytes < dense_layer / 4
    assert memory.allocated_bytes - memory.arguments_bytes < dense_layer
    # Codes and magnitudes, the table in bfloat16, and adapters with two moments in float32.
    adapters = 12 * RANK * LAYERS * (4 * 2 * EMBED + 3 * (EMBED + MLP))
    stored = KERNELS * bytes_each + 2 * VOCAB * EMBED + adapters
    assert memory.arguments_bytes == pytest.approx(stored, rel=0.03)
