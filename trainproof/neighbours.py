"""Check that Python imports this project's packages: another project may have a `schemas` or a `trainer` too.

Only the standard library is imported here, since any other module might be the other project's.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

HOME = Path(__file__).resolve().parents[1]
"""Folder of the packages."""


def find_foreign_package() -> str | None:
    """Return a message about the first package that is another project's, or None."""
    for name in ("schemas", "evidence", "trainer", "launch", "dashboard"):
        spec = find_spec(name)
        found = Path(spec.origin).resolve().parent if spec and spec.origin else None
        if found != HOME / name:
            where = f"Python finds another `{name}` in {found}" if found else f"Python does not find `{name}`"
            return (
                f"trainproof cannot start: {where}; its own is {HOME / name}. Next: start it in another folder, "
                "remove the other folder from PYTHONPATH, or install trainproof in its own environment."
            )
    return None
