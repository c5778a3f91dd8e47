"""A real `sshd` of this user on a free port, with keys, configurations and a home folder of its own."""

import os
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from stand_ins import wait_for

SSHD = Path("/usr/sbin/sshd")


@dataclass
class SshServer:
    """`environment` is that of the sessions there: a Python with packages, and without an index for pip."""

    folder: Path
    environment: dict[str, str]
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def command(self) -> str:
        """Value of TRAINPROOF_SSH."""
        return f"ssh -F {self.folder / 'client.conf'}"

    def start(self) -> None:
        self.home.mkdir(exist_ok=True)
        for name in ("host", "user", "other"):
            if not (self.folder / name).exists():
                command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)]
                subprocess.run(command, check=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        key = (self.folder / "host.pub").read_text()
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {key}")
        variables = {"HOME": self.home, "USER": "ada", **self.environment}
        settings = {
            "Port": self.port,
            "ListenAddress": "127.0.0.1",
            "HostKey": self.folder / "host",
            "AuthorizedKeysFile": self.folder / "user.pub",
            "StrictModes": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PidFile": "none",
            "SetEnv": " ".join(f'"{name}={value}"' for name, value in variables.items()),
        }
        (self.folder / "server.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        self.write_client()
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        self.process = subprocess.Popen([SSHD, "-D", "-e", "-f", self.folder / "server.conf"], stderr=subprocess.PIPE)

        def answers() -> bool:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port)).close()
                return True
            return False

        wait_for(answers)

    def write_client(self, *, key: str = "user", known: str = "known_hosts") -> None:
        settings = {
            "HostName": "127.0.0.1",
            "Port": self.port,
            "IdentityFile": self.folder / key,
            "IdentitiesOnly": "yes",
            "IdentityAgent": "none",
            "UserKnownHostsFile": self.folder / known,
            "GlobalKnownHostsFile": "/dev/null",
            "LogLevel": "ERROR",
        }
        lines = "".join(f"  {name} {value}\n" for name, value in settings.items())
        (self.folder / "client.conf").write_text(f"Host box\n{lines}")

    def cut(self) -> int:
        """Kill the processes of all connections, as a broken line does, and return their number."""
        assert self.process is not None
        found = [each for each in psutil.Process(self.process.pid).children(recursive=True) if each.name() == "sshd"]
        for each in found:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        return len(found)

    def stop(self) -> None:
        if self.process is not None:
            self.cut()
            self.process.terminate()
            self.process.communicate()


def packages(folder: Path) -> dict[str, str]:
    """Return the environment of a machine that has our dependencies, and not trainproof, for pip without an index."""
    folder.mkdir()
    [site] = [Path(path) for path in sys.path if path.endswith("site-packages")][:1]
    for each in site.iterdir():
        if "trainproof" not in each.name.lower():
            (folder / each.name).symlink_to(each)
    path = f"{Path(sys.base_prefix) / 'bin'}:/usr/bin:/bin"
    return {"PATH": path, "PYTHONPATH": str(folder), "PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1"}
