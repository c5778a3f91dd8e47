"""Which layers of a model are equal, and the name of a stack of them.

The name states whose it is, as Python writes a slice: `layers.1:3.mlp.up.kernel` holds that kernel of the layers 1 and
2. Layers that follow each other are equal when they have parameters of the same names and shapes; how far one sees, and
how it turns queries and keys, may differ and is a number to the loop that goes over them.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from itertools import groupby

NAME = re.compile(r"(?P<before>(?:.*\.)?layers\.)(?P<layers>\d+:\d+)(?P<after>\..+)")


def runs_of(kinds: Sequence[Hashable]) -> tuple[range, ...]:
    """Return the layers in runs of equal ones, by what kind each is: `aaab` is the layers 0 to 2, and 3."""
    runs: list[range] = []
    for _, group in groupby(kinds):
        first = runs[-1].stop if runs else 0
        runs.append(range(first, first + len(list(group))))
    return tuple(runs)


def stack_name(layers: range) -> str:
    """Return how the layers of a stack are written: `range(1, 3)` is `1:3`."""
    return f"{layers.start}:{layers.stop}"


def stack_of(written: str) -> range:
    """Return the layers of a stack as they are written."""
    start, stop = map(int, written.split(":"))
    return range(start, stop)


def members(name: str) -> tuple[str, ...]:
    """Return the names of the parameters in a stack, in its order; of a name that is not a stack's, the name itself."""
    if (found := NAME.fullmatch(name)) is None:
        return (name,)
    return tuple(f"{found['before']}{number}{found['after']}" for number in stack_of(found["layers"]))


def is_stack(name: str) -> bool:
    """Return whether a parameter is a stack of those of several layers."""
    return NAME.fullmatch(name) is not None
