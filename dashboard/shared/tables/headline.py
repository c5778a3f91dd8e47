"""The main figures of a run, each with a detail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dashboard.shared.files import Series
from dashboard.shared.tables.planned import get_band
from dashboard.shared.words import part_name, program_name
from evidence.effective import peak_memory, planned_memory
from schemas import formats
from schemas.formats import NOTHING, count, duration, number, percent, percent_range, rate, short_count, size
from schemas.reading import get_bool, get_number, get_objects, get_path, get_str, seconds_between

Document = Mapping[str, Any] | None


@dataclass(frozen=True)
class HeadlineFigure:
    """A label, a value with its unit, and a detail, which may be empty."""

    label: str
    value: str
    detail: str = ""


def figures(
    manifest: Document, eval_summary: Document, plan: Document, series: Series, *, is_sound: bool = True
) -> list[HeadlineFigure]:
    """Return the main figures of a run, with a dash for those that were not measured.

    Args:
        manifest: The manifest without withheld figures, see `evidence.report.trace`.
        eval_summary: The eval summary, or None if it is missing or withheld.
        plan: The plan.
        series: The metric rows, from which the figures of a running run are read.
        is_sound: Whether the metric rows may be shown.
    """
    live = series if is_sound and get_str(manifest, "status") in {None, "running"} else None
    result, training = get_path(manifest, "result"), get_path(manifest, "training")
    steps = series.last("step") or get_number(training, "steps_done")
    tokens = live.last("tokens_seen") if live is not None and live.rows else get_number(result, "tokens_seen")
    seconds = seconds_between(get_str(manifest, "started_at") or "", get_str(manifest, "finished_at") or "")
    if seconds is None or seconds < 0:
        seconds = series.last("seconds")
    return [
        HeadlineFigure("Steps", count(steps), _text("of {} planned", count, get_number(training, "steps_planned"))),
        _reward(series) if series.has("reward_mean") and is_sound else _loss(result, live),
        _score(eval_summary),
        HeadlineFigure(
            "Tokens seen", short_count(tokens), _text("{} per step", count, get_number(training, "tokens_per_step"))
        ),
        _speed(result, training, live),
        _memory(manifest, plan),
        HeadlineFigure(
            "Duration", duration(seconds), _text("{} of training", duration, get_number(result, "train_seconds"))
        ),
    ]


def progress(series: Series, planned: float) -> tuple[float, str]:
    """Return the fraction of steps that a running run has done, and a text with steps, loss and remaining time."""
    done, loss, seconds = series.last("step") or 0, series.last("loss"), series.last("step_seconds")
    text = f"{count(done)} of {count(planned)} steps{_text(', loss {}', number, loss)}"
    if seconds is not None and done < planned:
        text += f", about {duration((planned - done) * seconds)} of training left"
    return min(1.0, done / planned), text


def _text(form: str, write: Callable[[float], str], value: float | None) -> str:
    """Format a value with its unit and put it into the form, or return an empty text for None."""
    return "" if value is None else form.format(write(value))


def _loss(result: Document, live: Series | None) -> HeadlineFigure:
    last = live.last("loss") if live is not None and live.rows else get_number(result, "last_loss")
    details = (
        _text("from {}", number, get_number(result, "first_loss")),
        _text("best {}", number, get_number(result, "best_loss")),
    )
    return HeadlineFigure("Last loss", number(last), ", ".join(filter(None, details)))


def _reward(series: Series) -> HeadlineFigure:
    """Return the last reward of a GRPO run, whose loss is about 0 at every step."""
    rewards = series.columns["reward_mean"]
    return HeadlineFigure("Last reward", number(rewards[-1]), f"from {number(rewards[0])}")


def _score(eval_summary: Document) -> HeadlineFigure:
    if eval_summary is None:
        return HeadlineFigure("Exact match", NOTHING, "not evaluated")
    exact, lenient = (get_path(eval_summary, "metrics", f"{name}_match") for name in ("exact", "lenient"))
    untrained_exact, untrained_lenient = (
        _text("untrained {}", percent, get_number(eval_summary, "baseline", "metrics", f"{name}_match", "value"))
        for name in ("exact", "lenient")
    )
    low, high = (get_number(exact, "interval", end) for end in ("low", "high"))
    details = [f"{percent_range(low, high)}, n = {count(get_number(exact, 'n'))}", untrained_exact]
    if (value := get_number(lenient, "value")) is not None:
        details.append(", ".join(filter(None, [f"lenient {percent(value)}", untrained_lenient])))
    return HeadlineFigure("Exact match", percent(get_number(exact, "value")), "; ".join(filter(None, details)))


def _speed(result: Document, training: Document, live: Series | None) -> HeadlineFigure:
    """Return the mean speed of a finished run, or the speed of the last step of a running one."""
    tokens, seconds, steps = (
        get_number(result, "tokens_seen"),
        get_number(result, "train_seconds"),
        get_number(training, "steps_done"),
    )
    if tokens and seconds and steps:
        return HeadlineFigure("Speed", rate(tokens / seconds, "tokens"), f"{number(seconds / steps, 3)} s per step")
    if live is None:
        return HeadlineFigure("Speed", NOTHING)
    step = live.last("step_seconds")
    detail = "" if step is None else f"{number(step, 3)} s for the last step"
    return HeadlineFigure("Speed", rate(live.last("tokens_per_second"), "tokens"), detail)


def _memory(manifest: Document, plan: Document) -> HeadlineFigure:
    peak = peak_memory(manifest)
    if peak is None:
        return HeadlineFigure("Peak memory", NOTHING)
    planned = planned_memory(plan, peak.scope)
    detail = peak.scope if planned is None else f"{peak.scope}, planned {size(planned.bytes)}"
    return HeadlineFigure("Peak memory", size(peak.bytes), detail)


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
    band = get_band(plan, "time", "step_seconds")
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
