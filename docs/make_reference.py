"""Write the pages of docs/reference: `python docs/make_reference.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer import Context
from typer.main import get_command

from schemas.catalog import node_types, resolve_node, schema
from schemas.problems import Rule, all_rules
from schemas.render import next_step
from trainer.config.load import FLAGS
from trainer.recorder.environment import DEFAULT_CACHE_MIB
from trainproof.cli.app import app

FOLDER = Path(__file__).parent / "reference"

TYPES = {"boolean": "`true`, `false`", "string": "text", "null": "`null`"}
"""Names of types without bounds."""

CONFIGURATION = """\
# Configuration

One YAML file describes a run. Only `model.name` is required. Every run records the value of each key in its own
`config.yaml`, which gives the same run again. Unknown keys are errors.

Values come from four places; later ones win:

1. the defaults on this page;
2. the file passed with `--config`;
3. the file passed with `--smoke_config`, which also makes the run a smoke run;
4. flags ({flags}), then `--set group.key=value`, which sets any key.

`--set` reads its value as JSON if it is JSON (`1e-5`, `true`, `null`), and as text otherwise.

```sh
trainproof train --config config.yaml
# override two values; --set may be repeated
trainproof train --config config.yaml --set optimizer.learning_rate=1e-4 --set limits.steps=300
# run two steps on a CPU before spending hours
trainproof train --config config.yaml --smoke-steps 2 --device cpu
```

`trainproof plan --config config.yaml` estimates memory and time. The Launch page of `trainproof dashboard` is a form
with these keys.

Environment variables configure the machine; no result depends on them. `TRAINPROOF_CACHE` (default
`~/.cache/trainproof`) is the folder for compiled programs, limited to `TRAINPROOF_CACHE_MIB` ({mib} by default; 0
disables the cache). `JAX_COMPILATION_CACHE_DIR` and `JAX_ENABLE_COMPILATION_CACHE=false` take precedence.
When a queued job ends, `{{text, run, state, exit_code}}` is posted as JSON to `TRAINPROOF_WEBHOOK`.

This page is generated from the schema.
"""

COMMANDS = """\
# Commands

Output of `trainproof COMMAND --help`. Flags accept `-` and `_`. Exit codes: 0 success, 1 problems found, 2 usage or
configuration error, 3 refused (does not fit, no such device), 4 the run failed, 5 interrupted and resumable.
"""

RULES = """\
# Problem codes

Every problem has a code. Errors make a check fail; warnings and notes do not. This page is generated from
`schemas/rules.toml`.
"""

FAMILIES = {
    "0": "Usage and configuration",
    "1": "Documents and rows that do not match their schema",
    "2": "Integrity: a file is not the one that was recorded",
    "3": "Contradiction: two places disagree",
    "4": "Plausibility: values that are hardly possible",
    "5": "Completeness: something is missing",
    "6": "Hygiene: something is left over",
    "7": "Devices, memory, training",
    "8": "Bundles",
    "9": "Reinforcement learning",
}

HELP_WIDTH = 100


def configuration() -> str:
    """Return the page of the configuration keys, from the schema."""
    document = schema("train_config")
    flags = ", ".join(f"`{flag}`" for flag in sorted(FLAGS.values()))
    plain = {key: node for key, node in document["properties"].items() if "properties" not in node}
    groups = {key: node for key, node in document["properties"].items() if "properties" in node}
    lines = [CONFIGURATION.format(flags=flags, mib=DEFAULT_CACHE_MIB), "## The run itself", "", *table("", plain)]
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
    words = [TYPES[kind] if kind in TYPES else numbers(node) for kind in node_types(node)]
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


def commands() -> str:
    """Return the help of every command."""
    size = {"terminal_width": HELP_WIDTH, "max_content_width": HELP_WIDTH}
    command = get_command(app)
    parts = [COMMANDS]
    for node, context in leaf_commands(command, command.context_class(command, info_name="trainproof", **size), size):
        text = "\n".join(line.rstrip() for line in node.get_help(context).splitlines())
        parts.append(f"## {context.command_path.removeprefix('trainproof ')}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def leaf_commands(command: Any, context: Context, size: dict[str, int]) -> Iterator[tuple[Any, Context]]:
    """Yield each command that is not a group, in the order of the help."""
    if not hasattr(command, "commands"):
        yield command, context
        return
    for name in command.list_commands(context):
        node = command.commands[name]
        yield from leaf_commands(node, node.context_class(node, info_name=name, parent=context, **size), size)


def rules() -> str:
    """Return the tables of all problem codes."""
    lines = [RULES.rstrip()]
    for family, title in FAMILIES.items():
        lines += [
            "",
            f"## TP{family}xx: {title}",
            "",
            "| code | severity | title | why | fix |",
            "|---|---|---|---|---|",
        ]
        lines += [rule_row(rule) for rule in all_rules().values() if rule.code[2] == family]
    return "\n".join(lines) + "\n"


def rule_row(rule: Rule) -> str:
    """Return a rule as a row of its table."""
    cells = (rule.code, rule.severity, rule.title, rule.why, next_step(rule.fix, rule.action))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


PAGES = {"cli": commands, "configuration": configuration, "rules": rules}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (FOLDER / f"{name}.md").write_text(page(), encoding="utf-8")
