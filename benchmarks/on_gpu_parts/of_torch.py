"""The training step of torch and transformers, by a Python that need not have this trainer."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

from on_gpu_parts.shapes import STEPS


def torch_step(*, tiny: bool) -> dict[str, Any]:
    """Return the step of torch with transformers' Gemma: layers recomputed, Adafactor, as many sequences as fit."""
    import torch
    import transformers

    place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    sizes: dict[str, Any] = {"vocab_size": 256000, "hidden_size": 2048, "intermediate_size": 16384, "head_dim": 256}
    sizes |= {"num_hidden_layers": 18, "num_attention_heads": 8, "num_key_value_heads": 1}
    if tiny:
        sizes |= {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    config = transformers.GemmaConfig(**sizes, use_cache=False, tie_word_embeddings=True)
    with place:
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    model.train().gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.Adafactor(model.parameters(), lr=1e-3)
    sequences, length = (2, 64) if tiny else STEPS["full"][1:]
    while True:
        tokens = torch.randint(0, config.vocab_size, (sequences, length), device=place)

        def taken(tokens: Any = tokens) -> None:
            model(input_ids=tokens, labels=tokens).loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if place.type == "cuda":
                torch.cuda.synchronize()

        try:
            taken()
            took = [_seconds(taken) for _ in range(3 if tiny else 8)][1:]
            break
        except torch.OutOfMemoryError:
            optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
            sequences //= 2
            if not sequences:
                raise
    return {
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "sequences": sequences,
        "step_seconds": {"min": min(took), "median": median(took), "max": max(took)},
        "tokens_a_second": sequences * length / median(took),
        "observed_bytes": torch.cuda.max_memory_allocated() if place.type == "cuda" else None,
    }


def _seconds(call: Callable[[], None]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
