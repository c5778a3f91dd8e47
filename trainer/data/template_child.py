"""The process that runs chat templates, which are programs of strangers: `python -I template_child.py SECONDS`.

Reads questions as lines of JSON from standard input, and answers each with a line: the text, or why it is missing. A
question takes at most so many seconds of the processor, else the system ends the process; memory beyond what it has at
its start is limited too. It ends with standard input.
"""

from __future__ import annotations

import json
import signal
import sys
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError
from transformers.utils import chat_template_utils

MOST_BYTES = 2**30
"""Of memory, beyond what the process has before its first template."""
MOST_CHARACTERS = 2**24
"""Of a text."""


class TemplateClock(datetime):
    """The clock of `strftime_now`: it shows the time that a question states, or the present if it states none."""

    stated: datetime | None = None

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        """Return the time that templates write."""
        return cls.stated or datetime.now(tz)


chat_template_utils.datetime = TemplateClock  # type: ignore[attr-defined]


def limit_memory() -> None:
    """Let this process take no more than `MOST_BYTES` on top of what it has; Windows knows no such limit."""
    if sys.platform == "win32":
        return
    import resource

    statm = Path("/proc/self/statm")
    pages = int(statm.read_text("ascii").split()[0]) if statm.exists() else 0
    limit = pages * resource.getpagesize() + MOST_BYTES
    _, hardest = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit if hardest < 0 else min(limit, hardest), hardest))


def answer(question: dict[str, Any]) -> dict[str, str]:
    """Return the conversation of a question as its template writes it, under `text`, or the reason under its kind."""
    now = question["now"]
    TemplateClock.stated = datetime.fromisoformat(now).replace(tzinfo=None) if now else None
    try:
        rendered: Any = chat_template_utils.render_jinja_template(
            conversations=[question["messages"]],
            chat_template=question["template"],
            add_generation_prompt=question["opened"],
            **question["variables"],
        )
    except TemplateSyntaxError as error:
        return {"broken": f"line {error.lineno} of the template: {error.message or 'it is no jinja2'}"}
    except MemoryError:
        return {"beyond": f"more than {MOST_BYTES // 2**20:,} MiB of memory"}
    except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, RecursionError) as error:
        return {"refused": str(error).strip() or type(error).__name__}
    [text], _ = rendered
    if len(text) > MOST_CHARACTERS:
        return {"beyond": f"a text of {len(text):,} characters"}
    return {"text": text}


def main(most_seconds: float) -> None:
    """Answer every question, each within so many seconds of the processor."""
    limit_memory()
    for line in sys.stdin:
        if sys.platform != "win32":
            signal.setitimer(signal.ITIMER_PROF, most_seconds)  # SIGPROF ends the process
        said = answer(json.loads(line))
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(float(sys.argv[1]))
