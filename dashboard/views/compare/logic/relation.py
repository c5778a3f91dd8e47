"""Many runs in one picture: any two figures or settings against each other, or several side by side.

What lives here: which names there are, and their values as places on an axis. How they are drawn is in `scatter_figure`
and `parallel`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dashboard.shared.charts.strokes import in_ink
from dashboard.shared.words.text import csv_text, findable, shorten
from evidence.bundle.secrets import strip_invisible
from evidence.compare.settings import NO_SETTINGS, setting_rank
from evidence.index.summary import RunSummary

Value = str | float | None

SCORE = "exact match"
PLAIN: Mapping[str, Callable[[RunSummary], Value]] = {
    "grade": lambda run: run.grade,
    "mode": lambda run: run.mode,
    "status": lambda run: run.status,
    "model": lambda run: run.model,
    "method": lambda run: run.method,
    "device": lambda run: run.device,
    "last loss": lambda run: run.last_loss,
    SCORE: lambda run: run.score,
    "steps": lambda run: run.steps_done,
    "tokens": lambda run: run.tokens_seen,
    "seconds": lambda run: run.duration_seconds,
}
"""What every run may state, by the name that a reader sees; settings and figures come besides."""

_GOALS, _SIZES = (SCORE, "last loss", "steps"), ("steps", "tokens", "seconds")
_ALIKE = 0.9
"""Share of runs with one value above which a setting was hardly tried out."""
_MOST_AXES = 6
_WIDE, _DECADE = 50, 10 * (1 - 1e-9)
MOST_WORDS = 30
"""Different words that an axis distinguishes; the rest stand together as `other`."""
OTHER = "other"


@dataclass(frozen=True, kw_only=True)
class Scale:
    """One name with the value of each run, as places on an axis.

    Attributes:
        name: What is shown.
        places: `[runs]`; None where a run does not state it.
        words: Names of the places 0, 1, … where the values are words; empty where they are numbers.
    """

    name: str
    places: tuple[float | None, ...]
    words: tuple[str, ...]

    @property
    def spans_a_decade(self) -> bool:
        """Whether the values are positive numbers of which the largest is ten times the smallest or more."""
        stated = [setting_rank for setting_rank in self.places if setting_rank is not None]
        return not self.words and bool(stated) and 0 < _DECADE * min(stated) <= max(stated)

    @property
    def is_wide(self) -> bool:
        """Whether the values are positive numbers so far apart that only a logarithmic axis shows the small ones."""
        stated = [setting_rank for setting_rank in self.places if setting_rank is not None]
        return not self.words and bool(stated) and 0 < min(stated) * _WIDE < max(stated)

    def shown(self, index: int) -> str | float | None:
        """Return the value of a run as it was stated."""
        setting_rank = self.places[index]
        return setting_rank if setting_rank is None or not self.words else self.words[int(setting_rank)]


def names(runs: Sequence[RunSummary]) -> list[str]:
    """Return every name that some run has a value for: plain ones, then settings, then figures."""
    plain = [name for name, read in PLAIN.items() if any(read(run) is not None for run in runs)]
    figures = findable({name for run in runs for name in run.figures})
    settings = findable({name for run in runs for name in run.settings})
    return list(dict.fromkeys([*plain, *settings, *figures]))


def scale(runs: Sequence[RunSummary], name: str) -> Scale:
    """Return the values of the runs under a name; numbers as they are, words in alphabetical order."""
    values = [value_of(run, name) for run in runs]
    stated = [value for value in values if value is not None]
    if all(isinstance(value, int | float) for value in stated):
        return Scale(name=name, places=tuple(None if value is None else float(value) for value in values), words=())
    words = _words(str(value) for value in stated)
    setting_rank = {word: float(index) for index, word in enumerate(words)}
    rest = setting_rank.get(OTHER, 0.0)
    return Scale(
        name=name,
        places=tuple(
            None if value is None else setting_rank.get(strip_invisible(str(value)), rest) for value in values
        ),
        words=words,
    )


def value_of(run: RunSummary, name: str) -> Value:
    """Return what a run states under a name: a number, or text for anything else; None where it states nothing."""
    if name in PLAIN:
        return PLAIN[name](run)
    value = run.figures.get(name, run.settings.get(name))
    if isinstance(value, bool):
        return "true" if value else "false"
    return value


def telling(runs: Sequence[RunSummary]) -> list[str]:
    """Return the settings that differ between the runs, most likely those that a user tried out on purpose first.

    They come in the order of what matters to a result, and of one group the one whose values are spread most evenly;
    those in which hardly a run differs come last.
    """
    differing = []
    for name in {name for run in runs for name in run.settings} - NO_SETTINGS:
        values = Counter(value for run in runs if (value := value_of(run, name)) is not None)
        if len(values) > 1:
            commonest = max(values.values())
            differing.append((commonest > _ALIKE * values.total(), setting_rank(name), commonest, name))
    return [name for *_, name in sorted(differing)]


def first_axes(runs: Sequence[RunSummary]) -> tuple[str, str]:
    """Return what a scatter begins with: the number that was tried out, and what came of it."""
    stated = {goal: _states(runs, goal) for goal in _GOALS}
    y = next(goal for goal, number in stated.items() if 2 * number >= max(stated.values()))
    drawn = [run for run in runs if PLAIN[y](run) is not None]
    tried = telling(drawn)
    numbers = [name for name in tried if not scale(drawn, name).words]
    sizes = [name for name in _SIZES if name != y and _states(drawn, name) > 1]
    return next(iter([*numbers, *tried, *sizes]), "model"), y


def first_scales(runs: Sequence[RunSummary]) -> list[str]:
    """Return what parallel coordinates begin with: the settings that were tried out, then what came of them."""
    goals = [goal for goal in reversed(_GOALS) if _states(runs, goal)]
    return [*telling(runs)[: _MOST_AXES - len(goals)], *goals]


def _states(runs: Sequence[RunSummary], name: str) -> int:
    """Return how many runs state a plain value."""
    return sum(PLAIN[name](run) is not None for run in runs)


def table(runs: Sequence[RunSummary], shown: Sequence[str]) -> pa.Table:
    """Return the runs with their values under these names as Streamlit sends them: text, or float64."""
    columns: Mapping[str, list[Any]] = _columns(runs, shown)
    kinds = {name: pa.string() if _is_words(values) else pa.float64() for name, values in columns.items()}
    return pa.table({name: pa.array(values, kinds[name], from_pandas=True) for name, values in columns.items()})


def relation_csv(runs: Sequence[RunSummary], shown: Sequence[str]) -> str:
    """Return the same table as CSV, without formulas."""
    columns = _columns(runs, shown)
    return csv_text(list(columns), zip(*columns.values(), strict=True))


def _columns(runs: Sequence[RunSummary], shown: Sequence[str]) -> dict[str, list[Value]]:
    columns: dict[str, list[Value]] = {"run": [strip_invisible(run.path.name) for run in runs]}
    for name in dict.fromkeys(shown):
        values = [value_of(run, name) for run in runs]
        is_words = _is_words(values)
        columns[name] = [strip_invisible(str(value)) if is_words and value is not None else value for value in values]
    return columns


def _is_words(values: Iterable[Value]) -> bool:
    return any(isinstance(value, str) for value in values)


def _words(values: Iterable[str]) -> tuple[str, ...]:
    """Return the different words, the most frequent ones where there are too many for an axis."""
    counts = Counter(strip_invisible(value) for value in values)
    if len(counts) <= MOST_WORDS:
        return tuple(sorted(counts))
    return (*sorted({word for word, _ in counts.most_common(MOST_WORDS - 1)} - {OTHER}), OTHER)


PARALLEL_HEIGHT = 446
_LONGEST_NAME = 26


def parallel_drawing(
    scales: Sequence[Scale], *, colour: str, chosen_colour: str, chosen: Collection[int], words: str
) -> dict[str, Any]:
    """Return the parallel_drawing.

    Lines of chosen runs, by their numbers, are thick and on top of the others.
    """
    runs = range(len(scales[0].places))
    quiet = [index for index in runs if index not in chosen]
    # Hundreds of lines over each other are a blot unless each is faint.
    opacity = min(0.75, max(0.05, 100 / max(1, len(quiet))))
    option = {
        "animation": False,
        "parallel": {
            "left": 70,
            "right": 90,
            "top": 72,
            "bottom": 30,
            "parallelAxisDefault": {"areaSelectStyle": {"width": 18, "opacity": 0.25}},
        },
        "parallelAxis": [_axis(index, scale) for index, scale in enumerate(scales)],
        "toolbox": {
            "right": 8,
            "top": -4,
            "itemSize": 13,
            "feature": {"restore": {}, "saveAsImage": {"name": "parallel", "pixelRatio": 2}},
        },
        "series": [
            _lines(scales, quiet, {"color": colour, "width": 1.1, "opacity": opacity * 0.7 if chosen else opacity}),
            _lines(scales, sorted(chosen), {"color": chosen_colour, "width": 2.6, "opacity": 1}),
        ],
    }
    in_ink(option, words)
    return option


def _axis(index: int, scale: Scale) -> dict[str, Any]:
    name = shorten(scale.name, _LONGEST_NAME) + (", log" if scale.is_wide else "")
    # Names take turns in height, so that long ones do not run into each other.
    axis: dict[str, Any] = {"dim": index, "name": name, "nameGap": 12 + 16 * (index % 2)}
    if scale.words:
        return axis | {"type": "category", "data": [shorten(word, _LONGEST_NAME) for word in scale.words]}
    return axis | {"type": "log" if scale.is_wide else "value", "scale": True}


def _lines(scales: Sequence[Scale], runs: Sequence[int], style: dict[str, Any]) -> dict[str, Any]:
    # A place that a run does not state is a gap in its line.
    data = [["-" if scale.places[index] is None else scale.places[index] for scale in scales] for index in runs]
    return {"type": "parallel", "data": data, "lineStyle": style, "smooth": 0, "animation": False, "progressive": 500}
