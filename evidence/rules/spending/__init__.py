"""TP73x and TP74x: what a run will spend badly, beyond memory: its hours, its tokens, its device's parts.

The plan calls `findings` with what it has computed; a figure that is not known keeps its checks silent.
"""

from __future__ import annotations

from evidence.rules.spending.figures import RunFigures
from evidence.rules.spending.findings import findings

__all__ = ["RunFigures", "findings"]
