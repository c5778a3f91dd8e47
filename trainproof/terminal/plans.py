"""`trainproof plan`: a run's plan on this machine, as a document and as one page of text."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from schemas.problems.render import as_text
from trainer.config.load import load_config
from trainer.planning.plan import NAMED_PARTS, in_words, size_in_words
from trainer.prepare import prepare


def plan_of(config: Path, *, device: str | None, settings: Sequence[str]) -> dict[str, Any]:
    """Return the document `plan.json` of a configuration; nothing is built and no folder is made.

    Warnings go to the standard error, so that what is printed as JSON stays JSON.
    """
    prepared = prepare(load_config(config, flags={"mesh.device": device}, settings=settings), forced=False)
    sys.stderr.write(as_text(prepared.warnings))
    return prepared.plan


def plan_text(plan: dict[str, Any]) -> str:
    """Return a plan as text: the verdict, the largest parts and what they are, and what would make it smaller."""
    target = plan["target"]
    lines = [f"{target['devices']} × {target['name']}: {in_words(plan)}", "", "Largest parts, on each device:"]
    lines += [
        f"  {size_in_words(part['bytes']):>12}  {part['name']:<12}  {part['because']}"
        for part in plan["parts"][:NAMED_PARTS]
    ]
    if plan["changes"]:
        lines += ["", "What would save memory, each alone:"]
        lines += [f"  {size_in_words(change['saves_bytes']):>12}  --set {change['set']}" for change in plan["changes"]]
    return "\n".join(lines) + "\n"
