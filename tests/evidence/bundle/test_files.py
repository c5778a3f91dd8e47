"""A bundle that somebody packed again, or unpacked, is verified for what is inside; what does not belong is named."""

from __future__ import annotations

import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from bundles import contents, listed_again, small_bundle
from hostile_zips import CASES, FOLDER, Part, raw_zip
from synthetic import write_run

from evidence.bundle.build import build_bundle
from evidence.bundle.unpacked import unpacked_run
from evidence.bundle.verify import verify_bundle
from schemas.problems import Problem
from trainproof.command import main

APPLE = b"\0\5\x16\7\0\2\0\0Mac OS X        "


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_bundle(tmp_path_factory.mktemp("bundle"))


def packed(path: Path, files: dict[str, bytes], folders: tuple[str, ...] = ()) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for folder in folders:
            archive.mkdir(folder)
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def by_finder(files: dict[str, bytes], folder: str) -> dict[str, bytes]:
    """Return what Finder packs: beside each file one of its own, and what it knows of each folder."""
    out = {f"{folder}.DS_Store": b"\0\0\0\1Bud1"}
    for name, content in files.items():
        before, _, last = (folder + name).rpartition("/")
        out[folder + name] = content
        out[f"__MACOSX/{before}{'/' if before else ''}._{last}"] = APPLE
    return out


def by_explorer(files: dict[str, bytes], folder: str) -> dict[str, bytes]:
    return {f"{folder}Thumbs.db": b"x", f"{folder}runs/desktop.ini": b"x"} | {
        folder + name: content for name, content in files.items()
    }


def notes(path: Path) -> list[tuple[str, str]]:
    verdict = verify_bundle(path)
    assert verdict.ok, verdict.findings
    assert [run.grade for run in verdict.runs] == ["consistent"]
    return [(each.code, each.what) for each in verdict.findings]


@pytest.mark.parametrize(
    ("add", "folder", "of_system"),
    [(by_finder, "", "files"), (by_finder, "mine/", "files"), (by_explorer, "my bundle/", "2 files")],
)
def test_packed_again_by_a_desktop_it_holds_and_one_note_says_so(
    add: Callable[[dict[str, bytes], str], dict[str, bytes]], folder: str, of_system: str, bundle: Path, tmp_path: Path
):
    files = add(contents(bundle), folder)
    again = packed(tmp_path / "again.zip", files, (folder,) if folder else ())
    ((code, what),) = notes(again)
    assert code == "TP816"
    assert what.startswith("The bundle was packed again" + (f" in the folder `{folder}`" if folder else ""))
    assert what.endswith(f"{of_system} of the operating system, left aside here.")
    assert verify_bundle(again).content_sha256 == verify_bundle(bundle).content_sha256
    with unpacked_run(again) as run:
        assert {path.name for path in run.iterdir()}.isdisjoint({"desktop.ini", ".DS_Store"})
    with zipfile.ZipFile(again) as archive:
        archive.extractall(tmp_path / "unpacked")
    ((code, what),) = notes(tmp_path / "unpacked")
    assert (code, what.split(",")[0].split(" in ")[0]) == ("TP816", "The bundle is unpacked")


def test_an_unpacked_bundle_is_verified_and_worked_with_like_a_zip(bundle: Path, tmp_path: Path):
    with zipfile.ZipFile(bundle) as archive:
        archive.extractall(tmp_path / "here")
    assert notes(tmp_path / "here") == []
    with unpacked_run(tmp_path / "here") as run:
        assert run.name == "demo-1"
    metrics = tmp_path / "here" / "runs" / "demo-1" / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes().replace(b"1", b"2", 1))
    verdict = verify_bundle(tmp_path / "here")
    assert not verdict.ok
    assert {"TP823", "TP824"} <= {each.code for each in verdict.findings}


def problems(path: Path) -> list[Problem]:
    verdict = verify_bundle(path)
    assert not verdict.ok
    return [each for each in verdict.findings if each.severity == "error"]


def test_what_lies_beside_the_folder_of_a_bundle_is_named(bundle: Path, tmp_path: Path):
    files = {f"mine/{name}": content for name, content in contents(bundle).items()} | {"notes.txt": b"hello"}
    (problem,) = problems(packed(tmp_path / "again.zip", files))
    assert (problem.code, problem.file) == ("TP822", "notes.txt")
    assert problem.what == "The file is beside the folder `mine/`, which holds the bundle."


def test_a_change_is_found_in_whatever_it_is_packed(bundle: Path, tmp_path: Path):
    files = by_finder(contents(bundle), "mine/")
    for change, code in (
        ({"mine/runs/demo-1/log.jsonl": b"{}\n"}, "TP823"),
        ({"mine/more.txt": b"hello"}, "TP822"),
        ({"mine/runs/demo-1/.hidden": b"hello"}, "TP822"),
    ):
        assert code in {each.code for each in problems(packed(tmp_path / "again.zip", files | change))}
    del files["mine/runs/demo-1/log.jsonl"]
    assert "TP821" in {each.code for each in problems(packed(tmp_path / "again.zip", files))}


def test_a_listed_file_with_such_a_name_belongs_to_the_bundle(bundle: Path, tmp_path: Path):
    files = contents(bundle) | {"runs/demo-1/desktop.ini": b"of the run"}
    files = listed_again(files)
    assert "TP822" not in {each.code for each in verify_bundle(packed(tmp_path / "a.zip", files)).findings}
    del files["runs/demo-1/desktop.ini"]
    assert "TP821" in {each.code for each in problems(packed(tmp_path / "b.zip", files))}


def test_folders_that_java_deflates_are_read(bundle: Path, tmp_path: Path):
    empty = {"method": 8, "packed": 2, "size": 0, "crc32": 0}
    folder = Part(name="runs/", content=b"", deflate=True, mode=FOLDER, local=empty, central=empty)
    parts = [folder, *(Part(name=name, content=content) for name, content in contents(bundle).items())]
    (tmp_path / "java.zip").write_bytes(raw_zip(parts))
    assert notes(tmp_path / "java.zip") == [("TP816", "The bundle was packed again.")]


@pytest.mark.parametrize("name", ["climbs", "symbolic_link", "duplicate", "overlap", "two_names", "encrypted", "bomb"])
def test_hostile_entries_are_refused_whatever_stands_around_them(name: str, tmp_path: Path):
    (tmp_path / "hostile.zip").write_bytes(CASES[name]())
    assert all(each.file or each.code == "TP812" for each in problems(tmp_path / "hostile.zip"))
    hidden = raw_zip([Part(name="__MACOSX/../../evil", content=APPLE)])
    (tmp_path / "hidden.zip").write_bytes(hidden)
    assert [(each.code, each.file) for each in problems(tmp_path / "hidden.zip")] == [("TP802", "__MACOSX/../../evil")]


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right there")
def test_a_link_in_an_unpacked_bundle_is_not_followed(bundle: Path, tmp_path: Path):
    with zipfile.ZipFile(bundle) as archive:
        archive.extractall(tmp_path / "here")
    (tmp_path / "here" / "more").symlink_to("/etc")
    assert [(each.code, each.file) for each in problems(tmp_path / "here")] == [("TP804", "more")]


def test_a_run_is_not_taken_for_an_unpacked_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = write_run(tmp_path, "demo-1")
    with pytest.raises(SystemExit, match="2"):
        main(["verify", str(run)])
    assert (
        f"This folder is not an unpacked bundle.\n  Next: To check runs, use `trainproof check {run}`."
        in capsys.readouterr().err
    )


def test_weights_of_a_bundle_that_was_packed_again_are_unpacked_too(tmp_path: Path):
    run = write_run(tmp_path, "one")
    (run / "export").mkdir()
    (run / "export" / "model.safetensors").write_bytes(b"\0weights")
    built = build_bundle([run], tmp_path / "one.zip", with_weights=True).output
    again = packed(tmp_path / "again.zip", by_finder(contents(built), "mine/"))
    with unpacked_run(again, "one") as folder:
        assert (folder / "export" / "model.safetensors").read_bytes() == b"\0weights"
    shutil.rmtree(run)
