"""Places where jobs run: the modules of this folder, each with its `PLACES`. `local` is this machine.

A job contains the name of its place and no program. The command comes from the module, so a runs folder from an
untrusted source cannot start a program of its own.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

from launch.places.place import Place
from schemas.problems import ProblemError, problem_of


def _find_places() -> dict[str, Place]:
    """Return the places of all modules in this folder by name."""
    modules = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    return {name: place for module in modules for name, place in getattr(module, "PLACES", {}).items()}


PLACES: Mapping[str, Place] = _find_places()


def get_place(name: str) -> Place:
    """Return the place of a name; raise `ProblemError` (exit code 2) if it is unknown."""
    if name not in PLACES:
        what = f"The place {name} is unknown."
        raise ProblemError([problem_of("TP768", file=name, what=what, expected=", ".join(PLACES))], exit_code=2)
    return PLACES[name]
