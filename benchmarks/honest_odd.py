"""Honest runs that are odd, trained here: none may be accused, each alone and all of them in one root.

One step; three resumes in a row and the same training whole; stopped by a loss that is not finite; evaluated later;
LoRA, merged, and LoRA on the merged base. What `check` says goes to benchmarks/results/honest_odd.json.

    python benchmarks/honest_odd.py
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evidence.index.index import check_paths
from schemas.problems import ProblemError
from trainer.config.load import load_config
from trainer.recorder.progress import Watch
from trainer.run import RunRequest, run
from trainproof.command import main as trainproof

RESULT = Path(__file__).parent / "results" / "honest_odd.json"
BASE = Path(__file__).parents[1] / "trainer" / "configs" / "tiny.yaml"
ITEMS = (("What is 2 + 3?", "5"), ("Add 10 and 7.", "17"))
ALWAYS = {
    "data.max_length": 96,
    "batch.microbatch_size": 2,
    "optimizer.schedule": "constant",
    "checkpoint.save_every_steps": 2,
    "evaluation.max_new_tokens": 4,
    "memory.remat": "none",
}


def trained(folder: Path, settings: Mapping[str, Any], *, resume: Path | None = None) -> None:
    """Train a run in a folder; one that fails is sealed as failed, which is what is wanted of it."""
    told = [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in settings.items()]
    config = load_config(BASE, settings=told)
    command = ["trainproof", "train", "--config", str(BASE), *(word for each in told for word in ("--set", each))]
    flags = ["--output", str(folder), *(["--resume", str(resume)] if resume else [])]
    try:
        with Watch(quiet=True) as watch:
            run(RunRequest(config=config, folder=folder, command=[*command, *flags], resume=resume), watch)
    except ProblemError as error:
        sys.stdout.write(f"{folder.name}: {error}\n")


def called(*arguments: str) -> None:
    """Call the command; it must succeed."""
    try:
        trainproof(list(arguments))
    except SystemExit as end:
        if end.code:
            raise


def make(root: Path) -> None:
    """Train every odd run."""
    items = root.parent / "items.jsonl"
    rows = [{"id": str(number), "prompt": asked, "expected": answer} for number, (asked, answer) in enumerate(ITEMS)]
    items.write_text("".join(json.dumps(row) + "\n" for row in rows))
    plain = ALWAYS | {"evaluation.eval_set": str(items)}
    trained(root / "one-step", plain | {"limits.steps": 1})
    before = None
    for part in range(4):
        trained(root / f"part-{part}", plain | {"limits.steps": 2 * (part + 1)}, resume=before)
        before = root / f"part-{part}"
    trained(root / "whole", plain | {"limits.steps": 8})
    growing = {"optimizer.learning_rate": 10, "optimizer.weight_decay": 1, "optimizer.max_grad_norm": None}
    trained(root / "not-finite", plain | growing | {"limits.steps": 80})
    trained(root / "evaluated-later", ALWAYS | {"evaluation.eval_set": "null", "limits.steps": 2})
    called("evaluate", str(root / "evaluated-later"), "--eval-set", str(items))
    called("export", str(root / "one-step"))
    base = root / "one-step" / "export"
    lora = plain | {"method.kind": "lora", "method.rank": 2, "limits.steps": 2}
    trained(root / "adapter", lora | {"model.name": str(base)})
    called("export", str(root / "adapter"), "--adapter")
    merged = root.parent / "merged"
    called("merge", str(base), str(root / "adapter" / "adapter"), "--output", str(merged))
    trained(root / "adapter-on-merged", lora | {"model.name": str(merged)})


def main() -> None:
    """Train, judge, write."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "runs"
        root.mkdir()
        make(root)
        result = {
            report.path.name: {
                "grade": report.grade.name,
                "found": [f"{each.code} {each.severity}" for each in report.findings],
                "status": json.loads((report.path / "run_manifest.json").read_text("utf-8"))["status"],
            }
            for report in check_paths([root]).runs
        }
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    RESULT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
