"""What both loops have in common: model, prompts, reward, and how steps are requested and timed. Standard library.

A loop is a process: it takes two steps that count for nothing (one of them compiles) and writes a line of facts. Then
it reads numbers of steps from its standard input and answers each with what they cost, rolling out counted apart.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SHAPES = {
    "tiny": {"embed": 128, "layers": 4, "heads": 4, "kv_heads": 2, "head_dim": 32, "mlp": 512, "vocab": 576},
    "small": {"embed": 256, "layers": 6, "heads": 8, "kv_heads": 4, "head_dim": 32, "mlp": 768, "vocab": 8192},
}
"""Of a Llama, the token table tied to the head, everything in float32."""
SHAPES["uneven"] = SHAPES["tiny"]
"""The same with prompts of different lengths, and a token that ends completions at different places."""
STOP_SCALE = 10.0
"""By which the end token's row of the table is larger than others in `uneven`: about every 50th token is it."""
PROMPTS, GROUP = 2, 8
"""Prompts of a step, and completions of each."""
PROMPT_TOKENS, NEW_TOKENS = {"tiny": 17, "small": 17, "uneven": 57}, 128
"""Of the longest prompt, and of each completion: none ends before, but in `uneven`."""
ADAMW = {"learning_rate": 1e-5, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.0}
"""At a constant rate; the norm of the gradient is clipped at 1."""
EPSILONS = {"epsilon_low": 0.2, "epsilon_high": 0.28}
"""Of the loss, which is dapo without a divergence."""
WARM = 2


def model_config() -> dict[str, dict[str, Any]]:
    """Return `config.json` of each model."""
    return {
        name: {
            "model_type": "llama",
            "vocab_size": shape["vocab"],
            "hidden_size": shape["embed"],
            "intermediate_size": shape["mlp"],
            "num_hidden_layers": shape["layers"],
            "num_attention_heads": shape["heads"],
            "num_key_value_heads": shape["kv_heads"],
            "head_dim": shape["head_dim"],
            "max_position_embeddings": 512,
            "tie_word_embeddings": True,
        }
        for name, shape in SHAPES.items()
    }


def prompts(size: str) -> list[str]:
    """Return prompts of nearly equal length, in `uneven` of one to three times that."""
    further = 5 if size == "uneven" else 1
    return [
        f"What is {100 + 7 * number} + {900 - 3 * number}? Think first." + " Think again." * (number % further)
        for number in range(64)
    ]


def weights(size: str, end: int) -> dict[str, Any]:
    """Return the parameters of a model by their names in files, of deviation 0.02: both loops have the same.

    Args:
        size: one of `SHAPES`.
        end: the token that ends a completion, of which only `uneven` has more.
    """
    import numpy as np

    shape, draw = SHAPES[size], np.random.default_rng(0)
    heads, kv, mlp = (shape[name] for name in ("heads", "kv_heads", "mlp"))
    embed, head = shape["embed"], shape["head_dim"]
    kernels = {
        "self_attn.q_proj": (heads * head, embed),
        "self_attn.k_proj": (kv * head, embed),
        "self_attn.v_proj": (kv * head, embed),
        "self_attn.o_proj": (embed, heads * head),
        "mlp.gate_proj": (mlp, embed),
        "mlp.up_proj": (mlp, embed),
        "mlp.down_proj": (embed, mlp),
    }
    found = {"model.embed_tokens.weight": draw.normal(0, 0.02, (shape["vocab"], embed))}
    if size == "uneven":
        found["model.embed_tokens.weight"][end] *= STOP_SCALE
    found["model.norm.weight"] = np.ones(embed)
    for layer in range(shape["layers"]):
        for name, lengths in kernels.items():
            found[f"model.layers.{layer}.{name}.weight"] = draw.normal(0, 0.02, lengths)
        for name in ("input_layernorm", "post_attention_layernorm"):
            found[f"model.layers.{layer}.{name}.weight"] = np.ones(embed)
    return {name: value.astype(np.float32) for name, value in found.items()}


def share_of_e(text: str) -> float:
    """Return a reward in [0, 1]: the share of a letter."""
    return text.count("e") / max(1, len(text))


class Turns:
    """Takes the steps that are requested, and no more.

    Args:
        facts: what is written of the loop before the first turn, such as versions and parameters.
    """

    def __init__(self, **facts: Any) -> None:
        self._facts = facts
        self._done = self._left = self._new_tokens = 0
        self._began = self._rolled = (0.0, 0.0)
        self._output, sys.stdout = sys.stdout, sys.stderr

    def begin_step(self) -> None:
        """Return when a step is to be taken; ends the process when no more are requested."""
        if self._done >= WARM and self._left == 0:
            cost = self._cost() if self._done > WARM else self._facts
            self._output.write(json.dumps(cost) + "\n")
            self._output.flush()
            line = sys.stdin.readline()
            if not line:
                raise SystemExit(0)
            self._left, self._new_tokens = int(line), 0
            self._began, self._rolled = now(), (0.0, 0.0)
        self._done += 1
        self._left = max(0, self._left - 1)

    @contextmanager
    def rolling_out(self) -> Iterator[None]:
        """Count what happens inside as rolling out."""
        began = now()
        yield
        self._rolled = tuple(sum_ + end - begin for sum_, end, begin in zip(self._rolled, now(), began, strict=True))

    def rolled_out(self, tokens: list[int], size: str) -> None:
        """Count the tokens of completions, each of which has all that it may have, but in `uneven`."""
        assert len(tokens) == PROMPTS * GROUP
        assert size == "uneven" or set(tokens) == {NEW_TOKENS}, "lengths are equal"
        self._new_tokens += sum(tokens)

    def _cost(self) -> dict[str, float]:
        cpu, wall = (end - begin for end, begin in zip(now(), self._began, strict=True))
        return {
            "cpu": cpu,
            "wall": wall,
            "rollout_cpu": self._rolled[0],
            "rollout_wall": self._rolled[1],
            "new_tokens": self._new_tokens,
            "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }


def now() -> tuple[float, float]:
    """Return the processor's seconds of this process, all threads, and the clock's."""
    return time.process_time(), time.perf_counter()
