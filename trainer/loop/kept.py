"""The trained parameters of a run in one small file of its evidence, and the model that they make again.

A checkpoint holds the optimizer's state too and is as large as three models; an export of adapters is a whole model.
What a judge needs is what training changed: the rest is drawn from the seed, or read from the model that was named.
"""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from evidence.run import layout
from evidence.run.write import write_bytes
from schemas.problems.formats import size
from schemas.problems.problem import Problem, ProblemError
from schemas.problems.rule import Rule, problem_of
from trainer.config.tree import Config
from trainer.loop.state import placed
from trainer.loop.task import Task
from trainer.model.params import Params
from trainer.model.placing import owned
from trainer.model.stacking import apart

BAD_PARAMS = Rule(
    "TP056",
    "Kept parameters of another model",
    "They must be those that the run's configuration trains; nothing is left random.",
    "Ask for the run's folder or bundle again.",
)


MOST_HEADER_BYTES = 100 << 20
"""Names, types and shapes at the head of the file, as the format limits them."""


def params_bytes(params: Params) -> int:
    """Return the size of parameters, arrays or shapes, in bytes."""
    return sum(int(np.prod(value.shape)) * value.dtype.itemsize for value in params.values())


def keep_params(folder: Path, trained: Params, config: Config) -> bool:
    """Write the trained parameters into a run folder if they are small enough, and return whether they were.

    Args:
        folder: of the run.
        trained: by name, every layer by itself or stacked.
        config: says up to which size.
    """
    if params_bytes(trained) > config.recording.params_mib << 20:
        return False
    arrays = {name: np.ascontiguousarray(jax.device_get(value)) for name, value in apart(trained).items()}
    write_bytes(folder / layout.TRAINED_PARAMS, save(arrays))
    return True


def kept_params(folder: Path, task: Task) -> Params | None:
    """Return the trained parameters that a run folder holds, on their devices; None where it holds none.

    Raises:
        ProblemError: exit code 2; the file is no safetensors, or does not hold what the run's configuration trains.
    """
    path, wanted = folder / layout.TRAINED_PARAMS, placed(task.model.trained, task)
    if not path.is_file():  # a pipe would never end, nor would a link to a device
        return None
    most = params_bytes(task.model.trained) + MOST_HEADER_BYTES
    try:
        if path.stat().st_size > most:
            what = (
                f"{layout.TRAINED_PARAMS} has {size(path.stat().st_size)}; what was trained has at most {size(most)}."
            )
            raise ProblemError([bad(path, what)], exit_code=2)
        arrays = load(path.read_bytes())
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
    return {name: owned(jax.device_put(arrays[name], wanted[name].sharding)) for name in wanted}


def bad(path: Path, what: str) -> Problem:
    """Return the problem of a file that does not hold what was trained."""
    return problem_of(BAD_PARAMS, file=str(path), what=what)
