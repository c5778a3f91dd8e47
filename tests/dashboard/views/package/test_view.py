"""The package page: four steps from runs to a bundle, masking, labels, and bundles of strangers."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import zipfile
from pathlib import Path

import pytest
from bundles import contents, listed_again, pack, small_bundle
from hostile_zips import CASES, named
from mutations import apply
from pages import Open, press, said
from streamlit.testing.v1 import AppTest
from synthetic import seal, write_run

from dashboard.shared.session import state
from dashboard.views.package.logic import bundles
from evidence.bundle import verify
from evidence.bundle.build import build_bundle
from evidence.bundle.verify import verify_bundle
from evidence.layout import LOG

SECRET = "hf_" + "Ab1" * 12


def tick(app: AppTest, label: str) -> AppTest:
    return next(box for box in app.checkbox if box.label == label).check().run()


def test_the_steps_are_shown_from_the_start(opened: Open, root: Path) -> None:
    write_run(root, "alpha")
    text = said(opened(state.PACKAGE, runs="alpha"))
    titles = ["Choose runs", "Look at the evidence and the checklist", "Build", "Verify and hand in"]
    steps = [f'<p class="tp-step"><b>{number}</b>{title}</p>' for number, title in enumerate(titles, start=1)]
    assert [step in text for step in steps] == [True] * 4
    assert "No zip yet. Zips you build are saved in bundles/ and listed here." in text


def test_what_is_handed_in_is_pictured_and_a_page_to_read_is_offered(opened: Open, root: Path) -> None:
    write_run(root, "alpha")
    app = opened(state.PACKAGE, runs="alpha")
    assert len(app.get("plotly_chart")) == 1
    assert "What is handed in" in said(app)
    assert "<i style" in said(app), "each colour with its size"
    assert [part.proto.expanded for part in app.expander] == [True], "the checklist is open"
    assert "Share" in [button.label for button in app.get("download_button")]


def test_a_forged_score_is_said_first_and_what_follows_is_folded(opened: Open, root: Path, tmp_path: Path) -> None:
    files = contents(small_bundle(tmp_path / "theirs"))
    place = "runs/demo-1/eval_summary.json"
    summary = json.loads(files[place])
    summary["metrics"]["exact_match"]["value"] = 0.99
    files[place] = json.dumps(summary).encode()
    forged = pack(listed_again(files), tmp_path / "forged.zip").read_bytes()
    app = opened(state.PACKAGE, part="Verify")
    app.get("file_uploader")[0].upload("forged.zip", forged, "application/zip").run()
    assert '<p class="tp-answer">demo-1: metrics.exact_match.value is 0.99; predictions.jsonl gives ' in said(app)
    folded = [(part.label, part.proto.expanded) for part in app.expander]
    assert folded[-1] == ("2 findings of demo\\-1", False)
    assert folded[0][1] is False


def test_before_a_run_is_chosen_the_steps_are_one_and_two(opened: Open, root: Path) -> None:
    write_run(root, "alpha")
    write_run(root, "beta")
    text = said(opened(state.PACKAGE))
    assert re.findall(r"<b>(\d)</b>([^<]+)", text) == [("1", "Choose runs"), ("2", "Verify and hand in")]


def test_zips_of_another_root_are_not_offered(opened: Open, root: Path, tmp_path: Path) -> None:
    write_run(root, "alpha")
    build_bundle([root / "alpha"], tmp_path / "bundles" / "mine.zip")
    build_bundle([write_run(tmp_path / "elsewhere", "theirs", seed=2)], tmp_path / "bundles" / "theirs.zip")
    app = opened(state.PACKAGE)
    assert next(box for box in app.selectbox if box.label == "Bundle").options == ["mine"]
    assert "Not listed: 1 zip in bundles/ with runs of another root." in said(app)


def test_the_checklist_counts_what_blocks_and_names_the_pages_own_buttons(opened: Open, root: Path) -> None:
    write_run(root, "alpha", status="interrupted")
    app = opened(state.PACKAGE, runs="alpha")
    assert next(part.label for part in app.expander).startswith("1 problem blocks this zip")
    text = said(app)
    assert "tick “Label as partial”" in text
    assert "--allow-partial" not in text


def test_a_secret_blocks_and_is_masked_in_the_copy_alone(opened: Open, root: Path, tmp_path: Path) -> None:
    log = write_run(root, "alpha") / LOG
    rows = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    rows[0]["message"] += f" token {SECRET}"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    seal(log.parent)
    app = opened(state.PACKAGE, runs="alpha")
    assert next(button for button in app.button if button.label == "Build").disabled
    app = press(tick(app, "Mask secrets and home folders"), "Build")
    assert "Masked in 1 file: runs/alpha/log.jsonl (1)." in said(app)
    bundle = tmp_path / "bundles" / "alpha.zip"
    assert verify_bundle(bundle).ok
    with zipfile.ZipFile(bundle) as archive:
        assert SECRET.encode() not in b"".join(archive.read(name) for name in archive.namelist())
    assert SECRET in log.read_text("utf-8")


def test_the_checklist_looks_again_when_any_file_changed_whatever_its_time_says(opened: Open, root: Path) -> None:
    original = write_run(root, "alpha") / "receipts" / "deep" / "a.txt"
    original.parent.mkdir(parents=True)
    original.write_text("x" * len(SECRET))
    app = opened(state.PACKAGE, runs="alpha")
    assert "a Hugging Face token" not in said(app)
    times = original.stat()
    original.write_text(SECRET)
    os.utime(original, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert "a Hugging Face token" in said(app.run())


def test_an_unfinished_run_is_packed_with_a_label_only(opened: Open, root: Path, tmp_path: Path) -> None:
    write_run(root, "alpha", status="failed")
    app = opened(state.PACKAGE, runs="alpha")
    assert "blocked" in said(app)
    press(tick(app, "Label as partial"), "Build")
    assert verify_bundle(tmp_path / "bundles" / "alpha.zip").partial


def box(app: AppTest, label: str):
    return next(box for box in app.checkbox if box.label == label)


def test_a_tick_for_an_unfinished_run_does_not_label_a_whole_one(opened: Open, root: Path, tmp_path: Path) -> None:
    write_run(root, "alpha", status="failed")
    write_run(root, "beta", seed=1)
    app = tick(opened(state.PACKAGE, runs="alpha"), "Label as partial")
    app = app.multiselect(key="runs").set_value(["beta"]).run()
    partial = box(app, "Label as partial")
    assert (partial.value, partial.disabled) == (False, True)
    press(app, "Build")
    assert not verify_bundle(tmp_path / "bundles" / "beta.zip").partial


def test_what_is_built_is_not_replaced_without_a_word_and_verified_once(
    opened: Open, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified: list[Path] = []

    def counted(path: Path) -> verify.BundleVerdict:
        verified.append(path)
        return verify_bundle(path)

    monkeypatch.setattr(verify, "verify_bundle", counted)
    names = ["alpha", "beta", "gamma"]
    for seed, name in enumerate(names):
        write_run(root, name, seed=seed)
    replaces = "bundles/submission.zip is there already, and Build replaces it; another name keeps both."
    app = opened(state.PACKAGE, runs=names[:2])
    assert replaces not in said(app)
    text = said(press(app, "Build"))
    assert "Built and read back" in text
    app.multiselect(key="runs").set_value(names[1:]).run()
    assert replaces in said(app)
    assert len(verified) == 1
    app.run()
    press(app, "Verify")
    assert len(verified) == 2, "a press is a wish, and a click elsewhere is none"
    bundle = tmp_path / "bundles" / "submission.zip"
    bundle.write_bytes(bundle.read_bytes()[:-30])
    assert "not valid" in said(app.run())
    assert len(verified) == 3


def test_a_copy_elsewhere_in_the_root_is_said_and_a_chosen_one_blocks(opened: Open, root: Path) -> None:
    shutil.copytree(write_run(root, "alpha"), root / "beta")
    assert "! warning" not in said(opened(state.PACKAGE, runs="alpha")), "an unchanged copy harms nobody"
    apply(root / "beta", {"file": "run_manifest.json", "pointer": "/dataset/split", "value": "validation"})
    copied = "Every row of alpha has the time and the loss of the same row in beta."
    alone = said(opened(state.PACKAGE, runs="alpha"))
    assert ["! warning" in alone, copied in alone, "✕ blocked" in alone] == [True, True, False]
    together = said(opened(state.PACKAGE, runs=["alpha", "beta"]))
    assert ["! warning" in together, "✕ blocked" in together] == [False, True]


def test_a_bundle_that_cannot_be_put_down_is_said(
    opened: Open, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    app = opened(state.PACKAGE, part="Verify")
    app.get("file_uploader")[0].upload("some.zip", hostile(), "application/zip").run()
    assert not app.exception
    assert "The bundle could not be verified: [Errno 2] No such file or directory: " in said(app)
    assert "Fix that and press the button again." in said(app)


def test_a_bundle_of_a_stranger_is_judged_and_leaves_nothing_behind(opened: Open, root: Path, tmp_path: Path) -> None:
    app = opened(state.PACKAGE, part="Verify")
    assert "Verify as a judge would" in said(app)
    before = sorted(tmp_path.rglob("*"))
    app.get("file_uploader")[0].upload("evil.zip", hostile(), "application/zip").run()
    text = said(app)
    assert "not valid" in text
    assert "../../evil" in text
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.slow
def test_every_hostile_archive_is_refused_on_the_page_and_leaves_nothing(
    opened: Open, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    app = opened(state.PACKAGE, part="Verify")
    before = sorted(tmp_path.rglob("*"))
    for name, make in CASES.items():
        app.get("file_uploader")[0].upload(f"{name}.zip", make(), "application/zip").run()
        assert not app.exception, name
        text = said(app)
        findings = text.count('class="tp-what"')
        assert ("not valid" in text, findings > 0, f"<b>{name}.zip</b>" in text) == (True, True, True), name
        assert sorted(tmp_path.rglob("*")) == before, name


def test_an_uploaded_bundle_that_is_too_large_for_the_memory_is_for_the_command_line(
    opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundles, "MOST_UNPACKED_BYTES", 5)
    app = opened(state.PACKAGE, part="Verify")
    app.get("file_uploader")[0].upload("large.zip", named("a.txt"), "application/zip").run()
    assert not app.exception
    assert "Error TP086: The bundle unpacks to 6 B, and this page verifies at most 5 B." in said(app)
    assert "not valid" not in said(app)


def test_an_uploaded_bundle_is_verified_once(opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verified: list[bytes] = []

    def counted(content: bytes, name: str) -> verify.BundleVerdict:
        verified.append(content)
        return bundles_of_strangers(content, name)

    bundles_of_strangers = bundles.verdict_on
    monkeypatch.setattr(bundles, "verdict_on", counted)
    app = opened(state.PACKAGE, part="Verify")
    app.get("file_uploader")[0].upload("one.zip", CASES["climbs"](), "application/zip").run()
    assert "not valid" in said(app.run())
    app.get("file_uploader")[0].upload("two.zip", CASES["bomb"](), "application/zip").run()
    assert verified == [CASES["climbs"](), CASES["bomb"]()]


def test_of_a_bundle_that_holds_the_commands_that_repeat_it_are_shown(opened: Open, root: Path) -> None:
    bundle = build_bundle([write_run(root, "alpha")], root.parent / "whole.zip").output
    app = opened(state.PACKAGE, part="Verify")
    app.get("file_uploader")[0].upload("of a stranger.zip", bundle.read_bytes(), "application/zip").run()
    (commands,) = app.code
    assert commands.value.splitlines() == [
        "trainproof replay 'of a stranger.zip' --minutes 5",
        "trainproof challenge 'of a stranger.zip' --generate 50 --seed 7",
    ]


def hostile() -> bytes:
    """Return a zip whose only entry climbs out of the folder that it is unpacked into."""
    return named("../../evil")
