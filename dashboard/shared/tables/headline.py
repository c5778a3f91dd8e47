"""The main figures of a run, each with a detail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dashboard.shared.reading.series import Series
from evidence.effective import peak_memory, planned_memory
from schemas import formats
from schemas.reading import get_number, get_str, seconds_between

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
    return [
        _steps(manifest, series),
        _reward(series) if series.has("reward_mean") and is_sound else _loss(manifest, live),
        _score(eval_summary),
        _tokens(manifest, live),
        _speed(manifest, live),
        _memory(manifest, plan),
        _duration(manifest, series),
    ]


def progress(series: Series, planned: float) -> tuple[float, str]:
    """Return the fraction of steps that a running run has done, and a text with steps, loss and remaining time."""
    done, loss, seconds = series.last("step") or 0, series.last("loss"), series.last("step_seconds")
    text = f"{formats.count(done)} of {formats.count(planned)} steps"
    if loss is not None:
        text += f", loss {formats.number(loss)}"
    if seconds is not None and done < planned:
        text += f", about {formats.duration((planned - done) * seconds)} of training left"
    return min(1.0, done / planned), text


def _steps(manifest: Document, series: Series) -> HeadlineFigure:
    done = series.last("step") or get_number(manifest, "training", "steps_done")
    planned = get_number(manifest, "training", "steps_planned")
    return HeadlineFigure(
        "Steps", formats.count(done), f"of {formats.count(planned)} planned" if planned is not None else ""
    )


def _loss(manifest: Document, live: Series | None) -> HeadlineFigure:
    first, best = get_number(manifest, "result", "first_loss"), get_number(manifest, "result", "best_loss")
    last = live.last("loss") if live is not None and live.rows else get_number(manifest, "result", "last_loss")
    details = [f"from {formats.number(first)}"] if first is not None else []
    if best is not None:
        details.append(f"best {formats.number(best)}")
    return HeadlineFigure("Last loss", formats.number(last), ", ".join(details))


def _reward(series: Series) -> HeadlineFigure:
    """Return the last reward of a GRPO run, whose loss is about 0 at every step."""
    rewards = series.columns["reward_mean"]
    return HeadlineFigure("Last reward", formats.number(rewards[-1]), f"from {formats.number(rewards[0])}")


def _score(eval_summary: Document) -> HeadlineFigure:
    if eval_summary is None:
        return HeadlineFigure("Exact match", formats.NOTHING, "not evaluated")
    low = get_number(eval_summary, "metrics", "exact_match", "interval", "low")
    high = get_number(eval_summary, "metrics", "exact_match", "interval", "high")
    count = get_number(eval_summary, "metrics", "exact_match", "n")
    baseline = get_number(eval_summary, "baseline", "metrics", "exact_match", "value")
    details = [f"{formats.percent_range(low, high)}, n = {formats.count(count)}"]
    if baseline is not None:
        details.append(f"untrained {formats.percent(baseline)}")
    if (lenient := get_number(eval_summary, "metrics", "lenient_match", "value")) is not None:
        untrained = get_number(eval_summary, "baseline", "metrics", "lenient_match", "value")
        before = "" if untrained is None else f", untrained {formats.percent(untrained)}"
        details.append(f"lenient {formats.percent(lenient)}{before}")
    return HeadlineFigure(
        "Exact match", formats.percent(get_number(eval_summary, "metrics", "exact_match", "value")), "; ".join(details)
    )


def _tokens(manifest: Document, live: Series | None) -> HeadlineFigure:
    seen = live.last("tokens_seen") if live is not None and live.rows else get_number(manifest, "result", "tokens_seen")
    per_step = get_number(manifest, "training", "tokens_per_step")
    return HeadlineFigure(
        "Tokens seen", formats.short_count(seen), f"{formats.count(per_step)} per step" if per_step is not None else ""
    )


def _speed(manifest: Document, live: Series | None) -> HeadlineFigure:
    """Return the mean speed of a finished run, or the speed of the last step of a running one."""
    tokens, seconds = get_number(manifest, "result", "tokens_seen"), get_number(manifest, "result", "train_seconds")
    steps = get_number(manifest, "training", "steps_done")
    if tokens and seconds and steps:
        mean = f"{formats.number(seconds / steps, 3)} s per step, on average"
        return HeadlineFigure("Speed", formats.rate(tokens / seconds, "tokens"), mean)
    if live is None:
        return HeadlineFigure("Speed", formats.NOTHING)
    step = live.last("step_seconds")
    return HeadlineFigure(
        "Speed",
        formats.rate(live.last("tokens_per_second"), "tokens"),
        f"{formats.number(step, 3)} s for the last step" if step is not None else "",
    )


def _memory(manifest: Document, plan: Document) -> HeadlineFigure:
    peak = peak_memory(manifest)
    if peak is None:
        return HeadlineFigure("Peak memory", formats.NOTHING)
    planned = planned_memory(plan, peak.scope)
    detail = peak.scope if planned is None else f"{peak.scope}, planned {formats.size(planned.bytes)}"
    return HeadlineFigure("Peak memory", formats.size(peak.bytes), detail)


def _duration(manifest: Document, series: Series) -> HeadlineFigure:
    whole = seconds_between(get_str(manifest, "started_at") or "", get_str(manifest, "finished_at") or "")
    training = get_number(manifest, "result", "train_seconds")
    if whole is None or whole < 0:
        whole = series.last("seconds")
    return HeadlineFigure(
        "Duration", formats.duration(whole), f"{formats.duration(training)} of training" if training is not None else ""
    )
