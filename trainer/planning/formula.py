"""Closed-form estimate of the memory of a run's programs.

The estimate ranks candidates, answers far from a device's limit, and replaces the compiler where there is none. Each
program is a sum of exact state, from shapes, and five rough terms: gradients, activations, logits, the key/value cache,
and copies of weights. `benchmarks/memory_estimate.py` compares it with compiled programs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax

from trainer.data.answers import EvalShape
from trainer.generate.decode import padded, prompt_rows, prompts_at_a_time
from trainer.loop.rollouts import rollout_size
from trainer.loop.state import unplaced_state
from trainer.loop.task import Task
from trainer.model.attention import BLOCK
from trainer.model.layers import chunk_count
from trainer.model.lora import is_lora, lora_names

FORMULA_ERROR = 0.3
"""Relative error of most estimates: 9 of 10 stored compilations are within it."""

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
CPU_RECOMPUTES = jax.__version_info__ >= (0, 11, 1)
"""Earlier CPU compilers undo rematerialization of unrolled layers."""
QUANTISED = (".codes", ".scales")
"""Suffixes of the arrays of a quantised kernel."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One use of memory on each device.

    Attributes:
        because: The multiplication behind the figure.
    """

    name: str
    bytes: int
    because: str


Parts = tuple[Part, ...]


def total_bytes(parts: Parts) -> int:
    """Return the sum of all parts."""
    return sum(part.bytes for part in parts)


def bit_width(value: Any) -> int:
    """Return the bits of one element; devices pack 4-bit integers although NumPy does not."""
    return _dtype_bits(value.dtype)


@cache
def _dtype_bits(dtype: Any) -> int:
    return 4 if str(dtype) in ("uint4", "int4") else int(dtype.itemsize) * 8


def params_bytes(params: Mapping[str, Any]) -> int:
    """Return the size of parameters in their stored types."""
    return sum(int(value.size) * bit_width(value) for value in params.values()) // 8


def count_params(params: Mapping[str, Any]) -> int:
    """Return the number of parameters."""
    return sum(int(value.size) for value in params.values())


def estimate(task: Task, *, platform: str, asked: EvalShape | None = None) -> dict[str, Parts]:
    """Estimate the peak of each program, by the names of `loop/programs.py`, in the order in which they run.

    Args:
        task: The run; only shapes are used.
        platform: cpu, gpu or tpu.
        asked: Shape of the evaluation prompts, or None if nothing is evaluated.
    """
    formula = _Formula(task, platform)
    found = {"start": formula.start(), "train": formula.train()}
    if asked is not None:
        found["decode"] = formula.evaluation(asked, task.mesh.size)
    if (size := rollout_size(task)) is not None:
        rows = size.rows // task.mesh.size
        found["rollout"] = formula.decode(rows, size.width, size.new_tokens, group=size.group_size)
    if platform == "cpu":
        copied = sum(part.bytes for part in formula.state if part.name in ("params", "opt_state"))
        found["save"] = (*formula.state, Part(name="copy", bytes=copied, because="the copy that is written to disk"))
    return {**found, "export": formula.export()}


def answering_estimate(task: Task, *, platform: str, asked: EvalShape) -> Parts:
    """Estimate answering prompts with a loaded model; devices that divide its parameters share the prompts."""
    formula = _Formula(task, platform)
    return formula.evaluation(asked, formula.shards)


class _Formula:
    """The sizes of a run on one device, and the sums of its programs."""

    def __init__(self, task: Task, platform: str) -> None:
        config, spec = task.config, task.model.source.spec
        arrays = task.objective.described(config.batch.microbatch_size)
        self.task, self.config, self.spec = task, config, spec
        self.cpu, self.gpu = platform == "cpu", platform == "gpu"
        self.sequences, self.length = arrays["tokens"].shape
        self.tokens = self.sequences * self.length
        self.compute_item = ITEM_BYTES[config.precision.compute]
        self.item = 4 if self.cpu else self.compute_item  # a CPU computes in float32 between layers
        self.shards = task.mesh.size if config.mesh.shard_params else 1
        self.split = f" / {self.shards} devices" if self.shards > 1 else ""
        self.params = {**task.model.trained, **task.model.frozen}
        self.chunk_tokens = min((task.objective.chunk_positions or self.length) * self.sequences, self.tokens)
        chunks = chunk_count(self.sequences, self.length, config.memory.mlp_chunk_tokens)
        self.mlp_tokens = self.sequences * -(-self.length // chunks)
        batch = sum(array.size * array.dtype.itemsize for array in arrays.values()) * config.batch.accumulation_steps
        self.batch = Part(
            name="batch", bytes=batch, because=f"{config.batch.accumulation_steps} × {self.tokens:,} tokens"
        )
        self.state = self._state()

    def _state(self) -> Parts:
        """Return parameters and optimizer state, which are exact."""
        model, optimizer = self.task.model, self.config.optimizer
        leaves = jax.tree.leaves(unplaced_state(self.task).opt_state)
        opt_bytes = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)
        each = opt_bytes / max(count_params(model.trained), 1)
        because = f"{optimizer.name}: {each:.2f} bytes per parameter{self.split}"
        opt_state = Part(name="opt_state", bytes=opt_bytes // self.shards, because=because)
        groups = {"frozen": model.frozen, "reference": self.task.reference}
        return (
            self._params("params", model.trained),
            opt_state,
            *(self._params(name, params) for name, params in groups.items() if params),
        )

    def _params(self, name: str, params: Mapping[str, Any]) -> Part:
        size, count = params_bytes(params), count_params(params)
        because = f"{count:,} numbers × {size / max(count, 1):.3g} bytes{self.split}"
        return Part(name=name, bytes=size // self.shards, because=because)

    def start(self) -> Parts:
        return self.state

    def train(self) -> Parts:
        """Return the train step at its largest moment: logits, or the first or last layer of the backward pass."""
        config, layers, tokens = self.config, self.spec.layers, self.tokens
        second = 0 if config.memory.donate else sum(p.bytes for p in self.state if p.name in ("params", "opt_state"))
        gradients, all_together = self._gradients()
        undone = self.cpu and not CPU_RECOMPUTES and not self.task.is_scanned
        keeps_all = config.memory.remat == "none" or undone
        attention, mlp, scores = self._layer()
        whole = attention + mlp + scores * (2 if self.cpu else 1)
        kept = (layers + self.cpu) * whole if keeps_all else layers * tokens * self.spec.embed * self.item
        if config.memory.remat == "dots" and not keeps_all:
            heads = (self.spec.heads + 2 * self.spec.kv_heads) * self.spec.head_dim
            kept += layers * (tokens * (self.spec.embed + heads) + 2 * self.mlp_tokens * self.spec.mlp) * self.item
        # Several devices begin the next layer while they wait for each other.
        overlap = 3 if self.shards > 1 else 2
        inside = overlap * (attention + max(mlp, scores)) // 2 + scores
        if self.task.is_scanned:
            inside += self._layer_weights()
        if self.shards > 1 or any(name.endswith(".codes") for name in self.params):
            inside += 2 * self._layer_weights()  # gathered or unpacked: this layer and the next
        logits = self.chunk_tokens * self.spec.vocab * 4 * (2 if self.cpu else 1)
        copy = self.spec.vocab * self.spec.embed * self.item if self.shards > 1 or self.chunk_tokens < tokens else 0
        waiting = gradients if not all_together else gradients // 2
        at_logits = (0 if all_together and not self.task.is_scanned else gradients, kept, logits)
        in_backward = (gradients if self.task.is_scanned else waiting, kept + inside, 0)
        at_the_end = (gradients, inside, 0)
        gradient_bytes, activations, logit_bytes = max(at_logits, in_backward, at_the_end, key=sum)
        how = "kept whole" if keeps_all else f"remat {config.memory.remat}"
        return (
            *self.state,
            self.batch,
            Part(name="second_state", bytes=second, because="not donated: old and new state together"),
            Part(
                name="gradients",
                bytes=gradient_bytes,
                because=f"of {count_params(self.task.model.trained):,} parameters",
            ),
            Part(name="activations", bytes=activations, because=f"{layers} layers ({how}) × {tokens:,} tokens"),
            Part(name="logits", bytes=logit_bytes, because=f"{self.chunk_tokens:,} tokens × {self.spec.vocab:,} words"),
            Part(name="weights_copy", bytes=copy, because="the output head in the compute type"),
        )

    def _gradients(self) -> tuple[int, bool]:
        """Return the bytes of gradients that exist together, and whether those are all gradients."""
        config, trained = self.config, self.task.model.trained
        if not config.memory.donate:
            return 0, False  # they use the memory of the new state
        accumulated = config.batch.accumulation_steps > 1
        skips = config.precision.compute == "float16" or config.optimizer.max_nonfinite_steps is not None
        all_together = accumulated or skips or config.optimizer.max_grad_norm is not None or self.task.is_scanned
        if all_together:
            item = 4 if self.cpu or accumulated or self.task.is_scanned else self.item
            return count_params(trained) * item // self.shards, True
        table = max(trained.values(), key=lambda value: int(value.size))
        return table.size * (4 if self.cpu else table.dtype.itemsize) // self.shards, False

    def _layer(self) -> tuple[int, int, int]:
        """Return the bytes of one layer's attention without scores, of its MLP, and of its attention scores."""
        spec, item = self.spec, self.item
        attention = self.tokens * (2 * spec.embed + 2 * (spec.heads + spec.kv_heads) * spec.head_dim) * item
        mlp = (4 if spec.gated_mlp else 3) * self.mlp_tokens * spec.mlp * item
        side = {"plain": self.length, "blockwise": min(BLOCK, self.length), "splash": 0}[self.task.attention]
        scores = self.sequences * spec.heads * side**2 * 4
        return attention, mlp, scores

    def _layer_weights(self) -> int:
        """Return the bytes of one layer's weights in the compute type."""
        inside = {name: value for name, value in self.params.items() if name.startswith("layers.")}
        return count_params(inside) // self.spec.layers * self.item

    def evaluation(self, asked: EvalShape, devices: int) -> Parts:
        """Return one batch of an evaluation."""
        of = self.config.evaluation
        prompts = prompt_rows(prompts_at_a_time(of.batch_size, of.samples, devices), asked.prompts, devices)
        return self.decode(of.samples * prompts // devices, padded(asked.longest_tokens), of.max_new_tokens)

    def decode(self, rows: int, width: int, new_tokens: int, *, group: int = 1) -> Parts:
        """Return the generation of `rows` completions; prompts of a group are read once."""
        spec, slots = self.spec, width + new_tokens
        cache = rows * slots * 2 * spec.layers * spec.kv_heads * spec.head_dim * self.compute_item
        wide = sum(int(v.size) for v in self.params.values() if v.dtype.itemsize > self.compute_item)
        prompts = rows // group
        scores = prompts * spec.heads * width * slots * 4 * (2 if self.cpu else 1)
        reading = max(scores, 3 * prompts * width * spec.mlp * self.item) + cache // spec.layers
        logits = rows * spec.vocab * 4 * (3 if group > 1 else 1)
        many = f"{rows:,} rows"
        return (
            *self.state,
            Part(name="key_value_cache", bytes=cache, because=f"{many} × {slots:,} tokens × {spec.layers} layers"),
            Part(name="activations", bytes=reading, because=f"{prompts:,} prompts of {width:,} tokens in one layer"),
            Part(name="logits", bytes=logits, because=f"{many} × {spec.vocab:,} words"),
            Part(
                name="weights_copy",
                bytes=wide * self.compute_item // self.shards,
                because=f"{wide:,} parameters in the compute type{self.split}",
            ),
        )

    def export(self) -> Parts:
        """Return the plain model, the adapters or quantised kernels it is made of, and the products of adapters."""
        model = self.task.model
        given = {name: value for name, value in model.shapes.items() if is_lora(name) or name.endswith(QUANTISED)}
        factors = [[model.shapes[each].shape for each in lora_names(name)] for name in model.adapters]
        products = [first[0] * second[1] for first, second in factors]
        # A CPU, and devices that gather the factors, make all products first.
        count = sum(products) if self.cpu or self.shards > 1 else max(products, default=0) if self.gpu else 0
        return (
            Part(name="params", bytes=plain_bytes(self.task) // self.shards, because="the plain model"),
            Part(name="adapters", bytes=params_bytes(given) // self.shards, because="merged or unpacked into it"),
            Part(name="merging", bytes=4 * count // self.shards, because=f"{count:,} products of adapters × 4 bytes"),
        )


def plain_bytes(task: Task) -> int:
    """Return the size of the exported model over all devices; quantised kernels take the type of the token table."""
    base = task.model.base
    item = int(base["tokens.table"].dtype.itemsize)
    unpacked = sum(int(value.size) for name, value in base.items() if name.endswith(".codes"))
    return params_bytes({name: value for name, value in base.items() if not name.endswith(QUANTISED)}) + item * unpacked
