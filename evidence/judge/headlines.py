"""The handful of figures by which a run is known: what the report, the comparison and the pages put first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from evidence.records.facts import Document, Facts
from evidence.rules.foreign.figures import Figures, figures_of

Unit = Literal["count", "nats", "tokens per second", "bytes", "seconds", "fraction"]
Number = int | float

NOTHING = "–"
"""Shown for a value that is not there; never 0."""


@dataclass(frozen=True, kw_only=True)
class Headline:
    """One figure of one run."""

    name: str
    """What it is, in words."""
    unit: Unit
    """Unit of value, low and high."""
    value: Number | None
    """The figure. None: not measured."""
    low: float | None = None
    """Lower end of the 95 % interval. None: the figure has none."""
    high: float | None = None
    """Upper end of the 95 % interval."""
    of: int | None = None
    """What a count is out of: steps planned, items asked. None: nothing."""

    def as_text(self) -> str:
        """Return the figure with its unit: `0.612 (0.515–0.702), n = 100`, `2.10 GiB`, `–` for none."""
        if self.value is None:
            return NOTHING
        text = _WRITTEN[self.unit](self.value)
        if self.low is not None and self.high is not None:
            text += f" ({_WRITTEN[self.unit](self.low)}–{_WRITTEN[self.unit](self.high)})"
        if self.of is not None:
            text += f", n\u00a0=\u00a0{self.of:,}" if self.unit == "fraction" else f" of {self.of:,}"
        return text


def headlines(facts: Facts) -> tuple[Headline, ...]:
    """Return the figures of a run, always the same ones in the same order.

    Those of another tool's run are as its files state them; its scores are not computed again, so it has none.
    """
    view = facts.run.foreign()
    training, result = _own(facts) if view is None else _of_another_tool(figures_of(view))
    seconds, tokens = result.get("train_seconds"), result.get("tokens_seen")
    return (
        Headline(
            name="optimizer steps", unit="count", value=training.get("steps_done"), of=training.get("steps_planned")
        ),
        Headline(name="tokens seen", unit="count", value=tokens),
        Headline(name="first loss", unit="nats", value=result.get("first_loss")),
        Headline(name="last loss", unit="nats", value=result.get("last_loss")),
        Headline(name="best loss", unit="nats", value=result.get("best_loss")),
        Headline(name="speed", unit="tokens per second", value=tokens / seconds if tokens and seconds else None),
        Headline(name="peak memory of one device", unit="bytes", value=result.get("peak_memory_bytes")),
        Headline(name="training time", unit="seconds", value=seconds),
        *score_headlines(facts),
    )


def _own(facts: Facts) -> tuple[Document, Document]:
    return facts.training or {}, facts.manifest["result"] if facts.manifest else {}


def _of_another_tool(figures: Figures) -> tuple[Document, Document]:
    """Return the figures under the names of our own documents, as far as there are any."""
    training = {"steps_done": figures.steps_done, "steps_planned": figures.steps_planned}
    result = {
        "tokens_seen": figures.tokens_seen,
        "first_loss": next(iter(figures.losses), None),
        "last_loss": figures.last_loss,
        "best_loss": min(figures.losses, default=None),
        "train_seconds": figures.train_seconds,
    }
    return training, result


def score_headlines(facts: Facts) -> tuple[Headline, ...]:
    """Return exact match, format compliance and the untrained model's exact match, each with its interval."""
    summary: Document = facts.eval_summary or {}
    metrics, baseline = summary.get("metrics"), summary.get("baseline")
    return (
        score_headline("exact match", metrics and metrics["exact_match"]),
        score_headline("format compliance", metrics and metrics["format_compliance"]),
        score_headline("exact match before training", baseline and baseline["metrics"]["exact_match"]),
    )


def score_headline(name: str, metric: Document | None) -> Headline:
    """Return the figure of one metric of eval_summary.json; without one, a figure that was not measured."""
    if metric is None:
        return Headline(name=name, unit="fraction", value=None)
    interval = metric["interval"] or {"low": None, "high": None}
    return Headline(
        name=name,
        unit="fraction",
        value=metric["value"],
        low=interval["low"],
        high=interval["high"],
        of=metric["n"],
    )


def bytes_as_text(count: Number) -> str:
    """Return a size in the binary unit that suits it: `0 B`, `12.3 KiB`, `2.10 GiB`."""
    if count < 1024:
        return f"{count:,} B"
    for power, unit in enumerate(("KiB", "MiB", "GiB"), start=1):
        size = count / 1024**power
        if size < 1000 or unit == "GiB":
            return f"{size:,.2f} {unit}" if size < 10 else f"{size:,.1f} {unit}"
    raise AssertionError


def seconds_as_text(seconds: Number) -> str:
    """Return a duration as one reads a clock: `4.2 s`, `3 min 05 s`, `2 h 10 min`."""
    if seconds < 59.95:  # 59.97 would be written 60.0 s
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


_WRITTEN: dict[str, Callable[[Number], str]] = {
    "count": lambda value: f"{value:,}",
    "nats": lambda value: f"{value:.4f}",
    "tokens per second": lambda value: f"{value:,.0f} tokens/s",
    "bytes": bytes_as_text,
    "seconds": seconds_as_text,
    "fraction": lambda value: f"{value:.3f}",
}
