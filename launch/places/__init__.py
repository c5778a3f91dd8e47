"""Places where jobs run: one module each, found by its `PLACE`. `local` is this machine.

A job contains the name of its place and no program. The command comes from the module of that name, so a runs folder
from an untrusted source cannot start a program of its own.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

from launch.places.place import Place


def _find_places() -> dict[str, Place]:
    """Return the `PLACE` of each module in this folder by the name of the module."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = {name: importlib.import_module(f"{__name__}.{name}") for name in names}
    return {name: module.PLACE for name, module in modules.items() if hasattr(module, "PLACE")}


PLACES: Mapping[str, Place] = _find_places()
