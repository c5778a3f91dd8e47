"""Each run against the first, before any table: better or not, what changed, what it cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from evidence.compare.comparison import Comparison, Pair
from evidence.compare.settings import ABSENT, ComparedSetting, diff_settings
from evidence.report import Headline

Word = Literal["better", "worse", "cannot tell", "not compared"]
"""Whether a difference in score was shown at p < 0.05, after Holm's correction for all pairs."""

ALPHA = 0.05
_COSTS = ("last loss", "training time", "peak memory of one device")
_RESULTS = ("first loss", "last loss", "best loss", "exact match")
_CODE = ("code.commit", "code.diff_sha256")
_DEVICES = ("devices.platform", "devices.kind", "devices.count")


@dataclass(frozen=True, kw_only=True)
class PairVerdict:
    """One run against the first."""

    pair: Pair
    """The two, with the paired difference in score or why it is missing."""
    word: Word
    """What follows from it."""
    changed: tuple[ComparedSetting, ...]
    """Settings of config.yaml that differ: what a user changed; the two values of each."""
    derived: tuple[ComparedSetting, ...]
    """What differs besides, as the program read it back: it follows from those, or from the machine and the code."""
    sameness: str
    """That no one changed a setting, and what came of it: `Same settings, another commit, another result`. Or empty."""
    costs: tuple[tuple[Headline, Headline], ...]
    """Last loss, training time and peak memory of both, as far as both state them."""


def verdicts(compared: Comparison) -> tuple[PairVerdict, ...]:
    """Return a verdict on each run but the first, in their order."""
    return tuple(_verdict(compared, place, pair) for place, pair in enumerate(compared.pairs, start=1))


def _verdict(compared: Comparison, place: int, pair: Pair) -> PairVerdict:
    settings = (*compared.differing, *compared.equal)
    both = [replace(setting, values=(setting.values[0], setting.values[place])) for setting in settings]
    differing = diff_settings([setting for setting in both if setting.values != (ABSENT, ABSENT)]).differing
    # A key that only one of them knows is of a newer version: no one changed it.
    changed = tuple(one for one in differing if one.source != "effective" and ABSENT not in one.values)
    derived = tuple(one for one in differing if one not in changed)
    figures = list(zip(compared.headlines[0], compared.headlines[place], strict=True))
    stated = [(one, other) for one, other in figures if one.value is not None and other.value is not None]
    have_configs = any(setting.source == "declared" and ABSENT not in setting.values for setting in both)
    return PairVerdict(
        pair=pair,
        word=_word(pair),
        changed=changed,
        derived=derived,
        sameness=", ".join(_sameness(derived, stated, pair)) if have_configs and not changed else "",
        costs=tuple(figure for name in _COSTS for figure in stated if figure[0].name == name),
    )


def _word(pair: Pair) -> Word:
    if pair.score is None:
        return "not compared"
    if pair.score.adjusted_p_value >= ALPHA:
        return "cannot tell"
    return "better" if pair.score.difference > 0 else "worse"


def _sameness(
    derived: tuple[ComparedSetting, ...], stated: list[tuple[Headline, Headline]], pair: Pair
) -> Iterator[str]:
    """Yield that the settings are the same, what is not, and whether the result is."""
    names = {setting.name for setting in derived}
    yield "Same settings"
    kinds = (_CODE[:1], "another commit"), (_CODE[1:], "other uncommitted changes"), (_DEVICES, "another device")
    others = [words for fields, words in kinds if names.intersection(fields)]
    if any(name.startswith("environment.") for name in names):
        others.append("other software")
    yield from others or ["same code and device"]
    results = [one.value == other.value for one, other in stated if one.name in _RESULTS]
    if results:
        flipped = pair.score is not None and bool(pair.score.flips)
        yield "the same result" if all(results) and not flipped else "another result"
