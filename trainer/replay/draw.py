"""Which parts of a training are repeated, and which answers: what a judge's number draws.

The first and the last part are always repeated, as far as they can be; the number draws among the others, uniformly
over their steps.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection
from dataclasses import dataclass

from trainer.loop.chain import SegmentSpan


@dataclass(frozen=True, kw_only=True)
class Draw:
    """What a judge's number drew."""

    number: int
    """The judge's."""
    parts: tuple[SegmentSpan, ...]
    """Of the run, in order."""
    among: tuple[SegmentSpan, ...]
    """Those that it could draw: not the first, not the last."""
    named: tuple[SegmentSpan, ...]
    """Those that it drew, in the order of the run."""

    @property
    def order(self) -> tuple[SegmentSpan, ...]:
        """The parts to repeat, in the order of the run: the first, those drawn, the last."""
        ends = (self.parts[0], self.parts[-1])
        return tuple(part for part in self.parts if part in ends or part in self.named)

    @property
    def said(self) -> str:
        """What it drew, and what that is worth, in sentences."""
        if not self.parts[1:-1]:
            return "The run has no part between its first and its last one: no number draws."
        drew = f"The number {self.number} drew {len(self.named) or 'nothing'}"
        between = f"{len(self.parts) - 2} parts between the first and the last"
        if self.is_of_all:
            found = chance_said(self.caught(0.5))
            return f"{drew} of {between}: had half of the training been invented, it would be found {found}."
        if not self.among:
            drew = f"The number {self.number} drew nothing: none of the {between} has a state here to begin from"
        else:
            drew += f" of the {len(self.among)} parts whose states are here, of {between}; the run's maker knew which"
        return f"{drew}. `trainproof replay RUN --seed {self.number} --ask` says which states to ask for."

    @property
    def is_of_all(self) -> bool:
        """Whether the number could draw every part between the first and the last."""
        return len(self.among) == len(self.parts[1:-1])

    def caught(self, share: float) -> float:
        """Return the least chance with which this draw catches a run of which a share of the steps was invented.

        Anyone who invents them knows that the first and the last part are repeated, so they lie between. With `T` steps
        between, `F` of them false, and `m` steps in the shortest part, the part that is drawn next is an honest one,
        after `i` honest ones, with a chance of at most `1 − F / (T − i m)`. Of equal parts this is the hypergeometric
        distribution itself, `C(N − f, k) / C(N, k)` for `k` of `N` parts of which `f` are false (W. Feller, An
        Introduction to Probability Theory and Its Applications, vol. 1, 3rd ed., §II.6).

        Example:
            2,000 steps in 20 parts of 100: 18 lie between the ends. Three are drawn, half of all steps is invented:
            10 of the 18 are false. All three are honest with a chance of 8/18 · 7/17 · 6/16 = 0.069, so the run is
            caught with 0.931; with five drawn 1 − 8·7·6·5·4 / (18·17·16·15·14) = 0.993.

        Args:
            share: of all steps of the run, above 0 to 1. What the ends leave no room for is found at the ends.

        Returns:
            0 where not every part between could be drawn: its maker knows which could, and is honest there.
        """
        if not self.is_of_all:
            return 0.0
        between, shortest = sum(part.steps for part in self.among), min((part.steps for part in self.among), default=0)
        false = share * (self.parts[-1].last_step - self.parts[0].first_step)
        missed = 1.0
        for already in range(len(self.named)):
            left = between - already * shortest
            missed *= max(0.0, 1 - false / left)
        return 1 - missed if false <= between else 1.0


def draw_segments(parts: tuple[SegmentSpan, ...], starts: Collection[int] | None, *, count: int, number: int) -> Draw:
    """Return what a number draws of a run: parts between the first and the last, uniformly over their steps.

    Each part has a lot, made of the hash of number and part, which anyone can compute, and of its length: the smallest
    are taken. So each draw falls on any step of the parts that are left with the same chance (P. S. Efraimidis and
    P. G. Spirakis, Information Processing Letters 97, 2006, p. 181–185).

    Args:
        parts: of the run.
        starts: steps at which there is a state to begin from. None: any that the number names is needed.
        count: parts to draw.
        number: the judge's, which no one could know when the run was made.
    """
    among = tuple(part for part in parts[1:-1] if starts is None or part.first_step in starts)
    by_lot = sorted(among, key=lambda part: waiting(number, part))
    named = {part.first_step for part in by_lot[:count]}
    chosen = tuple(part for part in among if part.first_step in named)
    return Draw(number=number, parts=parts, among=among, named=chosen)


def chance_said(chance: float) -> str:
    """Return a chance in words, never more than it is: `with a chance of 98.4 %`."""
    return "for certain" if chance >= 1 else f"with a chance of {math.floor(1000 * chance) / 10:g} %"


def waiting(number: int, part: SegmentSpan) -> float:
    """Return how long a part waits to be drawn: exponentially, at a rate of its number of steps."""
    share = (int(lot(number, f"steps {part.first_step + 1} to {part.last_step}"), 16) + 1) / 2**256
    return -math.log(share) / part.steps


def drawn_items(ids: Collection[str], *, count: int, seed: int) -> set[str]:
    """Return the ids of the items to answer again, all where there are not more."""
    return set(sorted(ids, key=lambda each: lot(seed, each))[:count])


def lot(seed: int, name: str) -> str:
    """Return what a name draws: the hash of seed and name, which anyone can compute. The smallest are taken."""
    return hashlib.sha256(f"{seed} {name}".encode()).hexdigest()
