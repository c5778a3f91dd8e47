"""Closed-form estimate of the memory of a run's programs.

The estimate ranks candidates, answers far from a device's limit, and replaces a missing compiler. State and cache
follow from shapes. Gradients, activations, logits and copies of weights are sizes of arrays times small factors, which
are not derived but fitted to the 75 compilations of `benchmarks/memory_estimate.py`. On these, the data of the fit, the
median error is 8 %, nine of ten are within 21 %, and the largest are 26 % too low and 48 % too high.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax

from trainer.data.answers import EvalShape
from trainer.generate.decode import padded, prompt_rows, prompts_at_a_time
from trainer.loop.compilation import tree_bytes
from trainer.loop.rollouts import rollout_size
from trainer.loop.state import unplaced_state
from trainer.loop.task import Task
from trainer.model.attention import BLOCK
from trainer.model.decoder import parameter_count
from trainer.model.layers import apply_activation, chunk_count, is_lora, lora_names

FORMULA_ERROR = 0.3
"""Relative error of most estimates: 74 of the 75 stored compilations are within it."""

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
CPU_RECOMPUTES = jax.__version_info__ >= (0, 11, 1)
"""Earlier CPU compilers undo rematerialization of unrolled layers."""
QUANTISED = (".codes", ".scales")
"""Suffixes of the arrays of a quantized kernel."""


class Part(NamedTuple):
    """One use of memory on each device; `because` is the multiplication behind the figure."""

    name: str
    bytes: int
    because: str


Parts = tuple[Part, ...]


def total_bytes(parts: Parts) -> int:
    """Return the sum of all parts."""
    return sum(part.bytes for part in parts)


def bit_width(value: Any) -> int:
    """Return the bits of one element; devices pack 4-bit integers although NumPy does not."""
    return 4 if value.dtype.name in ("uint4", "int4") else int(value.dtype.itemsize) * 8


def params_bytes(params: Mapping[str, Any]) -> int:
    """Return the size of parameters in their stored types."""
    return sum(int(value.size) * bit_width(value) for value in params.values()) // 8


def estimate(task: Task, *, platform: str, eval_shape: EvalShape | None = None) -> dict[str, Parts]:
    """Estimate the peak of each program, by the names of `loop/programs.py`, in the order in which they run.

    Only shapes of the task are used. Pass `eval_shape` if prompts are evaluated.
    """
    formula, devices = _Formula(task, platform), task.mesh.size
    found = {"start": formula.state, "train": formula.train()}
    if eval_shape is not None:
        of = task.config.evaluation
        prompts = prompt_rows(prompts_at_a_time(of.batch_size, of.samples, devices), eval_shape.prompts, devices)
        rows, width = of.samples * prompts // devices, padded(eval_shape.longest_tokens)
        found["decode"] = formula.decode(rows, width, of.max_new_tokens)
    if (size := rollout_size(task)) is not None:
        found["rollout"] = formula.decode(size.rows // devices, size.width, size.new_tokens, group=size.group_size)
    if platform == "cpu":
        copied = sum(part.bytes for part in formula.state if part.name in ("params", "opt_state"))
        found["save"] = (*formula.state, Part("copy", copied, "the copy that is written to disk"))
    return {**found, "export": formula.export()}


class _Formula:
    """The sizes of a run on one device, and the sums of its programs."""

    def __init__(self, task: Task, platform: str) -> None:
        config, spec = task.config, task.model.source.spec
        self.task, self.config, self.spec = task, config, spec
        self.cpu, self.gpu = platform == "cpu", platform == "gpu"
        arrays = task.objective.batch_shapes(config.batch.microbatch_size)
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
        steps = config.batch.accumulation_steps
        self.batch = Part("batch", tree_bytes(arrays) * steps, f"{steps} × {self.tokens:,} tokens")
        # Parameters and optimizer state are exact.
        optimizer = tree_bytes(unplaced_state(task).opt_state)
        each = optimizer / max(parameter_count(task.model.trained), 1)
        because = f"{config.optimizer.name}: {each:.2f} bytes per parameter{self.split}"
        others = {"frozen": task.model.frozen, "reference": task.reference}
        self.state = (
            self._params("params", task.model.trained),
            Part("opt_state", optimizer // self.shards, because),
            *(self._params(name, params) for name, params in others.items() if params),
        )

    def _params(self, name: str, params: Mapping[str, Any]) -> Part:
        size, count = params_bytes(params), parameter_count(params)
        return Part(name, size // self.shards, f"{count:,} numbers × {size / max(count, 1):.3g} bytes{self.split}")

    def train(self) -> Parts:
        """Return the train step at its largest moment: logits, or the first or last layer of the backward pass."""
        config, spec, layers, tokens = self.config, self.spec, self.spec.layers, self.tokens
        attention = tokens * (2 * spec.embed + 2 * (spec.heads + spec.kv_heads) * spec.head_dim) * self.item
        mlp = (4 if spec.gated_mlp else 3) * self.mlp_tokens * spec.mlp * self.item
        side = {"plain": self.length, "blockwise": min(BLOCK, self.length), "splash": 0}[self.task.attention]
        scores = self.sequences * spec.heads * side**2 * 4

        undone = self.cpu and not CPU_RECOMPUTES and not self.task.is_scanned
        keeps_all = config.memory.remat == "none" or undone
        if keeps_all:
            kept = (layers + self.cpu) * (attention + mlp + scores * (2 if self.cpu else 1))
            kept += layers * self._activation_residuals() if self.task.is_scanned else 0
        else:
            kept = layers * tokens * spec.embed * self.item
            if config.memory.remat == "dots":
                width = spec.embed + (spec.heads + 2 * spec.kv_heads) * spec.head_dim
                kept += layers * (tokens * width + 2 * self.mlp_tokens * spec.mlp) * self.item
        # Several devices begin the next layer while they wait for each other.
        inside = (3 if self.shards > 1 else 2) * (attention + max(mlp, scores)) // 2 + scores
        inside_layers = {name: value for name, value in self.params.items() if name.startswith("layers.")}
        weights = parameter_count(inside_layers) // layers * self.item
        inside += weights if self.task.is_scanned else 0
        if self.shards > 1 or any(name.endswith(".codes") for name in self.params):
            inside += 2 * weights  # gathered or unpacked: this layer and the next

        gradients, all_together = self._gradients()
        logits = self.chunk_tokens * spec.vocab * 4 * (2 if self.cpu else 1)
        at_logits = (0 if all_together and not self.task.is_scanned else gradients, kept, logits)
        waiting = gradients // 2 if all_together and not self.task.is_scanned else gradients
        moments = (at_logits, (waiting, kept + inside, 0), (gradients, inside, 0))
        gradient_bytes, activations, logit_bytes = max(moments, key=sum)
        second = 0 if config.memory.donate else sum(p.bytes for p in self.state if p.name in ("params", "opt_state"))
        copy = spec.vocab * spec.embed * self.item if self.shards > 1 or self.chunk_tokens < tokens else 0
        how = "kept whole" if keeps_all else f"remat {config.memory.remat}"
        return (
            *self.state,
            self.batch,
            Part("second_state", second, "not donated: old and new state together"),
            Part("gradients", gradient_bytes, f"of {parameter_count(self.task.model.trained):,} parameters"),
            Part("activations", activations, f"{layers} layers ({how}) × {tokens:,} tokens"),
            Part("logits", logit_bytes, f"{self.chunk_tokens:,} tokens × {spec.vocab:,} words"),
            Part("weights_copy", copy, "the output head in the compute type"),
        )

    def _activation_residuals(self) -> int:
        """Return the bytes of the residuals of a layer's activation function.

        In a loop over stacked layers JAX stores them with the layer's output. The compiler of unrolled layers computes
        most of them again.
        """
        x = jax.ShapeDtypeStruct((self.mlp_tokens, self.spec.mlp), f"float{8 * self.item}")
        return tree_bytes(
            jax.eval_shape(lambda x: jax.vjp(lambda x: apply_activation(self.spec.activation, x), x)[1], x)
        )

    def _gradients(self) -> tuple[int, bool]:
        """Return the bytes of gradients that exist together, and whether those are all gradients."""
        config, trained = self.config, self.task.model.trained
        if not config.memory.donate:
            return 0, False  # they use the memory of the new state
        accumulated = config.batch.accumulation_steps > 1
        skips = config.precision.compute == "float16" or config.optimizer.max_nonfinite_steps is not None
        if accumulated or skips or config.optimizer.max_grad_norm is not None or self.task.is_scanned:
            item = 4 if self.cpu or accumulated or self.task.is_scanned else self.item
            return parameter_count(trained) * item // self.shards, True
        table = max(trained.values(), key=lambda value: int(value.size))
        return table.size * (4 if self.cpu else table.dtype.itemsize) // self.shards, False

    def decode(self, rows: int, width: int, new_tokens: int, *, group: int = 1) -> Parts:
        """Return the generation of `rows` completions; prompts of a group are read once."""
        spec, slots, prompts = self.spec, width + new_tokens, rows // group
        cache = rows * slots * 2 * spec.layers * spec.kv_heads * spec.head_dim * self.compute_item
        wide = sum(int(value.size) for value in self.params.values() if value.dtype.itemsize > self.compute_item)
        scores = prompts * spec.heads * width * slots * 4 * (2 if self.cpu else 1)
        reading = max(scores, 3 * prompts * width * spec.mlp * self.item) + cache // spec.layers
        logits = rows * spec.vocab * 4 * (3 if group > 1 else 1)
        copied = f"{wide:,} parameters in the compute type{self.split}"
        return (
            *self.state,
            Part("key_value_cache", cache, f"{rows:,} rows × {slots:,} tokens × {spec.layers} layers"),
            Part("activations", reading, f"{prompts:,} prompts of {width:,} tokens in one layer"),
            Part("logits", logits, f"{rows:,} rows × {spec.vocab:,} words"),
            Part("weights_copy", wide * self.compute_item // self.shards, copied),
        )

    def export(self) -> Parts:
        """Return the plain model, the adapters or quantized kernels it is made of, and the products of adapters."""
        shapes, adapters = self.task.model.shapes, self.task.model.adapters
        given = {name: value for name, value in shapes.items() if is_lora(name) or name.endswith(QUANTISED)}
        factors = [[shapes[each].shape for each in lora_names(name)] for name in adapters]
        products = [first[0] * second[1] for first, second in factors]
        # A CPU, and devices that gather the factors, make all products first.
        count = sum(products) if self.cpu or self.shards > 1 else max(products, default=0) if self.gpu else 0
        return (
            Part("params", plain_bytes(self.task) // self.shards, "the plain model"),
            Part("adapters", params_bytes(given) // self.shards, "merged or unpacked into it"),
            Part("merging", 4 * count // self.shards, f"{count:,} products of adapters × 4 bytes"),
        )


def plain_bytes(task: Task) -> int:
    """Return the size of the exported model over all devices; quantized kernels take the type of the token table."""
    base = task.model.base
    item = int(base["tokens.table"].dtype.itemsize)
    unpacked = sum(int(value.size) for name, value in base.items() if name.endswith(".codes"))
    return params_bytes({name: value for name, value in base.items() if not name.endswith(QUANTISED)}) + item * unpacked
