"""How many real tokens a step takes in, one row a sequence, in sequences of several lengths, and packed.

Counted, not timed: a program computes equally many tokens, whatever they are. The rows are those of dev-reasoning-v2
under the built-in tokenizer; other tokenizers give other lengths and about the same factor.

    python benchmarks/packing.py            # prints the table and writes benchmarks/results/packing.json
"""

from __future__ import annotations

import json
import platform
from functools import cache
from pathlib import Path

import numpy as np

from trainer.data.packing import group_by_bucket, bucket_lengths
from trainer.data.encode import encode_rows
from trainer.data.order import pass_order, batch_indices
from trainer.data.packing import one_each, pack_rows
from trainer.data.rows import read_dataset
from trainer.model.files.source import resolve

RESULT = Path(__file__).parent / "results" / "packing.json"
LENGTHS = (128, 256, 512, 1024)
BUCKETS = 4
BATCH_SIZE = 16


def measured(max_length: int) -> dict[str, float]:
    """Return sequences and real tokens of one pass, packed and not."""
    file = read_dataset("dev-reasoning-v2")
    tokenizer = resolve("demo").tokenizer()
    data = encode_rows(file.rows, tokenizer, max_length=max_length, file=file.name, lines=file.lines)
    alone, together = len(one_each(len(data.encoded))), len(pack_rows(data.lengths, max_length, in_order=False))
    tokens = int(data.lengths.sum())
    computed = bucketed_tokens(data.lengths, max_length)
    return {
        "max_length": max_length,
        "rows": len(data.encoded),
        "tokens": tokens,
        "sequences_unpacked": alone,
        "sequences_packed": together,
        "real_fraction_unpacked": round(tokens / (alone * max_length), 4),
        "real_fraction_bucketed": round(tokens / computed, 4),
        "factor_bucketed": round(alone * max_length / computed, 2),
        "real_fraction_packed": round(tokens / (together * max_length), 4),
        "factor": round(alone / together, 2),
    }


def bucketed_tokens(lengths: np.ndarray, max_length: int) -> float:
    """Return the tokens that one pass computes in sequences of `BUCKETS` lengths, as a mean over many passes."""
    shapes = np.array(bucket_lengths(max_length, BUCKETS))
    kinds, rows, passes = np.searchsorted(shapes, lengths), len(lengths), BATCH_SIZE

    @cache
    def order(number: int) -> np.ndarray:
        plain = pass_order(number, rows=rows, seed=0, shuffle=True)
        return group_by_bucket(plain, kinds, number=number, batch_size=BATCH_SIZE, seed=0)

    steps = [batch_indices(order, step, rows=rows, batch_size=BATCH_SIZE) for step in range(passes * rows // BATCH_SIZE)]
    return float(sum(BATCH_SIZE * shapes[kinds[step].max()] for step in steps)) / passes


def main() -> None:
    """Measure each length, print and write."""
    results = [measured(max_length) for max_length in LENGTHS]
    for one in results:
        print(
            f"{one['max_length']:>5} tokens a sequence: {one['real_fraction_unpacked']:.1%} real, in {BUCKETS} "
            f"lengths {one['real_fraction_bucketed']:.1%} ({one['factor_bucketed']} times as many for the same work), "
            f"packed {one['real_fraction_packed']:.1%} ({one['factor']} times)"
        )
    document = {"dataset": "dev-reasoning-v2", "tokenizer": "demo", "python": platform.python_version()}
    document |= {"lengths": str(BUCKETS), "rows_of_a_step": str(BATCH_SIZE)}
    RESULT.write_text(json.dumps(document | {"results": results}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
