"""What making the plain model takes that is exported, on the devices and in the memory of the machine around them."""

from __future__ import annotations

from trainer.loop.task import Task
from trainer.model.lora import is_lora, lora_names
from trainer.planning.estimate.part import Part
from trainer.planning.estimate.state import FLOAT32_BYTES
from trainer.planning.estimate.workload import bytes_of, workload_of

CODED = (".codes", ".scales")
"""Ends of the names of what a quantised kernel is kept as."""


def host_need(task: Task, state_bytes: int) -> tuple[int, str]:
    """Return what passes through the memory of the machine around an accelerator at once, and what it is.

    That is a checkpoint's copy of the whole state, or the plain model that is exported or merged, whichever is more.

    Args:
        task: the run; its parameters as shapes.
        state_bytes: of the train state, over all devices.
    """
    plain = plain_bytes(task)
    merged = "the plain model with its adapters merged" if task.model.adapters else "the plain model that is exported"
    return (plain, merged) if plain > state_bytes else (state_bytes, "the state that is copied when it is saved")


def plain_bytes(task: Task) -> int:
    """Return the bytes of the plain model, whose quantised kernels have the type of the token table."""
    base = task.model.base
    item = int(base["tokens.table"].dtype.itemsize)
    unpacked = sum(int(value.size) for name, value in base.items() if name.endswith(".codes"))
    return bytes_of({name: value for name, value in base.items() if not name.endswith(CODED)}) + item * unpacked


def export_parts(task: Task, platform: str) -> tuple[Part, ...]:
    """Return what making the plain model needs: its parameters, and what they are made of beside those given again.

    A TPU adds an adapter's product to its kernel number by number; a GPU makes one product after the other. A CPU, and
    devices that gather the factors from each other, make all products first; of quantised kernels a CPU keeps half.
    """
    work, model = workload_of(task, platform=platform), task.model
    given = {name: value for name, value in model.shapes.items() if is_lora(name) or name.endswith(CODED)}
    factors = [[model.shapes[each].shape for each in lora_names(name)] for name in model.adapters]
    products = [first[0] * second[1] for first, second in factors]
    item = 2 if work.on_cpu and model.quantised else FLOAT32_BYTES
    if work.on_cpu or work.shards > 1:
        count, because = sum(products), "products of all adapters"
    else:
        count, because = (max(products, default=0), "the largest product") if platform == "gpu" else (0, "nothing")
    return (
        Part(name="params", bytes=plain_bytes(task) // work.shards, because="the plain model"),
        Part(name="adapters", bytes=bytes_of(given) // work.shards, because="what is merged into it or unpacked"),
        Part(
            name="merging",
            bytes=item * count // work.shards,
            because=f"{because}, {count:,} numbers × {item} bytes{work.split}",
        ),
    )
