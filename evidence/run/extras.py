"""Whether the packages that a verb needs are installed; judging a run needs none of the large ones.

Which packages belong to which extra is written in pyproject.toml alone, and read here from the installed metadata. What
does not live here: the packages.
"""

from __future__ import annotations

from typing import Literal

from schemas.problems import Problem, ProblemError, problem_of

Extra = Literal["train", "dashboard", "queue", "frame", "sign", "witness"]


_SHOWN = 3
"""Missing packages that are named before the rest is only counted."""


def need(verb: str, *extras: Extra) -> None:
    """Refuse a verb whose extras are not installed, before it starts any work.

    Args:
        verb: The verb, as it is typed.
        extras: The extras that it needs.

    Raises:
        ProblemError: A package of an extra is not installed (exit code 2).
    """
    lacking = {extra: packages for extra in extras if (packages := missing(extra))}
    if lacking:
        names = sorted({name for packages in lacking.values() for name in packages})
        raise ProblemError([_not_installed(verb, names, list(lacking))], exit_code=2)


def missing(extra: Extra) -> list[str]:
    """Return the packages of an extra that are not installed, by name."""
    from importlib.metadata import PackageNotFoundError, distribution

    absent = []
    for name in _packages(extra):
        try:
            distribution(name)
        except PackageNotFoundError:
            absent.append(name)
    return absent


def install_command(*extras: Extra) -> str:
    """Return the command that adds extras to this installation, from where it came itself.

    That is what pip and uv write down beside it (PEP 610): a folder, a repository at a commit, or nothing where it came
    from an index. Of the folder /home/me/trainproof: `pip install "/home/me/trainproof[train]"`.
    """
    import json
    from importlib.metadata import distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    wanted = f"[{','.join(extras)}]"
    stated = distribution("trainproof").read_text("direct_url.json")
    origin = json.loads(stated) if stated else {}
    match origin:
        case {"url": url, "dir_info": folder}:
            editable = " --editable" if folder.get("editable") else ""
            return f'pip install{editable} "{url2pathname(urlsplit(url).path)}{wanted}"'
        case {"url": url, "vcs_info": {"vcs": vcs, "commit_id": commit}}:
            return f'pip install "trainproof{wanted} @ {vcs}+{url}@{commit}"'
        case {"url": url}:
            return f'pip install "trainproof{wanted} @ {url}"'
    return f'pip install "trainproof{wanted}"'


def _packages(extra: Extra) -> list[str]:
    """Return the packages that an extra names: `jax` for the line `jax>=0.10; extra == "train"`."""
    import re
    from importlib.metadata import requires

    pattern = re.compile(rf"([A-Za-z0-9._-]+)[^;]*;.*extra == [\"']{extra}[\"'].*")
    matches = (pattern.fullmatch(line) for line in requires("trainproof") or ())
    return sorted({match[1] for match in matches if match})


def _not_installed(verb: str, names: list[str], extras: list[Extra]) -> Problem:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    what = f"`trainproof {verb}` needs packages that are not installed: {', '.join(names[:_SHOWN])}{more}."
    why = "They are large, and judging a run works without them; so they come with an extra."
    return problem_of("TP095", file="", what=what, why=why, next=f"Install them: {install_command(*extras)}.")
