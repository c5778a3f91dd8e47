"""What to change after an out-of-memory failure, cheapest first: what costs nothing, time, then what is learned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from schemas.formats import size
from trainer.planning.out_of_memory.report import OutOfMemory
from trainer.planning.out_of_memory.roles import NamedBuffer, Role
from trainer.planning.words import cost_of

FEWEST_CHUNK = 256
NOTHING = "nothing"


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """One thing to change."""

    what: str
    """As a sentence."""
    setting: str | None = None
    """As `--set` takes it."""
    frees_bytes: int | None = None
    """On one device. None: the text does not tell."""
    costs: str
    """In time, or in what is learned."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A failure and its buffers, by role."""

    failure: OutOfMemory
    buffers: Sequence[NamedBuffer]

    def bytes_of(self, role: Role) -> int:
        """Return the bytes of all named buffers of a role."""
        return sum(each.allocation.bytes for each in self.buffers if each.role == role)


def remedies(failure: OutOfMemory, buffers: Sequence[NamedBuffer]) -> list[Remedy]:
    """Return what to change, cheapest first."""
    seen = Seen(failure=failure, buffers=buffers)
    if failure.memory == "host":
        return list(HOST)
    if failure.memory in ("vmem", "smem"):
        return list(INSIDE_A_CORE)
    advisers = (_state_twice, _others, _fragments, _padding, _logits, _layers, _scores, _tokens, _state)
    return [change for adviser in advisers for change in adviser(seen)]


def _set(what: str, setting: str, frees_bytes: int | None = None) -> Remedy:
    """Return the remedy that a setting is."""
    return Remedy(what=what, setting=setting, frees_bytes=frees_bytes, costs=cost_of(setting))


def _state_twice(seen: Seen) -> Iterator[Remedy]:
    failure = seen.failure
    if failure.when == "compile" and not failure.parts and not seen.buffers:
        what = (
            "See that the step reuses the memory of the state that it replaces (in JAX: donate_argnums); without "
            "it the state is there twice."
        )
        yield _set(what, "memory.donate=true")
    if failure.holds_state_twice:
        what = "Let the step reuse the memory of the state that it replaces (in JAX: donate_argnums)."
        yield _set(what, "memory.donate=true", failure.parts["output"] - (failure.shared_bytes or 0))


def _others(seen: Seen) -> Iterator[Remedy]:
    held = seen.failure.others_bytes
    if held and held > 2**26:
        what = "End the other processes on this device, such as an earlier run of the same notebook."
        yield Remedy(what=what, frees_bytes=held, costs=NOTHING)


def _fragments(seen: Seen) -> Iterator[Remedy]:
    unused, tried = seen.failure.unused_bytes, seen.failure.tried_bytes
    if unused and tried and unused > tried:
        what = "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: enough is reserved, but in pieces."
        yield Remedy(what=what, frees_bytes=unused, costs=NOTHING)


def _padding(seen: Seen) -> Iterator[Remedy]:
    for each in seen.buffers:
        wasted = each.allocation.padding_bytes
        if wasted > each.allocation.bytes / 2:
            what = (
                f"Give {each.allocation.shape} a last axis of 128 or more: a TPU fills its tiles of 8 × 128, and "
                f"{size(wasted)} of its {size(each.allocation.bytes)} are that filling."
            )
            yield Remedy(what=what, frees_bytes=wasted, costs="a change of the program")
            return


def _logits(seen: Seen) -> Iterator[Remedy]:
    if held := seen.bytes_of("logits"):
        what = "Take the loss in chunks, so that the logits of few tokens exist at one time."
        yield _set(what, f"memory.loss_chunk_tokens={FEWEST_CHUNK}", held - _logits_of_a_chunk(seen))


def _logits_of_a_chunk(seen: Seen) -> int:
    """Return the bytes that remain of the named logits when `FEWEST_CHUNK` exist at one time."""
    kept = 0
    for each in seen.buffers:
        if each.role == "logits":
            tokens = max(1, prod(each.allocation.axes) // max(each.allocation.axes, default=1))
            kept = max(kept, each.allocation.bytes * min(FEWEST_CHUNK, tokens) // tokens)
    return kept


def _layers(seen: Seen) -> Iterator[Remedy]:
    kept = seen.bytes_of("activations") + seen.bytes_of("gradients")
    if kept or (seen.failure.memory in ("gpu", "cpu") and not seen.buffers):
        what = "Recompute each layer in the backward pass instead of keeping its inside (gradient checkpointing)."
        yield _set(what, "memory.remat=layer")


def _scores(seen: Seen) -> Iterator[Remedy]:
    if held := seen.bytes_of("scores"):
        what = "Halve the sequences: attention's scores grow with the square of their length."
        yield _set(what, "data.max_length=<half>", held * 3 // 4)


def _tokens(seen: Seen) -> Iterator[Remedy]:
    held = sum(seen.bytes_of(role) for role in ("logits", "scores", "activations", "gradients"))
    if held or not seen.buffers:
        what = "Work on fewer sequences at a time, and add up the gradients of several passes."
        yield _set(what, "batch.microbatch_size=<half> and batch.accumulation_steps=<twice>", held // 2 or None)


def _state(seen: Seen) -> Iterator[Remedy]:
    failure = seen.failure
    given = sum(each.allocation.bytes for each in seen.buffers if each.allocation.is_argument)
    arguments = failure.parts.get("arguments") or given
    if failure.memory == "tpu" and (arguments or not seen.buffers):
        what = "Divide parameters and optimizer state over all chips; each has a memory of its own."
        yield _set(what, "mesh.shard_params=true", arguments * 7 // 8 if arguments else None)
    what = "Keep less for each parameter: Adafactor keeps almost nothing, AdamW two numbers."
    yield _set(what, "optimizer.name=adafactor")
    what = "Train adapters beside a frozen model (LoRA): no gradients and no optimizer state for the model itself."
    yield _set(what, "method.kind=lora")


HOST = (
    Remedy(
        what="Load weights shard by shard, straight to the device, in the type that they are stored in; a model of "
        "2.5 billion parameters is 10 GB in float32 and 5 GB in bfloat16.",
        costs=NOTHING,
    ),
    Remedy(
        what="Keep the dataset on disk: one row a line (JSONL) or Parquet is read as it is needed.",
        setting="data.dataset=<file>",
        costs=NOTHING,
    ),
    Remedy(
        what="Use a machine with more main memory: a Kaggle session with two T4s has 31 GB, with a TPU v5e-8 396 GB.",
        costs="another quota",
    ),
)

INSIDE_A_CORE = (
    Remedy(
        what="Give the operation smaller blocks: the memory inside a core holds one block of one operation, so a "
        "smaller model or batch need not help.",
        costs="a change of the program",
    ),
    Remedy(
        what="Raise the limit for one operation: LIBTPU_INIT_ARGS=--xla_tpu_scoped_vmem_limit_kib=65536.",
        costs="less is left for other operations",
    ),
)
