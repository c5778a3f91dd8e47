"""The other end of `launch.places.ssh`, which sends this file with each call. It uses only the standard library.

~/.trainproof/NAME/
    input/       request.json, the wheel, config.yaml and the files that it names
    session.py   the program of the session
    runs/        run folders, with a link to the run that is continued
    lock         locked by the session as long as it lives; contains its process id
    session.log  output, whose last line states how it ended
    cancelled    written when the session is cancelled
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

with suppress(ImportError):  # Windows has none: sessions can be sent from there, but not run there
    import fcntl

HOME = Path(os.environ.get("HOME", "."), ".trainproof")  # SSH sets it
READY = "trainproof is ready"
"""Line before the answer, because shells may print greetings."""
RESULT, RESUMABLE = "trainproof session: ", 5
"""Start of the last line of the log, and exit code of a run that can be continued, as in `session.py`."""


def offer(continues: str = "") -> dict[str, Any]:
    """Describe the machine."""
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=False) if shutil.which(query[0]) else None
    HOME.mkdir(exist_ok=True, mode=0o700)
    return {
        "user": os.environ.get("USER", ""),
        "python": ".".join(map(str, sys.version_info[:3])),
        "missing": [name for name in ("venv", "ensurepip") if find_spec(name) is None],
        "free_bytes": shutil.disk_usage(HOME).free,
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpus": done.stdout.strip().splitlines() if done is not None and done.returncode == 0 else [],
        "continues": not continues or (HOME / continues / "runs" / continues).is_dir(),
    }


def submit(name: str) -> None:
    """Take in the folder of a session, and start it. Both happen once, however often it is called."""
    if not (HOME / name).exists():
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=HOME, ignore_cleanup_errors=True) as part:
            with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as tar:
                tar.extractall(part)  # noqa: S202 - the user's own upload
            with suppress(OSError):  # an earlier call, whose connection was lost, may have come first
                Path(part, name).rename(HOME / name)
    folder = HOME / name
    with (folder / "session.log").open("ab") as log, suppress(FileExistsError), (folder / "lock").open("x") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / "runs").mkdir()
        if old := json.loads((folder / "input" / "request.json").read_text("utf-8"))["continues"]:
            (folder / "runs" / old).symlink_to(HOME / old / "runs" / old)
        own = {"TRAINPROOF_INPUT": str(folder / "input"), "TRAINPROOF_WORKING": str(folder), "PYTHONUNBUFFERED": "1"}
        # It outlives the connection, and holds the lock until it ends.
        child = subprocess.Popen(
            [sys.executable, str(folder / "session.py")],
            cwd=folder,
            env={**os.environ, **own, "TRAINPROOF_ENVIRONMENT": str(folder / "venv")},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=[lock.fileno()],
        )
        lock.write(str(child.pid))


def _process(name: str) -> int | None:
    """Return the process id of a session that is alive. The lock tells, because process ids are used again."""
    with (HOME / name / "lock").open("r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(lock.read() or 0)
    return None


def status(name: str) -> dict[str, str] | None:
    """Return state and message of a session, or None if it was not started or was removed."""
    folder = HOME / name
    if not (folder / "lock").exists():
        return None
    if _process(name) is not None:
        return {"state": "running"}
    if (folder / "cancelled").exists():
        return {"state": "cancelled"}
    last = (folder / "session.log").read_text("utf-8", "replace").rstrip().rpartition("\n")[2]
    with suppress(ValueError):
        code = json.loads(last.removeprefix(RESULT))["exit_code"]
        return {"state": "succeeded" if code in {0, RESUMABLE} else "failed"}
    return {"state": "failed", "message": "The session was killed, or the machine was restarted."}


def logs(name: str) -> None:
    """Write the log of a session until it ends."""
    with (HOME / name / "session.log").open("rb") as log:
        is_alive = True
        while is_alive:
            is_alive = _process(name) is not None
            shutil.copyfileobj(log, sys.stdout.buffer)
            sys.stdout.buffer.flush()
            time.sleep(0.5 if is_alive else 0)


def fetch(name: str) -> None:
    """Write a tar file with the log of a session and its bundle, or without one its runs without checkpoints."""
    os.chdir(HOME / name)
    runs = [] if Path("bundle.zip").exists() else [Path("runs", name), Path("runs", f"{name}-smoke")]
    files = [path for run in runs for path in run.rglob("*") if path.is_file() and "checkpoints" not in path.parts]
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as tar:
        for path in [Path("session.log"), *(files if runs else [Path("bundle.zip")])]:
            tar.add(path)


def cancel(name: str) -> None:
    """Interrupt a session, which then saves a checkpoint, packs what there is, and ends."""
    if pid := _process(name):
        (HOME / name / "cancelled").touch()
        os.killpg(pid, signal.SIGINT)


def release(name: str, is_complete: str) -> None:
    """Remove the session that this one continued, and this one too unless its run can be continued."""
    request = json.loads((HOME / name / "input" / "request.json").read_text("utf-8"))
    for each in filter(None, [request["continues"], is_complete and name]):
        shutil.rmtree(HOME / each, ignore_errors=True)


if __name__ == "__main__":
    verb, *values = sys.argv[1:]
    print(READY, flush=True)
    try:
        answer = globals()[verb](*values)
    except (OSError, tarfile.TarError) as error:
        sys.exit(str(error))
    if answer is not None:
        print(json.dumps(answer))
