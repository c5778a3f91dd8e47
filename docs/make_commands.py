"""Writes docs/commands.md from the verbs' own help: `python docs/make_commands.py`. A test holds it current."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer import Context
from typer.main import get_command

from trainproof.command import app

PAGE = Path(__file__).parent / "commands.md"
WIDTH = 100
"""Characters of a line of help."""

OPENING = """\
# Commands: every verb

What `trainproof VERB --help` prints. Flags take `-` or `_` alike. Exit codes: 0 good, 1 problems found, 2 usage
or configuration, 3 refused (does not fit, device absent), 4 the run failed, 5 interrupted and resumable. This page is
made from the program by `docs/make_commands.py`.
"""


def page() -> str:
    """Return the text of docs/commands.md."""
    command = get_command(app)
    parts = [OPENING]
    for node, context in verbs(command, command.context_class(command, info_name="trainproof", **form())):
        parts.append(
            f"## {context.command_path.removeprefix('trainproof ')}\n\n```text\n{help_of(node, context)}\n```\n"
        )
    return "\n".join(parts)


def verbs(command: Any, context: Context) -> Iterator[tuple[Any, Context]]:
    """Yield each command that does something, in the order of the help."""
    if not hasattr(command, "commands"):
        yield command, context
        return
    for name in command.list_commands(context):
        node = command.commands[name]
        yield from verbs(node, node.context_class(node, info_name=name, parent=context, **form()))


def form() -> dict[str, int]:
    """Return how wide the help is, whatever the terminal is."""
    return {"terminal_width": WIDTH, "max_content_width": WIDTH}


def help_of(node: Any, context: Context) -> str:
    """Return the help of a command without trailing spaces."""
    return "\n".join(line.rstrip() for line in node.get_help(context).splitlines())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
