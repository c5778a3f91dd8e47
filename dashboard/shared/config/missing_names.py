"""Names in a configuration that refer to nothing on this machine, found before the trainer is asked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from schemas.catalog import DATASETS, EVAL_SETS, GYM, MODELS
from schemas.problems import Problem, pointer_to, problem_of
from schemas.reading import get_str, os_error_problem

NAMES: Mapping[tuple[str, ...], tuple[str, str, tuple[str, ...]]] = {
    ("model", "name"): ("TP040", "model", MODELS),
    ("data", "dataset"): ("TP010", "dataset", DATASETS),
    ("evaluation", "eval_set"): ("TP010", "evaluation set", EVAL_SETS),
}
"""Code, noun and built-in names of each field that names something."""

_REMOTE: Mapping[tuple[str, ...], str] = {
    ("model", "name"): r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?",
    ("data", "dataset"): f"{GYM}.*",
}
"""Names that the trainer downloads or generates."""


def absent(config: Mapping[str, Any], *, file: str) -> Iterator[Problem]:
    """Yield a problem for each name that is not built in, not a path, and not remote."""
    for path, (code, noun, builtin) in NAMES.items():
        name = get_str(config, *path)
        if not name or name in builtin or re.fullmatch(_REMOTE.get(path, ""), name):
            continue
        try:
            if Path(name).exists():
                continue
        except OSError as error:
            problem = os_error_problem(error)
            yield problem_of(problem.code, file=file, pointer=pointer_to(path), what=problem.what, next=problem.next)
            continue
        is_relative = not Path(name).is_absolute()
        yield problem_of(
            code,
            file=file,
            pointer=pointer_to(path),
            what=f"There is no {noun} {name}: it is not built in, and no such file exists.",
            why=f"Relative paths start at {Path.cwd()}, where the dashboard was started." if is_relative else None,
            expected=f"a built-in name ({', '.join(builtin)}) or a path",
        )
