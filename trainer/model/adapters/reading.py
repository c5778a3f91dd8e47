"""Reads a LoRA adapter that PEFT wrote, for a model that is given."""

from __future__ import annotations

from collections.abc import Container
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.problems import Problem, ProblemError, problem_of
from trainer.model.adapters.config import PREFIX, AdapterConfig, modules, read_adapter_config, refusal
from trainer.model.build import abstract
from trainer.model.files.loading import HEAD
from trainer.model.files.source import ModelSource
from trainer.model.files.tensors import StoredTensor, open_file, plain_name
from trainer.model.lora import Lora, lora_names
from trainer.model.params import Params, flatten

WEIGHTS = "adapter_model.safetensors"
FIRST, SECOND = ".lora_A.weight", ".lora_B.weight"
TOKENS_TABLE, HEAD_TABLE = "tokens.table", "head.table"


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """An adapter that was read."""

    loras: dict[str, Lora]
    """By the name of a projection."""

    params: Params
    """The two matrices of each, float32 arrays by name, and parameters of the model that it replaces as a whole."""

    source: ModelSource | None = None
    """The model as the adapter computes it, whose head is not tied if the adapter replaces one table of a tied model.
    None: as it is built."""


def read_adapter(folder: Path, source: ModelSource) -> Adapter:
    """Return the adapter in a folder.

    Args:
        folder: holds adapter_config.json and adapter_model.safetensors.
        source: the model that it is for.

    Raises:
        ProblemError: files are missing or damaged, an option is not computed here, or it is of another model.
    """
    config = read_adapter_config(folder)
    if not (folder / WEIGHTS).is_file() and (folder / "adapter_model.bin").is_file():
        why = "Only adapter_model.bin is there; that format can run code when it is read."
        raise refusal(folder / WEIGHTS, f"{WEIGHTS} is not in the adapter's folder.", why)
    with ExitStack() as stack:
        handle = open_file(folder / WEIGHTS, stack)
        tensors = {name.removeprefix(PREFIX): StoredTensor(name=name, handle=handle) for name in handle.keys()}  # noqa: SIM118
        if source.spec.tied_head and is_untied(tensors, config, source):
            source = untied(source)
        if problems := misfits(tensors, config, source, folder / WEIGHTS):
            raise ProblemError(problems, exit_code=2)
        return take_adapter(tensors, config, source)


def take_adapter(tensors: dict[str, StoredTensor], config: AdapterConfig, source: ModelSource) -> Adapter:
    """Return the adapter in tensors that fit the model."""
    loras: dict[str, Lora] = {}
    params: Params = {}
    for name, stored in tensors.items():
        if name.endswith(FIRST):
            module = name.removesuffix(FIRST)
            first, second = stored.read(), tensors[module + SECOND].read()
            projections = modules(source)[full_name(module, source)]
            lora = Lora(rank=first.shape[0], scale=config.scale_of(module), dropout=config.dropout)
            for part, projection in zip(np.split(second, len(projections)), projections, strict=True):
                loras[projection] = replace(lora, number=len(loras))
                names = lora_names(projection)
                params |= {names[0]: in_float32(first.T), names[1]: in_float32(part.T)}
        elif not name.endswith(SECOND):
            replaced = replaced_param(name, source)
            assert replaced is not None, "misfits were refused"
            params[replaced] = in_float32(stored.read())
    return Adapter(loras=loras, params=params, source=source)


def is_untied(tensors: Container[str], config: AdapterConfig, source: ModelSource) -> bool:
    """Return whether PEFT gives token table and head of a tied model a table each: it saves a copy of a module."""
    table = next(link.tensor for link in source.family.links(source.spec) if link.params == (TOKENS_TABLE,))
    saves_table = table.removesuffix(".weight").endswith(config.modules_to_save)
    keeps_tie = config.keeps_tie and table.endswith("embed_tokens.weight")  # PEFT knows a token table by this name
    return HEAD in tensors or (saves_table and not keeps_tie)


def untied(source: ModelSource) -> ModelSource:
    """Return a tied model as one whose head has a table of its own."""
    key, apart = source.family.text_key, {"tie_word_embeddings": False}
    own = {} if key is None else {key: {**source.config[key], **apart}}
    return replace(source, spec=replace(source.spec, tied_head=False), config={**source.config, **apart, **own})


def with_head(params: Params, source: ModelSource) -> Params:
    """Return a model's parameters with a head's table, which is the token table where the model was tied."""
    if source.spec.tied_head or HEAD_TABLE in params:
        return params
    return dict(sorted({**params, HEAD_TABLE: params[TOKENS_TABLE]}.items()))


def in_float32(value: NDArray[Any]) -> NDArray[np.float32]:
    """Return a copy in float32, in C order."""
    return np.array(value, np.float32, order="C")


def full_name(module: str, source: ModelSource) -> str:
    """Return the name of a module as the family's files have it, whatever wraps the model."""
    plain = plain_name(module, source.family)
    return next((full for full in modules(source) if plain_name(full, source.family) == plain), module)


def replaced_param(tensor: str, source: ModelSource) -> str | None:
    """Return the parameter that a whole tensor holds, such as a token table or a norm, or None if it is another."""
    plain = plain_name(tensor, source.family)
    for link in source.family.links(source.spec):
        if plain_name(link.tensor, source.family) == plain and len(link.params) == 1 and not link.transposed:
            return link.params[0]
    return None


def misfits(tensors: dict[str, StoredTensor], config: AdapterConfig, source: ModelSource, file: Path) -> list[Problem]:
    """Return a problem for each way in which the tensors do not fit the model, naming all tensors concerned."""
    shapes = flatten(abstract(source.spec, params_dtype="float32", compute_dtype="float32", remat="none"))[1]
    unknown, lonely, reshaped = [], [], []
    for name, stored in tensors.items():
        if name.endswith((FIRST, SECOND)):
            module = name.removesuffix(FIRST).removesuffix(SECOND)
            projections = modules(source).get(full_name(module, source))
            if projections is None:
                unknown.append(name)
            elif module + FIRST not in tensors or module + SECOND not in tensors:
                lonely.append(name)
            else:
                kernels = [shapes[f"{each}.kernel"].shape for each in projections]
                rank, outputs = config.rank_of(module), sum(shape[1] for shape in kernels)
                wanted = (rank, kernels[0][0]) if name.endswith(FIRST) else (outputs, rank)
                reshaped += misshapen(name, stored, wanted)
            continue
        replaced = replaced_param(name, source)
        if replaced is None:
            unknown.append(name)
        else:
            reshaped += misshapen(name, stored, shapes[replaced].shape)
    found = {
        f"of no module of {source.name} that an adapter can be on": unknown,
        "without the other matrix of its module": lonely,
        f"of another shape than {source.name} and adapter_config.json ask for": reshaped,
        "all there is: there is no tensor at all": [] if tensors else ["nothing"],
    }
    return [
        problem_of("TP047", file=str(file), what=f"{len(names):,} of its tensors are {text}: {list_names(names)}.")
        for text, names in found.items()
        if names
    ]


def misshapen(name: str, stored: StoredTensor, wanted: tuple[int, ...]) -> list[str]:
    """Return in words that a tensor has another shape, or nothing."""
    return [] if stored.shape == wanted else [f"{name} is {list(stored.shape)} and should be {list(wanted)}"]


def list_names(names: list[str]) -> str:
    """Return the first names, and how many more there are."""
    first = ", ".join(names[:4])
    return first if len(names) <= 4 else f"{first} and {len(names) - 4:,} more"
