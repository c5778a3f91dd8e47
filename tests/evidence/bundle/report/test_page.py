"""REPORT.html stands alone, parses, escapes what it is given, and its plots show the data."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from bundles import contents, small_bundle
from synthetic import write_run

from evidence.bundle.build import build_bundle
from evidence.bundle.report.chart import MOST_POINTS, interval_bar, line_plot, thin, tick_text, ticks

VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """Checks that every element is closed in order, and gathers text and attributes."""

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

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def report_of(bundle: Path) -> str:
    return contents(bundle)["REPORT.html"].decode()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    return report_of(small_bundle(tmp_path_factory.mktemp("bundle")))


def test_nothing_comes_from_elsewhere(source: str):
    page = Page(source)
    assert not page.tags & {"script", "link", "img", "iframe", "object", "embed", "video", "audio", "base", "form"}
    assert not [name for name, _ in page.attributes if name in {"src", "href", "action"} or name.startswith("on")]
    assert not re.search(r"url\(|@import|https?:|//[a-z]", source)
    assert "default-src 'none'" in source


def test_it_shows_what_matters(source: str):
    text = Page(source).text
    for words in (
        "demo-1",
        "consistent",
        "Finished; every document is valid, every hash matches",
        "4 of 4",
        "optimizer step",
        "loss (nats per supervised token)",
        "exact match",
        "category: arithmetic",
        "runs/demo-1/metrics.jsonl",
        "optimizer.name",
        "0123456789abcdef0123456789abcdef01234567",
    ):
        assert words in text


def test_it_suits_light_dark_and_paper(source: str):
    assert "prefers-color-scheme: dark" in source
    assert "@media print" in source


HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;\u202e"


def test_hostile_text_stays_text(tmp_path: Path):
    run = write_run(
        tmp_path,
        "demo",
        manifest={
            "command": ["trainproof", "train", HOSTILE],
            "environment": {"os": HOSTILE, "flags": {HOSTILE: HOSTILE}},
        },
    )
    page = Page(report_of(build_bundle([run], tmp_path / "x.zip").output))
    assert not page.tags & {"script", "img"}
    assert "\u202e" not in page.text
    assert "<script>alert(1)</script>" in page.text


def test_a_run_without_anything_has_a_page_too(tmp_path: Path):
    run = tmp_path / "bare"
    run.mkdir()
    (run / "run_manifest.json").write_text("{}")
    page = Page(report_of(build_bundle([run], tmp_path / "x.zip", allow_partial=True).output))
    assert "No loss was recorded." in page.text
    assert "The run has no valid manifest." in page.text
    assert "The run was not evaluated." in page.text


def points_of(svg: str) -> list[tuple[float, float]]:
    root = ElementTree.fromstring(svg)
    lines = [element.attrib["points"] for element in root.iter("polyline")]
    return [tuple(map(float, pair.split(","))) for line in lines for pair in line.split()]


def test_a_run_that_failed_before_it_had_a_model_has_a_page(tmp_path: Path):
    run = write_run(tmp_path, "early", status="failed")
    for name in ("metrics.jsonl", "eval_summary.json", "predictions.jsonl", "baseline_predictions.jsonl"):
        (run / name).unlink(missing_ok=True)
    manifest = json.loads((run / "run_manifest.json").read_text())
    manifest |= {"model": None, "training": None}
    (run / "run_manifest.json").write_text(json.dumps(manifest))
    build_bundle([run], tmp_path / "early.zip", allow_partial=True)
    assert (
        "full run · failed · ended before the model was built · 1 × cpu" in Page(report_of(tmp_path / "early.zip")).text
    )


def test_plot_is_well_formed_and_to_scale():
    svg = line_plot([(1, 4.0), (2, 2.0), (3, 1.0)], x_label="a < b", y_label="y", title="t & u", whole_x=True)
    texts = [element.text for element in ElementTree.fromstring(svg).iter("text")]
    assert texts == ["1", "2", "3", "4", "1", "2", "3", "a < b", "y"]
    (x1, y1), (x2, y2), (x3, y3) = points_of(svg)
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2)
    # From 4 to 2 is twice as far down as from 2 to 1.
    assert y2 - y1 == pytest.approx(2 * (y3 - y2), abs=0.3)


def test_plot_leaves_gaps_where_nothing_was_measured():
    svg = line_plot(
        [(1, 1.0), (2, 2.0), (3, None), (4, 1.0), (5, 2.0)], x_label="x", y_label="y", title="t", whole_x=True
    )
    assert svg.count("<polyline") == 2


def test_plot_of_one_point_and_of_a_constant():
    assert "<circle" in line_plot([(1, 2.0)], x_label="x", y_label="y", title="t", whole_x=True)
    assert "nan" not in line_plot([(1, 0.0), (9, 0.0)], x_label="x", y_label="y", title="t", whole_x=True)


@pytest.mark.parametrize(
    ("low", "high", "about", "expected"),
    [
        (0.3, 3.9, 5, [0, 1, 2, 3, 4]),
        (0.0, 1.0, 5, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (1, 20, 7, [0, 5, 10, 15, 20]),
        (2.0, 2.0, 5, [1.0, 1.5, 2.0, 2.5, 3.0]),
    ],
)
def test_ticks_are_round_and_enclose(low: float, high: float, about: int, expected: list[float]):
    assert ticks(low, high, about) == pytest.approx(expected)


def test_ticks_of_steps_are_whole():
    assert ticks(1, 2, 7, smallest=1.0) == [1, 2]


def test_tick_text_has_the_decimals_it_needs():
    assert [tick_text(tick, [0.0, 0.05, 0.1]) for tick in (0.0, 0.05, 0.1)] == ["0.00", "0.05", "0.10"]
    assert tick_text(20_000, [0, 20_000]) == "20,000"


def test_thinning_keeps_spikes_and_gaps():
    points = [(x, 1.0) for x in range(100_000)]
    points[50_001] = (50_001, 99.0)
    points[70_001] = (70_001, -5.0)
    points[80_001] = (80_001, None)
    few = thin(points)
    assert len(few) <= MOST_POINTS + 2
    assert {(50_001, 99.0), (70_001, -5.0), (80_001, None)} <= set(few)
    assert [x for x, _ in few] == sorted(x for x, _ in few)


def test_thinning_of_many_gaps_keeps_to_its_limit():
    points = [(step, None if step % 3 == 0 else float(step % 7)) for step in range(5000)]
    assert len(thin(points)) <= MOST_POINTS


def test_interval_bar_is_to_scale():
    svg = ElementTree.fromstring(interval_bar(0.5, 0.25, 0.75, title="half"))
    assert [element.attrib["cx"] for element in svg.iter("circle")] == ["80.0"]
