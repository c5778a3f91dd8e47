from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import write_run

from dashboard.logic import bundles
from evidence.bundle.build import build_bundle


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "a\\b", "/etc/passwd", "a..b", "a\n", "x" * 101, "ä"])
def test_names_that_could_lead_out_are_refused(name: str) -> None:
    assert not bundles.is_name(name)


def test_a_bundle_is_called_after_its_only_run() -> None:
    assert bundles.suggested(["demo-1"]) == "demo-1"
    assert bundles.suggested(["a", "b"]) == "submission"
    assert bundles.suggested(["<b>"]) == "submission"


def test_an_uploaded_bundle_gets_the_verdict_of_the_command_line(tmp_path: Path) -> None:
    report = build_bundle([write_run(tmp_path / "runs", "alpha")], tmp_path / "a.zip")
    verdict = bundles.verdict_on(report.output.read_bytes())
    assert verdict.ok
    assert verdict.content_sha256 == report.content_sha256
    assert not bundles.verdict_on(b"no zip at all").ok


def test_bundles_made_here_are_listed_newest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert bundles.made() == []
    build_bundle([write_run(tmp_path / "runs", "alpha")], bundles.path_of("one"))
    build_bundle([write_run(tmp_path / "runs", "beta")], bundles.path_of("two"))
    (tmp_path / "bundles" / "link.zip").symlink_to("/etc/passwd")
    assert [path.stem for path in bundles.made()] == ["two", "one"]
