"""The programs that are estimated and compiled: each one program of one run on one target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evidence.targets import load_target
from trainer.data.prompts import Asked
from trainer.planning.compile.machines import V5E_1, V5E_8, Cards, Chips, describe_gpu

ADAFACTOR = "optimizer.name=adafactor precision.compute=bfloat16"
FREE = f"{ADAFACTOR} optimizer.max_grad_norm=null"
BF16 = "precision.params=bfloat16"


def shaped(length: int, sequences: int) -> str:
    """Return the settings of a microbatch."""
    return f"data.max_length={length} batch.microbatch_size={sequences}"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One program of one run on one target."""

    model: str
    """A key of models.json, with `/n` for its first n layers; or a built-in model."""
    settings: str
    """`key=value` texts, a space between them."""
    program: str = "train"
    chips: Chips | Cards | None = V5E_1
    """None: this CPU."""
    asked: Asked | None = None
    attention: Literal["plain", "splash", "blockwise"] = "plain"
    """`memory.attention`: plain, where the sums have most to say."""

    @property
    def name(self) -> str:
        """What tells the case from all others."""
        cards = f"{self.chips.devices} T4" if isinstance(self.chips, Cards) and self.chips.devices > 1 else "T4"
        target = "CPU" if self.chips is None else self.chips.topology if isinstance(self.chips, Chips) else cards
        asked = "" if self.asked is None else f" {self.asked.prompts} prompts of {self.asked.longest_tokens}"
        attention = "" if self.attention == "plain" else f" memory.attention={self.attention}"
        return f"{self.model} {self.program} {target}{asked}: {self.settings}{attention}"

    @property
    def platform(self) -> str:
        """cpu, gpu or tpu."""
        return "cpu" if self.chips is None else "tpu" if isinstance(self.chips, Chips) else "gpu"


ANSWER = "evaluation.max_new_tokens=160 evaluation.batch_size=32"
LONG_ANSWER = "evaluation.max_new_tokens=512 evaluation.batch_size=96"
HUNDRED = Asked(prompts=100, longest_tokens=64)
LORA = f"method.kind=lora method.rank=16 {ADAFACTOR} {BF16}"
IN_CHUNKS = "memory.mlp_chunk_tokens=2048 memory.loss_chunk_tokens=256"
ADAPTERS = f"method.kind=lora method.rank=16 precision.compute=bfloat16 {BF16} {IN_CHUNKS}"
T4 = Cards(description=describe_gpu(load_target("t4")), devices=1)
TWO_T4 = Cards(description=describe_gpu(load_target("t4")), devices=2)
FP16 = "precision.params=float16 precision.compute=float16"
QLORA = f"method.kind=lora method.base=nf4 {FP16}"
TPU_CASES = (
    Case(model="gemma-2b", settings=f"{FREE} {shaped(512, 1)}"),
    Case(model="gemma-2b", settings=f"{FREE} {shaped(512, 16)}"),
    Case(model="gemma-2b", settings=f"{FREE} {BF16} {shaped(2048, 16)}"),
    Case(model="gemma-2b", settings=f"{ADAFACTOR} {shaped(512, 1)}"),
    Case(model="gemma-2b", settings=f"{FREE} {shaped(512, 1)}", program="start"),
    Case(model="gemma-2b", settings=f"{FREE} {ANSWER}", program="decode", asked=Asked(prompts=100, longest_tokens=64)),
    Case(model="gemma-2b/6", settings=f"{FREE} {shaped(2048, 16)}"),
    Case(model="gemma-2b/6", settings=f"{FREE} {shaped(2048, 24)}"),
    Case(model="gemma-2b/3", settings=f"{ADAFACTOR} {shaped(2048, 16)}"),
    Case(model="gemma-2b/3", settings=f"{FREE} {shaped(2048, 4)}"),
    Case(model="gemma-2b/3", settings=f"{FREE} {BF16} {shaped(512, 16)}"),
    Case(model="gemma-2b/3", settings=f"{FREE} {shaped(1024, 24)} batch.accumulation_steps=4"),
    Case(model="gemma-2b/3", settings=f"precision.compute=bfloat16 {shaped(64, 1)} memory.donate=false"),
    Case(model="llama-3.2-1b/4", settings=f"{ADAFACTOR} {shaped(1024, 32)}"),
    Case(model="llama-3.2-1b/4", settings=f"precision.compute=bfloat16 {shaped(1024, 20)}"),
    Case(model="llama-3.2-1b/4", settings=f"{FREE} {BF16} {shaped(2048, 16)}"),
    Case(model="llama-3.2-1b/4", settings=f"{FREE} {shaped(1024, 8)} memory.remat=none"),
    Case(model="llama-3.2-1b/4", settings=f"{FREE} {shaped(1024, 8)} memory.remat=dots"),
    Case(
        model="llama-3.2-1b/4",
        settings=f"{FREE} {BF16} evaluation.max_new_tokens=512 evaluation.batch_size=96",
        program="decode",
        asked=Asked(prompts=256, longest_tokens=512),
    ),
    Case(model="qwen2.5-0.5b/6", settings=f"precision.compute=bfloat16 {shaped(2048, 22)}"),
    Case(model="qwen2.5-1.5b/6", settings=f"{ADAFACTOR} {BF16} {shaped(1024, 80)}"),
    Case(model="qwen3-0.6b/6", settings=f"{FREE} {shaped(1024, 72)}"),
    Case(model="gpt2", settings=f"precision.compute=bfloat16 {shaped(1024, 96)}"),
    Case(model="gemma-2b/3", settings=f"precision.compute=bfloat16 {shaped(2048, 16)}", chips=V5E_8),
    Case(model="llama-3-8b/4", settings=f"{ADAFACTOR} {shaped(2048, 10)}", chips=V5E_8),
    Case(
        model="gemma-2b",
        settings=f"precision.compute=bfloat16 optimizer.max_grad_norm=null {shaped(2048, 4)}",
        chips=V5E_8,
    ),
    Case(
        model="gemma-2b",
        settings=f"precision.compute=bfloat16 optimizer.max_grad_norm=null {shaped(2048, 4)} optimizer.state=int8",
        chips=V5E_8,
    ),
    Case(
        model="gemma-2b",
        settings=f"precision.compute=bfloat16 optimizer.max_grad_norm=null {shaped(2048, 4)} optimizer.state=bfloat16",
        chips=V5E_8,
    ),
    Case(model="gemma-2b", settings=f"{ADAFACTOR} {BF16} {shaped(128, 256)}", chips=V5E_8),  # submission_tpu.yaml
    Case(model="gemma-2b", settings=f"{ADAFACTOR} {shaped(128, 256)}", chips=V5E_8),
    Case(model="gemma-2b", settings=f"precision.compute=bfloat16 {shaped(128, 256)}", chips=V5E_8),
    Case(model="gemma-2b", settings=f"precision.compute=bfloat16 {BF16} {shaped(128, 256)}", chips=V5E_8),
    Case(model="gemma-2b", settings=f"precision.compute=bfloat16 {shaped(128, 128)}", chips=V5E_8),
    Case(
        model="gemma-2b",
        settings=f"precision.compute=bfloat16 {ANSWER}",
        program="decode",
        chips=V5E_8,
        asked=HUNDRED,
    ),
    Case(model="gemma-2-9b", settings=f"{ADAFACTOR} {ANSWER}", program="decode", chips=V5E_8, asked=HUNDRED),
    Case(
        model="gemma-2-9b",
        settings=f"{ADAFACTOR} {LONG_ANSWER}",
        program="decode",
        chips=V5E_8,
        asked=Asked(prompts=256, longest_tokens=512),
    ),
    # Chips that do not divide the parameters share the prompts all the same.
    Case(
        model="gemma-2b",
        settings=f"{ADAFACTOR} {BF16} mesh.shard_params=false evaluation.max_new_tokens=512 evaluation.batch_size=256",
        program="decode",
        chips=V5E_8,
        asked=Asked(prompts=1024, longest_tokens=512),
    ),
    Case(model="llama-3.2-1b", settings=f"{FREE} {shaped(8192, 1)}", attention="splash"),
    Case(model="llama-3.2-1b", settings=f"{FREE} {BF16} {shaped(8192, 1)}", attention="splash"),
    Case(model="gemma-2b", settings=f"{FREE} {BF16} {shaped(2048, 16)}", attention="splash"),
    Case(model="gemma-2b", settings=f"{FREE} {BF16} {shaped(4096, 16)}", attention="splash"),
    Case(model="gemma-2b", settings=f"{FREE} {BF16} {shaped(2048, 16)} {IN_CHUNKS}", attention="splash"),
    Case(model="gemma-2b", settings=f"{FREE} {BF16} {shaped(4096, 16)} {IN_CHUNKS}", attention="splash"),
    Case(
        model="gemma-2b",
        settings=f"precision.compute=bfloat16 optimizer.max_grad_norm=null {shaped(2048, 4)} {IN_CHUNKS}",
        attention="splash",
        chips=V5E_8,
    ),
    Case(model="gemma-2b", settings=f"{ADAPTERS} {shaped(1024, 16)}", attention="splash"),
    Case(model="gemma-2b", settings=f"{ADAPTERS} method.base=nf4 {shaped(1024, 16)}", attention="splash"),
    Case(model="gemma-2b/6", settings=f"{FREE} {BF16} {shaped(512, 64)}"),
    Case(model="gemma-2b/6", settings=f"{FREE} {BF16} {shaped(512, 64)} memory.mlp_chunk_tokens=4096"),
    Case(model="gemma-2-9b", settings=f"{FREE} {BF16} {shaped(1024, 1)}", attention="splash", chips=V5E_8),
    Case(model="gemma-2-27b", settings=f"{ADAPTERS} {shaped(1024, 1)}", attention="splash", chips=V5E_8),
    Case(model="qwen2.5-3b", settings=f"{QLORA} {shaped(2048, 1)}", attention="blockwise", chips=T4),
    Case(model="qwen2.5-3b", settings=f"{QLORA} {shaped(8192, 1)}", attention="blockwise", chips=T4),
    Case(  # kaggle_t4x2.yaml
        model="gemma-2b",
        settings=f"method.kind=lora method.rank=16 {FP16} {shaped(128, 128)} mesh.shard_params=false",
        chips=TWO_T4,
    ),
    Case(
        model="llama-3.2-1b/4",
        settings=f"optimizer.name=adafactor precision.compute=float16 {shaped(1024, 24)}",
        chips=T4,
    ),
    Case(model="gpt2", settings=f"precision.compute=float16 {shaped(512, 64)}", chips=T4),
    Case(model="gpt2", settings=f"method.kind=lora {FP16} {shaped(512, 64)}", chips=T4),
    Case(model="qwen2.5-3b", settings=f"{QLORA} {ANSWER}", program="decode", chips=T4, asked=HUNDRED),
    Case(
        model="gemma-2b",
        settings=f"method.kind=lora {FP16} {ANSWER} mesh.shard_params=false",
        program="decode",
        chips=TWO_T4,
        asked=HUNDRED,
    ),
    Case(model="llama-3.2-1b/4", settings=f"objective.kind=dpo {FREE} {shaped(1024, 24)}"),
    Case(
        model="llama-3.2-1b",
        settings=f"objective.kind=dpo method.kind=lora precision.compute=bfloat16 {BF16} {shaped(1024, 16)}",
    ),
    Case(model="gemma-2b", settings=LORA, program="export"),
    Case(model="gemma-2b", settings=f"{LORA} method.base=nf4", program="export"),
    Case(model="gemma-2b", settings=f"{LORA} method.base=nf4", program="export", chips=V5E_8),
)
SMALL = shaped(128, 16)
CPU_CASES = tuple(
    Case(model=model, settings=settings, program=program, chips=None, asked=asked)
    for model, settings, program, asked in (
        ("demo", SMALL, "train", None),
        ("demo", shaped(64, 32), "train", None),
        ("demo", f"{SMALL} memory.remat=none", "train", None),
        ("demo", f"{SMALL} memory.donate=false", "train", None),
        ("demo", f"{SMALL} batch.accumulation_steps=4", "train", None),
        ("demo", f"{SMALL} precision.compute=bfloat16 {BF16}", "train", None),
        ("demo", f"{shaped(256, 8)} optimizer.name=adafactor optimizer.max_grad_norm=null", "train", None),
        ("tiny-gpt2", SMALL, "train", None),
        ("tiny-gpt2", f"{SMALL} memory.loss_chunk_tokens=null", "train", None),
        ("gpt2", shaped(256, 2), "train", None),
        ("demo", ANSWER, "decode", Asked(prompts=100, longest_tokens=60)),
        ("gpt2", "evaluation.batch_size=8", "decode", Asked(prompts=8, longest_tokens=128)),
    )
)
