"""May this run start? What its programs need held against the device, as `plan.json` and as a refusal say it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evidence.run import layout
from evidence.run.hashes import sha256_json
from schemas.catalog import VERSION
from schemas.problems.problem import ProblemError
from trainer.config.tree import document_of
from trainer.data.prompts import Asked
from trainer.loop.task import Task
from trainer.planning.advice import deciding
from trainer.planning.changes import smaller_runs
from trainer.planning.compiled_answers import summed_answers
from trainer.planning.devices import PROCESS_BYTES, REFUSED, Devices
from trainer.planning.element_types import element_types_of
from trainer.planning.estimate.part import total_bytes
from trainer.planning.estimate.programs import estimate
from trainer.planning.program_answer import ProgramAnswer, parts_document
from trainer.planning.refusal import does_not_fit, in_words
from trainer.planning.verdict import verdict, worst
from trainer.recorder.recorder import Recorder, now


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
            "process_bytes": PROCESS_BYTES if devices.platform == "cpu" else None,
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


def record_plan(recorder: Recorder, plan: dict[str, Any]) -> None:
    """Write down the plan, and warn of a run that may run out of memory."""
    recorder.document(layout.PLAN, plan)
    level = "warning" if plan["verdict"] in ("tight", "does_not_fit") else "info"
    recorder.log(level, "planned", in_words(plan), need_bytes=plan["need_bytes"])
