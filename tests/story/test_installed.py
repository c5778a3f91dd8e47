"""An installed copy states its code as a checkout does: the wheel is built, installed elsewhere, run, and edited.

Nothing is downloaded: the fresh environment finds the other packages where the tests find them.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path
from typing import Any

import pytest
from checkouts import checkout_in, git

from trainer.recorder import code as installation

pytestmark = [pytest.mark.slow, pytest.mark.packaging]

BUILD = "import sys; from setuptools.build_meta import build_{0}; print(build_{0}(sys.argv[1]))"
SMOKE = ("--config", "{}/trainer/configs/tiny.yaml", "--smoke-config", "{}/trainer/configs/smoke_tiny.yaml")


def ran(*command: object, cwd: Path) -> str:
    """Run a command apart from this checkout and return what it prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "PYTHON"))}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def built(kind: str, checkout: Path, folder: Path) -> Path:
    """Build a wheel or a source archive with the setuptools that is here."""
    return folder / ran(sys.executable, "-c", BUILD.format(kind), folder, cwd=checkout).split()[-1]


def edit(path: Path) -> None:
    path.write_text(path.read_text("utf-8") + "# edited\n", "utf-8")


class Installed:
    """A fresh environment with the wheel in it."""

    def __init__(self, wheel: Path, folder: Path) -> None:
        venv.create(folder, with_pip=False)
        self.python = folder / "bin" / "python"
        ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
        self.site = Path(ran(self.python, "-c", ask, cwd=folder).strip())
        (self.site / "beside.pth").write_text(sysconfig.get_path("purelib") + "\n")
        install = ("install", "--quiet", "--no-deps", "--no-index", "--no-compile", wheel)
        ran(sys.executable, "-m", "pip", "--python", self.python, *install, cwd=folder)

    def code(self) -> dict[str, Any]:
        """Return the manifest's group `code` as a run of this copy would state it."""
        ask = "import json; from trainer.recorder.code import code_identity; print(json.dumps(code_identity()))"
        value: dict[str, Any] = json.loads(ran(self.python, "-c", ask, cwd=self.site.parents[2]))
        return value

    def distribution(self) -> Distribution:
        """Return what the installer wrote down."""
        return PathDistribution(next(self.site.glob("trainproof-*.dist-info")))


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkout_in(tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("wheel", checkout, tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def copy(wheel: Path, tmp_path: Path) -> Installed:
    return Installed(wheel, tmp_path / "environment")


def test_a_run_of_an_installed_copy_is_worth_as_much(checkout: Path, copy: Installed, tmp_path: Path) -> None:
    commit = git(checkout, "rev-parse", "HEAD").strip()
    smoke = [word.format(copy.site) for word in SMOKE]
    program = copy.python.with_name("trainproof")
    ran(program, "train", *smoke, "--smoke-steps", "2", "--output", "runs/smoke", cwd=tmp_path)
    code = json.loads((tmp_path / "runs/smoke/run_manifest.json").read_text())["code"]
    assert (code["source"], code["commit"], code["dirty"], code["differs"]) == ("wheel", commit, False, [])
    assert len(code["installed_sha256"]) == 64
    assert ran(program, "grade", "runs/smoke", cwd=tmp_path).startswith("runs/smoke  consistent\n")


def test_edited_added_and_missing_files_make_the_code_dirty(copy: Installed, tmp_path: Path) -> None:
    before = copy.code()
    edit(copy.site / "trainer/run.py")
    (copy.site / "evidence/index/added.py").write_text("")
    (copy.site / "launch/jobs.py").unlink()
    after = copy.code()
    assert after["dirty"]
    assert after["differs"] == ["evidence/index/added.py", "launch/jobs.py", "trainer/run.py"]
    assert len(after["diff_sha256"]) == 64
    assert after["installed_sha256"] != before["installed_sha256"]
    assert after["commit"] == before["commit"]


def test_a_wheel_says_that_its_tree_was_dirty_and_packs_nothing_removed(checkout: Path, tmp_path: Path) -> None:
    edited = tmp_path / "edited"
    shutil.copytree(checkout, edited)
    (edited / "launch" / "added.py").write_text('"""Not committed."""\n')
    built("wheel", edited, tmp_path)
    (edited / "launch" / "added.py").unlink()
    edit(edited / "trainer/run.py")
    copy = Installed(built("wheel", edited, tmp_path), tmp_path / "environment")
    code = copy.code()
    assert (code["source"], code["dirty"], code["differs"]) == ("wheel", True, [])
    assert len(code["diff_sha256"]) == 64
    assert not (copy.site / "launch" / "added.py").exists()


def test_a_source_archive_carries_the_commit(checkout: Path, tmp_path: Path) -> None:
    archive = built("sdist", checkout, tmp_path)
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    tree = tmp_path / archive.name.removesuffix(".tar.gz")
    code = Installed(built("wheel", tree, tmp_path), tmp_path / "environment").code()
    commit = git(checkout, "rev-parse", "HEAD").strip()
    assert (code["source"], code["commit"], code["dirty"]) == ("wheel", commit, False)


def test_without_a_record_the_installer_says_which_commit(copy: Installed) -> None:
    (copy.site / installation.BUILT_FROM).unlink()
    record = next(copy.site.glob("trainproof-*.dist-info")) / "RECORD"
    lines = [line for line in record.read_text().splitlines() if not line.startswith(installation.BUILT_FROM)]
    record.write_text("\n".join(lines) + "\n")
    origin = {"url": "https://example.org/x.git", "vcs_info": {"vcs": "git", "commit_id": "a" * 40}}
    (record.parent / "direct_url.json").write_text(json.dumps(origin))
    stated = installation.installed_identity(copy.distribution())
    assert (stated["source"], stated["commit"]) == ("direct_url", "a" * 40)
    assert (stated["dirty"], stated["differs"]) == (False, [])
    (record.parent / "direct_url.json").unlink()
    nobody = installation.installed_identity(copy.distribution())
    assert (nobody["source"], nobody["commit"], nobody["dirty"]) == (None, None, None)
    assert len(nobody["installed_sha256"]) == 64
