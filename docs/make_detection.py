"""Generate docs/verify/detection.md from benchmarks/results: `python docs/make_detection.py`; a test compares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULT = Path(__file__).parents[1] / "benchmarks" / "results" / "rules.json"
LIES = RESULT.with_name("adversary.json")
FOREIGN = RESULT.with_name("foreign.json")
HONEST = RESULT.with_name("honest_runs.json")
PAGE = Path(__file__).parent / "verify" / "detection.md"


NEVER_FOUND = (
    (
        "the best of many seeds is shown",
        "each of them is an honest run",
        "a seed that others drew after the start was stamped (`trainproof stamp`)",
    ),
    (
        "another device, or none",
        "every machine of the kind gives the same numbers",
        "the [attestation](signatures.md) of a workflow, or a log of whoever lent the device",
    ),
    ("other times, another duration", "no number follows from them", "[time stamps](signatures.md) of start and end"),
    ("another command, or a commit with the same arithmetic", "as with the device", "an attestation"),
    ("somebody else's run", "it is an honest run", "the original beside it (TP421, TP422), or an earlier time stamp"),
    (
        "a training that did not happen",
        "a careful forger's folder agrees with itself",
        "a replay of all steps, or of segments drawn by your random number ([replay.md](index.md))",
    ),
    (
        "a score that was not reached",
        "the same",
        "a replay of the answers, and new questions ([challenge.md](index.md))",
    ),
)
"""Lies that no check of a folder detects: what, why, and what detects it."""


def page() -> str:
    """Return the text of docs/verify/detection.md."""
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    cases, times = result["cases"], result["cases"]["check_milliseconds"]
    lines = [
        "# What `check` detects",
        "",
        "Measured by `benchmarks/rules.py`, `benchmarks/detection/` and `benchmarks/honest_runs.py`; generated from",
        "their results by `docs/make_detection.py`. [rules.md](../rules.md) explains each code.",
        "",
        *lies(json.loads(LIES.read_text(encoding="utf-8"))),
        *never_found(),
        *foreign(json.loads(FOREIGN.read_text(encoding="utf-8"))),
        *honest(json.loads(HONEST.read_text(encoding="utf-8"))),
        "## Named changes of a valid run",
        "",
        f"{cases['found']} of {cases['broken']} changes are found. Of {cases['valid']} valid runs,",
        f"{cases['valid_with_findings']} have a finding.",
        f"A check takes {times['median']:.0f} ms (half of them {times['from']:.0f} to {times['to']:.0f} ms).",
        "",
        "| change | found by |",
        "|---|---|",
        *(f"| {name.replace('_', ' ')} | {', '.join(codes)} |" for name, codes in cases["codes"].items()),
        "",
        "## Every value of real runs, changed by a forger who makes all hashes fit",
        "",
        "Each value of each document, and of the first, middle and last row, is made another value of its kind, null,",
        "or removed; rows are moved and files removed. Then every hash is computed anew, the seal included.",
        "What is found then is found because two places state the same fact.",
        "",
        "| run | changes | found | rate |",
        "|---|---|---|---|",
    ]
    for name, swept in result["real_runs"].items():
        lines.append(f"| `{name}` | {swept['changes']:,} | {swept['found']:,} | {100 * swept['rate']:.1f} % |")
    lines += ["", "Found nowhere, since nothing else in the folder states it (`*` is any row or position):", ""]
    lines += [f"- `{place}`: {', '.join(what)}" for place, what in sorted(unseen(result).items())]
    return "\n".join(lines) + "\n"


def lies(result: dict[str, Any]) -> list[str]:
    """Return the part on careful liars: how many are found, and which are not."""
    lines = [
        "## Lies about a run",
        "",
        f"Each lie is told in a copy of `{result['run']}`, and every hash is made to fit. *Single*: one value.",
        "*Deep*: what follows from it is computed anew. *Wide*: every place that states it. *Absurd*: values that no",
        "run has. *Again*: by another author. *Forged*: a run that nobody trained, and absurd variants of it. An error",
        "lowers the grade; a warning does not.",
        "",
        "| lies | told | error | error or warning | graded verified |",
        "|---|---|---|---|---|",
    ]
    for family, count in result["families"].items():
        figures = (count["lies"], count["errors"], count["found"], count["above_consistent"])
        lines.append(f"| {family} | {' | '.join(map(str, figures))} |")
    lines += [
        "",
        "**`check` does not detect** a whole run that was rewritten with care, so that the folder agrees with itself",
        "and with what ships with trainproof. So a folder is *consistent* at best. `trainproof replay` detects",
        "lies about data, settings that change the arithmetic, losses, weights and answers, and `trainproof challenge`",
        "those about scores. Not found by `check`:",
        "",
    ]
    lines += [
        f"- {family}: {', '.join(count['not_found'])}"
        for family, count in result["families"].items()
        if count["not_found"]
    ]
    return [*lines, ""]


def never_found() -> list[str]:
    """Return the part on lies that nothing in a folder contradicts."""
    return [
        "## What no check of a folder detects",
        "",
        "| lie | why | what detects it |",
        "|---|---|---|",
        *(f"| {what} | {why} | {shown} |" for what, why, shown in NEVER_FOUND),
        "",
    ]


def foreign(result: dict[str, Any]) -> list[str]:
    """Return the part on folders of other tools: contradictions planted, and folders without one."""
    missed = f" Not found: {', '.join(result['missed'])}." if result["missed"] else ""
    return [
        "## Folders of other tools",
        "",
        f"{result['found']} of {result['planted']} contradictions planted in folders of other tools are found.{missed}",
        f"Of {result['honest']} honest folders {len(result['accused'])} are accused.",
        "",
    ]


def honest(result: dict[str, Any]) -> list[str]:
    """Return the part on real runs: what is found in them."""
    unusual = sum(any(code.startswith(("TP38", "TP43", "TP44")) for code in row["codes"]) for row in result["rows"])
    again = result["again"]
    accused = again["runs"] - sum(again["grades"].get(name, 0) for name in ("verified", "consistent", "measured"))
    found = ", ".join(f"{code} ({count})" for code, count in again["found"].items())
    return [
        "## Real runs",
        "",
        f"{result['runs']} tiny runs with drawn settings were trained. {unusual} of them have a finding of",
        "plausibility (TP416 to TP442) or differ from the registry (TP381 to TP384).",
        "",
        f"Of {again['runs']} more, recorded by newer code, {accused} are graded below `measured`. Found in all of",
        f"them: {found}.",
        "",
    ]


def unseen(result: dict[str, Any]) -> dict[str, list[str]]:
    """Return the kinds of change that are found in none of the runs, by place."""
    places: dict[str, set[str]] = {}
    for swept in result["real_runs"].values():
        for place, what in swept["found_nowhere"].items():
            places.setdefault(place, set()).update(what)
    return {place: sorted(what) for place, what in places.items()}


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
