"""A configuration with a comment on each line, and the files of rows beside it: their text, and writing them."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from evidence.run.write import not_written
from schemas.problems.problem import Problem
from schemas.problems.rule import Rule, problem_of
from schemas.reading.yaml_text import write_yaml
from trainer.first_config.reasons import Reason

FILE_EXISTS = Rule(
    "TP035",
    "File that would be replaced",
    "What stands there would be lost.",
    "Name another place with --output, or replace the file with --force.",
)

COLUMNS = 100
"""Of a comment."""


def file_text(reasons: Iterable[Reason], *, model: str, data: str) -> str:
    """Return the configuration as YAML: each key behind the comment that states why it has its value.

    What is not stated has its default.
    """
    title = (
        f"A first configuration for the model {model} and the rows {data}, made by `trainproof init`. It has "
        "not been tried. Keys that are left out have their default: docs/configuration.md explains every key."
    )
    lines = [*as_comment(title, ""), ""]
    for group, members in groupby(reasons, key=lambda reason: reason.key.partition(".")[0]):
        of_group = list(members)
        if of_group[0].key == group:
            lines += [line for reason in of_group for line in of_one(reason, group, "")]
            continue
        lines += ["", f"{group}:"]
        for reason in of_group:
            lines += of_one(reason, reason.key.partition(".")[2], "  ")
    return "\n".join(lines) + "\n"


def of_one(reason: Reason, key: str, indent: str) -> Iterator[str]:
    """Yield the lines of one key."""
    yield from as_comment(reason.because, indent)
    yield indent + write_yaml({key: reason.value}).rstrip("\n")


def as_comment(text: str, indent: str) -> list[str]:
    """Return a text as lines of comment; a line end inside it, as of a file's name, becomes a blank."""
    return textwrap.wrap(text, COLUMNS, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")


def refused_places(places: Sequence[Path], given: Sequence[Path], *, force: bool) -> list[Problem]:
    """Return a problem for each file that may not be written, because it is there or is what was given.

    Args:
        places: to be written.
        given: what the command reads; it is never replaced.
        force: whether other files that are there are replaced.
    """
    problems = []
    for place in places:
        elsewhere = "Name a place in another folder with --output."
        if any(place.resolve() == each.resolve() for each in given):
            what, fix = f"{place} is the file that you named; it stays as it is.", elsewhere
        elif place.is_dir():
            what, fix = f"{place} is a folder.", "Name a file with --output."
        elif place.exists() and not force:
            what, fix = f"{place} is there already.", FILE_EXISTS.fix
        else:
            continue
        why = None if place.is_dir() else FILE_EXISTS.meaning
        problems.append(problem_of(FILE_EXISTS, file=str(place), what=what, why=why, next=fix))
    return problems


def write(texts: Mapping[Path, Iterable[str]]) -> None:
    """Write files, each whole or not at all.

    Raises:
        ProblemError: exit code 2; the system does not let one be written.
    """
    for path, lines in texts.items():
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("w", encoding="utf-8", newline="\n") as file:
                file.writelines(lines)
            temporary.replace(path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise not_written(error, path, what=f"The file {path.name}") from error
