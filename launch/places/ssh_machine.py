"""The other end of `launch.places.ssh`, which sends this file with each call. It uses only the standard library.

~/.trainproof/NAME/
    input/       request.json, the wheel, config.yaml and the files that it names
    runs/        run folders, with a link to the run that is continued
    lock         locked by the session as long as it lives; contains its process id
    session.log  output
    cancelled    written when the session is cancelled
    exit_code    written after the end
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

if sys.platform != "win32":  # from where sessions are sent, but not where they run
    import fcntl

HOME = Path(os.environ.get("HOME", "."), ".trainproof")  # SSH sets it
READY = "trainproof is ready"
"""Line before the answer, because shells may print greetings."""


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
    try:
        lock = (HOME / name / "lock").open("x")
    except FileExistsError:
        return
    fcntl.flock(lock, fcntl.LOCK_EX)
    command = [sys.executable, str(HOME / name / "ssh_machine.py"), "run", name]
    with lock, (HOME / name / "session.log").open("ab") as log:
        # It outlives the connection, and holds the lock until it ends.
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
        child = subprocess.Popen(command, start_new_session=True, pass_fds=[lock.fileno()], **streams)
        lock.write(str(child.pid))


def run(name: str) -> None:
    """Run a session in an environment of its own, and write its exit code."""
    signal.signal(signal.SIGINT, lambda *_: None)  # sent to all processes of the session; the run handles it
    folder, environment = HOME / name, HOME / name / "venv"
    (folder / "runs").mkdir()
    request = json.loads((folder / "input" / "request.json").read_text("utf-8"))
    if old := request["continues"]:
        (folder / "runs" / old).symlink_to(HOME / old / "runs" / old)
    code = subprocess.run([sys.executable, "-m", "venv", str(environment)], check=False).returncode
    if code == 0:
        own = {"TRAINPROOF_INPUT": str(folder / "input"), "TRAINPROOF_WORKING": str(folder), "PYTHONUNBUFFERED": "1"}
        command = [str(environment / "bin" / "python"), str(folder / "session.py")]
        code = subprocess.run(command, cwd=folder, env={**os.environ, **own}, check=False).returncode
    shutil.rmtree(environment, ignore_errors=True)
    (folder / "exit_code.part").write_text(str(code))
    (folder / "exit_code.part").rename(folder / "exit_code")  # never read half-written


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
    folder, state = HOME / name, {"state": "running", "message": ""}
    if not (folder / "lock").exists():
        return None
    if _process(name) is not None:
        return state
    if not (folder / "exit_code").exists():
        return {"state": "failed", "message": "The session was killed, or the machine was restarted."}
    is_good = (folder / "exit_code").read_text() == "0"
    return state | {"state": "cancelled" if (folder / "cancelled").exists() else "succeeded" if is_good else "failed"}


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
    if verb != "run":
        sys.stdout.write(READY + "\n")
        sys.stdout.flush()
    try:
        answer = globals()[verb](*values)
    except (OSError, tarfile.TarError) as error:
        sys.exit(str(error))
    if answer is not None:
        sys.stdout.write(json.dumps(answer))
