"""May this run start? What its programs need held against the device, as `plan.json` and as a refusal say it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evidence.run import layout
from evidence.run.hashes import sha256_json
from schemas.catalog import VERSION
from schemas.problems.formats import size
from schemas.problems.problem import Problem, ProblemError
from schemas.problems.rule import Rule, problem_of
from trainer.config.tree import document_of
from trainer.data.prompts import Asked
from trainer.loop.task import Task
from trainer.planning.advice import deciding
from trainer.planning.changes import smaller_runs
from trainer.planning.compiled_answers import summed_answers
from trainer.planning.devices import REFUSED, Devices
from trainer.planning.element_types import element_types_of
from trainer.planning.estimate import estimate, total_bytes
from trainer.planning.program_answer import ProgramAnswer, parts_document
from trainer.planning.verdict import verdict, worst
from trainer.recorder.recorder import Recorder, now

DOES_NOT_FIT = Rule(
    "TP710", "Does not fit", "The planned memory exceeds what each device has.", "Apply a change that is named."
)

NAMED_PARTS = 4
"""Parts named in a refusal."""

HOW = {"closed_form": "summed", "compiler": "compiled", "extrapolated": "extrapolated"}
"""How a need was found, in a word."""


def plan_run(
    task: Task,
    devices: Devices,
    *,
    forced: bool,
    asked: Asked | None = None,
    answers: Sequence[ProgramAnswer] | None = None,
) -> dict[str, Any]:
    """Return the document `plan.json`.

    Args:
        task: the run; only the shapes of its parameters are looked at, so nothing is spent.
        devices: what it would run on.
        forced: whether `--force` was given.
        asked: what the evaluation asks. None: nothing is evaluated.
        answers: what each of its programs needs. None: by the closed form.
    """
    answers = answers or summed_answers(task, devices, asked=asked)
    decides = deciding(list(answers))
    return {
        "schema_version": VERSION,
        "made_at": now(),
        "config_sha256": sha256_json(document_of(task.config)),
        "target": {
            "name": devices.kind,
            "platform": devices.platform,
            "devices": len(devices.list),
            "memory_bytes": devices.memory_bytes,
            "memory_source": devices.memory_source,
        },
        "method": decides.way,
        "verdict": worst(answer.verdict for answer in answers),
        "need_bytes": decides.peak_bytes,
        "available_bytes": devices.memory_bytes,
        "error_fraction": decides.error_fraction,
        "parts": parts_document(decides.parts),
        "changes": changes(task, devices, decides=decides, asked=asked),
        "forced": forced,
        "programs": [answer.document() for answer in answers],
    }


def changes(task: Task, devices: Devices, *, decides: ProgramAnswer, asked: Asked | None) -> list[dict[str, Any]]:
    """Return the settings that would make the run smaller, largest saving first.

    Args:
        task: the run.
        devices: what it would run on.
        decides: the program that needs most; what a change saves is summed, and taken from its peak.
        asked: what the evaluation asks.
    """
    summed = total_bytes(estimate(task, platform=devices.platform, asked=asked))
    found = []
    for setting, changed in smaller_runs(task.config, element_types_of(devices)):
        parts = estimate(task.changed(changed), platform=devices.platform, asked=asked)
        saved = min(summed - total_bytes(parts), decides.peak_bytes)
        if saved > 0:
            need = decides.peak_bytes - saved
            fits = verdict(need, devices.memory_bytes, decides.error_fraction, decides.way) == "fits"
            found.append({"set": setting, "saves_bytes": saved, "fits": fits})
    return sorted(found, key=lambda change: -change["saves_bytes"])


def refuse_what_does_not_fit(plan: dict[str, Any], *, model: str) -> None:
    """Refuse a run whose plan says that it does not fit, unless it is forced.

    Raises:
        ProblemError: exit code 3, naming the largest parts and what to change.
    """
    if plan["verdict"] == "does_not_fit" and not plan["forced"]:
        raise ProblemError([does_not_fit(plan, model=model)], exit_code=REFUSED)


def in_words(plan: dict[str, Any]) -> str:
    """Return the plan as one line."""
    how = HOW[plan["method"]]
    need = f"needs about {size(plan['need_bytes'])} on each device ({how}, within {plan['error_fraction']:.0%})"
    if plan["available_bytes"] is None:
        return f"{need}; the device does not say what it has"
    verdicts = {
        "fits": "it fits",
        "tight": "it is tight and may not fit",
        "does_not_fit": "it does not fit",
    }
    return f"{need}, of {size(plan['available_bytes'])}: {verdicts[plan['verdict']]}"


def record_plan(recorder: Recorder, plan: dict[str, Any]) -> None:
    """Write down the plan, and warn of a run that may run out of memory."""
    recorder.document(layout.PLAN, plan)
    level = "warning" if plan["verdict"] in ("tight", "does_not_fit") else "info"
    recorder.log(level, "planned", in_words(plan), need_bytes=plan["need_bytes"])


def does_not_fit(plan: dict[str, Any], *, model: str, can_force: bool = True) -> Problem:
    """Return the refusal of a run that needs more memory than each device has.

    Args:
        plan: `plan.json`.
        model: of the run.
        can_force: whether it could be started all the same; what a compiler has refused cannot.
    """
    target = plan["target"]
    largest = ", ".join(f"{part['name']} {size(part['bytes'])}" for part in plan["parts"][:NAMED_PARTS])
    over = plan["need_bytes"] - plan["available_bytes"]
    return problem_of(
        DOES_NOT_FIT,
        file=model,
        what=(
            f"The run needs about {size(plan['need_bytes'])} on each device; {target['name']} has "
            f"{size(plan['available_bytes'])} ({target['memory_source']}), so it is "
            f"{size(over)} over."
        ),
        why=f"Largest parts: {largest}.",
        next=advice(plan["changes"]) + (" Or start it all the same with --force." if can_force else ""),
    )


def advice(changes_found: list[dict[str, Any]]) -> str:
    """Return what to change: the settings that suffice alone, else the largest savings to combine."""
    enough = [change for change in changes_found if change["fits"]]
    shown = (enough or changes_found)[:3]
    listed = "; ".join(f"--set {change['set']} saves {size(change['saves_bytes'])}" for change in shown)
    if enough:
        enough_alone = "each is enough alone" if len(shown) > 1 else "that is enough"
        return f"{listed}; {enough_alone}."
    if shown:
        return f"{listed}; none is enough alone, so combine them."
    return "Use a smaller model or a larger device."
