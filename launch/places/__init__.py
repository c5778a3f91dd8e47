"""Where runs are carried out: one file a place, found by its `Place` object; `local` is this machine.

A job states the name of its place and no program: what is started follows from the file of this name here, so that a
root which came from elsewhere starts nothing of its own.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

from launch.places.place import Place


def _found_places() -> dict[str, Place]:
    """Return the `PLACE` of each of this folder's files, by the file's name."""
    modules = {
        module.name: importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)
    }
    return {name: module.PLACE for name, module in sorted(modules.items()) if hasattr(module, "PLACE")}


PLACES: Mapping[str, Place] = _found_places()
