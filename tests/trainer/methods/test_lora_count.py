"""The count of trained numbers that PEFT prints for rank 8 on Qwen2.5-VL-3B: 18,576,384 of 3,773,199,360.

The language model is ours, so its adapters are made, as shapes. The vision tower is not: its projections go through the
matcher of the method by their names, and are counted by their shapes (config.json of Qwen2.5-VL-3B-Instruct).
"""

import json
from math import prod
from pathlib import Path

import pytest
from trainer.methods.lora import fits

from trainer.config.tree import Config, MethodConfig, ModelConfig
from trainer.model.model import build_model
from trainer.model.source import resolve

RANK = 8
TARGETS = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"
TEXT = {
    "model_type": "qwen2",
    "hidden_size": 2048,
    "intermediate_size": 11008,
    "num_hidden_layers": 36,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "max_position_embeddings": 128000,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
}
DEPTH, WIDTH, MLP, PATCH, MERGED = 32, 1280, 3420, 3 * 2 * 14 * 14, 4 * 1280


def vision_tower() -> dict[str, tuple[int, ...]]:
    """Shapes of the tower's parameters by name, kernels as `[outputs inputs]`."""
    block = {
        "attn.qkv": (3 * WIDTH, WIDTH),
        "attn.proj": (WIDTH, WIDTH),
        "mlp.gate_proj": (MLP, WIDTH),
        "mlp.up_proj": (MLP, WIDTH),
        "mlp.down_proj": (WIDTH, MLP),
    }
    linears = {f"visual.blocks.{layer}.{name}": shape for layer in range(DEPTH) for name, shape in block.items()}
    linears |= {"visual.merger.mlp.0": (MERGED, MERGED), "visual.merger.mlp.2": (TEXT["hidden_size"], MERGED)}
    norms = [f"visual.blocks.{layer}.norm{number}" for layer in range(DEPTH) for number in (1, 2)]
    return (
        {f"{name}.weight": shape for name, shape in linears.items()}
        | {f"{name}.bias": shape[:1] for name, shape in linears.items()}
        | {f"{name}.weight": (WIDTH,) for name in [*norms, "visual.merger.ln_q"]}
        | {"visual.patch_embed.proj.weight": (WIDTH, PATCH)}
    )


@pytest.fixture(scope="module")
def text_model(tmp_path_factory: pytest.TempPathFactory):
    folder: Path = tmp_path_factory.mktemp("qwen")
    (folder / "config.json").write_text(json.dumps(TEXT))
    method = MethodConfig(kind="lora", rank=RANK, targets=TARGETS)
    return build_model(Config(model=ModelConfig(name=str(folder)), method=method), resolve(str(folder)))


def test_the_printed_count_of_trained_parameters(text_model):
    tower = vision_tower()
    base = sum(shape.size for shape in text_model.base.values()) + sum(map(prod, tower.values()))
    assert base == 3_754_622_976
    targets = TARGETS.split(",")
    modules = {name.removesuffix(".weight"): shape for name, shape in tower.items() if len(shape) == 2}
    matched = {name: shape for name, shape in modules.items() if any(fits(each, (name,)) for each in targets)}
    # By the end of their names the tower's MLPs are matched too; its attention has other names.
    assert {name.partition(".mlp.")[2] for name in matched} == {"gate_proj", "up_proj", "down_proj"}
    in_tower = sum(RANK * sum(shape) for shape in matched.values())
    assert in_tower == 3_609_600
    in_text = sum(shape.size for shape in text_model.trained.values())
    assert in_text + in_tower == 18_576_384
    assert base + in_text + in_tower == 3_773_199_360
