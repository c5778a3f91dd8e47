"""Judging and looking without what only POSIX has, as on Windows: modules and constants are hidden, verbs must work."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from synthetic import write_run

pytestmark = pytest.mark.slow

OTHERS = ("numpy", "jsonschema_rs", "yaml", "rich.console", "typer", "psutil", "filelock")
"""Packages of others that ask which system this is; they are imported before anything is hidden."""
OF_PAGES = ("streamlit.testing.v1", "pandas", "pyarrow")
OF_TRAINING = ("jax", "flax.nnx", "optax", "orbax.checkpoint", "transformers")
HIDDEN_MODULES = ("fcntl", "grp", "pwd", "resource", "termios")
HIDDEN_NAMES = {
    "os": (
        *("O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY", "fchmod", "fork", "geteuid", "getuid", "killpg", "mkfifo"),
        *("posix_fadvise", "setsid", "sched_getaffinity"),
    ),
    "signal": ("SIGKILL", "SIGSTOP", "SIGCONT", "SIGHUP", "SIGUSR1"),
}
START = f"""
import fcntl, importlib, os, subprocess, sys, types
for name in sys.argv[1].split():
    importlib.import_module(name)
os_locks, msvcrt = fcntl, types.ModuleType("msvcrt")
msvcrt.LK_NBLCK, msvcrt.LK_UNLCK = fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_UN
msvcrt.locking = lambda file, how, count: os_locks.lockf(file, how, count, os.lseek(file, 0, os.SEEK_CUR))
sys.modules["msvcrt"] = msvcrt
sys.modules.update(dict.fromkeys({HIDDEN_MODULES!r}))
for module, names in {HIDDEN_NAMES!r}.items():
    for name in names:
        if hasattr(importlib.import_module(module), name):
            delattr(importlib.import_module(module), name)
"""


VERBS = """
import io, json
from contextlib import redirect_stderr, redirect_stdout
from trainproof.cli import app as command
ended = []
for line in json.loads(sys.argv[2]):
    out, errors, code = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(errors):
        try:
            command.main(line.split())
        except SystemExit as end:
            code = end.code or 0
        except Exception as error:
            code = repr(error)
    ended.append([code, out.getvalue(), errors.getvalue()])
print(json.dumps(ended))
"""
SAID = {
    "check submission_runs/first": "consistent",
    "grade submission_runs": "consistent",
    "runs --root submission_runs": "interrupted",
    "show submission_runs/first": "exact match",
    "compare submission_runs/first submission_runs/second": "Exact match of second minus first",
    "note submission_runs/second --tag seen": "seen",
    "package submission_runs/first --output first.zip": "consistent",
    "verify first.zip": "Intact, not verified.",
    "queue list": "The queue is empty.",
}
HOLDS = """
from evidence.lock import RunLock
from pathlib import Path
with RunLock(Path(sys.argv[2])):
    print("held", flush=True)
    sys.stdin.read()
"""
LOOKS = """
from evidence.lock import RunLock, is_alive
from pathlib import Path
from schemas.problems import ProblemError
alive = is_alive(Path(sys.argv[2]))
try:
    with RunLock(Path(sys.argv[2])):
        print(alive, "taken")
except ProblemError as error:
    print(alive, error.problems[0].what)
"""
PAGES = """
import json
from streamlit.testing.v1 import AppTest
import dashboard.app
app = AppTest.from_file(dashboard.app.__file__, default_timeout=60).run()
print(json.dumps([[str(one.value) for one in app.exception], len(app.main)]))
"""
IMPORTS = """
import pkgutil
from trainproof.cli import app as command
for package in ("schemas", "evidence", "launch", "trainer", "dashboard", "trainproof"):
    for module in pkgutil.walk_packages([f"{sys.argv[2]}/{package}"], f"{package}."):
        # A page draws itself when it is imported, and `__main__` starts the command.
        if not module.name.endswith((".__main__", ".view", ".app")):
            importlib.import_module(module.name)
print("all")
"""


def ran(code: str, folder: Path, others: tuple[str, ...], given: str = "") -> Any:
    """Run code with the names hidden and return the last line it prints."""
    command = [sys.executable, "-c", START + code, " ".join(others), given]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elsewhere")
    write_run(folder / "submission_runs", "first")
    write_run(folder / "submission_runs", "second", seed=1)
    write_run(folder / "submission_runs", "stopped", status="running")
    return folder


@pytest.fixture(scope="module")
def ended(folder: Path) -> dict[str, tuple[int, str, str]]:
    return dict(zip(SAID, json.loads(ran(VERBS, folder, OTHERS, json.dumps(list(SAID)))), strict=True))


@pytest.mark.parametrize("verb", SAID)
def test_a_judge_s_verbs_work(ended: dict[str, tuple[int, str, str]], verb: str) -> None:
    code, out, errors = ended[verb]
    assert (code, errors) == (0, "")
    assert SAID[verb] in out


def test_a_run_folder_is_held_by_one_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", START + HOLDS, "filelock", str(tmp_path)]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        said = ran(LOOKS, tmp_path, ("filelock",), str(tmp_path))
        assert said == f"True Another process is writing this run folder (process {holder.pid})."
        holder.communicate("", timeout=30)
    assert ran(LOOKS, tmp_path, ("filelock",), str(tmp_path)) == "False taken"
    assert list(tmp_path.iterdir()) == []


def test_the_dashboard_lists_the_runs(folder: Path) -> None:
    exceptions, parts = json.loads(ran(PAGES, folder, (*OTHERS, *OF_PAGES)))
    assert (exceptions, parts > 0) == ([], True)


def test_every_module_can_be_imported(folder: Path) -> None:
    home = str(Path(__file__).parents[2])
    assert ran(IMPORTS, folder, (*OTHERS, *OF_PAGES, *OF_TRAINING), home) == "all"
