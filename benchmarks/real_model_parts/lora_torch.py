"""The same LoRA step in torch, transformers and PEFT, with one thread.

    python benchmarks/real_model_parts/lora_torch.py MODEL BATCH SEQ

MODEL: a GGUF file, or a folder with a config.json alone, whose weights are then random.
"""

from __future__ import annotations

import sys
from pathlib import Path

import peft
import torch
import transformers
from serving import batches, serve

PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def model_of(path: Path) -> transformers.PreTrainedModel:
    """Return the model in float32."""
    if path.is_file():
        return transformers.AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="sdpa"
        )
    config = transformers.AutoConfig.from_pretrained(path)
    return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="sdpa")


def main(model: str, batch: int, seq: int) -> None:
    """Build the step and serve it."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    base = model_of(Path(model))
    base.config.use_cache = False
    adapted = peft.get_peft_model(base, peft.LoraConfig(r=16, lora_alpha=32, target_modules=PROJECTIONS)).train()
    learning = [parameter for parameter in adapted.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=2e-4, weight_decay=0)
    shape = {"batch": batch, "seq": seq, "vocab": base.config.vocab_size}
    data = [torch.from_numpy(one).long() for one in batches(shape)]

    def step(number: int) -> float:
        tokens = data[number % len(data)]
        loss = adapted(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learning, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())

    serve(
        step,
        trained=sum(parameter.numel() for parameter in learning),
        tokens_per_step=batch * seq,
        versions={each.__name__: each.__version__ for each in (torch, transformers, peft)},
        devices=f"{torch.get_num_threads()} thread, attention {base.config._attn_implementation}",
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
