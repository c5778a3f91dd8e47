"""Which layers of a model are equal, and the name of a stack of them.

The name says whose it is, as Python writes a slice: `layers.1:7:3.mlp.up.kernel` holds that kernel of the layers 1 and
4. Layers are equal when they compute the same from parameters of the same names and shapes; where kinds alternate, each
place of the repeating pattern has stacks of its own.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

NAME = re.compile(r"(?P<before>(?:.*\.)?layers\.)(?P<layers>\d+:\d+:\d+)(?P<after>\..+)")


class Run(NamedTuple):
    """Layers of which the first `period` are repeated `times` times."""

    first: int
    period: int
    times: int

    @property
    def stacks(self) -> tuple[range, ...]:
        """The layers that are stacked on each other, one range for each place of the pattern."""
        end = self.first + self.period * self.times
        return tuple(range(self.first + place, end, self.period) for place in range(self.period))


def runs_of(kinds: Sequence[Hashable]) -> tuple[Run, ...]:
    """Return the layers in runs, by what kind each is; each run saves as many layers as any that begins there.

    `abababc` is `ab` three times and `c` once; `aaaab` is `a` four times and `b` once.
    """
    runs: list[Run] = []
    first = 0
    while first < len(kinds):
        left = len(kinds) - first
        found = (Run(first, period, _repeats(kinds[first:], period)) for period in range(1, left // 2 + 1))
        best = max(found, key=lambda run: run.period * (run.times - 1), default=Run(first, 1, 1))
        best = best if best.times > 1 else Run(first, 1, 1)
        runs.append(best)
        first += best.period * best.times
    return tuple(runs)


def _repeats(kinds: Sequence[Hashable], period: int) -> int:
    """Return how often the first `period` kinds stand there one after the other."""
    count = 1
    while kinds[count * period : (count + 1) * period] == kinds[:period]:
        count += 1
    return count


def layers_held(runs: Iterable[Run]) -> int:
    """Return how many layers a program holds in which each run is a loop."""
    return sum(run.period for run in runs)


def stack_name(layers: range) -> str:
    """Return how the layers of a stack are written: `range(1, 7, 3)` is `1:7:3`."""
    return f"{layers.start}:{layers.stop}:{layers.step}"


def members(name: str) -> tuple[str, ...]:
    """Return the names of the parameters in a stack, in its order; of a name that is no stack's, the name itself."""
    if (found := NAME.fullmatch(name)) is None:
        return (name,)
    return tuple(f"{found['before']}{number}{found['after']}" for number in range(*slice_of(found["layers"])))


def slice_of(written: str) -> tuple[int, int, int]:
    """Return start, stop and step of a stack's layers: of `1:7:3`, `(1, 7, 3)`."""
    start, stop, step = map(int, written.split(":"))
    return start, stop, step


def is_stack(name: str) -> bool:
    """Return whether a parameter is a stack of those of several layers."""
    return NAME.fullmatch(name) is not None
