"""Makes the adapters beside this file with PEFT, on golden models of `../models`.

Each folder holds an adapter as `save_pretrained` writes it and `expected.npz`: tokens, and the float32 logits of the
model with it. Run it where `../models/make.py` runs, with peft 0.21 (our own environment needs none of them):

    python tests/cases/adapters/make.py
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import peft
import torch
import transformers

HERE = Path(__file__).parent

ADAPTERS: dict[str, tuple[str, dict[str, Any]]] = {
    # Query, key and value are one module there.
    "gpt2": ("gpt2", {"r": 3, "lora_alpha": 6, "target_modules": ["c_attn", "c_fc"], "fan_in_fan_out": True}),
    # Every projection, another rank and alpha for some, rsLoRA, and a head that is trained as a whole.
    "llama-rslora": (
        "llama",
        {
            "r": 4,
            "lora_alpha": 5,
            "target_modules": "all-linear",
            "use_rslora": True,
            "rank_pattern": {"v_proj": 2},
            "alpha_pattern": {"layers.1.self_attn.q_proj": 9},
            "modules_to_save": ["lm_head"],
        },
    ),
    # Modules by a regular expression, and a tied head.
    "gemma2": ("gemma2", {"r": 2, "lora_alpha": 8, "target_modules": r".*layers\.[02]\.self_attn\.(q|o)_proj"}),
}


def make(name: str) -> None:
    """Write one adapter and what its model computes with it."""
    base, settings = ADAPTERS[name]
    torch.manual_seed(sum(name.encode()))
    model = transformers.AutoModelForCausalLM.from_pretrained(
        HERE.parent / "models" / base, dtype=torch.float32, attn_implementation="eager"
    )
    adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **settings)).eval()
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.add_(0.2 * torch.randn_like(parameter))
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    adapted.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    config = json.loads((folder / "adapter_config.json").read_text())
    # A path of the machine that made it says nothing.
    (folder / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": base}, indent=2) + "\n")
    tokens = torch.randint(0, model.config.vocab_size, (2, 12))
    with torch.no_grad():
        logits = adapted(tokens).logits
    np.savez_compressed(folder / "expected.npz", tokens=tokens.numpy().astype(np.int32), logits=logits.numpy())


if __name__ == "__main__":
    for adapter_name in ADAPTERS:
        make(adapter_name)
