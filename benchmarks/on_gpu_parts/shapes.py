"""What is measured: settings and shapes of the training steps."""

from __future__ import annotations

FULL = "optimizer.name=adafactor precision.params=bfloat16 precision.compute=bfloat16 optimizer.max_grad_norm=null"
LORA = "method.kind=lora method.rank=16 precision.params=bfloat16 precision.compute=bfloat16"
STEPS: dict[str, tuple[str, int, int]] = {
    "full": (FULL, 8, 2048),
    "lora": (LORA, 16, 1024),
    "qlora": (f"{LORA} method.base=nf4", 16, 1024),
}
"""Settings, sequences and tokens of each."""
