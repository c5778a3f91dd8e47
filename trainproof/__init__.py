"""The door: the command `trainproof`, and the names for scripts and notebooks.

    import trainproof

    runs = trainproof.frame("submission_runs")          # one row a run: grade, score, settings, figures
    curve = trainproof.metrics("submission_runs/mine")  # one row a step

Each name is imported when it is first used, so that `import trainproof` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainproof.tables import check, frame, metrics, read_run

__all__ = ["check", "frame", "metrics", "read_run"]

_HOMES = {"check": "tables", "frame": "tables", "metrics": "tables", "read_run": "tables"}
"""The module of this package that has each name."""


def __getattr__(name: str) -> Any:
    """Import a public name from its module."""
    if name not in _HOMES:
        message = f"module 'trainproof' has no attribute {name!r}; it has {', '.join(__all__)}"
        raise AttributeError(message)
    from trainproof.neighbours import stranger

    if sentence := stranger():
        raise ImportError(sentence)
    return getattr(import_module(f"trainproof.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
