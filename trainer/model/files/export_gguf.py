"""Writes parameters as one GGUF file, for llama.cpp, Ollama and whatever else reads it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trainer.model.families.layout import TensorLink
from trainer.model.files.export import join
from trainer.model.files.source import ModelSource
from trainer.model.gguf.description import llama3_divisors
from trainer.model.gguf.tensors import GgufLayout, place_of
from trainer.model.gguf.tokens import tokenizer_metadata
from trainer.model.gguf.writing import (
    ARCHITECTURES,
    FILE_TYPES,
    PlannedTensor,
    kind_of,
    metadata_of,
    refuse_another_model,
    write_gguf,
)
from trainer.model.params import Params
from trainer.model.spec import Llama3, ModelSpec

Form = Literal["f16", "q8_0"]


def export_gguf(
    path: Path,
    params: Params,
    source: ModelSource,
    *,
    form: Form,
    end_token_id: int | None = None,
    go_on: Callable[[], None] = lambda: None,
) -> None:
    """Write a model as a GGUF file, tokenizer and chat template inside.

    Args:
        path: of the file, which does not exist yet.
        params: arrays by name.
        source: the model they came from.
        form: of its matrices.
        end_token_id: what the model was taught to stop at besides the tokenizer's end token, or None.
        go_on: called between tensors; what it raises ends the export, and nothing is left behind.

    Raises:
        ProblemError: exit code 2; llama.cpp would compute another model, or split texts otherwise.
        OSError: it could not be written; nothing is left behind.
    """
    spec, name = source.spec, ARCHITECTURES[source.spec.family]
    tensors = [plan_tensor(link, params, spec, form) for link in source.family.links(spec)] + divisors(spec)
    stated = {"general.architecture": name, "general.name": Path(source.name).stem, **metadata_of(spec)}
    refuse_another_model(spec, stated, {tensor.name: tensor for tensor in tensors}, path)
    stated |= of_tokenizer(source, name, end_token_id) | {"general.file_type": FILE_TYPES[form][1]}
    write_gguf(path, stated, tensors, go_on=go_on)


def plan_tensor(link: TensorLink, params: Params, spec: ModelSpec, form: Form) -> PlannedTensor:
    """Return a tensor that is to be written; its numbers are brought when it is its turn."""
    place = place_of(link.tensor, spec)
    first = params[link.params[0]].shape
    shape = (*first[:-1], sum(params[name].shape[-1] for name in link.params))
    shape = shape[::-1] if link.transposed != place.transposed else shape
    return PlannedTensor(
        name=place.name, shape=shape, kind=kind_of(place.name, shape, form), read=partial(numbers, link, params, place)
    )


def numbers(link: TensorLink, params: Params, place: GgufLayout) -> NDArray[Any]:
    """Return the numbers of a tensor as llama.cpp keeps them."""
    return place.done(join(link, params, "float32"))


def divisors(spec: ModelSpec) -> list[PlannedTensor]:
    """Return the tensor with the divisors of Llama 3's rotary frequencies, where there are some."""
    rope = spec.blocks[0].rope
    if rope is None or not isinstance(rope.stretch, Llama3):
        return []
    stretch = rope.stretch
    scaling = {
        "factor": stretch.factor,
        "low_freq_factor": stretch.low_freq_factor,
        "high_freq_factor": stretch.high_freq_factor,
        "original_max_position_embeddings": stretch.positions,
    }
    values: NDArray[np.float32] = llama3_divisors(scaling, rope.theta, spec.head_dim)
    return [PlannedTensor(name="rope_freqs.weight", shape=values.shape, kind="F32", read=lambda: values)]


def of_tokenizer(source: ModelSource, architecture: str, end_token_id: int | None) -> dict[str, Any]:
    """Return the tokenizer's keys: those of the GGUF that the model came from, or made of its tokenizer."""
    if source.gguf is None:
        return tokenizer_metadata(
            source.tokenizer(), source.spec.vocab, architecture=architecture, end_token_id=end_token_id
        )
    stated = {key: value for key, value in source.gguf.metadata.items() if key.startswith("tokenizer.")}
    ends = (stated.get("tokenizer.ggml.eos_token_id"), None)
    return stated if end_token_id in ends else stated | {"tokenizer.ggml.eot_token_id": end_token_id}
