"""Verifiable fine-tuning of small language models: the command line, and functions for scripts and notebooks.

    import trainproof

    runs = trainproof.frame("submission_runs")          # one row per run: grade, score, settings, figures
    curve = trainproof.metrics("submission_runs/mine")  # one row per step
    model = trainproof.load_model("exported")           # logits = model(ids); trainproof.generate(model, ids)

Names are imported when they are first used, so `import trainproof` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evidence.extras import Extra
    from trainer.generate.api import generate, load_model
    from trainproof.tables import check, frame, metrics, read_run

__all__ = ["check", "frame", "generate", "load_model", "metrics", "read_run"]

_MODULES: dict[str, tuple[str, Extra | None]] = {
    "check": ("trainproof.tables", None),
    "frame": ("trainproof.tables", "frame"),
    "generate": ("trainer.generate.api", "train"),
    "load_model": ("trainer.generate.api", "train"),
    "metrics": ("trainproof.tables", "frame"),
    "read_run": ("trainproof.tables", None),
}
"""Module of each name, and the extra that it needs."""


def __getattr__(name: str) -> Any:
    """Import a public name from its module."""
    if name not in _MODULES:
        message = f"module 'trainproof' lacks the attribute {name!r}; it has {', '.join(__all__)}"
        raise AttributeError(message)
    from trainproof.neighbours import find_foreign_package

    if foreign := find_foreign_package():
        raise ImportError(foreign)
    module, extra = _MODULES[name]
    if extra is not None:
        from evidence.extras import install_command, missing

        if packages := missing(extra):
            message = f"trainproof.{name} needs {', '.join(packages)}. Next: {install_command(extra)}"
            raise ModuleNotFoundError(message)
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
