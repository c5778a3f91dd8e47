"""Whether the packages beside this one are its own: another project may have a `schemas` or a `trainer` too.

Nothing but the standard library may be imported here, since anything else might be the other project's.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

HOME = Path(__file__).resolve().parents[1]
"""The folder that holds the packages."""

NAMES = ("schemas", "evidence", "trainer", "launch", "dashboard")


def stranger() -> str | None:
    """Return a sentence about the first package that is another project's, None if all are this one's."""
    for name in NAMES:
        spec = find_spec(name)
        found = Path(spec.origin).resolve().parent if spec and spec.origin else None
        if found != HOME / name:
            where = f"Python finds another `{name}` in {found}" if found else f"Python does not find `{name}`"
            return (
                f"trainproof cannot start: {where}, and its own is {HOME / name}. Next: start it in another folder, "
                "take the other folder out of PYTHONPATH, or install trainproof in an environment of its own."
            )
    return None


def refuse_strangers() -> None:
    """End the command with a sentence and exit code 2 if a package that it needs is another project's."""
    if sentence := stranger():
        sys.stderr.write(f"{sentence}\n")
        raise SystemExit(2)
