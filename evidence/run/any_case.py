"""A run folder whose files have names in other letters: a file system that knows capitals only gave them those."""

from __future__ import annotations

import os
from pathlib import Path, PurePath


class AnyCase(type(Path())):  # type: ignore[misc]
    """A folder in which a name finds its file by other letters too, if no file has it as it is written."""

    def __truediv__(self, name: str | os.PathLike[str]) -> Path:
        """Return the path of a file below: `folder / "plan.json"` is that of `PLAN.JSON` where only this is there."""
        found = Path(self)
        for part in PurePath(name).parts:
            found = found / (part if os.path.lexists(found / part) else _other(found, part))
        return AnyCase(found)


def _other(folder: Path, name: str) -> str:
    """Return the name in a folder that is the same but for its letters, or the name itself if no file matches."""
    names = sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []
    return next((each for each in names if each.lower() == name.lower()), name)
