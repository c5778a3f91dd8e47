"""May this run start? The estimate held against the device, as `plan.json` says it and as a refusal says it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from evidence.run import layout
from evidence.run.hashes import sha256_json
from schemas.catalog import VERSION
from schemas.problems.formats import size
from schemas.problems.problem import Problem, ProblemError
from schemas.problems.rule import Rule, problem_of
from trainer.config.tree import Config, document_of
from trainer.data.prompts import Asked
from trainer.loop.task import Task
from trainer.objectives import objective_of
from trainer.planning.devices import REFUSED, Devices
from trainer.planning.estimate import ERROR_FRACTION, estimate
from trainer.recorder.recorder import Recorder, now

DOES_NOT_FIT = Rule(
    "TP710", "Does not fit", "The planned memory exceeds what each device has.", "Apply a change that is named."
)

NAMED_PARTS = 4
"""Parts named in a refusal."""


def plan_run(task: Task, devices: Devices, *, forced: bool, asked: Asked | None = None) -> dict[str, Any]:
    """Return the document `plan.json`.

    Args:
        task: the run; only the shapes of its parameters are looked at, so nothing is spent.
        devices: what it would run on.
        forced: whether `--force` was given.
        asked: what the evaluation asks. None: nothing is evaluated.
    """
    parts = estimate(task, platform=devices.platform, asked=asked)
    need = sum(part.bytes for part in parts)
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
        "method": "closed_form",
        "verdict": verdict(need, devices.memory_bytes),
        "need_bytes": need,
        "available_bytes": devices.memory_bytes,
        "error_fraction": ERROR_FRACTION,
        "parts": [{"name": part.name, "bytes": part.bytes, "because": part.because} for part in parts],
        "changes": changes(task, devices, need=need, asked=asked),
        "forced": forced,
    }


def verdict(need_bytes: int, available_bytes: int | None) -> str:
    """Return whether the need, within its error, is within what there is.

    fits: all of the band `need · (1 ± ERROR_FRACTION)` is below; does_not_fit: all of it is above; tight: the limit
    lies inside it.
    """
    if available_bytes is None:
        return "unknown"
    if need_bytes * (1 + ERROR_FRACTION) <= available_bytes:
        return "fits"
    return "tight" if need_bytes * (1 - ERROR_FRACTION) <= available_bytes else "does_not_fit"


def changes(task: Task, devices: Devices, *, need: int, asked: Asked | None) -> list[dict[str, Any]]:
    """Return the settings that would make the run smaller, each estimated anew, largest saving first."""
    found = []
    for setting, changed in smaller_runs(task.config):
        parts = estimate(task.changed(changed), platform=devices.platform, asked=asked)
        saved = need - sum(part.bytes for part in parts)
        if saved > 0:
            fits = verdict(need - saved, devices.memory_bytes) == "fits"
            found.append({"set": setting, "saves_bytes": saved, "fits": fits})
    return sorted(found, key=lambda change: -change["saves_bytes"])


def smaller_runs(config: Config) -> Iterator[tuple[str, Config]]:
    """Yield settings that may save memory, each with the configuration that has it."""
    if config.optimizer.name == "adamw":
        yield "optimizer.name=adafactor", replace(config, optimizer=replace(config.optimizer, name="adafactor"))
    if config.optimizer.max_grad_norm is not None:
        yield (
            "optimizer.max_grad_norm=null",
            replace(config, optimizer=replace(config.optimizer, max_grad_norm=None)),
        )
    if config.precision.params == "float32":
        yield "precision.params=bfloat16", replace(config, precision=replace(config.precision, params="bfloat16"))
    if config.precision.compute == "float32":
        yield "precision.compute=bfloat16", replace(config, precision=replace(config.precision, compute="bfloat16"))
    if not config.memory.donate:
        yield "memory.donate=true", replace(config, memory=replace(config.memory, donate=True))
    if config.memory.remat == "none":
        yield "memory.remat=layer", replace(config, memory=replace(config.memory, remat="layer"))
    if config.memory.loss_chunk_tokens is None or config.memory.loss_chunk_tokens > 256:
        yield "memory.loss_chunk_tokens=256", replace(config, memory=replace(config.memory, loss_chunk_tokens=256))
    yield from fewer_tokens(config)


def fewer_tokens(config: Config) -> Iterator[tuple[str, Config]]:
    """Yield settings under which fewer tokens are worked on at a time."""
    least = 2 if objective_of(config).takes_pairs else 1
    if config.batch.microbatch_size > least:
        yield f"batch.microbatch_size={least}", replace(config, batch=replace(config.batch, microbatch_size=least))
    if config.evaluation.batch_size > 1:
        yield "evaluation.batch_size=1", replace(config, evaluation=replace(config.evaluation, batch_size=1))
    if config.data.max_length > 256:
        half = config.data.max_length // 2
        yield f"data.max_length={half}", replace(config, data=replace(config.data, max_length=half))


def refuse_what_does_not_fit(plan: dict[str, Any], *, model: str) -> None:
    """Refuse a run whose plan says that it does not fit, unless it is forced.

    Raises:
        ProblemError: exit code 3, naming the largest parts and what to change.
    """
    if plan["verdict"] == "does_not_fit" and not plan["forced"]:
        raise ProblemError([does_not_fit(plan, model=model)], exit_code=REFUSED)


def in_words(plan: dict[str, Any]) -> str:
    """Return the plan as one line."""
    need = f"needs about {size(plan['need_bytes'])} on each device, within {plan['error_fraction']:.0%}"
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


def does_not_fit(plan: dict[str, Any], *, model: str) -> Problem:
    """Return the refusal of a run that needs more memory than each device has."""
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
        next=advice(plan["changes"]),
    )


def advice(changes_found: list[dict[str, Any]]) -> str:
    """Return what to change: the settings that suffice alone, else the largest savings to combine."""
    enough = [change for change in changes_found if change["fits"]]
    shown = (enough or changes_found)[:3]
    listed = "; ".join(f"--set {change['set']} saves {size(change['saves_bytes'])}" for change in shown)
    if enough:
        enough_alone = "each is enough alone" if len(shown) > 1 else "that is enough"
        return f"{listed}; {enough_alone}. Or start it all the same with --force."
    if shown:
        return f"{listed}; none is enough alone, so combine them. Or start it all the same with --force."
    return "Use a smaller model or a larger device. Or start it all the same with --force."
