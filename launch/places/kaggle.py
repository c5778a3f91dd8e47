"""Kaggle's free GPUs and TPUs, through the user's own `kaggle` command.

A job is a private dataset, with the wheel of this trainproof, the configuration and the files that it names, and a
private script kernel, `launch/places/session.py`. The command and its API: github.com/Kaggle/kaggle-cli, 2.2.5.
It exits with 0 on many failures, so its output is read.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from evidence.bundle.secrets import hide_secrets
from evidence.targets import load_target
from evidence.writing import write_json, write_text
from launch.places.place import DATA, Offer, RemotePlace, Request, Status, Unreachable, find_fix, refuse
from launch.places.upload import check_files, first_line, write_input
from schemas.problems import ProblemError
from schemas.reading import get_path

MIN_VERSION = (2, 2, 5)
"""The first version that reads the logs of one version of a kernel, and confines the names of downloaded files."""

_COMMAND_SECONDS = 6 * 3600.0
_READY_SECONDS = 1800.0
_POLL_SECONDS = 5.0
_REFERENCE = re.compile(r"[\w-]+/[\w-]+/\d+")
_PUSHED = re.compile(r"Kernel version (\d+) successfully pushed")
_STATUS = re.compile(r'has status "(?:KernelWorkerStatus\.)?(\w+)"')
_DATA = DATA["kaggle"]


@dataclass(frozen=True, kw_only=True)
class Kaggle(RemotePlace):
    """One kind of machine on Kaggle; `places.toml` describes its fields."""

    target: str
    machine_shape: str
    session: str
    device: str
    kinds: list[str]

    def read_quota(self) -> Offer:
        """Check the command, its account and the quota."""
        account = _account()
        rows = _json(_kaggle("quota", "--format", "json"))
        quota = next((row for row in rows if isinstance(row, dict) and row.get("resource") == self.device.upper()), {})
        hours = re.fullmatch(r"([\d.]+)h", str(quota.get("remaining")))
        left = float(hours[1]) if hours else None
        machine = load_target(self.target)
        if left is not None and left <= 0:
            what = f"No hours are left this week for {machine.title}: {quota.get('used')} of {quota.get('total')} used."
            fix = f"Push again after {quota.get('refreshAt') or 'the quota is renewed'}, or to another place."
            refuse("TP771", "kaggle quota", what, fix, exit_code=3)
        return Offer(
            account=account,
            target=self.target,
            session_hours=(machine.session_seconds or 0) / 3600,
            left_hours=left,
            refreshes_at=str(quota.get("refreshAt") or ""),
        )

    def offer(self, request: Request) -> Offer:
        """Check account and quota, and scan the files of a request for secrets."""
        return replace(self.read_quota(), files=check_files(request))

    def prepare(self, request: Request, folder: Path) -> None:
        """Write `dataset/` and `kernel/`, each with the metadata that `kaggle` reads."""
        account, slug = _account(), make_slug(request.run)
        dataset, kernel = folder / "dataset", folder / "kernel"
        for each in (dataset, kernel):
            each.mkdir()
        asked = {"place": "Kaggle", "session": self.session, "device": self.device, "kinds": self.kinds}
        write_input(request, dataset, {**asked, "count": load_target(self.target).devices})
        about = {"title": slug, "id": f"{account}/{slug}", "licenses": [{"name": "other"}]}
        write_json(dataset / "dataset-metadata.json", about)
        shutil.copyfile(Path(__file__).with_name("session.py"), kernel / "session.py")
        model = get_path(request.config, "model", "name")
        write_json(
            kernel / "kernel-metadata.json",
            {
                "id": f"{account}/{slug}",
                "title": slug,
                **_DATA["kernel"],
                "machine_shape": self.machine_shape,
                "dataset_sources": [f"{account}/{slug}"],
                "kernel_sources": [request.continues.rpartition("/")[0]] if request.continues else [],
                "model_sources": [_DATA["models"][model]] if model in _DATA["models"] else [],
            },
        )

    def submit(self, folder: Path) -> str:
        """Create the dataset, wait until it is ready, and push the kernel."""
        about = json.loads((folder / "dataset" / "dataset-metadata.json").read_text("utf-8"))
        _create_dataset(about["id"], folder / "dataset")
        limit = load_target(self.target).session_seconds
        said = _kaggle("kernels", "push", "-p", str(folder / "kernel"), *(["-t", f"{limit:.0f}"] if limit else []))
        pushed = _PUSHED.search(said)
        if pushed is None or "not valid" in said:  # started without its sources, it ends at once
            _refuse(said, "kaggle kernels push")
        return f"{about['id']}/{pushed[1]}"

    def find(self, folder: Path) -> str | None:
        """Return version 1 of the kernel if it exists. The names of each job are its own."""
        about = json.loads((folder / "dataset" / "dataset-metadata.json").read_text("utf-8"))
        try:
            self.status(reference := f"{about['id']}/1")
        except ProblemError:
            return None
        return reference

    def status(self, reference: str) -> Status:
        """Return the state of a version of a kernel."""
        said = _kaggle("kernels", "status", checked(reference))
        found = _STATUS.search(said)
        if found is None:
            _refuse(said, "kaggle kernels status")
        message = said.partition('Failure message: "')[2].rpartition('"')[0]
        return Status(state=_DATA["states"].get(found[1].upper(), "running"), message=hide_secrets(message))

    def logs(self, reference: str) -> Iterator[str]:
        """Yield the log as it is written."""
        command = [_find_command(), "kernels", "logs", checked(reference), "--follow"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                yield hide_secrets(line.rstrip("\n"))

    def fetch(self, reference: str, folder: Path) -> None:
        """Download `bundle.zip`, or without one everything except checkpoints, and the log as `session.log`."""
        for pattern in (r"^bundle\.zip$", r"^runs/(?!.*/checkpoints/)"):
            output = ("kernels", "output", checked(reference), "-p", str(folder), "--file-pattern", pattern, "-o", "-q")
            _kaggle(*output)
            for log in folder.glob("trainproof-*.log"):
                events = _json(log.read_text("utf-8"))
                lines = "".join(str(get_path(event, "data") or "") for event in events if isinstance(event, dict))
                write_text(folder / "session.log", lines)
            if (folder / "bundle.zip").is_file():
                return

    def cancel(self, reference: str) -> None:
        """Delete the kernel with its output. The `kaggle` command cannot end a session otherwise."""
        _kaggle("kernels", "delete", checked(reference).rpartition("/")[0], "--yes")

    def address(self, reference: str) -> str:
        """Return the page of the kernel."""
        return f"https://www.kaggle.com/code/{checked(reference).rpartition('/')[0]}"


PLACES = {name: Kaggle(**fields) for name, fields in _DATA["machines"].items()}


def make_slug(run: str, limit: int = 50) -> str:
    """Return the name of a run's kernel and dataset: at most 50 characters, with the time and suffix of the run."""
    text = re.sub("[^a-z0-9]+", "-", f"trainproof-{run}".lower()).strip("-")
    return text if len(text) <= limit else f"{text[: limit - 21].strip('-')}-{text[-20:].strip('-')}"


def checked(reference: str) -> str:
    """Return a reference after checking its form. A runs folder may come from an untrusted source."""
    if not _REFERENCE.fullmatch(reference):
        refuse("TP773", "session.json", f"{reference!r} is not a version of a Kaggle kernel.")
    return reference


def _find_command() -> str:
    command = shutil.which("kaggle") or shutil.which("kaggle", path=str(Path(sys.executable).parent))
    if command is None:
        fix = "Install it with `pip install 'kaggle>=2.2.5' six`, then log in with `kaggle auth login`."
        refuse("TP770", "kaggle", "The command `kaggle` is not installed.", fix)
    return command


def _kaggle(*arguments: str) -> str:
    """Run the command and return its output.

    Raises:
        Unreachable: The network or Kaggle does not answer.
        ProblemError: It is not installed or refuses (exit code 2).
    """
    command = [_find_command(), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        message = f"`kaggle {arguments[0]}` did not end."
        raise Unreachable(message) from None
    said = done.stdout + done.stderr
    if done.returncode:
        if re.search(_DATA["unreachable"], said, re.IGNORECASE):
            message = f"Kaggle does not answer: {said.strip().splitlines()[-1][:200]}"
            raise Unreachable(message)
        _refuse(said, " ".join(["kaggle", *arguments[:2]]))
    return said


def _refuse(said: str, command: str) -> NoReturn:
    """Raise the error of a refusal, with what to do about the known ones."""
    line = next((line for line in said.splitlines() if "error" in line.lower()), first_line(said))
    refuse("TP773", command, f"Kaggle refuses: {line.strip()}", find_fix(_DATA["fixes"], said))


@cache
def _account() -> str:
    """Return the name of the account, after checking the version of the command."""
    version = re.search(r"(\d+)\.(\d+)\.(\d+)", said := _kaggle("--version"))
    if version is None or tuple(map(int, version.groups())) < MIN_VERSION:
        what = f"`kaggle --version` says {first_line(said)!r}; 2.2.5 is needed."
        fix = "Install it with `pip install --upgrade 'kaggle>=2.2.5' six`."
        refuse("TP770", "kaggle", what, fix)
    name = re.search(r"username: ([\w-]+)", said := _kaggle("config", "view"))
    if name is None or name[1] == "None":
        what = f"`kaggle config view` names no account: {first_line(said)}"
        refuse("TP770", "kaggle", what, "`kaggle auth login`")
    return name[1]


def _json(text: str) -> list[Any]:
    """Return the JSON list in an output, which may have warnings before it."""
    with suppress(ValueError):
        value = json.loads(text[text.index("[") :])
        return value if isinstance(value, list) else []
    return []


def _create_dataset(name: str, folder: Path) -> None:
    """Create a dataset unless an earlier attempt arrived, and wait until it can be attached."""
    attempted = folder.with_name("dataset.sent")
    if not attempted.exists() or _dataset_status(name) is None:
        attempted.touch()
        said = _kaggle("datasets", "create", "-p", str(folder), "--dir-mode", "zip", "-q")
        if "is being created" not in said:
            _refuse(said, "kaggle datasets create")
    deadline = time.monotonic() + _READY_SECONDS
    while (status := _dataset_status(name)) != "ready":
        if status in {"failed", "deleted"} or time.monotonic() > deadline:
            said = f"error: the dataset {name} is {status}, not ready"
            _refuse(said, "kaggle datasets status")
        time.sleep(_POLL_SECONDS)


def _dataset_status(name: str) -> str | None:
    """Return the status of a dataset, or None if it does not exist."""
    try:
        return _kaggle("datasets", "status", name).split()[-1]
    except ProblemError as error:
        if re.search(r"403|404|not found|denied", error.problems[0].what, re.IGNORECASE):
            return None
        raise
