"""Several answers to each item: the chance that one of k is right, the majority's answer, and how sure both are."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from evidence.scores.clusters import BY_PROMPT, clustered_error, clustered_wilson, clusters_of
from evidence.scores.reading import Scoring

MORE_SAMPLES = "more_samples"
"""Field of a prediction row with the answers after the first."""


def answers_in(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield each answer of a prediction row as a row of its own, the first first."""
    yield {key: value for key, value in row.items() if key not in (MORE_SAMPLES, "majority_answer", "majority_correct")}
    of_item = {key: row[key] for key in ("id", "expected", "also_expected") if key in row}
    for sample in row.get(MORE_SAMPLES, ()):
        yield {**of_item, "error": None, **sample}


def pass_at(samples: int, right: int, tries: int) -> float:
    """Return the chance that one of some tries is right, without bias: `1 − C(n − c, k) / C(n, k)`.

    n samples, c of them right, k tries (M. Chen et al., arXiv 2107.03374, 2021). For 4 samples of which 2 are right and
    2 tries: `1 − 1 / 6 = 0.833`; `1 − (1 − 2 / 4)²` would be 0.75, too little.

    Args:
        samples: drawn for the item.
        right: of these, 0 to all.
        tries: 1 to `samples`.
    """
    return 1 - math.comb(samples - right, tries) / math.comb(samples, tries)


def majority_of(answers: Sequence[str | None], scoring: Scoring) -> str | None:
    """Return the answer that most samples gave, the earliest of several; None if none has an answer.

    Answers are the same if one is right where the other is expected. Of 7, 8, 8.0 compared as numbers it is 8.
    """
    counts: dict[str, int] = {}
    for answer in answers:
        if answer is not None:
            same = next((other for other in counts if scoring.is_right(answer, (other,))), answer)
            counts[same] = counts.get(same, 0) + 1
    return max(counts, key=counts.__getitem__, default=None)


def majority_fields(answers: Sequence[str | None], scoring: Scoring, accepted: Sequence[str]) -> dict[str, Any]:
    """Return what a prediction row states of the majority of its answers."""
    majority = majority_of(answers, scoring)
    return {"majority_answer": majority, "majority_correct": scoring.is_right(majority, accepted)}


def sampled_scores(rows: Sequence[Mapping[str, Any]], samples: int, *, by_prompt: bool = True) -> dict[str, Any]:
    """Return the group `sampled` of eval_summary.json: pass@k for 1, 2, 4, … and all samples, and the majority.

    An item is one piece however many answers it has, items of a group or with one prompt are one together. An item
    without an output has no right answer.

    Args:
        rows: of the predictions.
        samples: answers to each item, 2 at least.
        by_prompt: as in `scores_of`.
    """
    right = [0 if row["error"] is not None else sum(each["correct"] for each in answers_in(row)) for row in rows]
    clusters, method = clusters_of(rows, by_prompt=by_prompt)
    share = partial(share_of, clusters=clusters, method=BY_PROMPT if method == BY_PROMPT else "clustered_wilson")
    majority = [float(row["error"] is None and bool(row.get("majority_correct"))) for row in rows]
    tries = [*(2**power for power in range((samples - 1).bit_length())), samples]
    return {
        "samples": samples,
        "pass_at": [
            {"tries": k, **share([pass_at(samples, min(c, samples), k) for c in right], tries_each=samples // k)}
            for k in tries
        ],
        "majority": share(majority, tries_each=1),
    }


def share_of(
    values: Sequence[float], clusters: Sequence[Hashable], tries_each: int, method: str = "clustered_wilson"
) -> dict[str, Any]:
    """Return the mean of a share of each item, with standard error and interval.

    The interval is Wilson's for the independent tries that they are worth, `tries_each` an item at most.
    """
    if not values:
        return {"value": None, "standard_error": None, "interval": None}
    value, n = math.fsum(values) / len(values), len(values) * tries_each
    error, groups = clustered_error(values, clusters)
    low, high = clustered_wilson(error, value * n, n, groups)
    return {
        "value": value,
        "standard_error": error,
        "interval": {"low": low, "high": high, "level": 0.95, "method": method},
    }
