"""Writes docs/detection.md from benchmarks/results: `python docs/make_detection.py`; a test compares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULT = Path(__file__).parents[1] / "benchmarks" / "results" / "rules.json"
LIES = RESULT.with_name("adversary.json")
FOREIGN = RESULT.with_name("foreign.json")
HONEST = RESULT.with_name("honest_runs.json")
PAGE = Path(__file__).parent / "detection.md"


NEVER_FOUND = (
    (
        "the best of many seeds is shown",
        "each of them is an honest run",
        "a seed that others drew after the start was stamped (`trainproof stamp`)",
    ),
    (
        "another device, or none",
        "any machine of the kind gives the same numbers",
        "a [witness](witness.md): the attestation of a workflow, a log of who lent the device",
    ),
    ("other times, another duration", "no number follows from them", "time stamps of start and end, from outside"),
    ("another command, or a commit of the same arithmetic", "as with the device", "a witness"),
    ("somebody else's run", "it is an honest run", "the original beside it (TP421, TP422), an earlier stamp of it"),
    (
        "a training that was not",
        "a careful forger's folder agrees with itself",
        "*training repeated*: all of it, or parts that your number draws ([replay.md](replay.md))",
    ),
    (
        "a score that was not",
        "the same",
        "*score repeated*: every answer held against the weights, and new questions ([challenge.md](challenge.md))",
    ),
)
"""Lies that no check of a folder finds: what, why, and what would show it."""


def page() -> str:
    """Return the text of docs/detection.md."""
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    cases, times = result["cases"], result["cases"]["check_milliseconds"]
    lines = [
        "# What is found, and what is not",
        "",
        "Measured by `benchmarks/rules.py`, `lab/adversary.py`, `lab/plants.py` and",
        "`benchmarks/honest_runs.py`; this page is made from their results by `docs/make_detection.py`.",
        "What each code means stands in [rules.md](rules.md).",
        "",
        *lies(told := json.loads(LIES.read_text(encoding="utf-8"))),
        *repeated(told["repeated"]),
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
    """Return the part on careful liars: how many are found, and who is not."""
    lines = [
        "## Who is found, and who is not",
        "",
        f"Lies about `{result['run']}`, every hash made to fit. *Single*: one value. *Deep*: what follows from it",
        "is computed anew. *Wide*: told in every place that states it. *Again*: by somebody who had not seen the",
        "first. *Forged*: a run that nobody trained, and absurd variants of it. Named is what has an error or is",
        "called unusual; the latter leaves a run consistent.",
        "",
        "| lies | told | named by `check` | graded above consistent |",
        "|---|---|---|---|",
    ]
    for family, count in result["families"].items():
        lines.append(f"| {family} | {count['lies']} | {count['found']} | {count['above_consistent']} |")
    lines += [
        "",
        "**`check` alone does not find** whoever writes a whole run anew, with care: what the folder says of itself",
        "and what ships with trainproof (built-in data, items, start weights, published sizes, chips) then agree. That",
        "is why a folder is *consistent* at best. Found neither so nor by a replay, where one was tried:",
        "",
    ]
    for family, count in result["families"].items():
        lines += [f"- {family}: {name}" for name in count["not_found"]]
    tried = sum(count["replay_tried"] for count in result["families"].values())
    found = sum(count["replay_found"] for count in result["families"].values())
    lines += [
        "",
        "Repeating the run (`trainproof replay`) and asking its model (`trainproof challenge`) find lies about",
    ]
    lines += ["data, settings that change the arithmetic, losses, weights and answers; machine, commit, command and"]
    lines += [
        "time need a witness. A run that states version 1.0 of the schemas is held to what that version's recorder"
    ]
    if tried:
        lines += [
            f"wrote, which is less. Of {tried} lies that `check` did not find, repeating the whole run found {found}."
        ]
    else:
        lines += ["wrote, which is less. With `--replay` the benchmark counts what repeating adds."]
    return [*lines, ""]


def repeated(result: dict[str, Any]) -> list[str]:
    """Return the part on lies that were all repeated, and on runs of which a part was trained."""
    third, part = result["third"], result["in part"]
    false = third["false_steps_repeated"] + part["false_steps_repeated"]
    lines = [
        "## What a repetition counts",
        "",
        "A run of forty steps, trained for this page, told by a third liar, and told where only some of its steps were",
        "trained: each was repeated whole, and the latter with three numbers of a judge and with too little time.",
        "",
        "| lies | told | named by `check` | different when repeated | neither |",
        "|---|---|---|---|---|",
    ]
    for name, count in (("of a third liar", third), ("trained in part", part)):
        figures = (count["lies"], count["check_found"], count["replay_found"], len(count["neither"]))
        lines.append(f"| {name} | {' | '.join(map(str, figures))} |")
    lines += [
        "",
        f"Steps that are not as they are told and counted as repeated all the same: **{false}**. Found by neither are",
        "places, times and names, which no number follows from, and the one of these runs that is as it was trained:",
        "",
        *(f"- {name}" for count in (third, part) for name in count["neither"]),
    ]
    return [*lines, ""]


def never_found() -> list[str]:
    """Return the part on lies that nothing in a folder can show."""
    return [
        "## What cannot be found in a folder, and what would show it",
        "",
        "| lie | why no check finds it | what shows it |",
        "|---|---|---|",
        *(f"| {what} | {why} | {shown} |" for what, why, shown in NEVER_FOUND),
        "",
    ]


def foreign(result: dict[str, Any]) -> list[str]:
    """Return the part on folders of other tools: contradictions planted, and folders without one."""
    lines = [
        "## Folders of other tools",
        "",
        "Contradictions planted in folders of fourteen tools, one a folder (`lab/plants.py`). Each set was",
        "written without a look at the readers and counted; then what a sound rule can find was mended.",
        "",
        "| set | planted | found at first | found now |",
        "|---|---|---|---|",
    ]
    for name, count in result.items():
        if "planted" in count:
            lines.append(f"| {name} | {count['planted']} | {count['found_at_first']} | {count['found']} |")
    missed = [name.replace("_", " ") for count in result.values() for name in count.get("missed", ())]
    honest_ones = result["honest"]
    lines += [
        "",
        f"Not found: {', '.join(missed)}.",
        f"Of {honest_ones['folders']} honest folders {honest_ones['accused']} are accused;",
        f"{honest_ones['accused_at_first']} were, before anything was mended.",
        "",
    ]
    return lines


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
