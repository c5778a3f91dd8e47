from __future__ import annotations

from pathlib import Path

import pytest
from hostile_zips import named
from synthetic import write_run

from dashboard.shared.charts import contents_figure
from dashboard.shared.charts.plan_figures import LIGHT
from dashboard.views.package.logic import bundles
from evidence.bundle.build import build_bundle
from evidence.bundle.verify import verify_bundle
from schemas.problems import Problem, ProblemError


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "a\\b", "/etc/passwd", "a..b", "a\n", "x" * 101, "ä"])
def test_names_that_could_lead_out_are_refused(name: str) -> None:
    assert not bundles.is_name(name)


def test_a_bundle_is_called_after_its_only_run() -> None:
    assert bundles.suggest_name(["demo-1"]) == "demo-1"
    assert bundles.suggest_name(["a", "b"]) == "submission"
    assert bundles.suggest_name(["<b>"]) == "submission"


def test_a_name_may_say_that_it_is_a_zip() -> None:
    assert bundles.path_of("mine.zip") == bundles.path_of("mine") == Path("bundles/mine.zip")


def test_an_uploaded_bundle_gets_the_verdict_of_the_command_line(tmp_path: Path) -> None:
    report = build_bundle([write_run(tmp_path / "runs", "alpha")], tmp_path / "a.zip")
    verdict = bundles.verdict_on(report.output.read_bytes(), "a.zip")
    assert verdict.ok
    assert verdict.content_sha256 == report.content_sha256
    assert not bundles.verdict_on(b"no zip at all", "a.zip").ok


def test_bundles_made_here_are_listed_newest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert bundles.made_bundles() == []
    build_bundle([write_run(tmp_path / "runs", "alpha")], bundles.path_of("one"))
    build_bundle([write_run(tmp_path / "runs", "beta")], bundles.path_of("two"))
    (tmp_path / "bundles" / "link.zip").symlink_to("/etc/passwd")
    assert [path.stem for path in bundles.made_bundles()] == ["two", "one"]


def test_the_bar_says_what_is_done_at_each_step() -> None:
    drawn: list[tuple[float, str]] = []
    tell = bundles.progress_of(lambda part, text: drawn.append((part, text)))
    for done in (0, 1, 200, 399, 400):
        tell(done, 400)
    building = "Scanning, hashing, writing, verifying"
    grading = "Verifying: every run in the zip is graded again"
    assert drawn == [(0.0, building), (0.5, building), (0.99, building), (1.0, grading)]


def test_what_unpacks_to_more_than_the_memory_should_hold_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "MOST_UNPACKED_BYTES", 5)
    with pytest.raises(ProblemError) as found:
        bundles.verdict_on(named("a.txt"), "a b.zip")
    assert found.value.problems == (
        Problem(
            code="TP086",
            severity="error",
            file="a b.zip",
            what="The bundle unpacks to 6 B, and this page verifies at most 5 B.",
            why="The page would need several times its size in memory.",
            next="Verify it in a terminal: `trainproof verify 'a b.zip'`.",
        ),
    )


def test_what_is_handed_in_is_what_the_zip_holds_by_run_and_kind(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "runs", name, seed=seed) for seed, name in enumerate(("alpha", "beta"))]
    found = bundles.contents(runs)
    verdict = verify_bundle(build_bundle(runs, tmp_path / "a.zip").output)
    made_when_built = {"REPORT.html", "MANIFEST.sha256", "bundle_manifest.json"}
    assert sum(one.files for one in found) == verdict.files - len(made_when_built)
    of_alpha = {one.kind: one.bytes for one in found if one.row == "alpha"}
    assert of_alpha["run manifest"] == (runs[0] / "run_manifest.json").stat().st_size
    assert of_alpha["logs"] == sum((runs[0] / name).stat().st_size for name in ("log.jsonl", "metrics.jsonl"))
    picture = contents_figure.draw(found, LIGHT)
    assert sum(sum(bar.x) for bar in picture.data) * 2**10 == pytest.approx(sum(one.bytes for one in found))
    assert len({bar.marker.color for bar in picture.data}) == len(picture.data)
