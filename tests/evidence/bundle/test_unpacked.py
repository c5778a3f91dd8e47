"""A run to work with: the folder itself, or a verified bundle's run with its weights, gone afterwards."""

from pathlib import Path

import pytest
from bundles import contents, pack
from synthetic import write_run

from evidence.bundle.build import build_bundle
from evidence.bundle.unpacked import unpacked_run
from schemas.problems import ProblemError


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle of two runs, one with an export."""
    folders = [write_run(tmp_path, name, seed=seed) for seed, name in enumerate(("one", "two"))]
    (folders[0] / "export").mkdir()
    (folders[0] / "export" / "model.safetensors").write_bytes(b"\0weights")
    build_bundle(folders, tmp_path / "both.zip", with_weights=True)
    return tmp_path / "both.zip"


def refused(path: Path, run_id: str | None = None) -> ProblemError:
    with pytest.raises(ProblemError) as caught, unpacked_run(path, run_id):
        pass
    return caught.value


def test_a_folder_is_given_as_it_is(tmp_path: Path):
    with unpacked_run(tmp_path) as folder:
        assert folder == tmp_path


def test_a_run_of_a_bundle_has_the_bytes_that_were_packed_and_is_removed(bundle: Path):
    with unpacked_run(bundle, "one") as folder:
        found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        original = bundle.parent / "one"
        expected = {path.relative_to(original).as_posix(): path.read_bytes() for path in original.rglob("*.*")}
        assert found == expected
        assert found["export/model.safetensors"] == b"\0weights"
        assert folder.name == "one"
    assert not folder.exists()


def test_of_several_runs_one_is_named(bundle: Path):
    assert [(each.code, each.what) for each in refused(bundle).problems] == [
        ("TP857", "The bundle holds 2 runs: one, two.")
    ]
    assert refused(bundle, "three").problems[0].what == "The bundle holds no run 'three'."
    assert refused(bundle).exit_code == 2


def test_a_changed_bundle_is_not_unpacked(bundle: Path):
    files = contents(bundle)
    files["runs/one/metrics.jsonl"] = files["runs/one/metrics.jsonl"].replace(b"1", b"2", 1)
    error = refused(pack(files, bundle.parent / "changed.zip"), "one")
    assert (error.exit_code, error.problems[0].code) == (1, "TP856")
    assert "TP823" in error.problems[0].what


def test_what_is_not_there_or_not_a_zip_is_named(tmp_path: Path):
    assert refused(tmp_path / "absent.zip").exit_code == 2
    (tmp_path / "text.zip").write_text("no zip")
    assert refused(tmp_path / "text.zip").problems[0].code == "TP856"
