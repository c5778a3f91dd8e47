"""The cases of `tests/cases/models` that llama.cpp's architectures can state, as folders and with what a GGUF states.

Where an architecture cannot state what a case has, its config.json is changed to what it can.
"""

import json
import math
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from trainer.model.decoder import abstract, flatten
from trainer.model.load import open_tensors, split_tensor
from trainer.model.source import ModelSource
from trainer.model.stacks import Params

CASES = Path(__file__).parents[1] / "cases" / "models"
CHANGED: dict[str, dict[str, Any]] = {
    "gemma2": {"query_pre_attn_scalar": 8},
    "gemma3": {"query_pre_attn_scalar": 8, "rope_scaling": None},
    "llama-llama3": {"hidden_act": "silu", "rope_theta": 500_000.0},
}
STATED: dict[str, dict[str, Any]] = {
    "llama-linear": {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.5},
    "llama-yarn": {
        "llama.rope.scaling.type": "yarn",
        "llama.rope.scaling.factor": 4.0,
        "llama.rope.scaling.original_context_length": 12,
    },
}
NAMES = (
    *("gpt2", "llama", "llama-linear", "llama-yarn", "llama-llama3", "mistral-no-window", "smollm3"),
    *("gemma", "gemma2", "gemma3", "qwen2-plain", "qwen3"),
)


def folder_of(name: str, folder: Path) -> Path:
    """Return a case's folder, with its config.json changed where that is needed."""
    shutil.copytree(CASES / name, folder)
    path = folder / "config.json"
    config = json.loads(path.read_text()) | CHANGED.get(name, {})
    if name == "llama-llama3":
        config["rope_scaling"]["original_max_position_embeddings"] = 8192
    path.write_text(json.dumps(config))
    return folder


def divisors() -> NDArray[np.float32]:
    """Return the divisors of Llama 3.1 for heads of 6, as the converter computes them."""
    found = []
    for place in range(0, 6, 2):
        wavelength = 2 * math.pi * 500_000.0 ** (place / 6)
        if wavelength < 8192 / 4:
            found.append(1.0)
        elif wavelength > 8192:
            found.append(8.0)
        else:
            smooth = (8192 / wavelength - 1) / 3
            found.append(1 / ((1 - smooth) / 8.0 + smooth))
    return np.array(found, np.float32)


def params_of(source: ModelSource) -> Params:
    """Return a model's parameters in float32, as NumPy's arrays: nothing is compiled."""
    _, wanted = flatten(abstract(source.spec, params_dtype=jnp.float32, compute_dtype=jnp.float32, remat="none"))
    with ExitStack() as stack:
        tensors, links = open_tensors(source, wanted, stack)
        read = [split_tensor(tensors[name].read(), link, wanted) for name, link in links.items()]
        return dict(sorted(param for each in read for param in each))


TEMPLATE = "{% for m in messages %}<|a|>{{ m['content'] }}<|end|>{% endfor %}"
TEXT = "def f(x): the quick brown fox's jumps over 1234567890 lazy dogs, don't we? "


def with_tokenizer(folder: Path, *, digits: bool = True) -> Path:
    """Put a byte-level tokenizer of 90 tokens into a folder; its letters are those of one text."""
    made = Tokenizer(models.BPE())
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=digits), plain])
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator([TEXT] * 9, trainers.BpeTrainer(vocab_size=90, special_tokens=["<|end|>", "<|a|>"]))
    wrapped = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|end|>", chat_template=TEMPLATE)
    wrapped.save_pretrained(folder)
    return folder
