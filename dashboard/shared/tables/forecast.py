"""Forecasts of the plan beside what was observed, one line for each figure that both know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dashboard.shared.tables.planned import band_at
from dashboard.shared.words.verdicts import part_name, program_name
from evidence.effective import observed_memory
from schemas import formats
from schemas.reading import get_bool, get_number, get_objects, get_str

Document = Mapping[str, Any] | None


@dataclass(frozen=True)
class Forecast:
    """One figure, planned and observed, and a remark on how they relate."""

    what: str
    planned: str
    observed: str
    remark: str


def forecasts(plan: Document, manifest: Document) -> list[Forecast]:
    """Return the comparison; empty without a plan."""
    if plan is None:
        return []
    return [_device(plan, manifest), _memory(plan, manifest), *_step(plan, manifest), _verdict(plan, manifest)]


def parts(plan: Document) -> list[tuple[str, str, str]]:
    """Return what the planned memory is for, largest first: name, size, and the multiplication behind it."""
    return [
        (part_name(get_str(part, "name")), formats.size(get_number(part, "bytes")), get_str(part, "because") or "")
        for part in get_objects(plan, "parts")
    ]


def _device(plan: Document, manifest: Document) -> Forecast:
    planned, observed = get_str(plan, "target", "name"), get_str(manifest, "devices", "kind")
    return Forecast(
        "Device",
        _times(get_number(plan, "target", "devices"), planned),
        _times(get_number(manifest, "devices", "count"), observed),
        "Planned for another device." if planned and observed and planned != observed else "",
    )


def _memory(plan: Document, manifest: Document) -> Forecast:
    seen = observed_memory(plan, manifest)
    planned, known = get_number(plan, "need_bytes"), get_number(plan, "error_fraction")
    what, observed, remark = "Memory on each device", None, ""
    if seen is not None and seen.planned_bytes:
        planned, known, observed = seen.planned_bytes, seen.error_fraction, seen.observed_bytes
        what = "Memory of the process" if seen.of == "the process" else what
        off = (observed - planned) / planned
        within = known is not None and abs(off) <= known
        more = "more" if off >= 0 else "less"
        remark = f"{abs(off) * 100:.1f} % {more} than planned" + (", within its known error." if within else ".")
        remark += f" {program_name(seen.part)} took most." if seen.part else ""
    elif (whole := get_number(manifest, "result", "peak_memory_bytes")) is not None:
        remark = (
            f"Not compared: the process took {formats.size(whole)} at most, with Python and all libraries. The plan is "
            "of the run's arrays."
        )
    return Forecast(
        what,
        formats.size(planned) + (f" ± {known * 100:.0f} %" if known is not None and planned else ""),
        formats.size(observed),
        remark,
    )


def _step(plan: Document, manifest: Document) -> list[Forecast]:
    """Return the time of a step; nothing where the plan states none."""
    band = band_at(plan, "time", "step_seconds")
    if band is None:
        return []
    seconds, steps = get_number(manifest, "result", "train_seconds"), get_number(manifest, "training", "steps_done")
    observed = seconds / steps if seconds and steps else None
    remark = ""
    if observed is not None:
        within = band.low <= observed <= band.high
        off = "within the band" if within else "outside the band"
        remark = (
            f"Observed is {formats.number(observed / band.likely, 3)} × what was likely, {off}." if band.likely else ""
        )
    return [
        Forecast(
            "Time of a step",
            f"{formats.duration(band.likely)} ({formats.duration(band.low)} to {formats.duration(band.high)})",
            formats.duration(observed),
            remark,
        )
    ]


def _verdict(plan: Document, manifest: Document) -> Forecast:
    verdict = (get_str(plan, "verdict") or "unknown").replace("_", " ")
    stopped = get_str(manifest, "result", "stopped_because")
    return Forecast(
        "Fits",
        f"{verdict}, {formats.size(get_number(plan, 'available_bytes'))} available",
        stopped or formats.NOTHING,
        "Started although the plan said that it does not fit." if get_bool(plan, "forced") is True else "",
    )


def _times(count: float | None, name: str | None) -> str:
    return formats.NOTHING if name is None else f"{formats.count(count)} × {name}"
