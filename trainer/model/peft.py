"""LoRA adapters in PEFT's format: read, written, and merged into a model.

An adapter folder contains adapter_config.json and adapter_model.safetensors. Options that are not implemented are
refused by name. GPT-2 stores query, key and value in one module, which is three projections here.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import block_diag
from numpy.typing import NDArray
from safetensors.numpy import save_file

from evidence.writing import write_json
from schemas.problems import Problem, ProblemError, problem_of
from trainer.model.decoder import abstract, flatten
from trainer.model.export import export, refuse_taken
from trainer.model.families import HEAD, Tensors
from trainer.model.layers import Lora, dequantise, is_lora, lora_names
from trainer.model.load import load_params, open_safetensors, stored_tensor, strip_prefix
from trainer.model.source import ModelSource, read_json, resolve
from trainer.model.stacks import Params

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
PREFIX = "base_model.model."  # PEFT's prefix of module names
FIRST, SECOND = ".lora_A.weight", ".lora_B.weight"
TOKENS_TABLE, HEAD_TABLE = "tokens.table", "head.table"
DTYPES = ("float32", "bfloat16", "float16")

IGNORED = {
    *("auto_mapping", "base_model_name_or_path", "exclude_modules", "fan_in_fan_out", "inference_mode"),
    *("layers_pattern", "layers_to_transform", "peft_version", "revision", "runtime_config", "target_modules"),
    *("use_rslora", "megatron_core", "qalora_group_size", "ensure_weight_tying", "save_embedding_layers"),
}
"""Options with any value: they are read, only describe the origin, or follow from the tensors. Others must be off."""
ALLOWED: Mapping[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "task_type": ("CAUSAL_LM", None),
    "bias": ("none", None),
    # Other ways of initialisation change the base model first.
    "init_lora_weights": (True, False, None, "gaussian", "orthogonal", "eva"),
}
"""Options with the values that are implemented."""


def read_adapter_config(folder: Path) -> dict[str, Any]:
    """Read adapter_config.json, or raise a ProblemError with exit code 2 if it is damaged or not supported."""
    file = folder / CONFIG
    config = read_json(file, "TP047")
    if problems := _unusable_options(config, file):
        raise ProblemError(problems, exit_code=2)
    return config


def _option(config: Mapping[str, Any], key: str, pattern_key: str, module: str) -> Any:
    """Return the value for a module such as `model.layers.0.self_attn.q_proj`.

    As in PEFT, the first pattern that matches the end of its name takes precedence over the default.
    """
    patterns = config.get(pattern_key) or {}
    return next((value for each, value in patterns.items() if re.match(rf"(.*\.)?({each})$", module)), config[key])


def _unusable_options(config: Mapping[str, Any], file: Path) -> list[Problem]:
    """Return a problem for each option that is invalid or not implemented."""

    def is_number(value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)

    def is_rank(value: Any) -> bool:
        return type(value) is int and value > 0

    def are_patterns(value: Any, is_valid: Callable[[Any], bool]) -> bool:
        try:
            return all(re.compile(rf"(.*\.)?({key})$") and is_valid(each) for key, each in (value or {}).items())
        except (re.error, AttributeError):
            return False

    checks: dict[str, Callable[[Any], bool]] = {
        "r": is_rank,
        "lora_alpha": is_number,
        "lora_dropout": lambda value: is_number(value or 0) and 0 <= (value or 0) < 1,
        "modules_to_save": lambda value: not value or (isinstance(value, list) and {*map(type, value)} == {str}),
        "rank_pattern": lambda value: are_patterns(value, is_rank),
        "alpha_pattern": lambda value: are_patterns(value, is_number),
    }
    problems = []
    for key, value in ({"peft_type": None, "r": None, "lora_alpha": None} | dict(config)).items():
        if key in ALLOWED:
            is_usable = any(value == each and type(value) is type(each) for each in ALLOWED[key])
        elif key in checks:
            is_usable = checks[key](value)
        else:
            is_usable = key in IGNORED or value is None or value is False or value in ({}, [], "")
        if not is_usable:
            what = f"`{key}` is {json.dumps(value)[:60]}, which is invalid or not supported."
            problems.append(problem_of("TP047", file=str(file), what=what, pointer=f"/{key}"))
    return problems


def projections_by_module(source: ModelSource) -> Mapping[str, tuple[str, ...]]:
    """Return the projections in each module by its full name; a module with several keeps their order."""
    return {
        link.tensor.removesuffix(".weight"): tuple(name.removesuffix(".kernel") for name in link.params)
        for link in source.family.links(source.spec)
        if all(name.endswith(".kernel") for name in link.params)
    }


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """An adapter: `loras` by projection, and its float32 parameters by name.

    Besides the two matrices of each projection, the parameters may replace whole parameters of the model. `source` is
    the model that the adapter computes, whose head is untied if the adapter replaces one table of a tied model.
    """

    loras: dict[str, Lora]
    params: Params
    source: ModelSource | None = None


def read_adapter(folder: Path, source: ModelSource) -> Adapter:
    """Read the adapter in a folder for a model, or raise a ProblemError with exit code 2 if it cannot be used."""
    config = read_adapter_config(folder)
    with ExitStack() as stack:
        handle = open_safetensors(folder / WEIGHTS, stack)
        tensors = {name.removeprefix(PREFIX): stored_tensor(handle, name) for name in handle.keys()}  # noqa: SIM118
        if not tensors:
            problem = problem_of("TP047", file=str(folder / WEIGHTS), what=f"{WEIGHTS} is empty.")
            raise ProblemError([problem], exit_code=2)
        if source.spec.tied_head and _is_untied(tensors, config, source):
            source = _untie(source)
        return _convert(tensors, config, source, folder / WEIGHTS)


def _convert(tensors: Tensors, config: dict[str, Any], source: ModelSource, file: Path) -> Adapter:
    """Return the adapter; refuse each kind of difference between adapter and model, with the tensors concerned."""
    shapes = flatten(abstract(source.spec, params_dtype="float32", compute_dtype="float32", remat="none"))[1]
    family = source.family
    modules = {strip_prefix(name, family): names for name, names in projections_by_module(source).items()}
    replaceable = {
        strip_prefix(link.tensor, family): link.params[0]
        for link in family.links(source.spec)
        if len(link.params) == 1 and not link.transposed
    }
    loras: dict[str, Lora] = {}
    params: Params = {}
    unknown, unpaired, reshaped = [], [], []
    for name, stored in tensors.items():
        module, is_first = name.removesuffix(FIRST).removesuffix(SECOND), name.endswith(FIRST)
        projections = modules.get(strip_prefix(module, family), ()) if module != name else ()
        rank, kernels = (
            _option(config, "r", "rank_pattern", module),
            [shapes[f"{each}.kernel"].shape for each in projections],
        )
        if kernels:
            wanted = (rank, kernels[0][0]) if is_first else (sum(shape[1] for shape in kernels), rank)
            names = [lora_names(each)[0 if is_first else 1] for each in projections]
        elif (replaced := replaceable.get(strip_prefix(name, family))) is not None:
            wanted, names = shapes[replaced].shape, [replaced]
        else:
            unknown.append(name)
            continue
        if kernels and not {module + FIRST, module + SECOND} <= tensors.keys():
            unpaired.append(name)
        elif stored.shape != wanted:
            reshaped.append(f"{name} has shape {list(stored.shape)} instead of {list(wanted)}")
        else:
            value = stored.read().T if kernels else stored.read()
            parts = [value] * len(names) if is_first else np.split(value, len(names), axis=-1)
            params |= {each: np.array(part, np.float32, order="C") for each, part in zip(names, parts, strict=True)}
            alpha = float(_option(config, "lora_alpha", "alpha_pattern", module))
            scale, dropout = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank), config.get("lora_dropout")
            for projection in projections if is_first else ():
                loras[projection] = Lora(rank=rank, scale=scale, dropout=float(dropout or 0.0), number=len(loras))
    kinds = {
        f"belong to no module of {source.name} that an adapter can be on": unknown,
        "lack the other matrix of their module": unpaired,
        f"have another shape than {source.name} and adapter_config.json require": reshaped,
    }
    problems = [
        problem_of("TP047", file=str(file), what=f"{len(names):,} tensors {text}: {_list(names)}.")
        for text, names in kinds.items()
        if names
    ]
    if problems:
        raise ProblemError(problems, exit_code=2)
    return Adapter(loras=loras, params=params, source=source)


def _list(names: list[str]) -> str:
    first = ", ".join(names[:4])
    return first if len(names) <= 4 else f"{first} and {len(names) - 4:,} more"


def _is_untied(tensors: Tensors, config: dict[str, Any], source: ModelSource) -> bool:
    """Return whether PEFT unties the token table and the head of a tied model: it saves a copy of a module."""
    table = next(link.tensor for link in source.family.links(source.spec) if link.params == (TOKENS_TABLE,))
    saves_table = table.removesuffix(".weight").endswith(tuple(config.get("modules_to_save") or ()))
    # PEFT knows the token table by this name.
    keeps_tie = config.get("ensure_weight_tying") and table.endswith("embed_tokens.weight")
    return HEAD in tensors or (saves_table and not keeps_tie)


def _untie(source: ModelSource) -> ModelSource:
    """Return the source of the same model with a head of its own (`tie_word_embeddings` false)."""
    config = {**source.config, "tie_word_embeddings": False}
    key = source.family.text_key
    if key is not None:
        config[key] = {**source.config[key], "tie_word_embeddings": False}
    return replace(source, spec=replace(source.spec, tied_head=False), config=config)


def add_head(params: Params, source: ModelSource) -> Params:
    """Return a model's parameters with a table for the head, a copy of the token table where the model was tied."""
    if source.spec.tied_head or HEAD_TABLE in params:
        return params
    return dict(sorted({**params, HEAD_TABLE: params[TOKENS_TABLE]}.items()))


def write_adapter(folder: Path, params: Params, loras: Mapping[str, Lora], source: ModelSource) -> None:
    """Write adapters, by projection, into a folder that does not exist yet, or is empty."""
    refuse_taken(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, NDArray[np.float32]] = {}
    ranks: dict[str, int] = {}
    scales: dict[str, float] = {}
    for module, projections in projections_by_module(source).items():
        if adapted := [name for name in projections if name in loras]:
            first, second = map(np.ascontiguousarray, _fuse(projections, params, loras))
            tensors |= {PREFIX + module + FIRST: first, PREFIX + module + SECOND: second}
            ranks[module], scales[module] = first.shape[0], loras[adapted[0]].scale
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    (folder / WEIGHTS).chmod(folder.stat().st_mode & 0o666)
    alphas = {module: scales[module] * ranks[module] for module in ranks}
    rank, alpha = (Counter(each.values()).most_common(1)[0][0] for each in (ranks, alphas))
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": source.name,
        "revision": source.revision,
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": max(lora.dropout for lora in loras.values()),
        "target_modules": sorted(ranks),  # full names, so that no other module gets an adapter
        "rank_pattern": {module: each for module, each in ranks.items() if each != rank},
        "alpha_pattern": {module: each for module, each in alphas.items() if each != alpha},
        "bias": "none",
        "fan_in_fan_out": source.spec.family == "gpt2",
        "use_rslora": False,
        "use_dora": False,
        "modules_to_save": None,
        "init_lora_weights": True,
        "inference_mode": True,
    }
    write_json(folder / CONFIG, config)


def _fuse(
    projections: tuple[str, ...], params: Params, loras: Mapping[str, Lora]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the two matrices of a module, `[rank inputs]` and `[outputs rank]`.

    The adapters of several projections are concatenated along the rank, and each writes its own outputs. If they share
    the first matrix, as PEFT's own do, it is written once.
    """
    scale = next(loras[name].scale for name in projections if name in loras)
    firsts: list[NDArray[np.float32]] = []
    blocks: list[NDArray[np.float32]] = []
    for name in projections:
        if name in loras:
            first, second = (np.asarray(jax.device_get(params[each]), np.float32) for each in lora_names(name))
            firsts.append(first.T)
            blocks.append(second.T * np.float32(loras[name].scale / scale))
        else:
            blocks.append(np.zeros((params[f"{name}.kernel"].shape[1], 0), np.float32))
    if len(firsts) == len(projections) and all(np.array_equal(firsts[0], each) for each in firsts):
        return firsts[0], np.concatenate(blocks)
    return np.concatenate(firsts), np.asarray(block_diag(*blocks))


def merge_loras(params: Mapping[str, Any], loras: Mapping[str, Lora]) -> Params:
    """Return the parameters of the plain model that a decoder with adapters computes.

    Quantized kernels are dequantized to the dtype of the token table.
    """
    dtype = params[TOKENS_TABLE].dtype
    base: Params = {}
    for name, value in params.items():
        if name.endswith(".codes"):
            projection = name.removesuffix(".codes")
            base[f"{projection}.kernel"] = dequantise(value, params[f"{projection}.scales"], dtype)
        elif not name.endswith(".scales") and not is_lora(name):
            base[name] = value
    own = {name: value for name, value in params.items() if is_lora(name)}
    return _apply_adapters(base, [(Adapter(loras=dict(loras), params=own), 1.0)])


def _apply_adapters(params: Mapping[str, Any], adapters: Sequence[tuple[Adapter, float]]) -> Params:
    """Add adapters with their weights; sums are taken in float32 and rounded once to the dtype of the parameter."""
    merged: Params = {}
    for name, value in sorted(params.items()):
        deltas = [(_delta(name, value, adapter), weight) for adapter, weight in adapters]
        terms = [delta * weight for delta, weight in deltas if delta is not None]
        merged[name] = sum(terms, jnp.asarray(value, jnp.float32)).astype(value.dtype) if terms else value
    return merged


def _delta(name: str, value: Any, adapter: Adapter) -> Any:
    """Return what an adapter adds to a parameter, or None."""
    projection = name.removesuffix(".kernel")
    if projection in adapter.loras and projection != name:
        first, second = (jnp.asarray(adapter.params[each], jnp.float32) for each in lora_names(projection))
        return jnp.matmul(first, second, precision="highest") * adapter.loras[projection].scale
    if name in adapter.params and not is_lora(name):
        return jnp.asarray(adapter.params[name], jnp.float32) - jnp.asarray(value, jnp.float32)
    return None


def merge_named(
    base: str, adapters: Sequence[str], folder: Path, *, dtype: str | None = None, revision: str | None = None
) -> None:
    """Merge adapters into a model, both named as on the command line, and write a Hugging Face model folder.

    Each adapter is a folder, optionally followed by `=weight`; an existing folder of the whole name takes precedence.
    Weight 1 applies it as it was trained. The default dtype is that in the base's config.json. A model, weight, dtype
    or folder that cannot be used raises a ProblemError with exit code 2.
    """
    source = resolve(base, revision)
    chosen = dtype or source.config.get("dtype") or source.config.get("torch_dtype") or "float32"
    if chosen not in DTYPES:
        what = f"A model cannot be written in the element type {chosen!r}."
        raise ProblemError([problem_of("TP066", file=base, what=what, expected=", ".join(DTYPES))], exit_code=2)
    read = [(read_adapter(path, source), weight) for path, weight in map(parse_weighted, adapters)]
    wanted = flatten(abstract(source.spec, params_dtype=chosen, compute_dtype=chosen, remat="none"))[1]
    params = load_params(source, wanted)
    untied = [adapter.source for adapter, _ in read if adapter.source and not adapter.source.spec.tied_head]
    merged = untied[0] if untied else source
    for adapter, _ in read:
        if TOKENS_TABLE in adapter.params and adapter.source and adapter.source.spec.tied_head:
            adapter.params[HEAD_TABLE] = adapter.params[TOKENS_TABLE]  # in case another adapter unties them
    export(folder, _apply_adapters(add_head(params, merged), read), merged)


def parse_weighted(text: str) -> tuple[Path, float]:
    """Return folder and weight: `adapters/one=0.7` is `adapters/one` and 0.7."""
    name, equals, weight = text.rpartition("=")
    if not equals or Path(text).is_dir():
        return Path(text), 1.0
    try:
        value = float(weight)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        what = f"The weight of {name} is {weight!r}, which is not a number."
        raise ProblemError([problem_of("TP066", file=text, what=what)], exit_code=2)
    return Path(name), value
