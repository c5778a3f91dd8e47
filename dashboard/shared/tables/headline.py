"""The main figures of a run, each with a detail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dashboard.shared.files import Series
from dashboard.shared.tables.planned import get_band
from dashboard.shared.words import program_name
from evidence.effective import peak_memory, planned_memory, typical
from schemas.formats import (
    NOTHING,
    count,
    duration,
    duration_range,
    number,
    percent,
    percent_range,
    rate,
    short_count,
    size,
)
from schemas.reading import get_bool, get_number, get_path, get_str, seconds_between

Document = Mapping[str, Any] | None
Row = tuple[str, str, str, str]


class HeadlineFigure(NamedTuple):
    """A label, a value with its unit, and a detail, which may be empty."""

    label: str
    value: str
    detail: str = ""


def figures(
    manifest: Document, eval_summary: Document, plan: Document, series: Series, *, is_sound: bool = True
) -> list[HeadlineFigure]:
    """Return the main figures of a run, with a dash for those that were not measured.

    Figures of a running run come from `series`, if the metric rows are sound. Withheld figures are already removed from
    manifest and eval summary (`evidence.report.withhold_faulty_figures`).
    """
    live = series if is_sound and get_str(manifest, "status") in {None, "running"} and series.rows else None
    result, training = get_path(manifest, "result"), get_path(manifest, "training")
    steps = series.last("step") or get_number(training, "steps_done")
    tokens, loss = get_number(result, "tokens_seen"), get_number(result, "last_loss")
    if live is not None:
        tokens, loss = live.last("tokens_seen"), live.last("loss")
    seconds = seconds_between(get_str(manifest, "started_at") or "", get_str(manifest, "finished_at") or "")
    if seconds is None or seconds < 0:
        seconds = series.last("seconds")
    first, best = get_number(result, "first_loss"), get_number(result, "best_loss")
    losses = [_text("from {}", number, first), _text("best {}", number, best)]
    last = HeadlineFigure("Last loss", number(loss), ", ".join(filter(None, losses)))
    if series.has("reward_mean") and is_sound:  # The loss of GRPO is about 0 at every step.
        rewards = series.columns["reward_mean"]
        last = HeadlineFigure("Last reward", number(rewards[-1]), f"from {number(rewards[0])}")
    peak = peak_memory(manifest)
    planned = planned_memory(plan, peak.scope) if peak is not None else None
    scope = "" if peak is None else f"{peak.scope}{f'; planned {planned.as_text()}' if planned else ''}"
    step_tokens, train_seconds = get_number(training, "tokens_per_step"), get_number(result, "train_seconds")
    return [
        HeadlineFigure("Steps", count(steps), _text("of {} planned", count, get_number(training, "steps_planned"))),
        last,
        _score(eval_summary),
        HeadlineFigure("Tokens seen", short_count(tokens), _text("{} padded tokens per step", count, step_tokens)),
        _speed(series if is_sound else None, is_live=live is not None),
        HeadlineFigure("Peak memory", size(peak.bytes if peak else None), scope),
        HeadlineFigure("Duration", duration(seconds), _text("{} of training", duration, train_seconds)),
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


def _speed(series: Series | None, *, is_live: bool) -> HeadlineFigure:
    """Return the typical speed of a finished run, or the speed of the last step of a running one."""
    speed = step = None
    if series is not None:
        read = series.last if is_live else lambda name: typical(series.columns[name])
        speed, step = read("tokens_per_second"), read("step_seconds")
    detail = _text("{} for the last step" if is_live else "{} per step, without the first", duration, step)
    return HeadlineFigure("Speed", rate(speed, "tokens"), detail)


def compare_with_plan(plan: Document, manifest: Document, series: Series | None = None) -> list[Row]:
    """Compare device, memory, step time and verdict of a plan with a run; empty without a plan.

    Returns:
        Rows of figure, planned value, observed value and remark.
    """
    if plan is None:
        return []
    planned, observed = get_str(plan, "target", "name"), get_str(manifest, "devices", "kind")
    device = (
        "Device",
        f"{count(get_number(plan, 'target', 'devices'))} × {planned}" if planned else NOTHING,
        f"{count(get_number(manifest, 'devices', 'count'))} × {observed}" if observed else NOTHING,
        "The plan is for another device." if planned and observed and planned != observed else "",
    )
    verdict = (get_str(plan, "verdict") or "unknown").replace("_", " ")
    fits = (
        "Fits",
        f"{verdict}, {size(get_number(plan, 'available_bytes'))} available",
        get_str(manifest, "result", "stopped_because") or NOTHING,
        "Started with --force, although the plan does not fit." if get_bool(plan, "forced") is True else "",
    )
    return [device, _compare_memory(plan, manifest), *_compare_step(plan, series), fits]


def _compare_memory(plan: Document, manifest: Document) -> Row:
    peak = peak_memory(manifest)
    planned = planned_memory(plan, peak.scope if peak else "one device")
    text, remark = NOTHING, ""
    error = planned.error_fraction if planned is not None else None
    if planned is not None:
        text = planned.as_text() + ("" if error is None else f" ± {error * 100:.0f} %")
    if peak is not None and planned is not None and planned.bytes:
        off = (peak.bytes - planned.bytes) / planned.bytes
        remark = f"{abs(off) * 100:.1f} % {'more' if off >= 0 else 'less'} than planned"
        remark += "." if error is None else f", {'within' if abs(off) <= error else 'outside'} the known error."
        remark += f" Peak in {program_name(peak.part)}." if peak.part else ""
    elif peak is not None and peak.scope == "whole process":
        remark = "Not compared, because the process includes Python and all libraries."
    return "Peak memory", text, peak.as_text() if peak else NOTHING, remark


def _compare_step(plan: Document, series: Series | None) -> list[Row]:
    band = get_band(plan, "time", "step_seconds")
    if band is None:
        return []
    observed = typical(series.columns["step_seconds"]) if series is not None else None
    remark = ""
    if observed is not None:
        ratio = f"{number(observed / band.likely, 3)} × the likely time, " if band.likely else ""
        remark = f"{ratio}{'within' if band.low <= observed <= band.high else 'outside'} the planned range."
    planned = f"{duration(band.likely)} ({duration_range(band.low, band.high)})"
    return [("Step time", planned, duration(observed), remark)]
