"""How many real tokens a step takes in when rows are packed, against one row a sequence, on the shipped rows.

Counted, not timed: the program computes equally many tokens either way. The rows are those of dev-reasoning-v2 under
the built-in tokenizer; other tokenizers give other lengths and about the same factor.

    python benchmarks/packing.py            # prints the table and writes benchmarks/results/packing.json
"""

from __future__ import annotations

import json
import platform
from pathlib import Path

from trainer.data.encode import encode_rows
from trainer.data.packing import one_each, packed
from trainer.data.rows import read_dataset
from trainer.model.files.source import resolve

RESULT = Path(__file__).parent / "results" / "packing.json"
LENGTHS = (128, 256, 512, 1024)


def measured(max_length: int) -> dict[str, float]:
    """Return sequences and real tokens of one pass, packed and not."""
    file = read_dataset("dev-reasoning-v2")
    tokenizer = resolve("demo").tokenizer()
    data = encode_rows(file.rows, tokenizer, max_length=max_length, file=file.name, lines=file.lines)
    alone, together = len(one_each(len(data.encoded))), len(packed(data.lengths, max_length, in_order=False))
    tokens = int(data.lengths.sum())
    return {
        "max_length": max_length,
        "rows": len(data.encoded),
        "tokens": tokens,
        "sequences_unpacked": alone,
        "sequences_packed": together,
        "real_fraction_unpacked": round(tokens / (alone * max_length), 4),
        "real_fraction_packed": round(tokens / (together * max_length), 4),
        "factor": round(alone / together, 2),
    }


def main() -> None:
    """Measure each length, print and write."""
    results = [measured(max_length) for max_length in LENGTHS]
    for one in results:
        print(
            f"{one['max_length']:>5} tokens a sequence: {one['real_fraction_unpacked']:.1%} real, packed "
            f"{one['real_fraction_packed']:.1%}: {one['factor']} times the real tokens a step"
        )
    document = {"dataset": "dev-reasoning-v2", "tokenizer": "demo", "python": platform.python_version()}
    RESULT.write_text(json.dumps(document | {"results": results}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
