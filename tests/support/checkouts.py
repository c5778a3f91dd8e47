"""A git repository with the files of this checkout, those included that are not committed yet."""

import os
import shutil
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
WHO = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org", "-c", "commit.gpgsign=false")


def git(folder: Path, *arguments: object) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-c", "init.defaultBranch=main", *WHO, *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout


def checkout_in(folder: Path) -> Path:
    """Make the repository in a new folder, with one commit."""
    for name in filter(
        None, git(REPOSITORY, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    ):
        if (REPOSITORY / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(REPOSITORY / name, folder / name)
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "all of it")
    return folder
