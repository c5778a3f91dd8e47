"""Loads adapters with PEFT and writes what their models compute; called by `make.py` in an environment with torch."""

from __future__ import annotations

import json
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import peft
import torch
import transformers


def main(models: Path, adapters: Path, output: Path) -> None:
    """Write `expected.npz` and `versions.json`.

    Args:
        models: holds the models by name.
        adapters: holds an adapter of each of some models, by the model's name.
        output: where the two files go.
    """
    arrays, hashes = {}, {}
    for folder in sorted(adapters.iterdir()):
        name = folder.name
        base = transformers.AutoModelForCausalLM.from_pretrained(
            models / name, dtype=torch.float32, attn_implementation="eager"
        )
        torch.manual_seed(sum(name.encode()))
        tokens = torch.randint(0, base.config.vocab_size, (2, 12))
        with torch.no_grad():
            plain = base(tokens).logits
            adapted = peft.PeftModel.from_pretrained(base, folder).eval()(tokens).logits
        change = float((adapted - plain).abs().max() / plain.abs().max())
        arrays |= {f"{name}.tokens": tokens.numpy().astype(np.int32), f"{name}.logits": adapted.numpy()}
        weights = (folder / "adapter_model.safetensors").read_bytes()
        hashes[name] = {"adapter_sha256": sha256(weights).hexdigest(), "largest_change": round(change, 4)}
    np.savez_compressed(output / "expected.npz", **arrays)
    versions = {module.__name__: module.__version__ for module in (peft, torch, transformers)}
    text = json.dumps({"versions": versions, "adapters": hashes}, indent=2)
    (output / "versions.json").write_text(text + "\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
