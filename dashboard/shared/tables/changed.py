"""What a user changed from one run to the next, in a few words: `learning_rate 0.002 → 0.004`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from dashboard.shared.config import form
from dashboard.shared.config.settings import as_yaml
from dashboard.shared.words.text import shorten
from evidence.bundle.secrets.masking import visible
from evidence.index.runs import RunSummary

_NOT_CHOSEN = frozenset({"name", "mode", "schema_version"})
_IDENTITY = frozenset({"model.name", "model.weights", "data.dataset", "evaluation.eval_set"})
"""Settings that no default could hold."""
_MOST, _LONGEST = 3, 200


def describe_changes(found: Sequence[RunSummary]) -> list[str]:
    """Return for each run what differs from the run that it continues, else from the one before, else from the default.

    The one before is the next older run of the same model and mode. Empty: the run states no settings.

    Args:
        found: Newest first.
    """
    by_id = {summary.run_id: summary for summary in found}
    before: dict[tuple[str | None, str | None], RunSummary] = {}
    said = []
    for summary in reversed(found):
        kind = (summary.model, summary.mode)
        other = by_id.get(summary.parent or "") or before.get(kind)
        said.append(_describe(summary.settings, other.settings if other is not None else None))
        if summary.settings:
            before[kind] = summary
    return said[::-1]


def _describe(settings: Mapping[str, object], other: Mapping[str, object] | None) -> str:
    if not settings:
        return ""
    if settings == other:
        return "nothing"
    parts = list(_parts(settings, _defaults() if other is None else other, is_default=other is None))
    if not parts:
        return "nothing" if other is not None else "all as by default"
    more = f", {len(parts) - _MOST} more" if len(parts) > _MOST else ""
    return shorten(visible(", ".join(parts[:_MOST]) + more), _LONGEST)


def _parts(settings: Mapping[str, object], other: Mapping[str, object], *, is_default: bool) -> Iterator[str]:
    for key, value in settings.items():
        if key in _NOT_CHOSEN or other.get(key) == value or (is_default and (key in _IDENTITY or key not in other)):
            continue
        name = "model" if key == "model.name" else key.rpartition(".")[2]
        yield f"{name} {as_yaml(value)}" if is_default else f"{name} {as_yaml(other.get(key))} → {as_yaml(value)}"


@cache
def _defaults() -> Mapping[str, object]:
    return {field.dotted: field.default for field in form.fields()}
