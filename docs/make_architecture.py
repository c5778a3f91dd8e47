"""Writes docs/architecture.md from the import contracts: `python docs/make_architecture.py`. A test holds it."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE / "architecture.md"
BESIDE = "foreign"
"""The package that is on no floor: it stands between rooms of another."""

OPENING = """\
# The floors

A package imports from the floors below it, never from one above or beside it. In each box stand its rooms, the upper
ones on the lower ones. `make check` holds every line of this picture: it is made from the contracts in `pyproject.toml`
by `docs/make_architecture.py`.
"""


def page() -> str:
    """Return the text of docs/architecture.md."""
    floors = stacked(whole_house())
    packages = [*(package for floor in floors for package in floor), BESIDE]
    return "\n".join([OPENING, *picture(floors), "", *table(packages)]).rstrip("\n") + "\n"


def contracts() -> list[dict[str, list[str]]]:
    """Return the contracts that put rooms on floors."""
    settings = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    return [one for one in settings["tool"]["importlinter"]["contracts"] if one["type"] == "layers"]


def whole_house() -> list[str]:
    """Return the floors of the packages."""
    [layers] = [one["layers"] for one in contracts() if "trainproof" in one["layers"]]
    return layers


def around_beside() -> tuple[list[str], list[str], list[str]]:
    """Return the floors above `BESIDE`, its own, and those below it, from the contract in which its rooms stand."""
    [layers] = [one["layers"] for one in contracts() if any(name.startswith(f"{BESIDE}.") for name in one["layers"])]
    inside = [index for index, layer in enumerate(layers) if layer.startswith(f"{BESIDE}.")]
    return layers[: inside[0]], layers[inside[0] : inside[-1] + 1], layers[inside[-1] + 1 :]


def rooms_of(package: str) -> list[str]:
    """Return the floors inside a package."""
    if package == BESIDE:
        return list(dict.fromkeys(name.split(".")[1] for floor in stacked(around_beside()[1]) for name in floor))
    [layers] = [one["layers"] for one in contracts() if one.get("containers") == [package]]
    return layers


def stacked(layers: list[str]) -> list[list[str]]:
    """Return the names of each floor: `a | b` are two."""
    return [[name.strip(" ()") for name in layer.replace(":", "|").split("|")] for layer in layers]


def picture(floors: list[list[str]]) -> Iterator[str]:
    """Yield the picture as mermaid, which GitHub draws."""
    yield "```mermaid"
    yield "flowchart TD"
    for package in [*(name for floor in floors for name in floor), BESIDE]:
        rooms = "<br>".join(room.replace(" : ", " | ") for room in rooms_of(package))
        yield f'  {package}["<b>{package}</b><br>{rooms}"]'
    for upper, lower in pairwise(floors):
        yield f"  {' & '.join(upper)} --> {' & '.join(lower)}"
    above, _, below = (stacked(layers) for layers in around_beside())
    for package in dict.fromkeys(name.partition(".")[0] for floor in above for name in floor):
        yield f"  {package} --> {BESIDE}"
    for floor in below:
        package = floor[0].partition(".")[0]
        rooms = ", ".join(name.partition(".")[2] for name in floor if "." in name)
        yield f"  {BESIDE} -->{f'|{rooms} alone|' if rooms else ''} {package}"
    yield "```"


def table(packages: list[str]) -> Iterator[str]:
    """Yield what each package and each of its rooms is for, in the first line of its own docstring."""
    for package in packages:
        yield from (f"## {package}", "", first_line(HERE.parent / package), "", "| room | |", "|---|---|")
        for floor in stacked(rooms_of(package)):
            yield from (f"| `{room}` | {first_line(HERE.parent / package / room)} |" for room in floor)
        yield ""


def first_line(path: Path) -> str:
    """Return the first paragraph of the docstring of a package, or of a module."""
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    said = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return said.partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
