"""Any machine with Python that the user's own `ssh` reaches: `ssh:HOST`, with HOST as in `~/.ssh/config`.

A session is a folder in `~/.trainproof` there; `launch/places/ssh_machine.py` has its files and is sent with each call.
Keys, passwords and host keys are OpenSSH's business. `TRAINPROOF_SSH` is another command, such as `ssh -F FILE`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

from evidence.bundle.secrets import hide_secrets
from evidence.targets import find_target
from launch.places.place import DATA, Offer, RemotePlace, Request, Status, Unreachable, find_fix, refuse
from launch.places.ssh_machine import READY
from launch.places.upload import check_files, write_input
from schemas.formats import size
from schemas.problems import ProblemError, problem_of
from schemas.reading import get_path

MACHINE = Path(__file__).with_name("ssh_machine.py")
OPTIONS = ["BatchMode=yes", "ConnectTimeout=30", "ServerAliveInterval=15"]
OPTIONS += ["ClearAllForwardings=yes", "RemoteCommand=none"]  # which are for sessions by hand
PYTHONS = (
    "for python in python3 python3.14 python3.13 python3.12 python3.11; do"
    ' if "$python" -c "import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))" 2>/dev/null; then'
    ' exec "$python" -c "import sys; exec(sys.stdin.buffer.read(int(sys.argv.pop(1))))" "$@"; fi; done;'
    ' echo "$(python3 --version 2>&1)" >&2; exit 69'
)
"""Shell command that starts the first suitable Python with a program from its input; without single quotes."""
NO_PYTHON = 69
NEEDED_BYTES = {"cpu": 3 * 2**30, "gpu": 9 * 2**30, "tpu": 3 * 2**30}
"""Disk space for the packages."""
_HOST = re.compile(r"([A-Za-z0-9_][\w.-]*@)?[A-Za-z0-9_][\w.-]*", re.ASCII)
_NAME = re.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True)
class Ssh(RemotePlace):
    """A machine by its name in `~/.ssh/config`."""

    host: str
    keeps_output = True

    def offer(self, request: Request) -> Offer:
        """Check Python, disk and device of the machine, and the files of a request."""
        continues = self._checked(request.continues) if request.continues else ""
        facts, files = self._ask("offer", continues), check_files(request)
        gpus, wanted = facts["gpus"], get_path(request.config, "mesh", "device") or "auto"
        device = ("gpu" if gpus else "cpu") if wanted == "auto" else wanted
        sent = [each for path in files.values() for each in [path, *path.rglob("*")] if each.is_file()]
        need, free = NEEDED_BYTES[device] + 2 * sum(each.stat().st_size for each in sent), facts["free_bytes"]
        missing, python = "".join(facts["missing"][:1]), facts["python"].rpartition(".")[0]
        space = f"has {size(free)} of free disk; about {size(need)} are needed."
        checks = [
            (missing, f"has a Python without {missing}.", f"Install it there: `apt install python{python}-venv`."),
            (free < need, space, "Delete something there, or make ~/.trainproof a link to a folder on a larger disk."),
            (device == "gpu" and not gpus, "has no GPU that `nvidia-smi` lists.", "Set mesh.device=cpu."),
            (not facts["continues"], f"no longer has the checkpoint of {continues}.", "Start a new run."),
        ]
        wrong = [(f"{self.host} {what}", fix) for is_wrong, what, fix in checks if is_wrong]
        if wrong:
            problems = [problem_of("TP770", file=self.host, what=what, next=fix) for what, fix in wrong]
            raise ProblemError(problems, exit_code=3)
        target = find_target(gpus[0], len(gpus)) if device == "gpu" and len(set(gpus)) == 1 else None
        cores = f"{facts['cores']} CPU cores, {size(facts['memory_bytes'])}"
        listed = ", ".join(f"{gpus.count(gpu)} x {gpu}" for gpu in dict.fromkeys(gpus))
        return Offer(
            account=f"{facts['user']}@{self.host}, Python {facts['python']}",
            target=target.name if target else None,
            session_hours=None,
            machine=f"{self.host}, {listed or cores}",
            devices=len(gpus) if target else None,
            files=files,
        )

    def prepare(self, request: Request, folder: Path) -> None:
        """Write the folder of the session."""
        session = folder / request.run
        (session / "input").mkdir(parents=True)
        device = get_path(request.config, "mesh", "device") or "auto"
        continues = self._checked(request.continues) if request.continues else None
        write_input(request, session / "input", {"place": self.host, "device": device, "continues": continues})
        shutil.copy(MACHINE.with_name("session.py"), session)

    def submit(self, folder: Path) -> str:
        """Send the folder, unless it is there, and start the session, unless it was started."""
        [session] = folder.iterdir()
        self._ask("submit", session.name, upload=session)
        return f"{self.host}:{session.name}"

    def find(self, folder: Path) -> str | None:
        """Return the session that a prepared folder started. A run has its name alone."""
        [session] = folder.iterdir()
        return f"{self.host}:{session.name}" if self._ask("status", session.name) else None

    def status(self, reference: str) -> Status:
        """Return the state of a session, from its process and the last line of its log."""
        said = self._ask("status", self._checked(reference))
        return Status(**said or {"state": "failed", "message": f"{self.address(reference)} is not there any more."})

    def logs(self, reference: str) -> Iterator[str]:
        """Yield the log as it is written."""
        with self._call("logs", self._checked(reference)) as output:
            for line in output:
                yield hide_secrets(line.decode("utf-8", "replace").rstrip("\n"))

    def fetch(self, reference: str, folder: Path) -> None:
        """Download `bundle.zip`, or without one the runs without checkpoints, and `session.log`."""
        with self._call("fetch", self._checked(reference)) as output:
            try:
                with tarfile.open(fileobj=output, mode="r|") as tar:
                    for member in tar:  # it comes from another machine, so nothing else is written
                        is_output = member.name in {"bundle.zip", "session.log"} or member.name.startswith("runs/")
                        source = tar.extractfile(member) if is_output and member.isfile() else None
                        if source is not None and ".." not in (path := Path(member.name)).parts:
                            (folder / path).parent.mkdir(parents=True, exist_ok=True)
                            with (folder / path).open("wb") as target:
                                shutil.copyfileobj(source, target)
            except tarfile.TarError as error:
                message = f"The connection to {self.host} ended too early: {error}."
                raise Unreachable(message) from error

    def cancel(self, reference: str) -> None:
        """Interrupt the session; the run saves a checkpoint and is packed."""
        self._ask("cancel", self._checked(reference))

    def release(self, reference: str, *, is_complete: bool) -> None:
        """Remove the folder of a complete run, and of the run that it continued."""
        self._ask("release", self._checked(reference), "complete" if is_complete else "")

    def address(self, reference: str) -> str:
        """Return the folder of the session."""
        return f"{self.host}:~/.trainproof/{self._checked(reference)}"

    def _checked(self, reference: str) -> str:
        """Return the name in a reference after checking it. A runs folder may come from an untrusted source."""
        host, _, name = reference.rpartition(":")
        if host != self.host or not _NAME.fullmatch(name):
            refuse("TP773", "session.json", f"{reference!r} is not a session on {self.host}.")
        return name

    def _ask(self, *arguments: str, upload: Path | None = None) -> Any:
        """Return the answer to a call."""
        with self._call(*arguments, upload=upload) as output:
            said = output.read()
        return json.loads(said or "null")

    @contextmanager
    def _call(self, *arguments: str, upload: Path | None = None) -> Iterator[IO[bytes]]:
        """Call a function of `ssh_machine.py` there, and give its output.

        Raises:
            Unreachable: The connection cannot be made, or was lost.
            ProblemError: `ssh` or the machine refuses (exit code 2).
        """
        ssh = shlex.split(os.environ.get("TRAINPROOF_SSH") or "ssh")
        if shutil.which(ssh[0]) is None:
            refuse("TP770", "ssh", f"The command `{ssh[0]}` is not installed.", "Install OpenSSH.")
        program = MACHINE.read_bytes()
        there = shlex.join(["sh", "-c", PYTHONS, "sh", str(len(program)), *arguments])
        command = [*ssh, *(part for option in OPTIONS for part in ("-o", option)), "-T", "--", self.host, there]
        with tempfile.TemporaryFile() as data, tempfile.TemporaryFile() as errors:
            data.write(program)
            if upload is not None:
                with tarfile.open(fileobj=data, mode="w|") as tar:
                    tar.add(upload, upload.name)
            data.seek(0)
            with subprocess.Popen(command, stdin=data, stdout=subprocess.PIPE, stderr=errors) as process:
                try:
                    assert process.stdout is not None
                    for line in process.stdout:
                        if line.rstrip() == READY.encode():
                            break
                    yield process.stdout
                    process.stdout.read()
                except BaseException:
                    process.kill()
                    raise
            errors.seek(0)
            if process.returncode:
                self._refuse(process.returncode, errors.read().decode("utf-8", "replace"))

    def _refuse(self, code: int, said: str) -> NoReturn:
        """Raise the error of a call that failed."""
        last = (said.strip().splitlines() or ["no message"])[-1].strip()
        what = f"{self.host} refuses: {last}"
        if code == NO_PYTHON:
            what = f"{self.host} lacks Python 3.11 to 3.14; `python3 --version` prints: {last}"
            refuse("TP770", self.host, what, f"Install one that `ssh {self.host} python3 --version` finds.")
        if 0 < code < 255:
            refuse("TP773", self.host, what)
        if fix := find_fix(DATA["ssh"]["fixes"], said):  # of `ssh` itself
            refuse("TP770", self.host, what, fix.format(host=self.host))
        message = hide_secrets(f"{self.host} does not answer: {last}")
        raise Unreachable(message)


# A name that is neither an option of `ssh` nor a command for a shell.
FAMILIES = {"ssh": lambda host: Ssh(host) if _HOST.fullmatch(host) else None}
