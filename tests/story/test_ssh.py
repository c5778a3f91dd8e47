"""Jobs on a machine reached by SSH, with a real `sshd` on this machine.

In the first two tests the session is real too: the wheel that was sent is installed there and trains. In the others
`session.py` is replaced by a small program that leaves a bundle.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import psutil
import pytest
from ssh_server import SSHD, SshServer, packages
from stand_ins import now, output, wait_for
from synthetic import write_run

from evidence.bundle.build import build_bundle
from evidence.layout import SESSION
from launch import jobs as launch_jobs
from launch import queue, remote
from launch.jobs import Job, jobs
from launch.places import find_place, get_place, ssh
from launch.places.place import Request
from launch.places.ssh import Ssh
from schemas.problems import ProblemError

pytestmark = pytest.mark.skipif(not SSHD.exists(), reason="needs OpenSSH's server, /usr/sbin/sshd")

TINY = {
    "name": "tiny",
    "model": {"name": "tiny-gpt2"},
    "data": {"dataset": "rows.jsonl", "max_length": 128},
    "batch": {"microbatch_size": 4},
    "evaluation": {"eval_set": "eval_v1", "max_new_tokens": 16, "batch_size": 50},
    "checkpoint": {"save_every_steps": 1},
    "limits": {"steps": 2},
    "mesh": {"device": "cpu"},
}
PLAYED = """
import json, pathlib, shutil, time
here = pathlib.Path(__file__).parent
with (here.parent / "starts").open("a") as file:
    print(here.name, file=file)
print("step 1", flush=True)
while not (here.parent / "go").exists():
    time.sleep(0.05)
print("step 2")
shutil.copy(here / "played.zip", here / "bundle.zip")
print("trainproof session: " + json.dumps({"exit_code": 0, "bundle_sha256": (here / "sha256").read_text()}))
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SshServer]:
    (folder := tmp_path / "ssh").mkdir()
    server = SshServer(folder, packages(tmp_path / "site"))
    server.start()
    monkeypatch.setenv("TRAINPROOF_SSH", server.command)
    monkeypatch.setenv("TRAINPROOF_POLL_SECONDS", "0.5")
    monkeypatch.setattr(remote, "POLL_SECONDS", 0.5)
    yield server
    for lock in server.home.glob(".trainproof/*/lock"):
        for each in psutil.process_iter(["cmdline"]):
            if str(lock.parent / "session.py") in (each.info["cmdline"] or []):
                each.kill()
    server.stop()


@pytest.fixture
def root(tmp_path: Path, server: SshServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    work = tmp_path / "work"
    work.mkdir()
    (work / "rows.jsonl").write_text('{"prompt": "What is 2 + 2?", "completion": "4"}\n' * 8)
    monkeypatch.chdir(work)
    root = tmp_path / "runs"
    yield root
    for job in jobs(root):
        queue.kill(job)
    wait_for(lambda: not queue.has_worker(root))


def trainproof(*arguments: object) -> str:
    command = [sys.executable, "-m", "trainproof", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_run_is_pushed_watched_fetched_verified_and_compared(server, root, tmp_path):
    Path("tiny.yaml").write_text(json.dumps(TINY))
    said = trainproof("push", "--config", "tiny.yaml", "--to", "ssh:box", "--yes", "--root", root)
    assert "box, " in said
    assert "CPU cores" in said
    assert "the wheel of trainproof, config.yaml, rows.jsonl" in said
    [job] = jobs(root)
    assert (job.state, job.exit_code, job.place) == ("succeeded", 0, "ssh:box")
    witness = json.loads((root / job.run / SESSION).read_text())
    assert (witness["reference"], witness["is_in_log"]) == (f"box:{job.run}", True)
    assert "limits.steps" not in trainproof("compare", root / f"{job.run}-smoke", root / job.run)
    trainproof("package", root / job.run, "--output", tmp_path / "again.zip")
    trainproof("verify", tmp_path / "again.zip")
    assert not (server.home / ".trainproof" / job.run).exists()


@pytest.mark.slow
def test_a_cancelled_run_is_fetched_and_continued_there(server, root):
    job = queue.start(root, TINY | {"limits": {"steps": 3000}}, place="ssh:box")
    wait_for(lambda: "checkpoint at step 3" in output(job), 240)
    queue.cancel(job)
    wait_for(lambda: now(job).has_ended, 240)
    assert now(job).state == "interrupted", output(job)
    folder = server.home / ".trainproof" / job.run
    assert any((folder / "runs" / job.run / "checkpoints").iterdir())
    assert not (root / job.run / "checkpoints").exists()
    run, after = queue.find_resumable(root, Path(job.run))
    again = queue.resume(root, run, stopped=after)
    wait_for(lambda: "resumed from step" in output(again), 240)
    queue.cancel(again)
    wait_for(lambda: now(again).has_ended, 240)
    manifest = json.loads((root / again.run / "run_manifest.json").read_text())
    assert manifest["parent"]["run_id"] == job.run
    assert not folder.exists()  # its checkpoint is in the folder of the session that continued it


@pytest.fixture
def played(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Job]:
    """Return a function that makes a job, whose session is played, in the queue of no worker."""

    def make(*, sent_as: bytes | None = None) -> Job:
        run = write_run(tmp_path / "made", "tiny-20261127-101010-abcd", steps=4, items=6)
        content = build_bundle([run], tmp_path / "made.zip").output.read_bytes()

        def prepare(_: Ssh, request: Request, folder: Path) -> None:
            session = folder / request.run
            (session / "input").mkdir(parents=True)
            (session / "input" / "request.json").write_text(json.dumps({"continues": None}))
            (session / "session.py").write_text(PLAYED)
            (session / "played.zip").write_bytes(content)
            (session / "sha256").write_text(sha256(sent_as or content).hexdigest())

        monkeypatch.setattr(Ssh, "prepare", prepare)
        config = json.dumps(TINY)
        here = {"run": run.name, "working_folder": Path.cwd(), "now": datetime.now(UTC), "place": "ssh:box"}
        return launch_jobs.enqueue(root, config=config, **here)

    return make


def go(server: SshServer) -> None:
    (server.home / ".trainproof" / "go").touch()


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["offer", "status", "submit", "fetch"])
def test_a_lost_answer_neither_loses_nor_repeats_anything(lost, server, root, played, tmp_path, monkeypatch, capsys):
    wrapper, once = tmp_path / "ssh.sh", tmp_path / "once"
    wrapper.write_text(
        f"""#!/bin/sh
        {server.command} "$@" || exit $?
        case "$*" in *" {lost} "*)
            [ -e {once} ] || {{ touch {once}; echo "client_loop: Broken pipe" >&2; exit 255; }};;
        esac
        """
    )
    wrapper.chmod(0o755)
    monkeypatch.setenv("TRAINPROOF_SSH", str(wrapper))
    job = played()
    (server.home / ".trainproof").mkdir()
    go(server)
    assert remote.run_job(job) == 0
    assert once.exists()
    assert (root / job.run / SESSION).is_file()
    assert (server.home / ".trainproof" / "starts").read_text().split() == [job.run]
    assert capsys.readouterr().out.count("step 1") == 1


@pytest.mark.slow
def test_a_cut_connection_loses_nothing(server, root, played):
    job, codes = played(), []
    thread = threading.Thread(target=lambda: codes.append(remote.run_job(job)))
    thread.start()
    log = job.folder / "session.log"
    wait_for(lambda: log.exists() and "step 1" in log.read_text())
    assert server.cut() > 0
    server.stop()  # for a while nobody answers
    wait_for(lambda: "step 1" in log.read_text())
    port = server.port
    server.start()
    assert server.port != port
    go(server)
    thread.join()
    assert codes == [0]
    assert log.read_text().splitlines()[:2] == ["step 1", "step 2"]
    assert (server.home / ".trainproof" / "starts").read_text().split() == [job.run]


@pytest.mark.slow
def test_a_bundle_that_is_not_the_one_of_the_log_is_not_imported(server, root, played):
    job = played(sent_as=b"another")
    (server.home / ".trainproof").mkdir()
    go(server)
    with pytest.raises(ProblemError) as raised:
        remote.run_job(job)
    assert raised.value.problems[0].code == "TP774"
    assert not (root / job.run).exists()
    assert (server.home / ".trainproof" / job.run / "bundle.zip").exists()


@pytest.mark.slow
def test_a_killed_session_says_so(server, root, played):
    job, codes = played(), []
    thread = threading.Thread(target=lambda: codes.append(remote.main(job.folder)))
    thread.start()
    log = job.folder / "session.log"
    wait_for(lambda: log.exists() and "step 1" in log.read_text())
    psutil.Process(int((server.home / ".trainproof" / job.run / "lock").read_text())).kill()
    thread.join()
    go(server)
    assert codes == [1]


def no_python(server: SshServer, folder: Path) -> None:
    server.environment["PATH"] = str(folder)
    (folder / "sh").symlink_to("/bin/sh")


def old_python(server: SshServer, folder: Path) -> None:
    no_python(server, folder)
    (folder / "python3").write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2\nexit 1\n')
    (folder / "python3").chmod(0o755)


def no_pip(_: SshServer, folder: Path) -> None:
    (folder.parent / "site" / "sitecustomize.py").write_text("import sys\nsys.modules['ensurepip'] = None\n")


@pytest.mark.parametrize(
    ("trouble", "code", "says"),
    [
        (no_python, "TP770", "lacks Python 3.11 to 3.14"),
        (old_python, "TP770", "prints: Python 3.9.2"),
        (no_pip, "TP770", "-venv`"),
        (lambda server, _: server.write_client(key="other"), "TP770", "ssh-copy-id box"),
        (lambda server, _: server.write_client(known="nobody"), "TP770", "Connect once by hand"),
        (lambda *_: Path("rows.jsonl").write_text(f'{{"prompt": "hf_{"aB3" * 12}"}}\n'), "TP846", "rows.jsonl"),
    ],
)
def test_nothing_is_sent_that_cannot_run(trouble, code, says, server, root, tmp_path):
    (folder := tmp_path / "bin").mkdir()
    server.stop()
    trouble(server, folder)
    client = (server.folder / "client.conf").read_text()
    port = server.port
    server.start()
    (server.folder / "client.conf").write_text(client.replace(f"Port {port}", f"Port {server.port}"))
    with pytest.raises(ProblemError) as raised:
        get_place("ssh:box").offer(Request(run="tiny", config=TINY, working_folder=Path.cwd()))
    assert (raised.value.problems[0].code, says in str(raised.value.problems[0])) == (code, True), raised.value
    assert [*server.home.glob(".trainproof/*")] == []


def test_what_a_machine_must_have(server, root, monkeypatch):
    def refusals(config: dict, **request: str) -> list[str]:
        with pytest.raises(ProblemError) as raised:
            get_place("ssh:box").offer(Request(run="tiny", config=config, working_folder=Path.cwd(), **request))
        return [problem.what for problem in raised.value.problems]

    monkeypatch.setitem(ssh.NEEDED_BYTES, "gpu", 2**60)
    said = refusals(TINY | {"mesh": {"device": "gpu"}}, continues="box:tiny-1")
    assert [any(words in each for each in said) for words in ("free disk", "no GPU", "checkpoint of tiny-1")] == [
        True
    ] * 3
    assert "not a session on box" in refusals(TINY, continues="other:tiny-1")[0]
    monkeypatch.setenv("TRAINPROOF_SSH", "/nowhere/ssh")
    assert "not installed" in refusals(TINY)[0]


@pytest.mark.parametrize("host", ["-oProxyCommand=x", "a b", "$(x)", "a;x", "", "a\nb", "@a", "a@-b", "a'b"])
def test_a_name_is_neither_an_option_nor_shell_text(host):
    assert find_place(f"ssh:{host}") is None
    with pytest.raises(ProblemError):
        get_place(f"ssh:{host}")


@pytest.mark.parametrize("reference", ["box:../x", "box:-x", "box:.ssh", "other:tiny", "tiny", "box:a/b", "box:a\n"])
def test_a_reference_from_a_file_is_checked(reference):
    with pytest.raises(ProblemError) as raised:
        Ssh("box").address(reference)
    assert raised.value.problems[0].code == "TP773"
