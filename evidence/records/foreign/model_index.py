"""The results that a model card states before its text, in the form of the hub: `model-index`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evidence.records.foreign.keys import is_score, plain
from evidence.records.foreign.numbers import finite
from evidence.records.foreign.score_names import metric_and_scope
from evidence.records.foreign.statement import Source, Statement
from evidence.records.foreign.text import Text

_FENCE = "---"


def of_model_index(text: Text, file: str) -> Iterator[Statement]:
    """Yield the scores of a card's only result, as remarks on the run's evaluation.

    A card with several results lists benchmarks, each of its own items; which of them a run evaluated, nobody says.
    """
    results = _results(text.text)
    if len(results) != 1 or not isinstance(metrics := results[0].get("metrics"), list):
        return
    for metric in metrics:
        if not isinstance(metric, dict):
            continue
        name, value = plain(str(metric.get("type") or metric.get("name") or "")), metric.get("value")
        if not is_score(name) or isinstance(value, bool) or not isinstance(value, int | float) or finite(value) is None:
            continue
        line = next((one.number for one in text.lines() if f"value: {value}" in one.text), None)
        kind, scope = metric_and_scope(f"eval_{name}", file)
        source = Source(file=file, line=line)
        yield Statement(fact=f"score.{kind}", value=float(value), source=source, kind="remark", scope=scope)


def _results(text: str) -> list[dict[str, Any]]:
    """Return the results in the head of a card; none where there is no head, or no such list in it."""
    from schemas.reading.parse import parse_yaml

    begun, _, rest = text.lstrip().partition("\n")
    head, ended, _ = rest.partition(f"\n{_FENCE}")
    if begun.strip() != _FENCE or not ended or "model-index" not in head:
        return []
    parsed = parse_yaml(head.encode("utf-8", "replace"), file="head of the card")
    index = parsed.value.get("model-index") if parsed.is_read and isinstance(parsed.value, dict) else None
    models = [one for one in index if isinstance(one, dict)] if isinstance(index, list) else []
    found = [one for model in models if isinstance(model.get("results"), list) for one in model["results"]]
    return [one for one in found if isinstance(one, dict)]
