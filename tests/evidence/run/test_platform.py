"""What operating systems do differently stands in one file, so that judging works where POSIX is missing."""

from __future__ import annotations

import os
import pwd
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboard.serve import has_login
from evidence import seal
from evidence.index import cache, columns_cache
from trainer.recorder import cache_folder

REPOSITORY = Path(__file__).parents[3]


def test_one_file_of_the_package_asks_which_system_it_runs_on():
    names = r"sys\.platform|os\.name\b|\bfcntl\b|\bmsvcrt\b|O_NOFOLLOW|O_NONBLOCK|os\.(getuid|fork|killpg|nice|pread)\b"
    asks = [path for path in (REPOSITORY / "evidence").rglob("*.py") if re.search(names, path.read_text("utf-8"))]
    assert [path.relative_to(REPOSITORY).as_posix() for path in asks] == [
        "evidence/index/parallel.py",
        "evidence/lock.py",
        "evidence/seal.py",
        "evidence/writing.py",
    ]


@pytest.fixture
def homeless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the temporary folder of a user without an entry in passwd, a variable HOME, or folders of their own."""

    def unknown(_user: int) -> None:
        raise KeyError

    for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", cache_folder.FOLDER):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seal._temporary_home.cache_clear()
    yield tmp_path
    seal._temporary_home.cache_clear()


def test_without_a_home_everything_lies_in_one_folder_that_only_this_user_can_enter(homeless: Path):
    home = homeless / f"trainproof-{os.getuid()}"
    assert cache_folder.folder() == home / ".cache" / "trainproof"
    assert cache.default_folder() == home / ".cache" / "trainproof" / "entries"
    assert columns_cache.default_folder() == home / ".cache" / "trainproof" / "columns"
    assert seal.user_data_folder() == home / ".local" / "share" / "trainproof"
    assert home.stat().st_mode & 0o777 == 0o700
    assert seal.verify_seal(seal.make_seal(b"job"), b"job")
    assert not has_login(homeless)


@pytest.mark.parametrize("how", ["others may write", "a link", "a file"])
def test_a_folder_that_somebody_else_could_have_prepared_is_not_used(how: str, homeless: Path):
    usual = homeless / f"trainproof-{os.getuid()}"
    if how == "others may write":
        usual.mkdir()
        usual.chmod(0o777)
    elif how == "a link":
        (homeless / "theirs").mkdir(mode=0o700)
        usual.symlink_to(homeless / "theirs")
    else:
        usual.write_text("")
    found = cache_folder.folder()
    assert usual not in found.parents
    assert homeless in found.parents
    assert found.parents[1].stat().st_mode & 0o777 == 0o700
    assert cache_folder.folder() == found
