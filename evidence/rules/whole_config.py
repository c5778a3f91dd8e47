"""TP516: config.yaml as a run writes it is whole, every key stated, so that feeding it back gives the same run."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from evidence.records.facts import Facts, finding
from evidence.run import layout
from schemas.catalog import resolve_node, schema
from schemas.problems.problem import Problem, pointer_to
from schemas.problems.rule import Rule, first_few

NOT_WHOLE = Rule(
    "TP516",
    "Setting not stated",
    "A run writes config.yaml with every key, defaults included; what is left out was not written by it.",
    "Restore config.yaml as the run wrote it.",
)


def every_setting_is_stated(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for each key that config.yaml leaves out."""
    if facts.config is None or facts.manifest is None:
        return
    config = facts.config
    version = str(config.get("schema_version") or facts.manifest["schema_version"])
    yield from first_few(
        finding(
            facts.folder, NOT_WHOLE, layout.CONFIG, f"{'.'.join(keys)} is not stated.", pointer=pointer_to(keys[:-1])
        )
        for keys, since in _since().items()
        if since <= version and not _has(config, keys)
    )


def settings() -> tuple[tuple[str, ...], ...]:
    """Return the keys of every setting, in the order of the schema: `("limits", "steps")`."""
    return tuple(_since())


@cache
def _since() -> dict[tuple[str, ...], str]:
    """Return every setting with the version of the schema that it came with; an older run does not know it.

    Left out are settings that came when runs of their version had been recorded (`x-late`).
    """
    return dict(_settings(schema("train_config"), (), "1.0"))


def _settings(node: dict[str, Any], above: tuple[str, ...], since: str) -> Iterator[tuple[tuple[str, ...], str]]:
    document = schema("train_config")
    for key, item in resolve_node(node, document).get("properties", {}).items():
        inner = resolve_node(item, document)
        came = inner.get("x-since", since)
        if "properties" in inner:
            yield from _settings(inner, (*above, key), came)
        elif not inner.get("x-late"):
            yield (*above, key), came


def _has(config: Any, keys: tuple[str, ...]) -> bool:
    for key in keys:
        if not isinstance(config, dict) or key not in config:
            return False
        config = config[key]
    return True


CHECKS = (every_setting_is_stated,)
"""Rules and functions of this topic."""
