"""Export: write parameters as a Hugging Face model folder or as a GGUF file.

A folder or file appears complete or not at all. `load.py` reads the written values bit for bit. A GGUF file is not
written if llama.cpp would compute another model.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file

from evidence.writing import write_json
from schemas.problems import ProblemError, problem_of
from trainer.model.families import StoredTensor, TensorLink, Tensors, spec_from_config
from trainer.model.gguf import (
    CHUNK,
    GPT2_KEYS,
    KEYS,
    ROPE_DIVISORS,
    Gguf,
    architecture_name,
    config_from_gguf,
    gguf_layout,
    llama3_divisors,
)
from trainer.model.gguf_tokenizer import tokenizer_metadata
from trainer.model.source import CONFIG, GENERATION_CONFIG, TOKENIZER_FILES, WEIGHTS_INDEX, WEIGHTS_PATTERN, ModelSource
from trainer.model.spec import ModelSpec
from trainer.model.stacks import Params

SHARD_BYTES = 2 * 2**30
"""Largest file of an export, and the host memory that writing takes; a larger tensor is a file of its own."""


def export(
    folder: Path,
    params: Params,
    source: ModelSource,
    *,
    end_token_id: int | None = None,
    dtype: str | None = None,
    shard_bytes: int = SHARD_BYTES,
    go_on: Callable[[], None] = lambda: None,
) -> None:
    """Write a Hugging Face model folder, which must not exist yet, or be empty.

    Config and tokenizer are copied from `source`, and `end_token_id`, which the model was trained to stop at, is added
    to them. Parameters, arrays by name, are written in `dtype`, by default their own, in files of at most
    `shard_bytes`. `go_on` is called between files; an exception ends the export and removes it.

    Raises:
        ProblemError: Exit code 2; the folder is not empty or the current directory, or parameters differ in dtype.
        OSError: The folder cannot be written.
    """
    refuse_taken(folder)
    dtypes = sorted({str(value.dtype) for value in params.values()})
    if dtype is None and len(dtypes) > 1:
        what = f"The parameters have several element types: {', '.join(dtypes)}."
        raise ProblemError([problem_of("TP066", file=str(folder), what=what)], exit_code=2)
    chosen = dtype or dtypes[0]
    folder.parent.mkdir(parents=True, exist_ok=True)
    working = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    working.mkdir()
    try:
        write_weights(working, params, source.family.links(source.spec), chosen, shard_bytes, go_on)
        text_key = source.family.text_key
        config = dict(source.config if text_key is None else source.config[text_key])
        for key in ("torch_dtype", "quantization_config"):  # the older name of dtype; the export is not quantized
            config.pop(key, None)
        config |= {"architectures": [source.family.architecture], "dtype": chosen}
        write_json(working / CONFIG, config)
        _copy_tokenizer(source, working)
        if end_token_id is not None:
            _add_end_token(working, end_token_id)
        go_on()
        working.replace(folder)
    except BaseException:
        shutil.rmtree(working)
        raise


def write_weights(
    folder: Path, params: Params, links: Sequence[TensorLink], dtype: str, shard_bytes: int, go_on: Callable[[], None]
) -> None:
    """Write all tensors to one file, or to several with an index.

    Sizes 3, 3, 3 with `shard_bytes` 7 give files of [3, 3] and [3].
    """
    from huggingface_hub import split_state_dict_into_shards_factory

    by_name = {link.tensor: link for link in links}
    split = split_state_dict_into_shards_factory(
        by_name,
        get_storage_size=lambda link: sum(int(params[name].size) * params[name].dtype.itemsize for name in link.params),
        filename_pattern=WEIGHTS_PATTERN,
        max_shard_size=shard_bytes,
    )
    total = 0
    for name, names in split.filename_to_tensors.items():
        go_on()
        tensors = {each: join_tensor(by_name[each], params, dtype) for each in names}
        total += sum(tensor.nbytes for tensor in tensors.values())
        try:
            save_file(tensors, folder / name, metadata={"format": "pt"})  # transformers requires a format
        except SafetensorError as error:
            if number := re.search(r"\(os error (\d+)\)", str(error)):
                raise OSError(int(number[1]), os.strerror(int(number[1])), str(folder / name)) from error
            raise
        # The library creates private files; these get the permissions of the folder.
        (folder / name).chmod(folder.stat().st_mode & 0o666)
    if split.is_sharded:
        index = {"metadata": {"total_size": total}, "weight_map": split.tensor_to_filename}
        write_json(folder / WEIGHTS_INDEX, index)


def join_tensor(link: TensorLink, params: Params, dtype: str) -> NDArray[Any]:
    """Return a tensor as in the file, joined from its parameters."""
    parts = [np.asarray(jax.device_get(params[name])).astype(jnp.dtype(dtype), copy=False) for name in link.params]
    whole = np.concatenate(parts, axis=-1)
    return np.ascontiguousarray(whole.T if link.transposed else whole)


def _copy_tokenizer(source: ModelSource, folder: Path) -> None:
    """Copy the tokenizer and the decoding defaults; the tokenizer of a GGUF is converted."""
    if source.gguf is not None:
        source.tokenizer().save_pretrained(folder)
        return
    own = source.tokenizer_folder
    copies = {path: path.relative_to(own) for pattern in TOKENIZER_FILES for path in sorted(own.glob(pattern))}
    if (source.folder / GENERATION_CONFIG).is_file():
        copies[source.folder / GENERATION_CONFIG] = Path(GENERATION_CONFIG)
    for path, name in copies.items():
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(path, folder / name)


def _add_end_token(folder: Path, end_token_id: int) -> None:
    """Add the token to `eos_token_id` in generation_config.json, whose default is the value in config.json."""
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    path = folder / GENERATION_CONFIG
    try:
        own = dict(json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        own = {}  # missing, or of no use to any tool
    ends = (config | own).get("eos_token_id")
    ends = ends if isinstance(ends, list) else [] if ends is None else [ends]
    if end_token_id not in ends:
        write_json(path, own | {"eos_token_id": [*ends, end_token_id]})


def refuse_taken(folder: Path) -> None:
    """Refuse to overwrite something, or to replace the current directory."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        what = f"{folder} is not empty." if folder.is_dir() else f"{folder} exists already."
    elif folder.resolve() == Path.cwd():  # an export replaces its empty folder when it is complete
        what = f"{folder} is the current directory."
    else:
        return
    raise ProblemError([problem_of("TP048", file=str(folder), what=what)], exit_code=2)


# GGUF

Form = Literal["f16", "q8_0"]
FILE_TYPES: Mapping[Form, tuple[str, int]] = {"f16": ("F16", 1), "q8_0": ("Q8_0", 7)}
"""Type of the matrices, and llama.cpp's number of the file type."""
MAX_F16 = 65504.0
TRAINING_FIELDS = ("family", "initializer_std", "scale_residual_init")
"""Fields of `ModelSpec` that do not affect the result of the model."""


def encode_blocks(name: str, tensor: StoredTensor) -> NDArray[np.uint8]:
    """Return the bytes of each row of a tensor, or refuse values that are too large for its type."""
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import quant_shape_to_byte_shape, quantize

    rows = tensor.read().reshape(-1, tensor.shape[-1])
    if tensor.dtype == "F16" and (largest := float(np.abs(rows).max(initial=0.0))) > MAX_F16:
        what = f"The tensor {name} contains {largest:,.0f}; the largest number of F16 is 65,504."
        fix = "Pass --gguf q8_0, whose blocks have their own scale."
        raise ProblemError([problem_of("TP790", file=name, what=what, why=None, next=fix)], exit_code=2)
    kind = GGMLQuantizationType[tensor.dtype]
    encoded = np.empty(quant_shape_to_byte_shape(rows.shape, kind), np.uint8)
    step = max(CHUNK // tensor.shape[-1], 1)
    for start in range(0, len(rows), step):
        part = quantize(np.ascontiguousarray(rows[start : start + step]), kind)
        encoded[start : start + step] = part.view(np.uint8)
    return encoded


def export_gguf(
    path: Path,
    params: Params,
    source: ModelSource,
    *,
    form: Form,
    end_token_id: int | None = None,
    go_on: Callable[[], None] = lambda: None,
) -> None:
    """Write a model as a GGUF file that does not exist yet, with tokenizer and chat template.

    `form` is the type of its matrices; see `export` for the other arguments.

    Raises:
        ProblemError: Exit code 2; llama.cpp would compute another model, or tokenize differently.
        OSError: The file cannot be written.
    """
    spec, name = source.spec, architecture_name(source.spec.family)
    tensors = dict(_plan_tensor(link, params, spec, form) for link in source.family.links(spec))
    rope = spec.blocks[0].rope
    if rope is not None and rope.kind == "llama3":
        divisors = llama3_divisors(rope, spec.head_dim)
        tensors[ROPE_DIVISORS] = StoredTensor(shape=divisors.shape, dtype="F32", read=lambda: divisors)
    metadata = {"general.architecture": name, "general.name": Path(source.name).stem, **_model_metadata(spec)}
    _refuse_another_model(spec, metadata, tensors, path)
    if source.gguf is None:
        tokenizer = source.tokenizer()
        metadata |= tokenizer_metadata(tokenizer, spec.vocab, architecture=name, end_token_id=end_token_id)
    else:
        metadata |= {key: value for key, value in source.gguf.metadata.items() if key.startswith("tokenizer.")}
        if end_token_id not in (metadata.get("tokenizer.ggml.eos_token_id"), None):
            metadata["tokenizer.ggml.eot_token_id"] = end_token_id
    metadata["general.file_type"] = FILE_TYPES[form][1]
    _write_gguf(path, metadata, tensors, go_on)


def _plan_tensor(link: TensorLink, params: Params, spec: ModelSpec, form: Form) -> tuple[str, StoredTensor]:
    """Return name and tensor, whose values are read when it is written."""
    layout = gguf_layout(link.tensor, spec)
    first = params[link.params[0]].shape
    shape = (*first[:-1], sum(params[name].shape[-1] for name in link.params))
    shape = shape[::-1] if link.transposed != layout.transposed else shape
    kind = tensor_type(layout.name, shape, form)

    def read() -> NDArray[Any]:
        return layout.encode(join_tensor(link, params, "float32"))

    return layout.name, StoredTensor(shape=shape, dtype=kind, read=read)


def tensor_type(name: str, shape: Sequence[int], form: Form) -> str:
    """Return the type of a tensor: llama.cpp wants vectors and position tables in F32, and whole blocks for Q8_0."""
    if len(shape) < 2 or name.startswith("position_embd"):
        return "F32"
    return "F16" if shape[-1] % 32 else FILE_TYPES[form][0]


def _model_metadata(spec: ModelSpec) -> dict[str, Any]:
    name = architecture_name(spec.family)
    # In Gemma 3, layers with a window have their own base; the other keys describe layers without one.
    rotated = sorted((block for block in spec.blocks if block.rope), key=lambda block: block.window is not None)
    rope = rotated[0].rope if rotated else None
    window = rotated[-1].window if rotated else None
    local = rotated[-1].rope if name == "gemma3" and window is not None else None
    keys = {key: getattr(spec, field) for field, key in (GPT2_KEYS if name == "gpt2" else KEYS).items()} | {
        "attention.head_count_kv": spec.kv_heads,
        "vocab_size": spec.vocab,
        "attention.sliding_window": window,
        "attn_logit_softcapping": spec.attention_softcap,
        "final_logit_softcapping": spec.final_softcap,
        "rope.freq_base_swa": None if local is None else local.theta,
    }
    if rope is not None:
        widths = ("attention.key_length", "attention.value_length", "rope.dimension_count")
        keys |= dict.fromkeys(widths, spec.head_dim) | {"rope.freq_base": rope.theta}
        if rope.kind in ("linear", "yarn"):  # that of Llama 3 is a tensor, others cannot be written
            keys |= {"rope.scaling.type": rope.kind, "rope.scaling.factor": rope.factor}
        if rope.kind == "yarn":
            keys["rope.scaling.original_context_length"] = rope.positions
    return {
        "general.type": "model",
        "general.quantization_version": 2,
        **{f"{name}.{key}": value for key, value in keys.items() if value is not None},
    }


def _refuse_another_model(spec: ModelSpec, metadata: Mapping[str, Any], tensors: Tensors, file: Path) -> None:
    """Refuse metadata and tensors that would be read as another model, with each difference."""
    try:
        config = config_from_gguf(Gguf(path=file, metadata=metadata, tensors=tensors))
        other = spec_from_config(config, file=str(file))
    except ProblemError as error:
        problems = [problem_of("TP790", file=str(file), what=each.what) for each in error.problems]
        raise ProblemError(problems, exit_code=2) from error
    pairs: list[tuple[str, Any, Any]] = [("", spec, other)]
    pairs += [(f"layers.{number}.", *pair) for number, pair in enumerate(zip(spec.blocks, other.blocks, strict=True))]
    differences = [
        f"{prefix}{field.name} {getattr(own, field.name)} would become {getattr(stated, field.name)}"
        for prefix, own, stated in pairs
        for field in fields(own)
        if field.name not in (*TRAINING_FIELDS, "blocks") and getattr(own, field.name) != getattr(stated, field.name)
    ]
    if differences:
        more = f", and {len(differences) - 3} more" if len(differences) > 3 else ""
        architecture = metadata["general.architecture"]
        what = f"A GGUF of architecture {architecture} cannot express this model: {'; '.join(differences[:3])}{more}."
        raise ProblemError([problem_of("TP790", file=str(file), what=what)], exit_code=2)


def _write_gguf(path: Path, metadata: Mapping[str, Any], tensors: Tensors, go_on: Callable[[], None]) -> None:
    """Write a file, one tensor at a time."""
    from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter
    from gguf.quants import quant_shape_to_byte_shape

    path.parent.mkdir(parents=True, exist_ok=True)
    working = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    writer: Any = GGUFWriter(working, str(metadata["general.architecture"]))
    kinds: dict[type, Any] = {
        **{bool: GGUFValueType.BOOL, int: GGUFValueType.UINT32, float: GGUFValueType.FLOAT32},
        **{str: GGUFValueType.STRING, list: GGUFValueType.ARRAY},
    }
    try:
        for key, value in metadata.items():
            plain = value.tolist() if isinstance(value, np.ndarray) else value
            if key != "general.architecture" and plain != []:
                writer.add_key_value(key, plain, kinds[type(plain)])
        for name, tensor in tensors.items():
            kind = GGMLQuantizationType[tensor.dtype]
            shape = quant_shape_to_byte_shape(tensor.shape, kind)
            writer.add_tensor_info(name, shape, np.dtype(np.uint8), math.prod(shape), kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for name, tensor in tensors.items():
            go_on()
            writer.write_tensor_data(encode_blocks(name, tensor))
        writer.close()
        with working.open("rb") as file:
            os.fsync(file.fileno())
        working.replace(path)
    except BaseException:
        writer.close()
        working.unlink(missing_ok=True)
        raise
