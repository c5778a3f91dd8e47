"""A plain loop of torch over a model of transformers: forward, backward, AdamW.

python benchmarks/throughput_parts/torch_loop.py gemma|qwen3 eager|sdpa [compiled]
"""

from __future__ import annotations

import sys

import torch
import transformers
from serving import ADAMW, SHAPE, batches, serve

CONFIGS = {"gemma": transformers.GemmaConfig, "qwen3": transformers.Qwen3Config}


def main(family: str, attention: str, how: str = "as_written") -> None:
    """Build the loop and serve it."""
    torch.manual_seed(0)
    config = CONFIGS[family](
        vocab_size=SHAPE["vocab"],
        hidden_size=SHAPE["embed"],
        intermediate_size=SHAPE["mlp"],
        num_hidden_layers=SHAPE["layers"],
        num_attention_heads=SHAPE["heads"],
        num_key_value_heads=SHAPE["heads"],
        head_dim=SHAPE["head_dim"],
        max_position_embeddings=SHAPE["seq"],
        tie_word_embeddings=True,
        use_cache=False,
    )
    model = transformers.AutoModelForCausalLM.from_config(
        config, dtype=torch.float32, attn_implementation=attention
    ).train()
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=ADAMW["learning_rate"],
        betas=(ADAMW["beta1"], ADAMW["beta2"]),
        eps=ADAMW["epsilon"],
        weight_decay=ADAMW["weight_decay"],
    )
    run = torch.compile(model) if how == "compiled" else model
    data = [torch.from_numpy(one).long() for one in batches()]

    def step(number: int) -> float:
        tokens = data[number % len(data)]
        loss = run(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())

    serve(
        step,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        tokens_per_step=SHAPE["batch"] * SHAPE["seq"],
        versions={"torch": torch.__version__, "transformers": transformers.__version__},
        devices=f"{torch.get_num_threads()} threads, attention {model.config._attn_implementation}, {how}",
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
