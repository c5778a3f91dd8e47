"""Rows of two task kinds of reasoning-gym, in whose environment this runs.

    python benchmarks/real_model_parts/rows.py FOLDER

Writes `rows.jsonl`, 1,100 rows, of which `trainproof init` holds 100 back, and `new.jsonl`, 60 items that are not among
them, and prints what they are as a line of JSON.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from importlib.metadata import version
from itertools import islice
from pathlib import Path

import reasoning_gym

KINDS = {
    "chain_sum": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2},
    "word_sequence_reversal": {"min_words": 3, "max_words": 4},
}
EACH, NEW_EACH = 550, 30


def questions(kind: str) -> Iterator[tuple[str, str]]:
    """Yield different questions of a kind, each with its answer."""
    seen = set()
    for one in reasoning_gym.create_dataset(kind, seed=1, size=20 * EACH, **KINDS[kind]):
        if (question := one["question"].strip()) not in seen:
            seen.add(question)
            yield question, one["answer"]


def main(folder: Path) -> None:
    """Write the files."""
    rows, new = [], []
    for kind in KINDS:
        drawn = questions(kind)
        rows += [{"prompt": prompt, "completion": answer, "kind": kind} for prompt, answer in islice(drawn, EACH)]
        more = enumerate(islice(drawn, NEW_EACH))
        new += [{"id": f"{kind}-{n}", "prompt": prompt, "expected": answer} for n, (prompt, answer) in more]
    random.Random(0).shuffle(rows)
    for name, values in (("rows.jsonl", rows), ("new.jsonl", new)):
        (folder / name).write_text("".join(json.dumps(value) + "\n" for value in values))
    print(json.dumps({"reasoning-gym": version("reasoning-gym"), "kinds": KINDS, "rows": len(rows), "new": len(new)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
