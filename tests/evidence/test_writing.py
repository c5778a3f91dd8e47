"""Writing, hashing, locking and sealing survive kills, full disks and other users."""

import errno
import fcntl
import hashlib
import json
import os
import pwd
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from refusals import catch_problems

from dashboard.serve import has_login
from evidence import hashes, layout
from evidence.extras import install_command
from evidence.hashes import sha256_file, sha256_json, sha256_lines
from evidence.index.index import cache_folder
from evidence.layout import LOCK
from evidence.lock import RunLock, is_alive, refuse_without_locks
from evidence.writing import RowWriter, write_json, write_text
from trainer.recorder import environment

WRITE_ROWS = """
import sys
from evidence.writing import RowWriter, write_json
folder = __import__("pathlib").Path(sys.argv[1])
with RowWriter(folder / "rows.jsonl") as rows:
    step = sum(1 for _ in (folder / "rows.jsonl").open("rb"))
    print("ready", flush=True)
    while True:
        step += 1
        rows.append({"step": step, "text": "x" * (step % 7) * 3000})
        write_json(folder / "document.json", {"step": step, "text": "y" * 50_000})
        (folder / "appended").write_text(str(step))
"""


def test_document_is_indented_utf8_with_a_newline(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"b": "é", "a": [1]})
    assert (tmp_path / "a.json").read_bytes() == '{\n  "b": "é",\n  "a": [\n    1\n  ]\n}\n'.encode()
    write_text(tmp_path / "a.json", "new\r\n")
    assert (tmp_path / "a.json").read_bytes() == b"new\r\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_failed_write_leaves_the_old_document(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"step": 1})
    with pytest.raises(ValueError, match="Out of range float values"):
        write_json(tmp_path / "a.json", {"loss": float("inf")})
    with pytest.raises(UnicodeEncodeError):
        write_json(tmp_path / "a.json", {"text": "\ud800"})
    assert json.loads((tmp_path / "a.json").read_text()) == {"step": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"step": 1}\n{"step": 2', b'{"step": 1}\n'),
        (b'{"step": 1}\n', b'{"step": 1}\n'),
        (b'{"step": 1', b""),
        (b"", b""),
        (b'{"step": 1}\n' + b"x" * 200_000, b'{"step": 1}\n'),
    ],
)
def test_torn_tail_is_cut_off_on_opening(tmp_path: Path, before: bytes, after: bytes) -> None:
    (tmp_path / "rows.jsonl").write_bytes(before)
    with RowWriter(tmp_path / "rows.jsonl") as rows:
        rows.append({"step": 9})
    assert (tmp_path / "rows.jsonl").read_bytes() == after + b'{"step": 9}\n'


@pytest.mark.slow
def test_kills_lose_no_row_and_tear_no_document(tmp_path: Path) -> None:
    chance = random.Random(0)
    for _ in range(30):
        writer = subprocess.Popen([sys.executable, "-c", WRITE_ROWS, str(tmp_path)], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        time.sleep(chance.uniform(0.0, 0.05))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        written = (tmp_path / "rows.jsonl").read_bytes()
        whole = written[: written.rfind(b"\n") + 1]
        steps = [json.loads(line)["step"] for line in whole.splitlines()]
        assert steps == list(range(1, len(steps) + 1))
        appended = int((tmp_path / "appended").read_text() or 0) if (tmp_path / "appended").exists() else 0
        assert len(steps) >= appended
        if (tmp_path / "document.json").exists():
            assert json.loads((tmp_path / "document.json").read_text())["step"] >= appended
    assert len(steps) > 30


FILL_THE_DISK = """
import resource, signal, sys
from pathlib import Path
from evidence.writing import RowWriter, write_json
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
folder = Path(sys.argv[1])
with RowWriter(folder / "rows.jsonl") as rows:
    try:
        while True:
            rows.append({"text": "x" * 3000})
    except OSError as error:
        print("rows", error.errno)
    try:
        write_json(folder / "document.json", {"text": "y" * 30_000})
    except OSError as error:
        print("document", error.errno)
"""


def test_full_disk_leaves_whole_rows_and_the_old_document(tmp_path: Path) -> None:
    write_json(tmp_path / "document.json", {"step": 1})
    done = subprocess.run(
        [sys.executable, "-c", FILL_THE_DISK, str(tmp_path)], capture_output=True, text=True, check=True
    )
    efbig = 27
    assert done.stdout.splitlines() == [f"rows {efbig}", f"document {efbig}"]
    rows = (tmp_path / "rows.jsonl").read_bytes()
    assert rows.endswith(b"\n")
    assert [len(json.loads(line)["text"]) for line in rows.splitlines()] == [3000] * 6
    assert json.loads((tmp_path / "document.json").read_text()) == {"step": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["document.json", "rows.jsonl"]


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def test_hashes(tmp_path: Path) -> None:
    assert sha256_lines(["a", 'b"\n', "é"]) == sha256('"a"\n"b\\"\\n"\n"é"\n')
    assert sha256_lines([]) == sha256("")
    assert sha256_json({"b": [1, 2.5, None], "a": "é"}) == sha256('{"a":"é","b":[1,2.5,null]}')
    with pytest.raises(ValueError, match="Out of range float values"):
        sha256_json({"a": float("nan")})
    file = tmp_path / "bytes"
    file.write_bytes(bytes(range(256)) * 5000)
    printed = subprocess.run(["sha256sum", str(file)], capture_output=True, text=True, check=True).stdout
    assert sha256_file(file) == printed.split()[0]


HOLD = """
import sys, time
from pathlib import Path
from evidence.lock import RunLock
with RunLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def holder(tmp_path: Path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def test_second_process_is_refused(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    assert is_alive(tmp_path)
    [problem] = catch_problems(RunLock(tmp_path).__enter__)
    assert (problem.code, problem.file) == ("TP090", str(tmp_path))
    assert problem.what == f"Another process is writing this run folder (process {holder.pid})."


def test_kill_releases_the_lock(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / LOCK).exists()
    assert not is_alive(tmp_path)
    with RunLock(tmp_path):
        assert is_alive(tmp_path)


def test_lock_file_is_removed(tmp_path: Path) -> None:
    for _ in range(2):
        assert not is_alive(tmp_path)
        with RunLock(tmp_path):
            assert is_alive(tmp_path)
        assert list(tmp_path.iterdir()) == []
    assert not is_alive(tmp_path / "absent")
    (tmp_path / LOCK).symlink_to("/etc/hostname")
    assert not is_alive(tmp_path)


def test_recreated_folder_has_a_lock_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    with RunLock(folder) as before:
        assert before.holds()
        folder.rename(tmp_path / "away")
        folder.mkdir()
        assert not before.holds()
        with RunLock(folder) as now:
            before.__exit__(None, None, None)
            assert now.holds()
            assert is_alive(folder)
        assert not before.holds()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL])
def test_file_system_without_locks(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    for take in (RunLock(tmp_path).__enter__, lambda: refuse_without_locks(tmp_path / "new" / "run")):
        [problem] = catch_problems(take)
        assert (problem.code, problem.file) == ("TP724", str(tmp_path))
        assert problem.what == f"The file system of this folder does not support file locks ({os.strerror(number)})."
        assert "another file system" in problem.next
    assert list(tmp_path.iterdir()) == []
    assert not is_alive(tmp_path)


@pytest.fixture
def homeless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the temporary folder of a user without an entry in passwd, a variable HOME, or folders of their own."""

    def unknown(_user: int) -> None:
        raise KeyError

    for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "TRAINPROOF_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    layout._temporary_home.cache_clear()
    yield tmp_path
    layout._temporary_home.cache_clear()


def test_user_without_a_home_gets_a_private_temporary_folder(homeless: Path):
    home = homeless / f"trainproof-{os.getuid()}"
    assert environment.cache_folder() == home / ".cache" / "trainproof"
    assert cache_folder() == home / ".cache" / "trainproof" / "entries"
    assert layout.user_data_folder() == home / ".local" / "share" / "trainproof"
    assert home.stat().st_mode & 0o777 == 0o700
    assert hashes.verify_seal(hashes.make_seal(b"job"), b"job")
    assert not has_login(homeless)


@pytest.mark.parametrize("how", ["others may write", "a link", "a file"])
def test_temporary_home_of_somebody_else_is_not_used(how: str, homeless: Path):
    usual = homeless / f"trainproof-{os.getuid()}"
    if how == "others may write":
        usual.mkdir()
        usual.chmod(0o777)
    elif how == "a link":
        (homeless / "theirs").mkdir(mode=0o700)
        usual.symlink_to(homeless / "theirs")
    else:
        usual.write_text("")
    found = environment.cache_folder()
    assert usual not in found.parents
    assert homeless in found.parents
    assert found.parents[1].stat().st_mode & 0o777 == 0o700
    assert environment.cache_folder() == found


FOLDER = "/home/me/train proof"
SITE = "https://example.org/trainproof"
EXTRAS = "[train,dashboard]"
COMMIT = {"vcs": "git", "commit_id": "47b000e7b4"}


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, 'pip install "trainproof[train,dashboard]"'),
        ({"dir_info": {}, "url": Path(FOLDER).as_uri()}, f'pip install "{FOLDER}[train,dashboard]"'),
        ({"dir_info": {"editable": True}, "url": Path(FOLDER).as_uri()}, f'pip install --editable "{FOLDER}{EXTRAS}"'),
        ({"url": f"{SITE}.git", "vcs_info": COMMIT}, f'pip install "trainproof{EXTRAS} @ git+{SITE}.git@47b000e7b4"'),
        ({"url": f"{SITE}.zip", "archive_info": {}}, f'pip install "trainproof{EXTRAS} @ {SITE}.zip"'),
    ],
    ids=["an index", "a folder", "an editable folder", "a repository", "an archive"],
)
def test_extras_are_installed_from_the_same_origin(origin, command, tmp_path, monkeypatch):
    metadata = tmp_path / "trainproof-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: trainproof\nVersion: 0.1.0\n")
    if origin:
        (metadata / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert install_command("train", "dashboard") == command
