"""Counts which contradictions planted in folders of other tools are found: `python lab/plants.py`."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import foreign_tools as tools
from foreign_parts.fourth_plants import FOURTH, HONEST_FOURTH
from foreign_parts.last_plants import THIRD, grpo
from foreign_parts.more_plants import SECOND, lightning
from foreign_parts.plants import FIRST

from evidence.grade import check_run
from evidence.run import read_run

AT_FIRST = {"first": 20, "second": 19, "third": 22, "fourth": 27}
"""How many of each 26, of the fourth 42, were found when first counted, before anything was mended for them."""

ACCUSED_AT_FIRST = 2
"""Honest folders of the fourth set that were accused then: a sweep, and LitGPT's microbatches beside its steps."""

RESULT = Path(__file__).parents[1] / "benchmarks" / "results" / "foreign.json"
HONEST = ("hf_trainer", "lm_eval", "mlflow", "wandb", "axolotl", "llama_factory", "unsloth", "keras", "tensorboard")


def contradictions_in(files: tools.Folder) -> list[str]:
    """Return what contradicts itself in a folder, as sentences."""
    with tempfile.TemporaryDirectory() as root:
        report = check_run(read_run(tools.write(Path(root) / "run", files)))
        return [problem.what for problem in report.findings if problem.code.startswith("TP3")]


def counted(cases: Sequence[Callable[[], tools.Folder]]) -> dict[str, object]:
    """Return how many of some cases are found, and the names of those that are not."""
    found = {case.__name__: contradictions_in(case()) for case in cases}
    for name, said in found.items():
        print(f"{name}: {said[0] if said else 'nothing'}")
    return {
        "planted": len(cases),
        "found": sum(1 for said in found.values() if said),
        "missed": [name for name, said in found.items() if not said],
    }


def main() -> None:
    """Print what is found, and write the counts where --write is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/foreign.json")
    asked = parser.parse_args()
    honest = [lightning, grpo, *(getattr(tools, name) for name in (*HONEST, "mlperf", "openai_evals")), *HONEST_FOURTH]
    accused = counted(honest)
    sets = {"first": FIRST, "second": SECOND, "third": THIRD, "fourth": FOURTH}
    result = {
        **{name: {"found_at_first": AT_FIRST[name], **counted(cases)} for name, cases in sets.items()},
        "honest": {"folders": len(honest), "accused_at_first": ACCUSED_AT_FIRST, "accused": accused["found"]},
    }
    print(json.dumps(result, indent=2))
    if asked.write:
        RESULT.write_text(json.dumps(result, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
