"""Runs that are the same but for their seed as one: their mean at each step, and a band of their spread."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class MeanBand:
    """Mean and mean ± standard deviation (n - 1 in the denominator) over `n` runs, `[points]` each."""

    name: str
    colour: str
    n: int
    x: np.ndarray
    low: np.ndarray
    mean: np.ndarray
    high: np.ndarray


def band(members: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]], *, colour: str, log: bool) -> MeanBand | None:
    """Return the mean of runs at the steps that all of them logged; None where they share none.

    On a logarithmic axis it is the mean of the logarithms, so that the band lies as far above as below.

    Example:
        Losses 1 and 3 at one step: mean 2 and band 0.59 to 3.41; on a logarithmic axis 1.73 and 0.80 to 3.77.

    Args:
        members: Of each run its steps, its places along the x axis, and its values, `[rows]` each.
        colour: Of the band.
        log: Whether the axis is logarithmic.
    """
    # A page of one run is drawn before pandas is loaded.
    pd: Any = importlib.import_module("pandas")
    values = [pd.Series(y, index=steps).groupby(level=0).last() for steps, _, y in members]
    across = [pd.Series(x, index=steps).groupby(level=0).last() for steps, x, _ in members]
    found = pd.concat(values, axis=1, join="inner").dropna()
    if found.empty:
        return None
    drawn = np.log(found) if log else found
    mean, spread = drawn.mean(axis=1), drawn.std(axis=1)
    ends = (np.exp(end) if log else end for end in (mean - spread, mean, mean + spread))
    low, middle, high = (end.to_numpy(dtype=np.float32) for end in ends)
    x = pd.concat(across, axis=1, join="inner").loc[found.index].mean(axis=1).to_numpy(dtype=np.float32)
    return MeanBand(
        name=f"mean of {len(members)} seeds", colour=colour, n=len(members), x=x, low=low, mean=middle, high=high
    )
