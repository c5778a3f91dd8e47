"""What a configuration names and is not on this machine, in the words that the trainer has for it seconds later."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from schemas.names import no_dataset, no_eval_set, no_model
from schemas.problems.problem import Problem, pointer_to
from schemas.reading.unreadable import refused_by_system
from schemas.reading.values import text_at

NAMES: Mapping[tuple[str, ...], Callable[[str], Problem | None]] = {
    ("model", "name"): no_model,
    ("data", "dataset"): no_dataset,
    ("evaluation", "eval_set"): no_eval_set,
}
"""Fields that name something, and what states why there is no such thing."""


def absent(config: Mapping[str, Any], *, file: str) -> Iterator[Problem]:
    """Yield a problem for each name that stands for nothing; one that the hub may know is left to the trainer."""
    for path, find in NAMES.items():
        if name := text_at(config, *path):
            try:
                found = find(name)
            except OSError as error:
                found = refused_by_system(error)
            if found is not None:
                why = [found.why] if found.why else []
                if not Path(name).is_absolute():
                    why.append(f"A relative path starts at {Path.cwd()}, where this dashboard was started.")
                yield replace(found, file=file, pointer=pointer_to(path), why=" ".join(why) or None)
