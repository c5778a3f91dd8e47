"""Places where jobs run: the modules of this folder, each with its `PLACES`. `local` is this machine.

A job contains the name of its place and no program. The command comes from the module, so a runs folder from an
untrusted source cannot start a program of its own.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping

from launch.places.place import Place
from schemas.problems import ProblemError, problem_of

_MODULES = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]

PLACES: Mapping[str, Place] = {
    name: place for module in _MODULES for name, place in getattr(module, "PLACES", {}).items()
}

FAMILIES: Mapping[str, Callable[[str], Place | None]] = {
    prefix: find for module in _MODULES for prefix, find in getattr(module, "FAMILIES", {}).items()
}
"""Functions that return the place of a name such as `ssh:HOST`, from what follows the colon."""

NAMES = [*PLACES, *(f"{prefix}:HOST" for prefix in FAMILIES)]


def find_place(name: str) -> Place | None:
    """Return the place of a name, or None if it is unknown."""
    prefix, _, rest = name.partition(":")
    return FAMILIES[prefix](rest) if rest and prefix in FAMILIES else PLACES.get(name)


def get_place(name: str) -> Place:
    """Return the place of a name; raise `ProblemError` (exit code 2) if it is unknown."""
    if (place := find_place(name)) is None:
        problem = problem_of("TP768", file=name, what=f"The place {name} is unknown.", expected=", ".join(NAMES))
        raise ProblemError([problem], exit_code=2)
    return place
