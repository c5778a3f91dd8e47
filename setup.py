"""The build; everything but one file is in pyproject.toml.

A wheel and a source archive carry `trainproof/built_from.json`: the commit that they were built from, and whether the
tree was clean. So a run of an installed copy can state its code as a run from a checkout does.
"""

from __future__ import annotations

import json
import shutil
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent
BUILT_FROM = "trainproof/built_from.json"


def built_from() -> dict[str, Any] | None:
    """Return what git states about this tree, or what the source archive carries; or None if the commit is unknown."""
    spec = spec_from_file_location("code_identity", HERE / "trainer" / "recorder" / "code.py")
    assert spec is not None
    assert spec.loader is not None
    code = module_from_spec(spec)
    spec.loader.exec_module(code)
    if identity := code.checkout_identity(HERE):
        return dict(identity)
    carried = HERE / BUILT_FROM
    return dict(json.loads(carried.read_text("utf-8"))) if carried.is_file() else None


def write_into(folder: Path) -> None:
    """Write the record into a tree to be packed, if the commit is known."""
    target = folder / BUILT_FROM
    target.unlink(missing_ok=True)
    if (identity := built_from()) is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(identity, indent=2) + "\n", "utf-8")


class BuildWithCommit(build_py):
    """Copies the packages into a fresh folder, so that no file of an earlier build is packed, and adds the record."""

    def run(self) -> None:
        """Build; an editable installation has its checkout and needs no record."""
        if not self.editable_mode:
            for package in {name.partition(".")[0] for name in self.packages or ()}:
                shutil.rmtree(Path(self.build_lib) / package, ignore_errors=True)
        super().run()
        if not self.editable_mode:
            write_into(Path(self.build_lib))


class ArchiveWithCommit(sdist):
    """Adds the record to a source archive."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Fill the folder that is packed."""
        super().make_release_tree(base_dir, files)
        write_into(Path(base_dir))


setup(cmdclass={"build_py": BuildWithCommit, "sdist": ArchiveWithCommit})
