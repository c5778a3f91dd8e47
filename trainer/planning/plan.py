"""May this run start? The estimate held against the device, as `plan.json` says it and as a refusal says it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from evidence.run.hashes import sha256_json
from schemas.catalog import VERSION
from schemas.problems.problem import Problem, ProblemError
from trainer.config.tree import Config, document_of
from trainer.model.spec import ModelSpec
from trainer.planning.devices import REFUSED, Devices
from trainer.planning.estimate import ERROR_FRACTION, Asked, estimate
from trainer.recorder.recorder import now

GIB = 2**30
MIB = 2**20
NAMED_PARTS = 4
"""Parts named in a refusal."""


def plan_run(
    config: Config,
    spec: ModelSpec,
    params: Mapping[str, Any],
    devices: Devices,
    *,
    forced: bool,
    asked: Asked | None = None,
) -> dict[str, Any]:
    """Return the document `plan.json`.

    Args:
        config: the run.
        spec: the model.
        params: its parameters by name; shapes suffice, so nothing is spent.
        devices: what it would run on.
        forced: whether `--force` was given.
        asked: what the evaluation asks. None: nothing is evaluated.
    """
    parts = estimate(config, spec, params, platform=devices.platform, devices=len(devices.list), asked=asked)
    need = sum(part.bytes for part in parts)
    return {
        "schema_version": VERSION,
        "made_at": now(),
        "config_sha256": sha256_json(document_of(config)),
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
        "changes": changes(config, spec, params, devices, need=need, asked=asked),
        "forced": forced,
    }


def verdict(need_bytes: int, available_bytes: int | None) -> str:
    """Return whether the need is within what there is."""
    if available_bytes is None:
        return "unknown"
    return "fits" if need_bytes <= available_bytes else "does_not_fit"


def changes(
    config: Config, spec: ModelSpec, params: Mapping[str, Any], devices: Devices, *, need: int, asked: Asked | None
) -> list[dict[str, Any]]:
    """Return the settings that would make the run smaller, each estimated anew, largest saving first."""
    found = []
    for setting, changed in smaller_runs(config):
        parts = estimate(changed, spec, params, platform=devices.platform, devices=len(devices.list), asked=asked)
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
    if config.batch.microbatch_size > 1:
        yield "batch.microbatch_size=1", replace(config, batch=replace(config.batch, microbatch_size=1))
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
    need = f"needs about {size_in_words(plan['need_bytes'])} on each device, within {plan['error_fraction']:.0%}"
    if plan["available_bytes"] is None:
        return f"{need}; the device does not say what it has"
    verdicts = {"fits": "it fits", "does_not_fit": "it does not fit"}
    return f"{need}, of {size_in_words(plan['available_bytes'])}: {verdicts[plan['verdict']]}"


def does_not_fit(plan: dict[str, Any], *, model: str) -> Problem:
    """Return the refusal of a run that needs more memory than each device has."""
    target = plan["target"]
    largest = ", ".join(f"{part['name']} {size_in_words(part['bytes'])}" for part in plan["parts"][:NAMED_PARTS])
    over = plan["need_bytes"] - plan["available_bytes"]
    return Problem(
        code="TP710",
        severity="error",
        file=model,
        what=(
            f"The run needs about {size_in_words(plan['need_bytes'])} on each device; {target['name']} has "
            f"{size_in_words(plan['available_bytes'])} ({target['memory_source']}), so it is "
            f"{size_in_words(over)} over."
        ),
        why=f"Largest parts: {largest}.",
        next=advice(plan["changes"]),
    )


def advice(changes_found: list[dict[str, Any]]) -> str:
    """Return what to change: the settings that suffice alone, else the largest savings to combine."""
    enough = [change for change in changes_found if change["fits"]]
    shown = (enough or changes_found)[:3]
    listed = "; ".join(f"--set {change['set']} saves {size_in_words(change['saves_bytes'])}" for change in shown)
    if enough:
        enough_alone = "each is enough alone" if len(shown) > 1 else "that is enough"
        return f"{listed}; {enough_alone}. Or start it all the same with --force."
    if shown:
        return f"{listed}; none is enough alone, so combine them. Or start it all the same with --force."
    return "Use a smaller model or a larger device. Or start it all the same with --force."


def size_in_words(size: int) -> str:
    """Return bytes as GiB, or as MiB below one: 3·2²⁹ is `1.50 GiB`, 3·2¹⁹ is `1.5 MiB`."""
    return f"{size / GIB:.2f} GiB" if size >= GIB else f"{size / MIB:.1f} MiB"
