"""Makes the golden models beside this file anew with an independent implementation: transformers on torch.

Each folder holds a tiny random model as `save_pretrained` writes it, and what that implementation computes with it:
`expected.npz` (tokens and float32 logits) and `expected.json` (loss, gradients, greedy completions, versions). A new
case begins as a folder with a config.json, which states the version of transformers too: each writes it in its own way.
README.md says what is special about each. Run it in an environment of its own, with torch 2.13.0 and that version:

    python tests/cases/models/make.py             # the cases of the version that is installed, 4 or 5
    python tests/cases/models/make.py gemma2      # these alone
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
import transformers

HERE = Path(__file__).parent
VOCAB = 97
NEW_TOKENS = 16
# Lengths on both sides of each other, so that padding matters; none ends like another.
PROMPTS = [[5, 17, 80], [3], [44, 2, 9, 61, 33, 33, 12, 90], [70, 71, 72, 73, 8]]

SHARDS = {"gpt2-untied": "40KB", "llama": "24KB", "gemma3-capped": "30KB"}
"""Sizes of files, where a model has several."""


def make(name: str) -> None:
    """Write one golden model and what it computes."""
    folder = HERE / name
    config = transformers.AutoConfig.from_pretrained(folder)
    dtype, told = config.dtype or torch.float32, getattr(config, "quantization_config", None)
    if told is not None:
        del config.quantization_config
    kind = type(transformers.AutoModelForCausalLM.from_config(config))
    torch.manual_seed(sum(name.encode()))
    fresh = kind(config).float()
    with torch.no_grad():
        for path, parameter in fresh.named_parameters():
            # Fresh norms are 1 and fresh biases 0, which would hide a mistake in either; and layers that hardly
            # change the token table's rows would hide a mistake in themselves.
            inside_layer = any(part.isdecimal() for part in path.split("."))
            parameter.add_((0.3 if inside_layer else 0.15) * torch.randn_like(parameter))
    shutil.rmtree(folder)
    fresh.to(dtype).save_pretrained(folder, max_shard_size=SHARDS.get(name, "5GB"))
    if told is not None:
        quantised = kind.from_pretrained(
            folder, dtype=dtype, quantization_config=transformers.BitsAndBytesConfig.from_dict(told), device_map="cpu"
        )
        shutil.rmtree(folder)
        quantised.save_pretrained(folder)
        model = kind(quantised.config).eval()
        model.set_attn_implementation("eager")
        model.load_state_dict(read_by_bitsandbytes(quantised), strict=False)
        model.tie_weights()
    else:
        # Computed with what the files hold, in float32, by the plain attention that the model's own code spells out.
        model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()

    tokens = torch.randint(0, config.vocab_size, (2, 24))
    logits = model(tokens).logits
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    np.savez_compressed(folder / "expected.npz", tokens=tokens.numpy().astype(np.int32), logits=logits.detach().numpy())
    # Of all tokens the one that ends as near as possible to half of the outputs.
    free = [greedy(model, prompt, stop=None) for prompt in PROMPTS]
    stop = min(range(VOCAB), key=lambda token: abs(sum(token in output[1:] for output in free) - len(free) / 2))
    expected = {
        "made_with": {"torch": torch.__version__, "transformers": transformers.__version__},
        "loss": loss.item(),
        "gradients": {path: summary(parameter.grad) for path, parameter in model.named_parameters()},
        "stop_token_id": stop,
        "max_new_tokens": NEW_TOKENS,
        "prompts": PROMPTS,
        "completions": [greedy(model, prompt, stop=stop) for prompt in PROMPTS],
    }
    (folder / "expected.json").write_text(json.dumps(expected) + "\n", encoding="utf-8")


def read_by_bitsandbytes(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the weights that a quantised model computes with, in float32."""
    from bitsandbytes import functional, nn

    found = {path: value.float() for path, value in model.named_parameters() if value.dtype.is_floating_point}
    for path, module in model.named_modules():
        if isinstance(module, nn.Linear4bit):
            found[f"{path}.weight"] = functional.dequantize_4bit(module.weight.data, module.weight.quant_state).float()
        elif isinstance(module, nn.Linear8bitLt):
            found[f"{path}.weight"] = functional.int8_vectorwise_dequant(module.weight.data, module.weight.SCB)
    return found


def summary(gradient: torch.Tensor) -> list[float]:
    """Return a gradient's norm and its product with waves, which tells a transposed or swapped one."""
    flat = gradient.double().flatten()
    return [flat.norm().item(), (flat * torch.cos(torch.arange(len(flat), dtype=torch.float64))).sum().item()]


def greedy(model: torch.nn.Module, prompt: list[int], *, stop: int | None) -> list[int]:
    """Continue a prompt one token at a time, with transformers' own cache."""
    written: list[int] = []
    tokens, cache = torch.tensor([prompt]), transformers.DynamicCache(config=model.config)
    while len(written) < NEW_TOKENS and (not written or written[-1] != stop):
        with torch.no_grad():
            out = model(tokens, past_key_values=cache, use_cache=True)
        written.append(int(out.logits[0, -1].argmax()))
        tokens = torch.tensor([written[-1:]])
    return written


if __name__ == "__main__":
    written = {path.parent.name: json.loads(path.read_text()) for path in sorted(HERE.glob("*/config.json"))}
    installed = transformers.__version__.partition(".")[0]
    for model_name in sys.argv[1:] or [
        name for name, config in written.items() if config["transformers_version"].startswith(f"{installed}.")
    ]:
        make(model_name)
