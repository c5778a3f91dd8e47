"""The Package page: checks, ways to build, the zip that is handed in, and bundles from strangers."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bundles import contents, listed_again, pack, small_bundle
from hostile_zips import CASES, Part, raw_zip
from mutations import apply
from pages import Open, labels, press, said
from streamlit.testing.v1 import AppTest
from synthetic import seal, write_run

from dashboard.shared import reading, state
from dashboard.views import package
from evidence.bundle.build import build_bundle
from evidence.bundle.verify import verify_bundle
from evidence.index.index import index_runs
from evidence.layout import LOG
from schemas.problems import ProblemError

SECRET = "hf_" + "Ab1" * 12
PARTIAL, MASKED = "Build, labelled as partial", "Build, with secrets and home folders masked"


def titles(app: AppTest) -> list[str]:
    return [part.label for part in app.expander]


def builds(app: AppTest) -> list[str]:
    """Return the buttons that build and can be pressed."""
    return [label for label in labels(app) if label.startswith("Build")]


def with_log_message(folder: Path, text: str) -> Path:
    apply(folder, {"file": LOG, "line": 1, "pointer": "/message", "value": text})
    seal(folder)
    return folder


def upload(app: AppTest, name: str, content: bytes) -> AppTest:
    return app.get("file_uploader")[0].upload(name, content, "application/zip").run()


def test_a_run_that_is_ready_is_built_with_one_click(opened: Open, root: Path, tmp_path: Path) -> None:
    write_run(root, "alpha")
    app = opened(state.PACKAGE, runs="alpha")
    assert [header.value for header in app.subheader] == ["✓ Everything ready"]
    assert [title.partition(",")[0] for title in titles(app)] == ["Passed checks: 6", "Contents: 9 files"]
    assert builds(app) == ["Build"]
    assert "Download" not in said(app)
    listed = app.dataframe[0].value
    app = press(app, "Build")
    assert "</span>valid</span>" in said(app)
    assert app.code[-1].value == "trainproof verify bundles/alpha.zip"
    assert [button.label.split()[0] for button in app.get("download_button")] == ["Download", "Download"]
    bundle = tmp_path / "bundles" / "alpha.zip"
    assert verify_bundle(bundle).ok
    with zipfile.ZipFile(bundle) as archive:
        packed = {each.filename: each.file_size for each in archive.infolist() if each.filename.startswith("runs/")}
    assert packed == {f"runs/{run}/{file}": size for run, file, size in listed.itertuples(index=False)}
    assert "alpha.zip exists. Build replaces it" in said(opened(state.PACKAGE, runs="alpha"))
    assert "Download" in said(opened(state.PACKAGE, runs="alpha", bundle="alpha"))
    write_run(root, "beta", seed=1)
    assert "Download" not in said(opened(state.PACKAGE, runs="beta", bundle="alpha")), "it holds other runs"
    assert "Download" not in said(opened(state.PACKAGE, runs="alpha", bundle="../bundles/alpha"))


def test_the_grade_is_that_of_the_list_of_runs(opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(root, "alpha")
    (run,) = index_runs(root)
    monkeypatch.setattr(reading, "by_name", lambda _: {"alpha": replace(run, grade="verified")})
    text = said(opened(state.PACKAGE, runs="alpha"))
    assert "✓ verified" in text
    assert "The run is graded verified." in text
    assert "consistent" not in text


@pytest.mark.parametrize(
    ("status", "text", "heading", "buttons"),
    [
        ("interrupted", "", "1 blocking problem", [PARTIAL]),
        ("succeeded", f"token {SECRET}", "1 blocking problem", [MASKED]),
        ("failed", f"token {SECRET}", "2 blocking problems", [f"{PARTIAL}, with secrets and home folders masked"]),
        ("succeeded", "in /home/somebody/runs", "1 warning", ["Build", MASKED]),
    ],
    ids=["partial", "a secret", "both", "a home folder"],
)
def test_problems_come_first_with_one_button_for_their_actions(
    opened: Open, root: Path, tmp_path: Path, status: str, text: str, heading: str, buttons: list[str]
) -> None:
    folder = with_log_message(write_run(root, "alpha", status=status), text)
    app = opened(state.PACKAGE, runs="alpha")
    assert [header.value for header in app.subheader] == [heading]
    assert "--allow-partial" not in said(app)
    assert builds(app) == buttons
    app = press(app, buttons[-1])
    bundle = tmp_path / "bundles" / "alpha.zip"
    verdict = verify_bundle(bundle)
    assert (verdict.ok, verdict.partial) == (True, PARTIAL in buttons[-1])
    assert ("valid, labelled partial" in said(app)) is verdict.partial
    assert ("Masked in 1 file: runs/alpha/log.jsonl (1)." in said(app)) is ("masked" in buttons[-1])
    with zipfile.ZipFile(bundle) as archive:
        assert not text or text.encode() not in archive.read("runs/alpha/log.jsonl")
    assert text in (folder / LOG).read_text("utf-8")


def test_the_check_runs_again_if_any_file_changes_whatever_its_time(opened: Open, root: Path) -> None:
    original = write_run(root, "alpha") / "receipts" / "deep" / "a.txt"
    original.parent.mkdir(parents=True)
    original.write_text("x" * len(SECRET))
    app = opened(state.PACKAGE, runs="alpha")
    assert "a Hugging Face token" not in said(app)
    times = original.stat()
    original.write_text(SECRET)
    os.utime(original, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert "a Hugging Face token" in said(app.run())


def test_a_changed_copy_in_the_root_is_a_warning_and_blocks_if_it_is_chosen(opened: Open, root: Path) -> None:
    shutil.copytree(write_run(root, "alpha"), root / "beta")
    assert "! warning" not in said(opened(state.PACKAGE, runs="alpha")), "an unchanged copy is harmless"
    apply(root / "beta", {"file": "run_manifest.json", "pointer": "/dataset/split", "value": "validation"})
    alone = said(opened(state.PACKAGE, runs="alpha"))
    assert "Every row of alpha has the time and the loss of the same row in beta." in alone
    assert ["! warning" in alone, "✕ blocked" in alone] == [True, False]
    together = said(opened(state.PACKAGE, runs=["alpha", "beta"]))
    assert ["! warning" in together, "✕ blocked" in together] == [False, True]


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "a\\b", "/etc/passwd", "a..b", "a\n", "x" * 101, "ä"])
def test_names_that_could_lead_out_of_the_folder_are_refused(name: str) -> None:
    assert not package.is_name(name)


def test_local_bundles_are_listed_newest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert package.made_bundles() == []
    assert package.bundle_path("one.zip") == package.bundle_path("one") == Path("bundles/one.zip")
    build_bundle([write_run(tmp_path / "runs", "alpha")], package.bundle_path("one"))
    build_bundle([write_run(tmp_path / "runs", "beta")], package.bundle_path("two"))
    (tmp_path / "bundles" / "link.zip").symlink_to("/etc/passwd")
    assert [path.stem for path in package.made_bundles()] == ["two", "one"]


# Verify


def forged(tmp_path: Path) -> bytes:
    """Return a bundle whose score was raised."""
    files = contents(small_bundle(tmp_path / "theirs"))
    summary = json.loads(files["runs/demo-1/eval_summary.json"])
    summary["metrics"]["exact_match"]["value"] = 0.99
    files["runs/demo-1/eval_summary.json"] = json.dumps(summary).encode()
    return pack(listed_again(files), tmp_path / "forged.zip").read_bytes()


def test_a_forged_score_is_the_headline_and_other_findings_are_folded(opened: Open, root: Path, tmp_path: Path) -> None:
    app = upload(opened(state.PACKAGE, part="Verify"), "forged.zip", forged(tmp_path))
    assert '<p class="tp-answer">demo-1: metrics.exact_match.value is 0.99; predictions.jsonl gives ' in said(app)
    assert (titles(app)[-1], app.expander[-1].proto.expanded) == ("2 findings of demo\\-1", False)


def test_a_valid_bundle_can_be_replayed(opened: Open, root: Path, tmp_path: Path) -> None:
    bundle = build_bundle([write_run(root, "alpha")], tmp_path / "bundles" / "mine.zip").output
    app = upload(opened(state.PACKAGE, part="Verify"), "of a stranger.zip", bundle.read_bytes())
    assert app.code[0].value.splitlines() == [
        "trainproof replay 'of a stranger.zip' --minutes 5",
        "trainproof challenge 'of a stranger.zip' --generate 50 --seed 7",
    ]
    app = opened(state.PACKAGE, part="Verify")
    app = next(box for box in app.selectbox if box.label == "Bundle on this machine").set_value("mine").run()
    assert "</span>valid</span>" in said(app)
    assert "Replay its runs, or test its model" in titles(app)


def test_an_upload_gets_the_verdict_of_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = build_bundle([write_run(tmp_path / "runs", "alpha")], tmp_path / "a.zip")
    verdict = package.verify_upload(report.output.read_bytes(), "a.zip")
    assert (verdict.ok, verdict.content_sha256) == (True, report.content_sha256)
    assert not package.verify_upload(b"no zip at all", "a.zip").ok
    monkeypatch.setattr(package, "MAX_UNPACKED_BYTES", 5)
    with pytest.raises(ProblemError) as found:
        package.verify_upload(raw_zip([Part(name="a.txt")]), "a b.zip")
    (problem,) = found.value.problems
    assert problem.what == "The bundle unpacks to 6 B, and this page verifies at most 5 B."
    assert problem.next == "Verify it in a terminal: `trainproof verify 'a b.zip'`."


def test_an_upload_that_cannot_be_saved(
    opened: Open, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    app = upload(opened(state.PACKAGE, part="Verify"), "some.zip", raw_zip([Part(name="../../evil")]))
    assert not app.exception
    assert "The bundle could not be verified: [Errno 2] No such file or directory: " in said(app)


@pytest.mark.parametrize(
    "names", [["climbs"], pytest.param(sorted(CASES), marks=pytest.mark.slow)], ids=["one archive", "every archive"]
)
def test_harmful_archives_are_refused_and_leave_nothing_behind(
    opened: Open, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[Any]
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    app = opened(state.PACKAGE, part="Verify")
    before = sorted(tmp_path.rglob("*"))
    for name in names:
        upload(app, f"{name}.zip", CASES[name]())
        assert not app.exception, name
        text = said(app)
        findings = text.count('class="tp-what"')
        assert ("not valid" in text, findings > 0, f"<b>{name}.zip</b>" in text) == (True, True, True), name
        assert sorted(tmp_path.rglob("*")) == before, name
