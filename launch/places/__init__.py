"""Places where jobs run: one module each, found by its `PLACE`. `local` is this machine.

A job contains the name of its place and no program. The command comes from the module of that name, so a runs folder
from an untrusted source cannot start a program of its own.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

from launch.places.place import Place
from schemas.problems import ProblemError, problem_of


def _find_places() -> dict[str, Place]:
    """Return the `PLACE` of each module in this folder by the name of the module."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = {name: importlib.import_module(f"{__name__}.{name}") for name in names}
    return {name: module.PLACE for name, module in modules.items() if hasattr(module, "PLACE")}


PLACES: Mapping[str, Place] = _find_places()


def get_place(name: str) -> Place:
    """Return the place of a name; raise `ProblemError` (exit code 2) if it is unknown."""
    if name not in PLACES:
        what = f"The place {name} is unknown."
        raise ProblemError([problem_of("TP768", file=name, what=what, expected=", ".join(PLACES))], exit_code=2)
    return PLACES[name]
