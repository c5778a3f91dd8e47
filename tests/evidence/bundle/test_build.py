"""Building bundles: reproducible bytes, refusals with every reason, and the checklist."""

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from bundles import contents
from mutations import apply
from synthetic import seal, write_run

from evidence.bundle import build
from evidence.bundle.build import build_bundle, checklist
from evidence.bundle.contents import StoredFile
from evidence.bundle.verify import verify_bundle
from evidence.grade import check_run
from evidence.lock import RunLock
from evidence.run import read_run
from schemas.problems import Problem, ProblemError
from schemas.render import render_text

EMPTY_ZIP = b"PK\x05\x06" + bytes(18)


def refused(folders: list[Path], output: Path, **options: bool) -> ProblemError:
    """Return why a bundle is not built, and check that nothing is left behind."""
    with pytest.raises(ProblemError) as caught:
        build_bundle(folders, output, **options)
    assert not output.exists()
    assert not output.parent.exists() or list(output.parent.glob(".*")) == []
    return caught.value


def test_same_input_gives_same_bytes(tmp_path: Path) -> None:
    """Other times, another umask, other order on disk, another place, and files copied in another order."""
    first = [write_run(tmp_path / "here", name, seed=seed) for seed, name in enumerate(["alpha", "beta"])]
    here = build_bundle(first, tmp_path / "one.zip")
    (tmp_path / "there" / "deeper").mkdir(parents=True)
    second = []
    for run in reversed(first):
        copy = tmp_path / "there" / "deeper" / run.name
        copy.mkdir()
        for file in sorted(run.iterdir(), reverse=True):
            shutil.copyfile(file, copy / file.name)
            os.utime(copy / file.name, (1, 1))
            (copy / file.name).chmod(0o600)
        second.append(copy)
    before = os.umask(0o077)
    try:
        there = build_bundle(second, tmp_path / "two.zip")
    finally:
        os.umask(before)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    assert (here.content_sha256, here.zip_sha256) == (there.content_sha256, there.zip_sha256)
    assert (tmp_path / "two.zip").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("given", [".", "../demo", "demo/.."])
def test_bundle_does_not_depend_on_how_the_folder_is_named(given, tmp_path, monkeypatch):
    run = write_run(tmp_path, "demo", status="failed")
    (run / "demo").mkdir()
    whole = build_bundle([run], tmp_path / "whole.zip", allow_partial=True)
    monkeypatch.chdir(run)
    build_bundle([Path(given)], tmp_path / "given.zip", allow_partial=True)
    assert (tmp_path / "given.zip").read_bytes() == (tmp_path / "whole.zip").read_bytes()
    assert tuple(whole.runs[0].grade.reasons) == ("The run failed after 10 of 20 steps.",)


def test_unzip_and_sha256sum_agree(tmp_path: Path) -> None:
    run = write_run(tmp_path, "demo", items=10)
    (run / "notes é.ipynb").write_text('{"cells": []}\n', "utf-8")
    path = build_bundle([run], tmp_path / "demo.zip", with_unlisted=True).output
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        assert names == sorted(names)
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert {info.external_attr >> 16 for info in archive.infolist()} == {0o100644}
        archive.extractall(tmp_path / "out")
    assert "runs/demo/notes é.ipynb" in names
    assert {name for name in names if "/" not in name} == {"MANIFEST.sha256", "REPORT.html", "bundle_manifest.json"}
    checked = subprocess.run(
        ["sha256sum", "--strict", "-c", "MANIFEST.sha256"],
        cwd=tmp_path / "out",
        capture_output=True,
        text=True,
        env={"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]},
        check=True,
    )
    assert sorted(checked.stdout.splitlines()) == [f"{name}: OK" for name in names if name != "MANIFEST.sha256"]
    subprocess.run(["unzip", "-tqq", str(path)], check=True)


def test_omitted_files_and_report(tmp_path: Path) -> None:
    run = write_run(tmp_path, "demo")
    for folder in ("checkpoints", "adapter", "receipts", ".cache"):
        (run / folder).mkdir()
    (run / "checkpoints" / "w.bin").write_bytes(bytes(100))
    with (run / "adapter" / "adapter_model.safetensors").open("wb") as file:
        file.truncate((32 << 20) + 1)
    (run / "receipts" / "replay.json").write_text("{}")
    for name in ("run.lock", "half.tmp", "results.json"):
        (run / name).write_text("{}")
    found = [each for each in check_run(read_run(run)).findings if each.code == "TP602"]
    assert [Path(each.file).name for each in found] == ["results.json"]
    seen: list[tuple[int, int]] = []
    report = build_bundle([run], tmp_path / "new" / "demo.zip", progress=lambda done, total: seen.append((done, total)))
    always = {"demo/.cache", "demo/half.tmp", "demo/run.lock"}
    assert set(report.left_out) == always | {"demo/adapter", "demo/checkpoints", "demo/results.json"}
    assert (report.partial, report.size_bytes) == (False, report.output.stat().st_size)
    assert "runs/demo/receipts/replay.json" in contents(report.output)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1]
    whole = build_bundle([run], tmp_path / "whole.zip", with_unlisted=True, with_weights=True)
    assert set(whole.left_out) == always
    assert "runs/demo/adapter/adapter_model.safetensors" in contents(whole.output)


def test_partial_runs_are_packed_with_a_label(tmp_path: Path) -> None:
    run = write_run(tmp_path, "cut", status="interrupted")
    assert render_text(refused([run], tmp_path / "o" / "cut.zip").problems) == (
        f"error TP841: {run}: The run is graded partial: The run was interrupted after 10 of 20 steps.\n"
        "  Only consistent and measured runs are packed without a label.\n"
        "  Next: Finish or repair the run. Or pass `--allow-partial` to pack it with the label `partial`.\n"
    )
    report = build_bundle([run], tmp_path / "cut.zip", allow_partial=True)
    verdict = verify_bundle(report.output)
    assert (report.partial, verdict.ok, verdict.partial, verdict.runs[0].grade.name) == (True, True, True, "partial")
    assert "Partial evidence." in contents(report.output)["REPORT.html"].decode()


def copied(run: Path) -> list[Path]:
    shutil.copytree(run, run.parent / "other")
    manifest = (run.parent / "other" / "run_manifest.json").read_text("utf-8")
    (run.parent / "other" / "run_manifest.json").write_text(manifest.replace('"run_id": "demo"', '"run_id": "other"'))
    return [run, run.parent / "other"]


def empty(run: Path) -> list[Path]:
    (run.parent / "empty").mkdir()
    return [run.parent / "empty"]


FORGED = {"file": "run_manifest.json", "pointer": "/result/best_loss", "value": 0.5}
TOKEN = f"line\npush to https://user:hf_{'aB3' * 11}x@huggingface.co/me\n"


@pytest.mark.parametrize(
    ("change", "code", "file", "exit_code"),
    [
        (lambda _: [], "TP851", "", 2),
        (lambda run: [run.parent / "nothing"], "TP840", "nothing", 2),
        (lambda run: [run, write_run(run / "x", "demo")], "TP849", "demo", 2),
        (empty, "TP853", "empty", 1),
        (copied, "TP852", "demo", 1),
        (lambda run: apply(run, FORGED), "TP852", "demo", 1),
        (lambda run: (run / "x").symlink_to("/etc/hostname"), "TP844", "demo/x", 1),
        (lambda run: (run / "x").symlink_to(run.parent), "TP844", "demo/x", 1),
        (lambda run: os.mkfifo(run / "pipe"), "TP844", "demo/pipe", 1),
        (lambda run: (run / "a\\b").touch(), "TP845", "demo/a\\b", 1),
        (lambda run: (run / "aux.txt").touch(), "TP845", "demo/aux.txt", 1),
        (lambda run: (run / "a?").touch(), "TP845", "demo/a?", 1),
        (lambda run: (run / "Log.jsonl").touch(), "TP845", "demo/log.jsonl", 1),
        (lambda run: [run.rename(run.parent / "my run")], "TP845", "my run", 1),
        (lambda run: (run / "x").write_text(TOKEN), "TP846", "demo/x", 1),
    ],
)
def test_what_cannot_be_packed(change, code, file, exit_code, tmp_path):
    run = write_run(tmp_path / "runs", "demo")
    folders = change(run)
    folders = folders if isinstance(folders, list) else [run]
    error = refused(folders, tmp_path / "o" / "x.zip", allow_partial=True, with_unlisted=True)
    assert error.exit_code == exit_code
    assert (code, file) in {(each.code, each.file.removeprefix(f"{tmp_path / 'runs'}/")) for each in error.problems}


def test_running_run_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path, "demo", status="running")
    with RunLock(run):
        assert [each.code for each in refused([run], tmp_path / "x.zip", allow_partial=True).problems] == ["TP843"]


def test_unreadable_file_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path, "demo")
    scan = build.scan_file

    def denied(path: Path, name: str) -> list[Problem]:
        if name == "log.jsonl":
            raise PermissionError(13, "Permission denied")
        return scan(path, name)

    monkeypatch.setattr(build, "scan_file", denied)
    (problem,) = refused([run], tmp_path / "o" / "x.zip", allow_partial=True).problems
    assert (problem.code, problem.file) == ("TP854", str(run / "log.jsonl"))
    assert problem.what == "The file cannot be read: Permission denied."


def test_personal_details_are_packed_with_a_warning(tmp_path: Path) -> None:
    run = write_run(tmp_path, "demo", manifest={"command": ["trainproof", "train", "--config", "/home/ada/c.yaml"]})
    report = build_bundle([run], tmp_path / "x.zip")
    assert [(each.code, each.file) for each in report.warnings] == [("TP847", str(run / "run_manifest.json"))]


def test_output_replaces_only_a_zip_outside_of_runs(tmp_path: Path) -> None:
    run, other = write_run(tmp_path, "demo"), write_run(tmp_path, "other", seed=1)
    text, pipe = tmp_path / "notes.txt", tmp_path / "pipe.zip"
    text.write_text("mine")
    os.mkfifo(pipe)
    for output in (text, pipe, text / "x.zip"):
        with pytest.raises(ProblemError) as caught:
            build_bundle([run], output)
        assert (caught.value.exit_code, [each.code for each in caught.value.problems]) == (2, ["TP848"])
    assert (text.read_text(), pipe.is_fifo()) == ("mine", True)
    for output, folder in ((run / "x.zip", run), (other / "evidence" / "demo.zip", other)):
        (problem,) = refused([run], output).problems
        assert problem.what == f"The output is inside the run folder {folder}."
    (tmp_path / "empty.zip").write_bytes(EMPTY_ZIP)
    build_bundle([run], tmp_path / "empty.zip")


def test_failure_keeps_the_old_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, header = write_run(tmp_path, "demo"), build.local_header
    output = tmp_path / "o" / "x.zip"
    output.parent.mkdir()
    output.write_bytes(EMPTY_ZIP)

    def change_log(file: StoredFile) -> bytes:
        with (run / "log.jsonl").open("a") as log:
            log.write("\n")
        return header(file)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for broken, name, code, what in (
        (full, "local_header", "TP848", "The bundle cannot be written: No space left on device."),
        (
            lambda _: b"",
            "central_directory",
            "TP801",
            "This is not a zip, or its end is missing or followed by other bytes.",
        ),
        (change_log, "local_header", "TP850", "The file changed while it was packed."),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(build, name, broken)
            with pytest.raises(ProblemError) as caught:
                build_bundle([run], output)
        assert [(each.code, each.what) for each in caught.value.problems] == [(code, what)]
        assert [path.name for path in output.parent.iterdir()] == ["x.zip"]
        assert output.read_bytes() == EMPTY_ZIP


def lines(*folders: Path, with_weights: bool = False) -> list[tuple[str, str, str]]:
    return [(item.what, item.state, item.detail) for item in checklist(folders, with_weights=with_weights)]


def test_checklist_of_a_good_run(tmp_path: Path) -> None:
    run = write_run(tmp_path, "demo")
    (run / "checkpoints").mkdir()
    size = sum(path.stat().st_size for path in run.iterdir() if path.is_file())
    found = lines(run)
    assert [each[:2] for each in found] == [
        *((what, "ok") for what in ("grade", "errors", "end of the run", "secrets", "files")),
        ("challenge", "note"),
    ]
    assert found[4][2] == f"9 files, {size:,} bytes. Not packed: checkpoints."
    assert "challenge" not in {what for what, _, _ in lines(write_run(tmp_path, "unscored", items=0))}


def test_checklist_of_bad_runs(tmp_path: Path) -> None:
    run = write_run(tmp_path, "cut", status="interrupted")
    (run / "notes.txt").write_text("see /home/ada/x\npassword: hunter2hunter2\n")
    seal(run)
    (run / "link").symlink_to("notes.txt")
    found = {(what, state): detail for what, state, detail in lines(run)}
    assert ("grade", "blocked") in found
    assert found["secrets", "blocked"] == "notes.txt: Line 2 holds a password: hun… (14 characters)."
    assert found["personal details", "warning"] == "notes.txt: Line 1 holds a home folder: … (3 characters)."
    assert found["files", "blocked"] == "link: This is a symbolic link."
    apply(forged := write_run(tmp_path, "forged"), FORGED)
    advice = {item.what: (item.state, item.next) for item in checklist([forged])}
    assert advice["errors"] == ("blocked", "Fix the errors that `trainproof check` lists.")
    (item,) = checklist([tmp_path / "nothing"])
    assert (item.run, item.what, item.state) == ("", "folder", "blocked")


@pytest.mark.parametrize(
    ("weights", "size", "with_weights", "state", "detail"),
    [
        ("adapter/adapter_model.safetensors", 100, False, "note", "unknown"),
        ("adapter/adapter_model.safetensors", (32 << 20) + 1, False, "note", "not possible"),
        ("adapter/adapter_model.safetensors", (32 << 20) + 1, True, "note", "unknown"),
        ("trained_params.safetensors", 100, False, "ok", "possible"),
    ],
)
def test_large_weights_are_packed_only_on_request(weights, size, with_weights, state, detail, tmp_path):
    run = write_run(tmp_path, "demo")
    (run / weights).parent.mkdir(exist_ok=True)
    (run / weights).write_bytes(b"\0arrays of ada@example.org, which are no text")
    os.truncate(run / weights, size)
    if weights.startswith("trained"):
        seal(run)
    found = lines(run, with_weights=with_weights)
    ((_, found_state, shown),) = [line for line in found if line[0] == "challenge"]
    assert (found_state, shown.startswith(f"Challenge: {detail}")) == (state, True)
    assert not [line for line in found if line[0] == "personal details"]
