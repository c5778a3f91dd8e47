"""Machines of a user's own that plans are requested from the page: `<root>/.launch/targets/<name>-<hash>.yaml`.

The hash is of the content, so that a file that was changed is another question. The files may have come with another
user's root: a name has only letters, digits, dots and hyphens, and what is inside is checked by who plans.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from evidence.writing import write_text
from launch.jobs.folder import launch_folder
from schemas.problems import ProblemError
from schemas.reading import parse_yaml, write_yaml
from schemas.validate import check_value

_TARGETS = "targets"
_FILE = re.compile("([a-z0-9][a-z0-9.-]{0,63})-[0-9a-f]{12}[.]yaml")


def own_targets(root: Path) -> dict[str, Path]:
    """Return the kept files of own machines by name, in the order of their names."""
    folder = launch_folder(root) / _TARGETS
    found = sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []
    named = [(match[1], path) for path in found if (match := _FILE.fullmatch(path.name))]
    return {name: path for name, path in named if path.is_file() and not path.is_symlink()}


def keep(root: Path, data: bytes, *, file: str) -> str:
    """Check the file of an own machine and keep it; an earlier one of the same name goes.

    Args:
        root: The root of runs.
        data: YAML or JSON, a document of the kind `target`.
        file: What its user calls it.

    Returns:
        The name that the document gives the machine.

    Raises:
        ProblemError: exit code 2; everything that is wrong with it.
        OSError: It could not be written under the root.
    """
    read = parse_yaml(data, file=file)
    problems = read.problems or check_value("target", read.value, file=file)
    if problems or not isinstance(read.value, dict):
        raise ProblemError(problems, exit_code=2)
    name: str = read.value["name"]
    text = write_yaml(read.value)
    folder = launch_folder(root) / _TARGETS
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{hashlib.sha256(text.encode('utf-8')).hexdigest()[:12]}.yaml"
    write_text(path, text)
    for other in folder.iterdir():
        if (match := _FILE.fullmatch(other.name)) and match[1] == name and other != path:
            other.unlink()
    return name
