"""Software and chips that do not go together: packages too old for trainproof, versions to come, chips of no maker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.metadata import metadata

from evidence.records.facts import Facts, finding
from evidence.run import layout
from schemas.problems.problem import Problem
from schemas.problems.rule import Rule
from schemas.problems.words import listed

ODD_SOFTWARE = Rule(
    "TP444",
    "Software that trainproof does not run on",
    "A version of trainproof states the oldest Python and packages that it runs on; the run states older ones.",
    "Repeat a part of the run with the stated software: `trainproof replay RUN`.",
    "warning",
)
ODD_CHIP = Rule(
    "TP445",
    "TPU of no known name",
    "JAX names every TPU `TPU` and its generation, as in `TPU v5 lite`.",
    "Repeat a part of the run on such a machine: `trainproof replay RUN`.",
    "warning",
)

LEAST_STATED = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?>=([0-9.]+)")


def software_runs_trainproof(facts: Facts) -> Iterator[Problem]:
    """Yield a warning for a version of trainproof to come, or for software older than this version runs on."""
    if facts.manifest is None:
        return
    stated, ours = facts.manifest["code"]["version"], metadata("trainproof")["Version"]
    if _numbers(stated) > _numbers(ours):
        what = f"The run was made by trainproof {stated}; this is {ours}, which does not know that version."
        yield finding(facts.folder, ODD_SOFTWARE, layout.MANIFEST, what, pointer="/code/version")
    elif _numbers(stated) == _numbers(ours):
        environment = facts.manifest["environment"]
        versions = {"python": environment["python"], **environment["packages"]}
        old = [
            f"{name} {versions[name]} (at least {least})"
            for name, least in least_versions().items()
            if name in versions and _numbers(versions[name]) < _numbers(least)
        ]
        if old:
            what = f"trainproof {stated} does not run on {listed(old)}."
            yield finding(facts.folder, ODD_SOFTWARE, layout.MANIFEST, what, pointer="/environment")


def tpu_is_named_as_one(facts: Facts) -> Iterator[Problem]:
    """Yield a warning for a TPU whose kind does not states it; kinds of graphics cards are too many to know."""
    if facts.manifest is None or facts.manifest["devices"]["platform"] != "tpu":
        return
    kind = facts.manifest["devices"]["kind"]
    if not kind.startswith("TPU"):
        what = f"The platform is tpu, and the devices are called {kind!r}."
        yield finding(facts.folder, ODD_CHIP, layout.MANIFEST, what, pointer="/devices/kind")


@cache
def least_versions() -> dict[str, str]:
    """Return the oldest versions that this trainproof runs on, by package and for `python`, as its package states."""
    stated = metadata("trainproof")
    lines = stated.get_all("Requires-Dist") or []
    matches = [LEAST_STATED.match(line) for line in lines]
    return {
        "python": stated["Requires-Python"].removeprefix(">="),
        **{match[1].lower(): match[2] for match in matches if match},
    }


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (0, 10, 2) for 0.10.2, (3, 12) for 3.12.0rc1."""
    found_numbers = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found_numbers[0].split(".")) if found_numbers else ()


CHECKS = (software_runs_trainproof, tpu_is_named_as_one)
