"""The bundle is the same bytes every time, opens everywhere, and is refused with whole reasons."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from bundles import contents
from synthetic import write_run

from evidence.bundle import build, inspection
from evidence.bundle.build import build_bundle
from evidence.bundle.judgement import within_run
from evidence.bundle.verify import verify_bundle
from evidence.judge.judgement import report_of
from evidence.records.ours import read_run
from evidence.run.lock import RunLock
from schemas.problems import Problem, ProblemError
from schemas.render import as_text


def refused(folders: list[Path], output: Path, **options: bool) -> tuple[str, int]:
    with pytest.raises(ProblemError) as caught:
        build_bundle(folders, output, **options)
    assert not output.exists()
    assert not output.parent.exists() or list(output.parent.glob(".*")) == []
    return as_text(caught.value.problems), caught.value.exit_code


def test_same_input_gives_the_same_bytes(tmp_path: Path):
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


@pytest.mark.parametrize("given", [".", "../demo", "./", "demo/.."])
def test_however_the_folder_is_named_the_bundle_is_the_same(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run = write_run(tmp_path, "demo", status="failed")
    (run / "demo").mkdir()
    whole = build_bundle([run], tmp_path / "whole.zip", allow_partial=True)
    monkeypatch.chdir(run)
    build_bundle([Path(given)], tmp_path / "given.zip", allow_partial=True)
    assert (tmp_path / "given.zip").read_bytes() == (tmp_path / "whole.zip").read_bytes()
    assert whole.runs[0].reasons == ("The run failed after 10 of 20 steps.",)


def test_words_that_hold_the_name_of_the_folder_stay():
    """`a/` also stands inside `data/`."""
    said = {"code": "TP1", "severity": "error", "what": "data/rows.jsonl is gone.", "next": "Give a/ again."}
    assert within_run(Problem(file="a/plan.json", **said), Path("a")) == Problem(file="plan.json", **said)
    assert within_run(Problem(file="a", **said), Path("x/../a")) == Problem(file="a", **said)
    assert within_run(Problem(file="x/../a", **said), Path("x/../a")) == Problem(file="a", **said)


def test_nothing_but_a_zip_is_replaced(tmp_path: Path):
    run, other = write_run(tmp_path, "demo"), write_run(tmp_path, "other", seed=1)
    text, pipe = tmp_path / "notes.txt", tmp_path / "pipe.zip"
    text.write_text("mine")
    os.mkfifo(pipe)
    for output in (text, pipe):
        with pytest.raises(ProblemError) as caught:
            build_bundle([run], output)
        assert as_text(caught.value.problems) == (
            f"error TP848: {output}: The file there is not a zip, and would be replaced.\n"
            "  The output cannot be written, or lies inside a run folder and would become part of it.\n"
            "  Next: Give another path with `--output`.\n"
        )
    assert text.read_text() == "mine"
    assert pipe.is_fifo()
    inside = other / "evidence" / "demo.zip"
    said, code = refused([run], inside)
    assert (said.splitlines()[0], code) == (
        f"error TP848: {inside}: The output lies inside the run folder {other}.",
        2,
    )
    (tmp_path / "empty.zip").touch()
    build_bundle([run], tmp_path / "empty.zip")
    build_bundle([run], tmp_path / "empty.zip")


def test_other_tools_read_it_and_sha256sum_agrees(tmp_path: Path):
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
    checked = subprocess.run(
        ["sha256sum", "--strict", "-c", "MANIFEST.sha256"],
        cwd=tmp_path / "out",
        capture_output=True,
        text=True,
        env={"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]},
        check=True,
    )
    lines = checked.stdout.splitlines()
    assert len(lines) == len(names) - 1
    assert all(line.endswith(": OK") for line in lines)
    subprocess.run(["unzip", "-tqq", str(path)], check=True)


def test_a_file_that_no_list_names_is_packed_only_if_asked_for(tmp_path: Path):
    run = write_run(tmp_path, "demo")
    (run / "results.json").write_text('{"exact_match": 0.99}')
    (run / "receipts").mkdir()
    (run / "receipts" / "of-somebody.json").write_text("{}")
    found = [each for each in report_of(read_run(run)).findings if each.code == "TP602"]
    assert [Path(each.file).name for each in found] == ["results.json"]
    left = build_bundle([run], tmp_path / "without.zip")
    assert left.left_out == ("demo/results.json",)
    assert "runs/demo/receipts/of-somebody.json" in contents(left.output)
    assert build_bundle([run], tmp_path / "with.zip", with_unlisted=True).left_out == ()


def test_report_says_what_was_built(tmp_path: Path):
    run = write_run(tmp_path, "demo")
    (run / "run.lock").write_text("")
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "w.bin").write_bytes(bytes(100))
    (run / ".cache").mkdir()
    (run / "half.tmp").write_text("x")
    seen: list[tuple[int, int]] = []
    report = build_bundle([run], tmp_path / "new" / "demo.zip", progress=lambda done, total: seen.append((done, total)))
    assert [(each.run_id, each.grade) for each in report.runs] == [("demo", "consistent")]
    assert report.left_out == ("demo/.cache", "demo/checkpoints", "demo/half.tmp", "demo/run.lock")
    assert report.partial is False
    assert report.size_bytes == (tmp_path / "new" / "demo.zip").stat().st_size
    assert not any(name.endswith((".tmp", "run.lock", "w.bin")) for name in contents(report.output))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1]


def test_weights_are_packed_when_asked_for(tmp_path: Path):
    run = write_run(tmp_path, "demo")
    (run / "adapter").mkdir()
    (run / "adapter" / "adapter_model.safetensors").write_bytes(bytes(3_000_000))
    report = build_bundle([run], tmp_path / "demo.zip", with_weights=True)
    assert "runs/demo/adapter/adapter_model.safetensors" in contents(report.output)
    assert verify_bundle(report.output).ok


def test_an_older_bundle_is_replaced(tmp_path: Path):
    run = write_run(tmp_path, "demo")
    (tmp_path / "demo.zip").write_bytes(b"PK\x05\x06" + bytes(18))
    assert build_bundle([run], tmp_path / "demo.zip").size_bytes > 1000


def test_partial_runs_are_refused_and_packed_with_a_label(tmp_path: Path):
    run = write_run(tmp_path, "cut", status="interrupted")
    assert refused([run], tmp_path / "o" / "cut.zip") == (
        (
            f"error TP841: {run}: The run is graded partial: The run was interrupted after 10 of 20 steps.\n"
            "  Only consistent and measured runs are packed without a label.\n"
            "  Next: Finish or repair the run, or pack it labelled with `--allow-partial`.\n"
        ),
        1,
    )
    report = build_bundle([run], tmp_path / "cut.zip", allow_partial=True)
    assert report.partial is True
    verdict = verify_bundle(report.output)
    assert (verdict.ok, verdict.partial, verdict.runs[0].grade) == (True, True, "partial")
    assert "Partial evidence." in contents(report.output)["REPORT.html"].decode()


def test_a_contradictory_run_is_never_packed(tmp_path: Path):
    run = write_run(tmp_path, "demo", manifest={"result": {"last_loss": 0.001}})
    text, code = refused([run], tmp_path / "o" / "demo.zip", allow_partial=True)
    assert code == 1
    assert text.startswith(f"error TP852: {run}: The run is graded contradictory: run_manifest.json: ")
    assert text.endswith(
        "  A contradictory run is never packed: no label could say which of its statements is true.\n"
        "  Next: Run `trainproof check` on the folder; restore the files as the run wrote them, or run it again.\n"
    )


def test_a_run_and_its_copy_are_not_packed_together(tmp_path: Path):
    run = write_run(tmp_path, "demo")
    shutil.copytree(run, tmp_path / "other")
    manifest = (tmp_path / "other" / "run_manifest.json").read_text("utf-8")
    (tmp_path / "other" / "run_manifest.json").write_text(manifest.replace('"run_id": "demo"', '"run_id": "other"'))
    text, code = refused([run, tmp_path / "other"], tmp_path / "o" / "x.zip")
    assert code == 1
    assert "TP852" in text


def test_folders_that_do_not_exist_or_are_no_runs(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    assert refused([tmp_path / "nothing"], tmp_path / "o" / "x.zip") == (
        (
            f"error TP840: {tmp_path / 'nothing'}: This does not exist.\n"
            "  The path given does not exist or is not a folder.\n"
            "  Next: Give the path of a run folder; `trainproof runs` lists them.\n"
        ),
        2,
    )
    assert refused([], tmp_path / "o" / "x.zip") == (
        (
            "error TP851: No run folder was given.\n"
            "  A bundle holds at least one run.\n"
            "  Next: Name at least one run folder.\n"
        ),
        2,
    )
    assert refused([tmp_path / "empty"], tmp_path / "o" / "x.zip") == (
        (
            f"error TP853: {tmp_path / 'empty'}: This is not a run.\n"
            "  The folder holds none of the files that a run writes.\n"
            "  Next: Name the run folders themselves; `trainproof runs` lists them.\n"
        ),
        1,
    )


def test_two_runs_of_one_name(tmp_path: Path):
    runs = [write_run(tmp_path / place, "demo") for place in ("a", "b")]
    assert refused(runs, tmp_path / "o" / "x.zip") == (
        (
            "error TP849: demo: Several of the folders have this name.\n"
            "  Runs are packed under the name of their folder, so two with one name cannot be distinguished.\n"
            "  Next: Pack them into two bundles.\n"
        ),
        2,
    )


def test_a_run_that_is_going_on(tmp_path: Path):
    run = write_run(tmp_path, "demo", status="running")
    with RunLock(run):
        text, code = refused([run], tmp_path / "o" / "x.zip", allow_partial=True)
    assert (text, code) == (
        (
            f"error TP843: {run}: A process holds this run folder.\n"
            "  A process is writing to the folder, so a bundle would hold half-written files.\n"
            "  Next: Wait for the run to end, or stop it.\n"
        ),
        1,
    )


@pytest.mark.parametrize("target", ["/etc/hostname", "metrics.jsonl", "nowhere"])
def test_links_are_refused(tmp_path: Path, target: str):
    run = write_run(tmp_path, "demo")
    (run / "extra.txt").symlink_to(target)
    assert refused([run], tmp_path / "o" / "x.zip", allow_partial=True) == (
        (
            f"error TP844: {run / 'extra.txt'}: This is a symbolic link, not a file.\n"
            "  A symbolic link may lead anywhere on this machine; a bundle holds plain files only.\n"
            "  Next: Replace the link by a copy of the file, or remove it.\n"
        ),
        1,
    )


def test_a_linked_folder_is_not_entered(tmp_path: Path):
    run = write_run(tmp_path, "demo")
    (run / "data").symlink_to(tmp_path, target_is_directory=True)
    text, _ = refused([run], tmp_path / "o" / "x.zip")
    assert text.startswith(f"error TP844: {run / 'data'}: This is a symbolic link")


def test_pipes_are_refused(tmp_path: Path):
    run = write_run(tmp_path, "demo")
    os.mkfifo(run / "pipe")
    text, _ = refused([run], tmp_path / "o" / "x.zip")
    assert text.startswith(f"error TP844: {run / 'pipe'}: This is a special file, not a file.\n")


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("a\\b.txt", "The name has a backslash, which is a separator on Windows only."),
        ("aux.txt", "`aux.txt` is the name of a device on Windows."),
        ("a?.txt", "The name has the character `?`, which Windows does not allow."),
    ],
)
def test_names_that_other_systems_cannot_hold(tmp_path: Path, name: str, what: str):
    run = write_run(tmp_path, "demo")
    (run / name).write_text("x")
    assert refused([run], tmp_path / "o" / "x.zip") == (
        (
            f"error TP845: {run / name}: {what}\n"
            "  Another system could not unpack this name, or would take it for another.\n"
            "  Next: Rename the file.\n"
        ),
        1,
    )


def test_a_folder_whose_name_is_no_run_id(tmp_path: Path):
    run = write_run(tmp_path, "my run")
    text, code = refused([run], tmp_path / "o" / "x.zip", allow_partial=True, with_unlisted=True)
    assert code == 1
    assert f"error TP845: {run}: The run folder is named `my run`, which is not a run id.\n" in text


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = write_run(tmp_path, "demo")
    read = inspection.scan_file

    def denied(path: Path, name: str):
        if name == "log.jsonl":
            raise PermissionError(13, "Permission denied")
        return read(path, name)

    monkeypatch.setattr(inspection, "scan_file", denied)
    assert refused([run], tmp_path / "o" / "x.zip", allow_partial=True) == (
        (
            f"error TP854: {run / 'log.jsonl'}: The file cannot be read: Permission denied.\n"
            "  What cannot be read can be neither checked nor packed.\n"
            "  Next: Give yourself the right to read it, or move it out of the run folder.\n"
        ),
        1,
    )


def test_names_that_differ_in_case_only(tmp_path: Path):
    run = write_run(tmp_path, "demo")
    (run / "Notes.txt").write_text("x")
    (run / "notes.txt").write_text("x")
    text, _ = refused([run], tmp_path / "o" / "x.zip", with_unlisted=True)
    what = "The name becomes `Notes.txt` where case or Unicode form do not count."
    assert text.startswith(f"error TP845: {run / 'notes.txt'}: {what}\n")


def test_secrets_are_refused_and_masked(tmp_path: Path):
    run = write_run(tmp_path, "demo")
    token = "hf_" + "aB3" * 11 + "x"
    (run / "console.txt").write_text(f"line\npush to https://user:{token}@huggingface.co/me\n")
    text, code = refused([run], tmp_path / "o" / "x.zip", allow_partial=True, with_unlisted=True)
    assert code == 1
    assert token not in text
    assert text.startswith(
        f"error TP846: {run / 'console.txt'} (line 2): "
        "Line 2 holds a password in an address: hf_a… (37 characters).\n"
        "  A file holds what looks like a password, token or private key.\n"
        "  Next: Revoke the secret, then remove it from the file, or pack with `--redact`.\n"
    )


def test_personal_details_are_told_and_packed(tmp_path: Path):
    run = write_run(tmp_path, "demo", manifest={"command": ["trainproof", "train", "--config", "/home/ada/c.yaml"]})
    report = build_bundle([run], tmp_path / "x.zip")
    assert [(problem.severity, problem.code, problem.file) for problem in report.warnings] == [
        ("warning", "TP847", str(run / "run_manifest.json"))
    ]


def test_output_that_cannot_be_written(tmp_path: Path):
    run = write_run(tmp_path, "demo")
    assert refused([run], run / "bundle.zip") == (
        (
            f"error TP848: {run / 'bundle.zip'}: The output lies inside the run folder {run}.\n"
            "  The output cannot be written, or lies inside a run folder and would become part of it.\n"
            "  Next: Give another path with `--output`.\n"
        ),
        2,
    )
    (tmp_path / "file").write_text("x")
    text, code = refused([run], tmp_path / "file" / "x.zip")
    assert (code, text.splitlines()[0][:11]) == (2, "error TP848")


def test_a_file_that_changes_while_it_is_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = write_run(tmp_path, "demo")
    write = build._write

    def change_then_write(*arguments):
        with (run / "log.jsonl").open("a") as log:
            log.write("\n")
        write(*arguments)

    monkeypatch.setattr(build, "_write", change_then_write)
    assert refused([run], tmp_path / "o" / "x.zip") == (
        (
            f"error TP850: {run / 'log.jsonl'}: The file has other content than when it was checked a moment ago.\n"
            "  A file had other content when it was packed than when it was checked.\n"
            "  Next: Wait until nothing writes to the folder, then pack again.\n"
        ),
        1,
    )
    assert list((tmp_path / "o").iterdir()) == []


def test_a_full_disk_leaves_nothing_and_keeps_the_old_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = write_run(tmp_path, "demo")
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "x.zip").write_bytes(b"PK\x05\x06old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(build, "_write", full)
    with pytest.raises(ProblemError) as caught:
        build_bundle([run], tmp_path / "o" / "x.zip")
    assert caught.value.problems[0].what == "The bundle cannot be written: No space left on device."
    assert [path.name for path in (tmp_path / "o").iterdir()] == ["x.zip"]
    assert (tmp_path / "o" / "x.zip").read_bytes() == b"PK\x05\x06old"


def test_a_zip_that_does_not_verify_is_not_handed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = write_run(tmp_path, "demo")
    monkeypatch.setattr(build, "ending", lambda stored: b"")
    text, code = refused([run], tmp_path / "o" / "x.zip")
    assert (code, text[:11]) == (1, "error TP801")
