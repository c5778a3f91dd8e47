"""What the plan said beside what was observed, one line for each figure that both know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemas.problems import formats
from schemas.reading.values import flag_at, number_at, objects_at, text_at

Document = Mapping[str, Any] | None


@dataclass(frozen=True, kw_only=True)
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
    return [_device(plan, manifest), _memory(plan, manifest), _verdict(plan, manifest)]


def parts(plan: Document) -> list[tuple[str, str, str]]:
    """Return what the planned memory is for, largest first: name, size, and the multiplication behind it."""
    return [
        (text_at(part, "name") or "?", formats.size(number_at(part, "bytes")), text_at(part, "because") or "")
        for part in objects_at(plan, "parts")
    ]


def _device(plan: Document, manifest: Document) -> Forecast:
    planned, observed = text_at(plan, "target", "name"), text_at(manifest, "devices", "kind")
    return Forecast(
        what="Device",
        planned=_times(number_at(plan, "target", "devices"), planned),
        observed=_times(number_at(manifest, "devices", "count"), observed),
        remark="" if planned == observed else "Planned for another device.",
    )


def _memory(plan: Document, manifest: Document) -> Forecast:
    planned, observed = number_at(plan, "need_bytes"), number_at(manifest, "result", "peak_memory_bytes")
    known = number_at(plan, "error_fraction")
    remark = ""
    if text_at(manifest, "devices", "platform") == "cpu":
        remark = "On a CPU the observed figure is of the whole process, Python and libraries included."
    elif planned and observed is not None:
        off = (observed - planned) / planned
        within = known is not None and abs(off) <= known
        remark = f"Observed is {off * 100:+.0f} % of the plan" + (", within its known error." if within else ".")
    return Forecast(
        what="Memory on each device",
        planned=formats.size(planned) + (f" ± {known * 100:.0f} %" if known is not None else ""),
        observed=formats.size(observed),
        remark=remark,
    )


def _verdict(plan: Document, manifest: Document) -> Forecast:
    verdict = (text_at(plan, "verdict") or "unknown").replace("_", " ")
    stopped = text_at(manifest, "result", "stopped_because")
    return Forecast(
        what="Fits",
        planned=f"{verdict}, {formats.size(number_at(plan, 'available_bytes'))} available",
        observed=stopped or formats.NOTHING,
        remark="Started although the plan said that it does not fit." if flag_at(plan, "forced") is True else "",
    )


def _times(count: float | None, name: str | None) -> str:
    return formats.NOTHING if name is None else f"{formats.count(count)} × {name}"
