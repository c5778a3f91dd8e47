"""REPORT.html: self-contained, well-formed, escaped, without secrets; plots to scale."""

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from bundles import contents, listed_again, pack, small_bundle
from synthetic import write_run

from evidence.bundle.build import build_bundle
from evidence.bundle.page import MAX_POINTS, line_plot, shared_report, write_report
from evidence.layout import CONFIG
from evidence.report import thin
from schemas.problems import ProblemError
from trainproof.cli.app import main

VOID = {"meta", "br", "link", "img", "input", "hr"}
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;\u202e"


class Page(HTMLParser):
    """Check that every element is closed in order, and collect text and attributes."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.tags: set[str] = set()
        self.text = ""
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag in VOID or self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def report_page(bundle: Path) -> str:
    return contents(bundle)["REPORT.html"].decode()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_bundle(tmp_path_factory.mktemp("bundle"))


def test_page_is_complete_and_loads_nothing(bundle: Path) -> None:
    source = report_page(bundle)
    page = Page(source)
    assert not page.tags & {"script", "link", "img", "iframe", "object", "embed", "video", "audio", "base", "form"}
    assert not [name for name, _ in page.attributes if name in {"src", "href", "action"} or name.startswith("on")]
    assert not re.search(r"url\(|@import|https?:|//[a-z]", source)
    assert "default-src 'none'" in source
    for words in ("demo-1", "consistent", "category: arithmetic", "runs/demo-1/metrics.jsonl", "optimizer.name"):
        assert words in page.text


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    environment = {"os": HOSTILE, "flags": {HOSTILE: HOSTILE}}
    run = write_run(
        tmp_path, "demo", manifest={"command": ["trainproof", "train", HOSTILE], "environment": environment}
    )
    page = Page(report_page(build_bundle([run], tmp_path / "x.zip").output))
    assert not page.tags & {"script", "img"}
    assert "\u202e" not in page.text
    assert "<script>alert(1)</script>" in page.text


def test_page_of_incomplete_runs(tmp_path: Path) -> None:
    run = tmp_path / "bare"
    run.mkdir()
    (run / "run_manifest.json").write_text('{"run_id": ')
    page = Page(report_page(build_bundle([run], tmp_path / "x.zip", allow_partial=True).output))
    for words in ("No loss was recorded.", "The run manifest is missing or invalid.", "The run was not evaluated."):
        assert words in page.text
    run = write_run(tmp_path, "early", status="failed")
    for name in ("metrics.jsonl", "eval_summary.json", "predictions.jsonl", "baseline_predictions.jsonl"):
        (run / name).unlink(missing_ok=True)
    manifest = json.loads((run / "run_manifest.json").read_text()) | {"model": None, "training": None}
    (run / "run_manifest.json").write_text(json.dumps(manifest))
    assert "full run · failed · ended before the model was built · 1 × cpu" in Page(shared_report([run]).decode()).text


def test_page_compares_two_runs_of_one_mode(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, name, items=60, correct=right) for name, right in (("alpha", 0.1), ("beta", 0.9))]
    page = shared_report(runs).decode()
    assert "<h2>alpha: " in page
    assert "<strong>beta is better than alpha: exact match differs by +" in page
    smoke = write_run(tmp_path, "gamma-smoke", mode="smoke", items=60, correct=0.1)
    assert "gamma-smoke is worse" not in shared_report([runs[1], smoke]).decode(), "it is of another mode"
    runs = [write_run(tmp_path, name, items=12, correct=right) for name, right in (("gamma", 0.5), ("delta", 0.6))]
    page = shared_report(runs).decode()
    assert "no significant difference: exact match differs by " in page
    assert "points cannot be detected reliably.</strong>" in page


def test_secrets_and_home_folders_are_masked(tmp_path: Path) -> None:
    secret = "hf_" + "Ab1" * 12
    run = write_run(tmp_path, "alpha", config={"data": {"dataset": f"/home/ada/{secret}.jsonl"}})
    assert secret in (run / CONFIG).read_text("utf-8")
    page = shared_report([run]).decode()
    assert (secret in page, "/home/ada" in page) == (False, False)


def test_page_is_written_from_the_runs_of_a_bundle(bundle: Path, tmp_path: Path) -> None:
    forged = pack(listed_again(contents(bundle) | {"REPORT.html": b"an excellent run"}), tmp_path / "forged.zip")
    page = shared_report([forged]).decode()
    assert page == shared_report([bundle]).decode()
    assert "runs/demo-1/metrics.jsonl" in page
    changed = pack(contents(bundle) | {"runs/demo-1/log.jsonl": b"{}\n"}, tmp_path / "changed.zip")
    with pytest.raises(ProblemError) as refused:
        shared_report([changed])
    assert [problem.code for problem in refused.value.problems] == ["TP856"]


def test_command_writes_the_page_or_reports_every_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, page = write_run(tmp_path, "alpha"), tmp_path / "out" / "page.html"
    with pytest.raises(SystemExit) as ended:
        main(["report", str(run), "-o", str(page)])
    assert ended.value.code in {0, None}
    assert capsys.readouterr().out.startswith(f"Written: {page}, ")
    assert page.read_bytes() == shared_report([run])
    before = (run / CONFIG).read_bytes()
    with pytest.raises(ProblemError) as refused:
        write_report([run, tmp_path / "none"], run / CONFIG)
    assert refused.value.exit_code == 2
    assert [Path(problem.file).name for problem in refused.value.problems] == ["none", CONFIG, CONFIG]
    assert (run / CONFIG).read_bytes() == before


def test_plot_is_well_formed_and_to_scale() -> None:
    root = ElementTree.fromstring(line_plot([(1, 4.0), (2, 2.0), (3, 1.0)], "t & u"))
    assert [element.text for element in root.iter("text")] == ["4", "1", "step 1", "3"]
    (line,) = [element.attrib["points"] for element in root.iter("polyline")]
    (x1, y1), (x2, y2), (x3, y3) = [tuple(map(float, pair.split(","))) for pair in line.split()]
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2)
    assert y2 - y1 == pytest.approx(2 * (y3 - y2), abs=0.3)  # from 4 to 2 is twice as far as from 2 to 1


@pytest.mark.parametrize(
    ("points", "lines", "dots"),
    [
        ([(1, 1.0), (2, 2.0), (3, None), (4, 1.0), (5, 2.0)], 2, 0),
        ([(1, 2.0)], 0, 1),
        ([(1, 0.0), (9, 0.0)], 1, 0),
    ],
)
def test_plot_of_gaps_points_and_constants(points: list[tuple[float, float | None]], lines: int, dots: int) -> None:
    svg = line_plot(points, "t")
    assert (svg.count("<polyline"), svg.count("<circle"), "nan" in svg) == (lines, dots, False)


def test_thinning_keeps_spikes_and_gaps() -> None:
    values = np.ones(100_000)
    values[[50_001, 70_001, 80_001]] = 99.0, -5.0, math.nan
    few = thin(values, MAX_POINTS)
    assert len(few) <= MAX_POINTS
    assert {50_001, 70_001, 80_001} <= set(few)
    assert few == sorted(few)
