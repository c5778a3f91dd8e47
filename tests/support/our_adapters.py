"""Adapters as this project writes them, of a small model of every family, with the same numbers every time."""

from pathlib import Path

import numpy as np

from trainer.config.tree import Config, MethodConfig, ModelConfig
from trainer.model.decoder import abstract, flatten
from trainer.model.layers import is_lora
from trainer.model.model import choose_method
from trainer.model.peft import write_adapter
from trainer.model.source import resolve

MODELS = Path(__file__).parents[1] / "cases" / "models"

METHODS = {
    # Of query, key and value, which are one module there, two have an adapter.
    "gpt2": MethodConfig(kind="lora", rank=3, alpha=6.0, targets="query,value,up"),
    "llama": MethodConfig(kind="lora", rank=4, alpha=5.0, rslora=True),
    "mistral": MethodConfig(kind="lora", rank=2, alpha=3.0, targets="q_proj,v_proj"),
    "gemma": MethodConfig(kind="lora", rank=5, alpha=7.0),
    "gemma2": MethodConfig(kind="lora", rank=3, alpha=8.0, targets="layers.[02].*.*_proj"),
    "gemma3": MethodConfig(kind="lora", rank=2, alpha=9.0, targets="attention.*"),
    "qwen2": MethodConfig(kind="lora", rank=3, alpha=2.0, targets="self_attn.*,down"),
    "qwen3": MethodConfig(kind="lora", rank=4, alpha=4.0, rslora=True, targets="mlp.*"),
    "smollm3": MethodConfig(kind="lora", rank=6, alpha=3.0),
}
"""By the name of a model in tests/cases/models: the method whose adapters it gets."""


def write(name: str, folder: Path) -> None:
    """Write the adapter of a model into a folder, as `trainproof export --adapter` does."""
    source = resolve(str(MODELS / name))
    loras = choose_method(Config(model=ModelConfig(name=name), method=METHODS[name])).adapters(source)
    shapes = flatten(
        abstract(source.spec, params_dtype="float32", compute_dtype="float32", remat="none", adapters=loras)
    )[1]
    # Whole numbers over 64 are exact, wherever they are made.
    params = {
        each: ((np.arange(shape.size) * 7919 + 31 * number) % 41 - 20).reshape(shape.shape).astype(np.float32) / 64
        if is_lora(each)
        else shape
        for number, (each, shape) in enumerate(shapes.items())
    }
    write_adapter(folder, params, loras, source)
