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
from typing import IO, Any

from evidence.bundle.secrets import hide_secrets
from evidence.targets import find_target
from launch.places.place import Offer, RemotePlace, Request, Status, Unreachable
from launch.places.ssh_machine import READY
from launch.places.upload import find_files, find_upload_secrets, write_input
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
_FIXES = {
    r"Host key verification failed|HOST IDENTIFICATION HAS CHANGED": "Connect once by hand: `ssh {host}`. Compare"
    " the fingerprint with the one that the owner of the machine names.",
    r"Permission denied|Too many authentication failures": "`ssh {host}` must work without a password:"
    " add your key there with `ssh-copy-id {host}`, or unlock it with `ssh-add`.",
    r"Could not resolve hostname .*(not known|No address)": "Check the spelling, or add the machine to ~/.ssh/config.",
    r"onfiguration option|Bad owner|Can't open user config|keyword": "Correct your SSH configuration.",
}
"""What to do about refusals of `ssh`, by the words of its message."""


@dataclass(frozen=True)
class Ssh(RemotePlace):
    """A machine by its name in `~/.ssh/config`."""

    host: str
    keeps_output = True

    def offer(self, request: Request) -> Offer:
        """Check Python, disk and device of the machine, and the files of a request."""
        continues = self._checked(request.continues) if request.continues else ""
        facts, files = self._ask("offer", continues), find_files(request)
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
        problems = find_upload_secrets(request, files)
        for is_wrong, what, fix in checks:
            problems += [problem_of("TP770", file=self.host, what=f"{self.host} {what}", next=fix)] if is_wrong else []
        if problems:
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
        asked = {
            "run": request.run,
            "place": self.host,
            "device": get_path(request.config, "mesh", "device") or "auto",
            "continues": self._checked(request.continues) if request.continues else None,
        }
        write_input(request, session / "input", asked)
        for script in (MACHINE, MACHINE.with_name("session.py")):
            shutil.copy(script, session)

    def submit(self, folder: Path) -> str:
        """Send the folder, unless it is there, and start the session, unless it was started."""
        [session] = folder.iterdir()
        with self._call("submit", session.name, upload=session):
            return f"{self.host}:{session.name}"

    def find(self, folder: Path) -> str | None:
        """Return the session that a prepared folder started. A run has its name alone."""
        [session] = folder.iterdir()
        return f"{self.host}:{session.name}" if self._ask("status", session.name) else None

    def status(self, reference: str) -> Status:
        """Return the state of a session, from its process and exit code."""
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
                    for member in tar:
                        _extract(tar, member, folder)
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
            what = f"{reference!r} is not a session on {self.host}."
            raise ProblemError([problem_of("TP773", file="session.json", what=what)], exit_code=2)
        return name

    def _ask(self, *arguments: str) -> Any:
        """Return the answer to a call."""
        with self._call(*arguments) as output:
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
            what, fix = f"The command `{ssh[0]}` is not installed.", "Install OpenSSH."
            raise ProblemError([problem_of("TP770", file="ssh", what=what, next=fix)], exit_code=2)
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
                raise self._failure(process.returncode, errors.read().decode("utf-8", "replace"))

    def _failure(self, code: int, said: str) -> Exception:
        """Return the error of a call that failed."""
        last = hide_secrets((said.strip().splitlines() or ["no message"])[-1].strip())
        what, fix = f"{self.host} refuses: {last}", None
        if code == NO_PYTHON:
            what = f"{self.host} has no Python 3.11 to 3.14; `python3 --version` says: {last}"
            fix = f"Install one there that `ssh {self.host} python3 --version` finds."
        elif code < 0 or code == 255:  # of `ssh` itself
            fix = next((fix.format(host=self.host) for words, fix in _FIXES.items() if re.search(words, said)), None)
            if fix is None:
                return Unreachable(f"{self.host} does not answer: {last}")
        rule = "TP770" if fix else "TP773"
        return ProblemError([problem_of(rule, file=self.host, what=what, next=fix)], exit_code=2)


# A name that is neither an option of `ssh` nor a command for a shell.
FAMILIES = {"ssh": lambda host: Ssh(host) if _HOST.fullmatch(host) else None}


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Write a file of the output of a session. It comes from another machine, so nothing else is written."""
    name, source = Path(member.name), tar.extractfile(member) if member.isfile() else None
    if (
        source is not None
        and ".." not in name.parts
        and name.parts[:1] in [("bundle.zip",), ("session.log",), ("runs",)]
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with (folder / name).open("wb") as file:
            shutil.copyfileobj(source, file)
