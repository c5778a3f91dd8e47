"""The trained parameters of a run in one small file of its evidence, and the model that they make again.

A checkpoint holds the optimizer's state too and is as large as three models; an export of adapters is a whole model.
What a judge needs is what training changed: the rest is drawn from the seed, or read from the model that was named.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from evidence import layout
from evidence.writing import write_bytes
from schemas.formats import size
from schemas.problems import Problem, ProblemError, problem_of
from trainer.loop.state import with_shardings
from trainer.loop.task import Task
from trainer.model.stacks import Params, device_copy, unstack_layers

DTYPES: Mapping[str, Any] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": jnp.bfloat16,
    "I64": np.int64,
    "I32": np.int32,
    "U32": np.uint32,
    "I8": np.int8,
    "U8": np.uint8,
    "BOOL": np.bool_,
}
"""Element types of a run's arrays by their names in safetensors."""

MOST_HEADER_BYTES = 100 << 20
"""Names, types and shapes at the head of the file, as the format limits them."""


def params_bytes(params: Params) -> int:
    """Return the size of parameters, arrays or shapes, in bytes."""
    return sum(int(np.prod(value.shape)) * value.dtype.itemsize for value in params.values())


def arrays_in(content: bytes) -> Params:
    """Return the arrays of a safetensors file by name; the library's own reader does not know bfloat16.

    Raises:
        SafetensorError: it is not such a file, or is damaged.
        KeyError: an array has an element type that no run has.
    """
    return {
        name: np.frombuffer(each["data"], DTYPES[each["dtype"]]).reshape(each["shape"])
        for name, each in deserialize(content)
    }


def are_kept(task: Task) -> bool:
    """Return whether a run keeps what it trained: adapters always, whole models up to `recording.params_mib`."""
    return bool(task.model.adapters) or params_bytes(task.model.trained) <= task.config.recording.params_mib << 20


def keep_params(folder: Path, trained: Params, task: Task) -> None:
    """Write the trained parameters into a run folder, if the run keeps them.

    Args:
        folder: of the run.
        trained: by name, every layer by itself or stacked.
        task: what was trained.
    """
    if not are_kept(task):
        return
    arrays = {name: np.ascontiguousarray(jax.device_get(value)) for name, value in unstack_layers(trained).items()}
    write_bytes(folder / layout.TRAINED_PARAMS, save(arrays))


def kept_params(folder: Path, task: Task) -> Params | None:
    """Return the trained parameters that a run folder holds, on their devices; None where it holds none.

    Raises:
        ProblemError: exit code 2; the file is not in safetensors, or does not hold what the run's configuration trains.
    """
    path, wanted = folder / layout.TRAINED_PARAMS, with_shardings(task.model.trained, task)
    if not path.is_file():  # a pipe would never end, nor would a link to a device
        return None
    most = params_bytes(task.model.trained) + MOST_HEADER_BYTES
    try:
        if path.stat().st_size > most:
            what = (
                f"{layout.TRAINED_PARAMS} has {size(path.stat().st_size)}; what was trained has at most {size(most)}."
            )
            raise ProblemError([bad(path, what)], exit_code=2)
        arrays = arrays_in(path.read_bytes())
    except FileNotFoundError:
        return None
    except (SafetensorError, ValueError, KeyError, OverflowError) as error:
        raise ProblemError([bad(path, f"{layout.TRAINED_PARAMS} cannot be read: {error}.")], exit_code=2) from error
    found = {name: (tuple(value.shape), str(value.dtype)) for name, value in arrays.items()}
    expected = {name: (tuple(value.shape), str(value.dtype)) for name, value in wanted.items()}
    if found != expected:
        others = sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))
        what = f"{len(others):,} arrays are not as the configuration has them, the first is {others[0]}."
        raise ProblemError([bad(path, what)], exit_code=2)
    return {name: device_copy(jax.device_put(arrays[name], wanted[name].sharding)) for name in wanted}


def bad(path: Path, what: str) -> Problem:
    """Return the problem of a file that does not hold what was trained."""
    return problem_of("TP056", file=str(path), what=what)
