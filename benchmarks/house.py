"""Count files, lines, folders that import each other, circles of files, and files with one importer.

`python benchmarks/house.py [FOLDER]` prints the figures of a checkout, which docs/decisions/house.md quotes.
"""

from __future__ import annotations

import ast
import json
import sys
from collections import defaultdict
from pathlib import Path

PACKAGES = ("schemas", "foreign", "evidence", "trainer", "launch", "dashboard", "trainproof")
MOST_LINES = 300
"""A file and its only importer could be one file if both together stay within this."""


def module_of(path: Path, root: Path) -> str:
    """Return the dotted name of a file: `evidence/run/__init__.py` is `evidence.run`."""
    name = path.relative_to(root).with_suffix("").as_posix().replace("/", ".")
    return name.removesuffix(".__init__")


def imports_of(path: Path, modules: set[str]) -> set[str]:
    """Return the modules of the house that a file imports, wherever in the file it does so."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            named = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= named & modules or {node.module}
    return found & modules


def pairs_both_ways(arrows: dict[str, set[str]], folder_of: dict[str, str]) -> set[tuple[str, str]]:
    """Return the folders of one package that import each other."""
    between = {
        (folder_of[here], folder_of[there])
        for here, targets in arrows.items()
        for there in targets
        if folder_of[here] != folder_of[there] and here.split(".")[0] == there.split(".")[0]
    }
    return {(a, b) for a, b in between if a < b and (b, a) in between}


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of files that reach each other (Tarjan's strongly connected components of two or more)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in arrows.get(node, ()):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            group: list[str] = []
            while not group or group[-1] != node:
                group.append(stack.pop())
            if len(group) > 1:
                groups.append(sorted(group))

    for node in arrows:
        if node not in index:
            visit(node)
    return groups


def count(root: Path) -> dict[str, object]:
    """Return the figures of a checkout."""
    files = {module_of(path, root): path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))}
    if (root / "trainproof.py").exists():
        files["trainproof"] = root / "trainproof.py"
    lines = {name: len(path.read_text("utf-8").splitlines()) for name, path in files.items()}
    arrows = {name: imports_of(path, set(files)) - {name} for name, path in files.items()}
    folder_of = {name: path.parent.relative_to(root).as_posix() for name, path in files.items()}
    importers: dict[str, set[str]] = defaultdict(set)
    for here, targets in arrows.items():
        for there in targets:
            importers[there].add(here)
    alone = {name: next(iter(who)) for name, who in importers.items() if len(who) == 1}
    fitting = [name for name, who in alone.items() if lines[name] + lines[who] <= MOST_LINES and lines[name] > 1]
    by_package = {package: sum(n for name, n in lines.items() if name.split(".")[0] == package) for package in PACKAGES}
    sizes = sorted(lines.values())
    return {
        "files": len(files),
        "lines": sum(sizes),
        "lines_by_package": by_package,
        "median_file_lines": sizes[len(sizes) // 2],
        "longest_file_lines": sizes[-1],
        "files_under_50_lines": sum(n < 50 for n in sizes),
        "folder_pairs_both_ways": sorted(pairs_both_ways(arrows, folder_of)),
        "file_circles": circles(arrows),
        "single_importers": len(alone),
        "single_importers_that_fit": len(fitting),
    }


if __name__ == "__main__":
    print(json.dumps(count(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()), indent=2))
