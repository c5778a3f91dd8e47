"""Makes torchao.json beside this file: AdamW in 8 bits by independent implementations, on torch.

`AdamW8bit` of torchao takes four steps on a kernel, a table and a small array, from formulas that
`tests/trainer/loop/test_step.py` repeats. Stored are the parameters, codes and magnitudes after them; and the
values of all codes, from bitsandbytes. Torch keeps a kernel with its inputs last. Run it in an environment of its own:

    pip install torch==2.13.0 torchao==0.18.0 bitsandbytes==0.50.2
    TORCHDYNAMO_DISABLE=1 python tests/cases/optimizer_state/make.py
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import bitsandbytes
import numpy as np
import torch
import torchao
from torchao.optim import AdamW8bit

HERE = Path(__file__).parent
STEPS = 4
SHAPES = {"kernel": (512, 16), "table": (16, 320), "small": (8, 8)}
BLOCKS = {"kernel": 256, "table": 320, "small": 256}
SETTINGS = {"lr": 0.01, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}


def numbers(shape: tuple[int, int], step: int) -> np.ndarray:
    """Return numbers that float32 holds exactly, over twelve powers of two; every 16th row is 0."""
    i, j = np.indices(shape)
    whole = (i * 7919 + j * 104729 + step * 1299709) % 2003 - 1001
    found = whole * 2.0 ** -(10 + (i * 31 + j * 17 + step * 3) % 13)
    return np.where(i % 16 == 15, 0, found).astype(np.float32)


def text_of(array: np.ndarray) -> str:
    """Return an array's bytes as text."""
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def after_steps(name: str) -> dict[str, Any]:
    """Return a parameter and its state after all steps, with inputs first."""
    turn = name == "kernel"

    def placed(array: np.ndarray) -> torch.Tensor:
        return torch.tensor(np.ascontiguousarray(array.T if turn else array))

    param = torch.nn.Parameter(placed(numbers(SHAPES[name], 99)))
    optimizer = AdamW8bit([param], block_size=BLOCKS[name], **SETTINGS)
    for step in range(STEPS):
        param.grad = placed(numbers(SHAPES[name], step))
        optimizer.step()

    def back(tensor: torch.Tensor) -> np.ndarray:
        array = tensor.detach().numpy()
        return array.T if turn else array

    found: dict[str, Any] = {"params": text_of(back(param))}
    for moment, key in (("mu", "exp_avg"), ("nu", "exp_avg_sq")):
        state = optimizer.state[param][key]
        if name == "small":
            found[moment] = {"numbers": text_of(back(state))}
        else:
            scales = state.scale.reshape(param.shape[0], -1)
            scales = back(scales) if turn else scales[:, 0].numpy()
            found[moment] = {"codes": text_of(back(state.codes)), "scales": text_of(scales)}
    return found


def main() -> None:
    """Write the file."""
    values = {
        name: text_of(bitsandbytes.functional.create_dynamic_map(signed=signed).numpy())
        for name, signed in (("signed", True), ("unsigned", False))
    }
    versions = {module.__name__: module.__version__ for module in (torch, torchao, bitsandbytes)}
    found = {"versions": versions, "values": values, "after": {name: after_steps(name) for name in SHAPES}}
    (HERE / "torchao.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
