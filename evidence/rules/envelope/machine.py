"""Speed and memory against the machine, both sides, and software and chips that do not go together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.metadata import metadata

import numpy as np

from evidence.records.facts import Facts, finding
from evidence.rules.envelope.device_limits import target_of
from evidence.run import layout
from schemas.problems.formats import size
from schemas.problems.problem import Problem
from schemas.problems.rule import Rule
from schemas.problems.words import listed
from schemas.reading.times import seconds_between

ODD_SPEED = Rule(
    "TP438",
    "Speed unlike that of the machine",
    "A step takes about six operations for each parameter and token: two forward and four backward.",
    "Repeat a part of the run on such a machine: `trainproof replay RUN`.",
    "warning",
)
ODD_MEMORY = Rule(
    "TP439",
    "Memory unlike that of such a model",
    "A program holds at least its parameters, and no more than the machine has.",
    "Repeat the first steps: `trainproof replay RUN`.",
    "warning",
)
ODD_ANSWERS = Rule(
    "TP440",
    "Answers faster than a model writes them",
    "Tokens of an answer come one after the other; each takes a pass through the model.",
    "Let the model answer again: `trainproof challenge RUN`.",
    "warning",
)

OPERATIONS = 6
CORE_FLOPS = 4e12
"""Operations a second that no core of a CPU exceeds; those with matrix units reach about 2e12 in bfloat16."""
LEAST_USE, LARGE = 1e-5, 100_000_000
"""A device that does less than this share of its peak is unusual for a model of so many parameters."""
PASS_SECONDS = 10e-6
"""One pass through a model takes longer on any machine, were it only to be started. Real ones: 1e-4 and more."""
LEAST_OF_PROCESS = 100 << 20
"""A process that has imported jax and compiled a program holds more. Real ones: 500 MiB and more."""
MEMORY_MAY_DIFFER = 0.7
"""Share of the compiled step's peak that the memory of a run reaches at least. Real ones: 0.99 and more."""
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def speed_is_of_this_machine(facts: Facts) -> Iterator[Problem]:
    """Yield a warning for more operations a second than the processors do, or next to none of a large model."""
    if facts.manifest is None or facts.training is None or facts.model is None or not facts.manifest["result"]:
        return
    seconds = facts.manifest["result"]["train_seconds"]
    parent = facts.manifest["parent"]
    steps = facts.training["steps_done"] - (parent["step"] if parent else 0)
    tokens = steps * facts.training["tokens_per_step"]
    peak = _peak(facts)
    if not seconds or not tokens or not peak:
        return
    done = OPERATIONS * facts.model["parameters"] * tokens / seconds
    # Of a token table only some rows are used, and frozen weights need no gradient: a third may be right.
    what = None
    if done / 3 > peak:
        what = f"The run did about {done:.3g} operations a second, {done / peak:.3g} times what its processors can."
    elif done < LEAST_USE * peak and facts.model["parameters"] >= LARGE:
        what = f"The run did about {done:.3g} operations a second, {done / peak:.1g} of what its processors can."
    if what:
        yield finding(facts.folder, ODD_SPEED, layout.MANIFEST, what, pointer="/result/train_seconds")


def memory_holds_the_model(facts: Facts) -> Iterator[Problem]:
    """Yield a warning where the peak is less than the parameters alone, or more than the machine has."""
    if facts.manifest is None or facts.training is None or facts.model is None or not facts.manifest["result"]:
        return
    peak = facts.manifest["result"]["peak_memory_bytes"]
    plain = ((facts.config or {}).get("method") or {}).get("base", "plain") == "plain"
    if peak is None or not plain:
        return
    held = (
        facts.model["parameters"] * _BYTES.get(facts.model["dtypes"]["params"], 1) // facts.manifest["devices"]["count"]
    )
    there = facts.manifest["environment"]["memory_bytes"]
    of_process = (
        facts.manifest["devices"]["platform"] == "cpu" and "jaxlib" in facts.manifest["environment"]["packages"]
    )
    what = None
    if peak < held:
        what = f"The peak is {size(peak)}; the parameters alone are {size(held)} on each device."
    elif of_process and peak < LEAST_OF_PROCESS:
        what = f"The peak is {size(peak)}; of a CPU it is that of the whole process, and jax alone takes more."
    elif there and facts.manifest["devices"]["platform"] == "cpu" and peak > there:
        what = f"The peak is {size(peak)}; the machine has {size(there)}."
    if what:
        yield finding(facts.folder, ODD_MEMORY, layout.MANIFEST, what, pointer="/result/peak_memory_bytes")


def memory_holds_its_programs(facts: Facts) -> Iterator[Problem]:
    """Yield a warning where a run took less memory than the train step that was compiled for it needs."""
    result = (facts.manifest["result"] if facts.manifest else None) or {}
    key = "observed_memory" if result.get("observed_memory") else "peak_arrays"
    stated, programs = result.get(key), (facts.plan or {}).get("programs") or []
    steps = [each["peak_bytes"] for each in programs if (each["name"], each["method"]) == ("train", "compiler")]
    if stated and steps and stated["bytes"] < MEMORY_MAY_DIFFER * steps[0]:
        what = f"The run took {size(stated['bytes'])}; its train step was compiled to need {size(steps[0])}."
        yield finding(facts.folder, ODD_MEMORY, layout.MANIFEST, what, pointer=f"/result/{key}/bytes")


def answers_take_time(facts: Facts) -> Iterator[Problem]:
    """Yield a warning where an evaluation took less time than its tokens need, one pass after the other."""
    if facts.manifest is None or facts.model is None or facts.eval_summary is None or not _in_one_go(facts):
        return
    rows = facts.predictions or []
    seconds = seconds_between(facts.eval_summary["started_at"], facts.eval_summary["finished_at"])
    at_once = ((facts.config or {}).get("evaluation") or {}).get("batch_size") or len(rows)
    if seconds is None or seconds < 0 or not rows:
        return
    tokens = [row["output_tokens"] or 0 for row in rows]
    passes = sum(max(tokens[at : at + at_once]) for at in range(0, len(tokens), at_once))
    peak = _peak(facts)
    least = max(passes * PASS_SECONDS, 2 * facts.model["parameters"] * sum(tokens) / peak if peak else 0.0)
    if seconds + 1e-3 < least:  # documents state milliseconds
        what = (
            f"{len(rows):,} answers with {sum(tokens):,} tokens took {seconds:g} s; "
            f"{passes:,} passes through {facts.model['parameters']:,} parameters take {least:.2g} s at least."
        )
        yield finding(facts.folder, ODD_ANSWERS, layout.EVAL_SUMMARY, what, pointer="/finished_at")


def _in_one_go(facts: Facts) -> bool:
    """Return whether all answers were written between the stated times; a continued evaluation keeps older ones."""
    evaluations = [record for record in facts.log or [] if record["event"] == "evaluated"]
    complete = facts.eval_summary is not None and facts.eval_summary["status"] == "complete"
    return complete and len(evaluations) <= 1 and facts.manifest is not None and facts.manifest["parent"] is None


def _peak(facts: Facts) -> float | None:
    """Return the operations a second of all devices of a run; None where they are not known."""
    assert facts.manifest is not None, "asked only where it is there"
    if facts.manifest["devices"]["platform"] == "cpu":
        cores = facts.manifest["environment"]["cpu_count"]
        return CORE_FLOPS * cores if cores else None
    target = target_of(facts)
    peaks = np.array(list(target.peak_flops.values())) if target else np.zeros(0)
    return float(peaks.max()) * facts.manifest["devices"]["count"] if len(peaks) else None


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


CHECKS = (
    speed_is_of_this_machine,
    memory_holds_the_model,
    memory_holds_its_programs,
    answers_take_time,
    software_runs_trainproof,
    tpu_is_named_as_one,
)
