"""Count which false statements `trainproof check` finds, in copies of a real run and in folders of other tools.

All hashes are recomputed after each change, including those of the chain.
`python benchmarks/detection/detection.py` writes adversary.json and foreign.json in benchmarks/results, in seconds.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))

import foreign_tools
from leaves import Forger
from lies import LIES, VARIANTS, forge_run, tell
from planted import HONEST, PLANTS

from evidence.grade import check_run
from evidence.run import read_run

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / "benchmarks" / "results"
SEVERITIES = ("error", "warning")
RUN = "tests/cases/earlier/demo-smoke"


def errors_and_warnings(folder: Path) -> tuple[str, set[str], set[str]]:
    """Return the grade of a run, and the codes of its errors and of its warnings."""
    report = check_run(read_run(folder))
    codes = {severity: {each.code for each in report.findings if each.severity == severity} for severity in SEVERITIES}
    return report.grade.name, codes["error"], codes["warning"]


def check_lies(root: Path) -> Iterator[tuple[str, str, str, set[str], set[str]]]:
    """Yield family, name, grade, errors and warnings of every lie."""
    forger = Forger(REPOSITORY / RUN, root / Path(RUN).name)
    _, *known = errors_and_warnings(forger.folder)
    for family, lies in LIES.items():
        for name, lie in lies.items():
            grade, errors, warnings = errors_and_warnings(tell(forger, lie))
            yield family, name, grade, errors - known[0], warnings - known[1]
    for name, changes in VARIANTS.items():
        yield "forged", name, *errors_and_warnings(forge_run(root / "forged", name, changes))


def count(root: Path) -> dict[str, Any]:
    """Count the lies of each family that are found, with the codes that find them, and list the others."""
    families: dict[str, Any] = {}
    for family, name, grade, errors, warnings in check_lies(root):
        counts = families.setdefault(
            family, {"lies": 0, "errors": 0, "found": 0, "above_consistent": 0, "not_found": [], "found_by": {}}
        )
        counts["lies"] += 1
        counts["errors"] += bool(errors)
        counts["found"] += bool(errors | warnings)
        counts["above_consistent"] += grade == "verified"
        if errors | warnings:
            counts["found_by"][name] = sorted(errors | warnings)
        else:
            counts["not_found"].append(name)
    return families


def count_planted(root: Path) -> dict[str, Any]:
    """Return how many contradictions in folders of other tools are found, and how many honest folders are accused."""

    def is_accused(number: int, files: foreign_tools.Folder) -> bool:
        report = check_run(read_run(foreign_tools.write(root / f"folder-{number}", files)))
        return any(problem.code.startswith("TP3") for problem in report.findings)

    missed = [name for number, (name, plant) in enumerate(PLANTS.items()) if not is_accused(number, plant())]
    accused = [name for number, (name, honest) in enumerate(HONEST.items()) if is_accused(1000 + number, honest())]
    planted = {"planted": len(PLANTS), "found": len(PLANTS) - len(missed), "missed": missed}
    return {**planted, "honest": len(HONEST), "accused": accused}


def main() -> None:
    """Count, print and write."""
    with tempfile.TemporaryDirectory() as root:
        families, planted = count(Path(root)), count_planted(Path(root))
    for family, counts in families.items():
        print(f"{family:<14} {counts['lies']:>3} lies, {counts['errors']:>3} errors, {counts['found']:>3} found")
    print(
        f"planted        {planted['planted']:>3} contradictions, {planted['found']} found; accused {planted['accused']}"
    )
    for name, result in (("adversary", {"run": RUN, "families": families}), ("foreign", planted)):
        (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
