"""Writes a GGUF file, one tensor at a time. The file appears whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.problems import ProblemError, problem_of
from trainer.model.families import spec_from_config
from trainer.model.gguf.description import FAMILIES, config_of
from trainer.model.gguf.header import Gguf
from trainer.model.gguf.tensors import CHUNK, KINDS, ReadableTensor
from trainer.model.spec import LinearScaling, ModelSpec, Rope, Yarn

ARCHITECTURES = {family: name for name, family in FAMILIES.items()} | {"mistral": "llama", "gemma3": "gemma3"}
"""For each family: llama.cpp's architecture."""

OF_TRAINING = ("family", "initializer_std", "scale_residual_init")
"""Fields of `ModelSpec` that state nothing of what is computed."""


def metadata_of(spec: ModelSpec) -> dict[str, Any]:
    """Return the keys of a model, without the tokenizer's."""
    name = ARCHITECTURES[spec.family]
    # Gemma 3's layers with a window turn by a base of their own; those without one state the rest.
    turning = sorted((block for block in spec.blocks if block.rope), key=lambda block: block.window is not None)
    rope = turning[0].rope if turning else None
    window = turning[-1].window if turning else None
    local = turning[-1].rope if name == "gemma3" and window is not None else None
    rms = "" if spec.norm == "layer" else "_rms"
    stated: dict[str, Any] = {
        "context_length": spec.max_positions,
        "embedding_length": spec.embed,
        "block_count": spec.layers,
        "feed_forward_length": spec.mlp,
        "attention.head_count": spec.heads,
        "attention.head_count_kv": spec.kv_heads,
        f"attention.layer_norm{rms}_epsilon": spec.norm_epsilon,
        "vocab_size": spec.vocab,
        "attention.sliding_window": window,
        "attn_logit_softcapping": spec.attention_softcap,
        "final_logit_softcapping": spec.final_softcap,
        "rope.freq_base_swa": local.theta if local is not None else None,
    }
    if rope is not None:
        widths = ("attention.key_length", "attention.value_length", "rope.dimension_count")
        stated |= dict.fromkeys(widths, spec.head_dim) | {"rope.freq_base": rope.theta} | rope_metadata(rope)
    return {
        "general.type": "model",
        "general.quantization_version": 2,
        **{f"{name}.{key}": value for key, value in stated.items() if value is not None},
    }


def rope_metadata(rope: Rope) -> dict[str, Any]:
    """Return the keys of a longer context; Llama 3's way is a tensor, and others are not stated."""
    match rope.stretch:
        case LinearScaling(factor=factor):
            return {"rope.scaling.type": "linear", "rope.scaling.factor": factor}
        case Yarn(factor=factor, positions=positions):
            return {
                "rope.scaling.type": "yarn",
                "rope.scaling.factor": factor,
                "rope.scaling.original_context_length": positions,
            }
    return {}


def refuse_another_model(
    spec: ModelSpec, metadata: Mapping[str, Any], tensors: Mapping[str, ReadableTensor], file: Path
) -> None:
    """Refuse to write a file that would be read as another model than the one in it.

    Args:
        spec: the model.
        metadata: what is to be stated, with its architecture.
        tensors: what is to be written; shapes, and of `rope_freqs.weight` the numbers, are looked at.
        file: what is to be written, for the message.

    Raises:
        ProblemError: exit code 2, naming each difference.
    """
    try:
        config = config_of(Gguf(path=file, metadata=metadata, tensors=tensors))
        other = spec_from_config(config, file=str(file))
    except ProblemError as error:
        problems = [problem_of("TP790", file=str(file), what=each.what) for each in error.problems]
        raise ProblemError(problems, exit_code=2) from error
    names = [field.name for field in fields(spec) if field.name not in (*OF_TRAINING, "blocks")]
    found = [(name, getattr(spec, name), getattr(other, name)) for name in names]
    for number, (block, read) in enumerate(zip(spec.blocks, other.blocks, strict=True)):
        inside = [field.name for field in fields(block)]
        found += [(f"layers.{number}.{name}", getattr(block, name), getattr(read, name)) for name in inside]
    differences = [f"{name} is {value} and would be {read}" for name, value, read in found if value != read]
    if differences:
        more = f", and {len(differences) - 3} more" if len(differences) > 3 else ""
        architecture = metadata["general.architecture"]
        what = f"A GGUF of the architecture {architecture} cannot state this model: {'; '.join(differences[:3])}{more}."
        raise ProblemError([problem_of("TP790", file=str(file), what=what)], exit_code=2)


FILE_TYPES = {"f16": ("F16", 1), "q8_0": ("Q8_0", 7)}
"""What a file can be written in: the type of its matrices, and llama.cpp's number for the whole."""

LARGEST_F16 = 65504.0


@dataclass(frozen=True, kw_only=True)
class PlannedTensor:
    """A tensor that is to be written."""

    name: str
    shape: tuple[int, ...]
    kind: str
    """Its type in the file, the name of one of `KINDS`."""
    read: Callable[[], NDArray[np.float32]]
    """Gives its numbers, as llama.cpp keeps them."""

    @property
    def row_bytes(self) -> int:
        """The bytes of its last axis in the file."""
        _, block, size = next(each for each in KINDS.values() if each[0] == self.kind)
        return self.shape[-1] // block * size

    def stored(self) -> NDArray[np.uint8]:
        """Return its bytes, a row of the last axis in each.

        Raises:
            ProblemError: exit code 2; a number is beyond what the type holds.
        """
        from gguf.constants import GGMLQuantizationType
        from gguf.quants import quantize

        rows = self.read().reshape(-1, self.shape[-1])
        if self.kind == "F16" and (largest := float(np.abs(rows).max(initial=0.0))) > LARGEST_F16:
            what = f"The tensor {self.name} holds {largest:,.0f}, and the largest number of F16 is 65,504."
            then = "Write --gguf q8_0, whose blocks have a scale of their own."
            raise ProblemError([problem_of("TP790", file=self.name, what=what, why=None, next=then)], exit_code=2)
        found = np.empty((len(rows), self.row_bytes), np.uint8)
        step = max(CHUNK // self.shape[-1], 1)
        for start in range(0, len(rows), step):
            part = quantize(np.ascontiguousarray(rows[start : start + step]), GGMLQuantizationType[self.kind])
            found[start : start + step] = part.view(np.uint8)
        return found


def kind_of(name: str, shape: Sequence[int], form: str) -> str:
    """Return the type in which a tensor is written: vectors and tables of positions whole, as llama.cpp wants them.

    Rows that are not whole blocks of Q8_0 are written in F16.
    """
    if len(shape) < 2 or name.startswith("position_embd"):
        return "F32"
    return "F16" if form == "f16" or shape[-1] % 32 else FILE_TYPES[form][0]


def write_gguf(
    path: Path, metadata: Mapping[str, Any], tensors: Sequence[PlannedTensor], *, go_on: Callable[[], None]
) -> None:
    """Write a file.

    Args:
        path: of the file.
        metadata: all its keys, the architecture among them.
        tensors: in the order of the file.
        go_on: called before each tensor; what it raises ends the writing, and nothing is left behind.

    Raises:
        ProblemError: a tensor cannot be written in its type.
        OSError: it could not be written; nothing is left behind.
    """
    from gguf import GGMLQuantizationType, GGUFWriter

    path.parent.mkdir(parents=True, exist_ok=True)
    working = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    writer = GGUFWriter(working, str(metadata["general.architecture"]))
    try:
        for key, value in metadata.items():
            if key != "general.architecture":
                add(writer, key, value)
        for tensor in tensors:
            shape = (*tensor.shape[:-1], tensor.row_bytes)
            writer.add_tensor_info(
                tensor.name, shape, np.dtype(np.uint8), int(np.prod(shape)), GGMLQuantizationType[tensor.kind]
            )
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor in tensors:
            go_on()
            writer.write_tensor_data(tensor.stored())
        writer.close()
        with working.open("rb") as file:
            os.fsync(file.fileno())
        working.replace(path)
    except BaseException:
        writer.close()
        working.unlink(missing_ok=True)
        raise


def add(writer: Any, key: str, value: Any) -> None:
    """Add a key, in the type that llama.cpp expects of such a value."""
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case _:
            writer.add_array(key, value.tolist() if isinstance(value, np.ndarray) else value)
