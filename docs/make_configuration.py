"""Writes docs/configuration.md from the schema: `python docs/make_configuration.py`. A test holds it current."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from schemas.catalog import resolve_node, schema, types_of
from trainer.config.load import FLAGS
from trainer.recorder.cache_folder import DEFAULT_MIB

PAGE = Path(__file__).parent / "configuration.md"

WORDS = {"boolean": "`true`, `false`", "string": "text", "null": "`null`"}
"""How a type without bounds is written."""

OPENING = """\
# Configuration: every key

A run is decided by one YAML file. Only `model.name` is required; every other key has a default, and a run records in
its own `config.yaml` the value of each, so that this file gives the same run again. A key that does not exist is an
error that names the nearest one.

Four places state values. The later one wins, key by key:

1. the defaults of this page;
2. the file of `--config`;
3. the file of `--smoke_config`, which also makes the run a smoke run;
4. flags with a name of their own ({flags}),
   then `--set group.key=value`, which reaches every key.

The value of `--set` is read as JSON where it is JSON (`1e-5`, `true`, `null`), else as text.

```sh
# one file, as it stands
trainproof train --config config.yaml
# the same with two values changed; --set can be given as often as you like
trainproof train --config config.yaml --set optimizer.learning_rate=1e-4 --set limits.steps=300
# two steps of it on a CPU, to see that all of it works before hours are spent
trainproof train --config config.yaml --smoke_steps 2 --device cpu
```

Beside the file stand settings of the machine, as environment variables, which no result depends on. In the folder
`TRAINPROOF_CACHE` (by default `~/.cache/trainproof`) compiled programs, answers of compilers and encoded rows are kept
between runs; programs take at most `TRAINPROOF_CACHE_MIB` there, and rows as much ({mib} by default; 0 keeps none).
`JAX_COMPILATION_CACHE_DIR` and `JAX_ENABLE_COMPILATION_CACHE=false` are JAX's own and come first.
The end of a queued run is posted to the address in `TRAINPROOF_WEBHOOK`, as JSON: `text`, `run`, `state`, `exit_code`.

`trainproof plan --config config.yaml` says what a configuration needs before anything is spent, and the Launch page of
`trainproof dashboard` is a form of these same keys. This page is made from the schema by `docs/make_configuration.py`.
"""


def page() -> str:
    """Return the text of docs/configuration.md."""
    document = schema("train_config")
    flags = ", ".join(f"`{flag}`" for flag in sorted(FLAGS.values()))
    plain = {key: node for key, node in document["properties"].items() if "properties" not in node}
    groups = {key: node for key, node in document["properties"].items() if "properties" in node}
    lines = [OPENING.format(flags=flags, mib=DEFAULT_MIB), "## The run itself", "", *table("", plain)]
    for name, group in groups.items():
        lines += [
            "",
            f"## {name}: {group['title']}",
            "",
            group["description"],
            "",
            *table(f"{name}.", group["properties"]),
        ]
    return "\n".join(lines) + "\n"


def table(prefix: str, properties: dict[str, Any]) -> Iterator[str]:
    """Yield the table of a group's keys."""
    yield "| key | default | range | meaning and effect |"
    yield "|---|---|---|---|"
    for key, stated in properties.items():
        node = resolve_node(stated, schema("train_config")) | stated
        cells = (f"`{prefix}{key}`", default_of(node), range_of(node), meaning_of(node, f"{prefix}{key}"))
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def default_of(node: dict[str, Any]) -> str:
    """Return the default as YAML has it; a key without one must be given."""
    return f"`{shown(node['default'])}`" if "default" in node else "required"


def range_of(node: dict[str, Any]) -> str:
    """Return which values a key takes: `8 to 1,024`, `text or null`."""
    if "enum" in node:
        return ", ".join(f"`{shown(value)}`" for value in node["enum"])
    words = [WORDS[kind] if kind in WORDS else numbers(node) for kind in types_of(node)]
    unit = f" {node['x-unit']}" if "x-unit" in node else ""
    return " or ".join(words) + unit


def numbers(node: dict[str, Any]) -> str:
    """Return the range of a number."""
    low = f"above {amount(node['exclusiveMinimum'])}" if "exclusiveMinimum" in node else amount(node["minimum"])
    if "exclusiveMaximum" in node:
        return f"{low} to below {amount(node['exclusiveMaximum'])}"
    high = amount(node["maximum"])
    return f"{low}, at most {high}" if "exclusiveMinimum" in node else f"{low} to {high}"


def amount(value: float) -> str:
    """Return a bound: `1,000,000`, `0.5`."""
    return f"{value:,}"


def meaning_of(node: dict[str, Any], path: str) -> str:
    """Return the description, with the flag that sets the key and what earlier versions did."""
    said = [node["description"]]
    if path in FLAGS:
        said.append(f"Flag: `{FLAGS[path]}`.")
    if "x-before" in node:
        said.append(f"A configuration of an earlier version than {node['x-since']} has `{shown(node['x-before'])}`.")
    return " ".join(said)


def shown(value: Any) -> str:
    """Return a value as YAML and `--set` have it."""
    return value if isinstance(value, str) else json.dumps(value)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
