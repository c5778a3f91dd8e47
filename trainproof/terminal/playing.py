"""What happens while models play, in the terminal: each answer as it grows, or one JSON object a line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

Event = Mapping[str, Any]

NEVER_EVIDENCE = "Play is never evidence: nothing is recorded, and nothing here counts for a grade."


def as_line(event: Event) -> None:
    """Write an event as a line of JSON."""
    _write(json.dumps(event, ensure_ascii=False) + "\n")


def as_text() -> Callable[[Event], None]:
    """Return what writes events for a reader: of an answer that grows, what is new."""
    shown: dict[int, str] = {}
    names: list[str] = []

    def tell(event: Event) -> None:
        match event["event"]:
            case "ready":
                names[:] = [model["name"] for model in event["models"]]
                _write(f"{NEVER_EVIDENCE}\n")
            case "text" | "answer":
                _write(_added_text(event, shown, names))
            case "refused":
                _write(
                    "".join(f"\n{each['code']}: {each['what']} Next: {each['next']}\n" for each in event["problems"])
                )

    return tell


def _added_text(event: Event, shown: dict[int, str], names: list[str]) -> str:
    """Return what is to be written of an answer so that all of it stands there."""
    number, text = event["model"], event["text"]
    before = shown.get(number)
    heading = "" if before is not None else f"\n{names[number]}:\n"
    # A decoder may read a text anew once more of it is there; then it begins again on a line of its own.
    again = before is not None and not text.startswith(before)
    new = f"\n{text}" if again else text[len(before or "") :]
    shown[number] = text
    if event["event"] == "text":
        return heading + new
    del shown[number]
    return f"{heading}{new}\n{_ending(event)}"


def _ending(event: Event) -> str:
    """Return how an answer ended and, of an item, whether it is right; in brackets, apart from the text."""
    ending = "ended by itself" if event["finish_reason"] == "stop" else "cut off"
    said = f"{event['tokens']} tokens, {ending}"
    if "expected" in event:
        said += f"; expected {event['expected']}: {'right' if event['correct'] else 'wrong'}"
    return f"[{said}]\n"


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
