"""The handful of figures by which a run is known: what the report, the comparison and the pages put first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from evidence.judge.record import JudgedRecord
from evidence.records.facts import Document, Facts
from schemas import formats
from schemas.formats import NOTHING

Unit = Literal["count", "nats", "tokens per second", "bytes", "seconds", "fraction"]
Number = int | float


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
    """Lower end of the 95 % interval. None: the figure does not have an interval."""
    high: float | None = None
    """Upper end of the 95 % interval."""
    of: int | None = None
    """What a count is out of: steps planned, items of the set. None: nothing."""
    lenient: Number | None = None
    """The same with answers of any form taken. None: it is not a score, or the run does not state it."""

    def as_text(self) -> str:
        """Return the figure with its unit: `0.612 (0.515–0.702), n = 100`, `2.10 GiB`, `–` for none."""
        if self.value is None:
            return NOTHING
        text = _WRITTEN[self.unit](self.value)
        if self.low is not None and self.high is not None:
            text += f" ({_WRITTEN[self.unit](self.low)}–{_WRITTEN[self.unit](self.high)})"
        if self.of is not None:
            text += f", n\u00a0=\u00a0{self.of:,}" if self.unit == "fraction" else f" of {self.of:,}"
        return text if self.lenient is None else f"{text}; leniently {_WRITTEN[self.unit](self.lenient)}"


def headlines(record: JudgedRecord) -> tuple[Headline, ...]:
    """Return the figures of a run, always the same ones in the same order.

    Those of another tool's run are as its files state them; its scores are not computed again, so it does not have an
    interval.
    """
    figures = record.figures
    seconds, tokens = figures.train_seconds, figures.tokens_seen
    return (
        Headline(name="optimizer steps", unit="count", value=figures.steps_done, of=figures.steps_planned),
        Headline(name="tokens seen", unit="count", value=tokens),
        Headline(name="first loss", unit="nats", value=figures.first_loss),
        Headline(name="last loss", unit="nats", value=figures.last_loss),
        Headline(name="best loss", unit="nats", value=figures.best_loss),
        Headline(name="speed", unit="tokens per second", value=tokens / seconds if tokens and seconds else None),
        Headline(name="peak memory of one device", unit="bytes", value=figures.peak_memory_bytes),
        Headline(name="training time", unit="seconds", value=seconds),
        *score_headlines(record.facts),
    )


def score_headlines(facts: Facts) -> tuple[Headline, ...]:
    """Return exact match, format compliance and the untrained model's exact match, each with its interval.

    Of several samples of each item also pass@k for one and for all tries, and the majority's score.
    """
    summary: Document = facts.eval_summary or {}
    metrics, baseline = summary.get("metrics"), summary.get("baseline")
    return (
        score_headline("exact match", metrics and metrics["exact_match"], _lenient(metrics)),
        score_headline("format compliance", metrics and metrics["format_compliance"]),
        score_headline(
            "exact match before training",
            baseline and baseline["metrics"]["exact_match"],
            _lenient(baseline and baseline["metrics"]),
        ),
        *(
            score_headline(name, {**share, "n": summary["eval_set"]["items"]})
            for name, share in sampled_shares(summary)
        ),
    )


def sampled_shares(summary: Document) -> list[tuple[str, Document]]:
    """Return the scores of several samples under their names; none where each item has one answer."""
    if (sampled := summary.get("sampled")) is None:
        return []
    one, *_, every = sampled["pass_at"]
    tries = [(f"pass@{each['tries']}", each) for each in (one, every)]
    return [*tries, (f"majority of {sampled['samples']}", sampled["majority"])]


def _lenient(metrics: Document | None) -> Number | None:
    return metrics["lenient_match"]["value"] if metrics and "lenient_match" in metrics else None


def score_headline(name: str, metric: Document | None, lenient: Number | None = None) -> Headline:
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
        lenient=lenient,
    )


_WRITTEN: dict[str, Callable[[Number], str]] = {
    "count": lambda value: f"{value:,}",
    "nats": lambda value: f"{value:.4f}",
    "tokens per second": lambda value: f"{value:,.0f} tokens/s",
    "bytes": formats.size,
    "seconds": formats.duration,
    "fraction": lambda value: f"{value:.3f}",
}
