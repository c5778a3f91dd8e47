"""Writes parameters back as a Hugging Face model folder: config.json, safetensors, tokenizer.

The folder appears whole or not at all. Reading it again gives the same bits (`loading.py`), and other tools load it as
the architecture that its config.json names.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file

from evidence.writing import write_json
from schemas.problems import ProblemError, problem_of
from trainer.model import files
from trainer.model.families.layout import TensorLink
from trainer.model.files.source import ModelSource
from trainer.model.params import Params

SHARD_BYTES = 2 * 2**30
"""Largest file of an export, and the most host memory that writing it takes; a single larger tensor is its own file."""


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
    """Write a model folder in the layout of the model's family.

    Args:
        folder: made here; it must not exist yet, or be empty.
        params: arrays by name, of one dtype.
        source: the model they came from: its config.json is copied and completed, its tokenizer copied.
        end_token_id: what the model was taught to stop at; other tools then stop there too. None: as the model's files
            state.
        dtype: in which they are written, rounded one tensor at a time. None: as they are.
        shard_bytes: largest file; more than that is written as several files with an index.
        go_on: called between files; what it raises ends the export, and nothing is left behind.

    Raises:
        ProblemError: something is in the folder already, or the command was given in it.
        OSError: it could not be written; nothing is left behind.
    """
    refuse_taken(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    working = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    working.mkdir()
    try:
        chosen = dtype or element_type(params)
        write_weights(working, params, source.family.links(source.spec), chosen, shard_bytes, go_on)
        write_json(working / files.CONFIG, completed_config(source, chosen))
        copy_descriptions(source, working)
        if end_token_id is not None:
            stop_at(working, end_token_id)
        go_on()
        working.replace(folder)
    except BaseException:
        shutil.rmtree(working)
        raise


def write_weights(
    folder: Path, params: Params, links: tuple[TensorLink, ...], dtype: str, shard_bytes: int, go_on: Callable[[], None]
) -> None:
    """Write all tensors to one file, or to several with an index."""
    shards = split_by_size(links, params, shard_bytes)
    names = [files.WEIGHTS_SHARD.format(number=number + 1, count=len(shards)) for number in range(len(shards))]
    if len(shards) == 1:
        names = [files.WEIGHTS]
    total = 0
    for name, shard in zip(names, shards, strict=True):
        go_on()
        tensors = {link.tensor: join(link, params, dtype) for link in shard}
        total += sum(tensor.nbytes for tensor in tensors.values())
        # transformers refuses a file that does not state which framework's layout it has; "pt" is the one of these
        # names.
        try:
            save_file(tensors, folder / name, metadata={"format": "pt"})
        except SafetensorError as error:
            raise written_badly(error, folder / name) from error
        # The library closes its files to others; an export is as open as the folder that the user's umask made.
        (folder / name).chmod(folder.stat().st_mode & 0o666)
    if len(shards) > 1:
        places = {link.tensor: name for name, shard in zip(names, shards, strict=True) for link in shard}
        write_json(folder / files.WEIGHTS_INDEX, {"metadata": {"total_size": total}, "weight_map": places})


def written_badly(error: SafetensorError, file: Path) -> Exception:
    """Return the operating system's error inside one of the library's, which states its number; else the error."""
    number = re.search(r"\(os error (\d+)\)", str(error))
    return OSError(int(number[1]), os.strerror(int(number[1])), str(file)) if number else error


def split_by_size(links: tuple[TensorLink, ...], params: Params, shard_bytes: int) -> list[list[TensorLink]]:
    """Return the tensors in runs of at most `shard_bytes`: sizes 3, 3, 3 with room for 7 give [3, 3] and [3]."""
    shards: list[list[TensorLink]] = [[]]
    filled = 0
    for link in links:
        size = tensor_bytes(link, params)
        if shards[-1] and filled + size > shard_bytes:
            shards.append([])
            filled = 0
        shards[-1].append(link)
        filled += size
    return shards


def tensor_bytes(link: TensorLink, params: Params) -> int:
    """Return the bytes of one tensor."""
    return sum(int(params[name].size) * params[name].dtype.itemsize for name in link.params)


def join(link: TensorLink, params: Params, dtype: str) -> NDArray[Any]:
    """Return a tensor as the file keeps it, from the parameters it holds, in an element type."""
    parts = [np.asarray(jax.device_get(params[name])).astype(jnp.dtype(dtype), copy=False) for name in link.params]
    whole = np.concatenate(parts, axis=-1)
    return np.ascontiguousarray(whole.T if link.transposed else whole)


def element_type(params: Params) -> str:
    """Return the one element type of parameters."""
    dtypes = {str(value.dtype) for value in params.values()}
    assert len(dtypes) == 1, f"parameters of several dtypes: {sorted(dtypes)}"
    return dtypes.pop()


def completed_config(source: ModelSource, dtype: str) -> dict[str, Any]:
    """Return the model's config.json with what an export must state: architecture and element type."""
    config = dict(source.config)
    config = config if source.family.text_key is None else config[source.family.text_key]
    config.pop("torch_dtype", None)  # the older word for dtype; both would contradict each other
    config.pop("quantization_config", None)  # what is written is not quantised
    return {**config, "architectures": [source.family.architecture], "dtype": dtype}


def copy_descriptions(source: ModelSource, folder: Path) -> None:
    """Copy the tokenizer's files, and how other tools should decode; of a GGUF the tokenizer is written."""
    if source.gguf is not None:
        source.tokenizer().save_pretrained(folder)
        return
    for path in descriptions(source):
        is_inside = path.is_relative_to(source.tokenizer_folder)
        copy = folder / (path.relative_to(source.tokenizer_folder) if is_inside else path.name)
        copy.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, copy)


def stop_at(folder: Path, end_token_id: int) -> None:
    """Add the token to those at which generation_config.json, or in its absence config.json, lets other tools stop."""
    config = json.loads((folder / files.CONFIG).read_text(encoding="utf-8"))
    path = folder / files.GENERATION_CONFIG
    try:
        own = dict(json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        own = {}  # absent, or of no use to any tool
    ends = (config | own).get("eos_token_id")
    ends = ends if isinstance(ends, list) else [] if ends is None else [ends]
    if end_token_id not in ends:
        write_json(path, own | {"eos_token_id": [*ends, end_token_id]})


def descriptions(source: ModelSource) -> Iterator[Path]:
    """Yield the files that an export copies unchanged."""
    for pattern in files.TOKENIZER:
        yield from sorted(source.tokenizer_folder.glob(pattern))
    if (source.folder / files.GENERATION_CONFIG).is_file():
        yield source.folder / files.GENERATION_CONFIG


def refuse_taken(folder: Path) -> None:
    """Refuse to write over something, or to put a new folder under the feet of anyone who is in the old one.

    Raises:
        ProblemError: exit code 2.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        what = f"{folder} is not empty." if folder.is_dir() else f"{folder} is there already."
        why = "An export never overwrites files."
    elif folder.resolve() == Path.cwd():
        what = f"{folder} is the folder that the command was given in."
        why = "An export appears whole or not at all: its folder is put there at the end, in place of an empty one."
    else:
        return
    raise ProblemError([problem_of("TP048", file=str(folder), what=what, why=why)], exit_code=2)
