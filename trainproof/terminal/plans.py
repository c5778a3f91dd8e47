"""`trainproof plan`: a run's plan on this machine, as a document and as one page of text."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from schemas.problems.formats import size
from schemas.problems.render import as_text
from trainer.config.load import load_config
from trainer.inputs import read_inputs
from trainer.planning.devices import choose_devices
from trainer.planning.plan import NAMED_PARTS, in_words, plan_run


def plan_of(config: Path, *, device: str | None, settings: Sequence[str]) -> dict[str, Any]:
    """Return the document `plan.json` of a configuration; nothing is built and no folder is made.

    Warnings go to the standard error, so that what is printed as JSON stays JSON.
    """
    loaded = load_config(config, flags={"mesh.device": device}, settings=settings)
    devices = choose_devices(loaded.mesh.device, loaded.mesh.devices)
    task, data = read_inputs(loaded, devices)
    sys.stderr.write(as_text(data.warnings))
    return plan_run(task, devices, forced=False, asked=data.asked)


def plan_text(plan: dict[str, Any]) -> str:
    """Return a plan as text: the verdict, the largest parts and what they are, and what would make it smaller."""
    target = plan["target"]
    lines = [f"{target['devices']} × {target['name']}: {in_words(plan)}", "", "Largest parts, on each device:"]
    lines += [
        f"  {size(part['bytes']):>12}  {part['name']:<12}  {part['because']}" for part in plan["parts"][:NAMED_PARTS]
    ]
    if plan["changes"]:
        lines += ["", "What would save memory, each alone:"]
        lines += [f"  {size(change['saves_bytes']):>12}  --set {change['set']}" for change in plan["changes"]]
    return "\n".join(lines) + "\n"
