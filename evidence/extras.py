"""Check that the packages of an optional dependency group are installed."""

from __future__ import annotations

import json
import re
from typing import Literal

from schemas.problems import ProblemError, problem_of

Extra = Literal["train", "dashboard", "queue", "frame", "sign", "witness", "sweep", "ray"]


def need(verb: str, *extras: Extra) -> None:
    """Refuse a command whose extras are not installed with exit code 2, before it starts any work."""
    lacking = {extra: packages for extra in extras if (packages := missing(extra))}
    if lacking:
        names = sorted({name for packages in lacking.values() for name in packages})
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        what = f"`trainproof {verb}` needs packages that are not installed: {', '.join(names[:3])}{more}."
        fix = f"Install them: {install_command(*lacking)}."
        raise ProblemError([problem_of("TP095", file="", what=what, next=fix)], exit_code=2)


def missing(extra: Extra) -> list[str]:
    """Return the packages of an extra that are not installed."""
    from importlib.metadata import Distribution, requires

    pattern = re.compile(rf"([A-Za-z0-9._-]+)[^;]*;.*extra == [\"']{extra}[\"'].*")
    names = {match[1] for line in requires("trainproof") or () if (match := pattern.fullmatch(line))}
    return sorted(name for name in names if not any(Distribution.discover(name=name)))


def install_command(*extras: Extra) -> str:
    """Return the command that adds extras to this installation, from where it was installed (PEP 610)."""
    from importlib.metadata import distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    wanted = f"[{','.join(extras)}]"
    recorded = distribution("trainproof").read_text("direct_url.json")
    match json.loads(recorded) if recorded else {}:
        case {"url": url, "dir_info": folder}:
            editable = " --editable" if folder.get("editable") else ""
            return f'pip install{editable} "{url2pathname(urlsplit(url).path)}{wanted}"'
        case {"url": url, "vcs_info": {"vcs": vcs, "commit_id": commit}}:
            return f'pip install "trainproof{wanted} @ {vcs}+{url}@{commit}"'
        case {"url": url}:
            return f'pip install "trainproof{wanted} @ {url}"'
    return f'pip install "trainproof{wanted}"'
