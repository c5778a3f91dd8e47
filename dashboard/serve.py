"""Start the dashboard, as `trainproof dashboard` does.

Theme and security settings are in `dashboard/.streamlit/config.toml`, which `streamlit run dashboard/app.py` reads too.
Port, address and browser are flags.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from dashboard.shared.access import LOOPBACK, is_loopback, refusal
from launch.process import PROGRAM
from schemas.problems import ProblemError, problem_of

APP = Path(__file__).parent / "app.py"
FIRST_PORT = 8501
_PORTS_TRIED = 100


def serve(root: Path, *, port: int | None = None, address: str = LOOPBACK, open_browser: bool = True) -> None:
    """Print the address of the dashboard and serve it until the process is stopped.

    Args:
        root: Folder of runs; it need not exist yet.
        port: Port to listen on, or None for the first free one from 8501.
        address: Address to listen on; other machines need a configured login.
        open_browser: Whether to open the page in the user's browser.

    Raises:
        ProblemError: The address is refused, or the port is taken (exit code 2).
    """
    refused = refusal(address, has_login=has_login(Path.cwd()))
    if refused is not None:
        raise ProblemError([refused], exit_code=2)
    chosen = _free_port(address, port)
    shown = LOOPBACK if is_loopback(address) else address
    sys.stdout.write(f"trainproof dashboard: http://{shown}:{chosen} shows {root} (stop with Ctrl-C)\n")
    sys.stdout.flush()
    # In this process, so that a signal to the command reaches the server.
    from streamlit.web.cli import main

    main(command(root, port=chosen, address=address, open_browser=open_browser))


def serve_anew(root: Path) -> NoReturn:
    """Replace this process by the dashboard, which frees the memory of a training."""
    arguments = [*PROGRAM, "dashboard", f"--root={root}"]
    if sys.platform == "win32":
        raise SystemExit(subprocess.call(arguments))
    os.execv(arguments[0], arguments)  # noqa: S606 - a list of arguments, no shell


def command(root: Path, *, port: int, address: str, open_browser: bool) -> list[str]:
    """Return the arguments of `streamlit`; `dashboard.shared.state` reads those after `--`."""
    flags = {
        "server.port": str(port),
        "server.address": address,
        "server.headless": "false" if open_browser else "true",
        "logger.hideWelcomeMessage": "true",
        "logger.level": "warning",
    }
    if not is_loopback(address):
        flags |= {"server.allowedHosts": "", "browser.serverAddress": address}
    given = [f"--{name}={value}" for name, value in flags.items()]
    return ["run", str(APP), *given, "--", "--root", str(root)]


def has_login(folder: Path) -> bool:
    """Return whether a login is configured: an [auth] section in one of Streamlit's secrets files."""
    for place in ("~", folder, APP.parent):
        try:
            secrets = Path(place).expanduser() / ".streamlit" / "secrets.toml"
            if "auth" in tomllib.loads(secrets.read_text("utf-8")):
                return True
        except (OSError, ValueError, RuntimeError):  # RuntimeError: the user has no home folder.
            continue
    return False


def _free_port(address: str, port: int | None) -> int:
    candidates = [port] if port is not None else range(FIRST_PORT, FIRST_PORT + _PORTS_TRIED)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for candidate in candidates:
        with socket.socket(family, socket.SOCK_STREAM) as probe, suppress(OSError):
            # Like Streamlit: a port is free even if its last connections are still closing.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address.strip("[]"), candidate))
            return candidate
    ports = f"Port {port}" if port is not None else f"Every port from {FIRST_PORT} to {FIRST_PORT + _PORTS_TRIED - 1}"
    problem = problem_of("TP081", file="", what=f"{ports} is in use on {address}, or cannot be used.")
    raise ProblemError([problem], exit_code=2)
