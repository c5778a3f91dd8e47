"""Compare the plan of a run with the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dashboard.shared.tables.planned import band_at
from dashboard.shared.words.verdicts import part_name, program_name
from evidence.effective import peak_memory, planned_memory
from schemas import formats
from schemas.reading import get_bool, get_number, get_objects, get_str

Forecast = tuple[str, str, str, str]
"""A figure, its planned value, its observed value, and a remark."""


def forecasts(plan: Document, manifest: Document) -> list[Forecast]:
    """Compare devices, memory, step time and verdict of a plan with a run; empty without a plan."""
    if plan is None:
        return []
    return [_device(plan, manifest), _memory_forecast(plan, manifest), *_step(plan, manifest), _verdict(plan, manifest)]


def parts(plan: Document) -> list[tuple[str, str, str]]:
    """Return the parts of the planned memory in the order of the plan: name, size, and how it was computed."""
    return [
        (part_name(get_str(part, "name")), formats.size(get_number(part, "bytes")), get_str(part, "because") or "")
        for part in get_objects(plan, "parts")
    ]


def _device(plan: Document, manifest: Document) -> Forecast:
    planned, observed = get_str(plan, "target", "name"), get_str(manifest, "devices", "kind")
    remark = "The plan is for another device." if planned and observed and planned != observed else ""
    return (
        "Device",
        _times(get_number(plan, "target", "devices"), planned),
        _times(get_number(manifest, "devices", "count"), observed),
        remark,
    )


def _times(count: float | None, name: str | None) -> str:
    return formats.NOTHING if name is None else f"{formats.count(count)} × {name}"


def _memory_forecast(plan: Document, manifest: Document) -> Forecast:
    peak = peak_memory(manifest)
    planned = planned_memory(plan, peak.scope if peak else "one device")
    text, remark = formats.NOTHING, ""
    if planned is not None:
        error = planned.error_fraction
        text = formats.size(planned.bytes) + ("" if error is None else f" ± {error * 100:.0f} %")
    if peak is not None and planned is not None and planned.bytes:
        off = (peak.bytes - planned.bytes) / planned.bytes
        is_within = planned.error_fraction is not None and abs(off) <= planned.error_fraction
        remark = f"{abs(off) * 100:.1f} % {'more' if off >= 0 else 'less'} than planned"
        remark += ", within the known error." if is_within else "."
        remark += f" Peak in {program_name(peak.part)}." if peak.part else ""
    elif peak is not None and peak.scope == "whole process":
        remark = "Not compared, because the process includes Python and all libraries."
    return "Peak memory", text, peak.as_text() if peak else formats.NOTHING, remark


def _step(plan: Document, manifest: Document) -> list[Forecast]:
    """Return the step time, or nothing if it was not planned."""
    band = band_at(plan, "time", "step_seconds")
    if band is None:
        return []
    seconds, steps = get_number(manifest, "result", "train_seconds"), get_number(manifest, "training", "steps_done")
    observed = seconds / steps if seconds and steps else None
    remark = ""
    if observed is not None:
        where = "within" if band.low <= observed <= band.high else "outside"
        ratio = f"{formats.number(observed / band.likely, 3)} × the likely time, " if band.likely else ""
        remark = f"{ratio}{where} the planned range."
    planned = f"{formats.duration(band.likely)} ({formats.duration(band.low)} to {formats.duration(band.high)})"
    return [("Step time", planned, formats.duration(observed), remark)]


def _verdict(plan: Document, manifest: Document) -> Forecast:
    verdict = (get_str(plan, "verdict") or "unknown").replace("_", " ")
    planned = f"{verdict}, {formats.size(get_number(plan, 'available_bytes'))} available"
    remark = "Started with --force, although the plan does not fit." if get_bool(plan, "forced") is True else ""
    return "Fits", planned, get_str(manifest, "result", "stopped_because") or formats.NOTHING, remark
