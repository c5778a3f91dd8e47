from __future__ import annotations

import json

import numpy as np
import pytest

from dashboard.shared.charts.bands import band
from dashboard.shared.charts.curves import CurveOptions, Plot, plot
from dashboard.shared.charts.echarts import Drawing, drawing
from dashboard.shared.charts.line import DASHES, DOUBTFUL, Mark, RunLine, curves_csv
from dashboard.shared.reading.series import Series
from schemas.catalog import number_names

CSV_HEADER = (
    "run,part,step,tokens_seen,seconds,loss,reward_mean,learning_rate,grad_norm,tokens_per_second,mfu,"
    "tokens_per_step,padding_fraction,loss_scale,skipped_steps,device_memory_bytes,reward_chosen,reward_rejected,reward_margin,"
    "reward_accuracy,reward_std,flat_groups,completion_tokens_mean,completion_tokens_max,truncated_share,"
    "distinct_completions,entropy,kl,clip_low_share,clip_high_share,sampler_gap,rollout_seconds,update_seconds,"
    "held_out_score,held_out_loss"
)


def series(steps: int, **columns: np.ndarray) -> Series:
    """Return a series of a run that logged these columns and nothing else."""
    every = {name: np.full(steps, np.nan) for name in (*number_names(), "seconds")}
    every |= {"step": np.arange(1.0, steps + 1), "tokens_seen": np.arange(1.0, steps + 1) * 2048}
    every["seconds"] = np.arange(steps) * 0.5
    return Series(columns=every | columns, unread=0)


def line(name: str, read: Series, **more) -> RunLine:
    return RunLine(name=name, series=read, colour="#123456", **more)


def drawn_of(*lines: RunLine, **view) -> tuple[Plot, Drawing]:
    plotted = plot(lines, CurveOptions(**view))
    return plotted, drawing(plotted)


def table(drawn: Drawing, index: int = 0) -> dict[str, list[float | None]]:
    return drawn.option["dataset"][index]["source"].to_pydict()


def sent_bytes(drawn: Drawing) -> int:
    return sum(frame["source"].nbytes for frame in drawn.option["dataset"])


def test_a_panel_for_each_column_that_was_measured() -> None:
    read = series(100, loss=np.linspace(5, 1, 100), grad_norm=np.ones(100))
    plotted, drawn = drawn_of(line("a", read))
    assert [title["text"] for title in drawn.option["title"]] == [
        "Loss (nats per supervised token)",
        "Gradient norm (before clipping)",
    ]
    assert (plotted.drawn, plotted.total, plotted.remark) == (200, 200, "")


def test_curves_that_keep_every_point_are_sent_as_one_table_with_one_x() -> None:
    read = series(100, loss=np.linspace(5, 1, 100), grad_norm=np.ones(100))
    _, drawn = drawn_of(line("a", read))
    assert [frame["source"].column_names for frame in drawn.option["dataset"]] == [["x", "Loss", "Gradient norm"]]


def test_smoothing_keeps_the_raw_line_behind_and_leaves_the_learning_rate_alone() -> None:
    read = series(100, loss=np.linspace(5, 1, 100), learning_rate=np.ones(100))
    _, drawn = drawn_of(line("a", read), smoothing=0.9)
    widths = [(part["encode"]["y"], part["lineStyle"]["opacity"]) for part in drawn.option["series"]]
    assert widths == [("Loss", 0.35), ("Loss, smoothed", 1), ("Learning rate", 1)]


def test_on_a_logarithmic_axis_the_smoothed_line_lies_amid_the_points() -> None:
    losses = np.where(np.arange(400) % 2, 1e-3, 1e-1)
    plotted, _ = drawn_of(line("a", series(400, loss=losses)), smoothing=0.9, loss="log")
    smooth = plotted.panels[0].curves[0].smooth
    assert smooth is not None
    assert np.median(smooth) == pytest.approx(1e-2, rel=0.3)
    linear, _ = drawn_of(line("a", series(400, loss=losses)), smoothing=0.9, loss="linear")
    assert linear.panels[0].curves[0].smooth is not None
    assert np.median(linear.panels[0].curves[0].smooth) == pytest.approx(0.05, rel=0.1)


def test_no_tick_lies_between_two_steps() -> None:
    _, drawn = drawn_of(line("a", series(2, loss=np.array([2.0, 1.0]))))
    assert {axis["minInterval"] for axis in drawn.option["xAxis"]} == {1}
    _, seconds = drawn_of(line("a", series(2, loss=np.array([2.0, 1.0]))), x="seconds")
    assert {axis["minInterval"] for axis in seconds.option["xAxis"]} == {0}


def test_a_long_series_is_thinned_keeps_its_spikes_and_says_so() -> None:
    loss = np.ones(1_000_000)
    loss[[10, 500_000, 999_000]] = [9, 8, 7]
    plotted, drawn = drawn_of(line("a", series(1_000_000, loss=loss)))
    drawn_losses = table(drawn)["Loss"]
    assert {7, 8, 9} <= set(drawn_losses)
    assert len(drawn_losses) <= 4002
    assert plotted.remark.endswith("points drawn; the extremes of each stretch are kept.")


@pytest.mark.parametrize(("runs", "rows"), [(1, 1_000_000), (10, 5_000), (20, 20_000)])
def test_whatever_the_runs_less_than_200_kb_are_sent(runs: int, rows: int) -> None:
    names = ("loss", "learning_rate", "grad_norm", "tokens_per_second", "device_memory_bytes")
    noise = np.random.default_rng(0).normal(size=rows)
    lines = [line(f"run {index}", series(rows, **dict.fromkeys(names, noise))) for index in range(runs)]
    assert sent_bytes(drawn_of(*lines, smoothing=0.9)[1]) < 200_000


@pytest.mark.parametrize(
    ("x", "unit", "last"),
    [("step", "steps", 600), ("tokens_seen", "million tokens", 1.2288), ("seconds", "minutes", 4.99)],
)
def test_what_runs_along_the_bottom_has_a_unit_that_fits(x, unit: str, last: float) -> None:
    _, drawn = drawn_of(line("a", series(600, loss=np.ones(600))), x=x)
    assert drawn.option["xAxis"][-1]["name"] == unit
    assert table(drawn)["x"][-1] == pytest.approx(last, rel=1e-3)


def test_memory_is_shown_in_binary_units() -> None:
    _, drawn = drawn_of(line("a", series(3, device_memory_bytes=np.full(3, 3 * 2**30))))
    assert drawn.option["title"][0]["text"] == "Device memory (GiB)"
    assert table(drawn)["Device memory"] == [3, 3, 3]


def test_a_logarithmic_loss_leaves_out_what_has_no_logarithm() -> None:
    read = series(3, loss=np.array([1.0, 0.0, -1.0]), learning_rate=np.ones(3))
    _, drawn = drawn_of(line("a", read), loss="log")
    assert [axis["type"] for axis in drawn.option["yAxis"]] == ["log", "value"]
    assert table(drawn)["Loss"] == [1, None, None]


@pytest.mark.parametrize(
    ("losses", "log"),
    [((6.8, 0.1), True), ((5.0, 0.1), False), ((5.1, 0.1), True), ((6.8, 0.0, 0.1), False), ((6.8,), False)],
)
def test_a_loss_that_falls_fiftyfold_lies_on_a_logarithmic_axis_by_itself(losses: tuple[float, ...], log: bool) -> None:
    read = series(len(losses), loss=np.array(losses), grad_norm=np.array(losses) + 1)
    assert [axis["type"] for axis in drawn_of(line("a", read))[1].option["yAxis"]] == [
        "log" if log else "value",
        "value",
    ]
    assert drawn_of(line("a", read), loss="linear")[1].option["yAxis"][0]["type"] == "value"


def test_a_logarithmic_loss_leaves_the_gradient_norm_as_it_is() -> None:
    read = series(3, loss=np.array([3.0, 2.0, 1.0]), grad_norm=np.array([3.0, 2.0, 1.0]))
    assert [axis["type"] for axis in drawn_of(line("a", read), loss="log")[1].option["yAxis"]] == ["log", "value"]


def test_a_run_that_contradicts_itself_makes_no_axis_logarithmic_and_is_in_no_mean() -> None:
    sound, forged = series(2, loss=np.array([2.0, 1.0])), series(2, loss=np.array([2.0, 1e-6]))
    lines = [line(name, sound, kin="k") for name in "ab"]
    doubtful = line("forged", forged, kin="k", is_doubtful=True, dashes=DOUBTFUL)
    plotted, drawn = drawn_of(*lines, doubtful)
    (panel,) = plotted.panels
    assert (panel.log, [one.n for one in panel.bands]) == (False, [2])
    assert drawn.option["series"][-1]["lineStyle"]["type"] == [3, 4]
    assert drawn_of(lines[0], doubtful)[0].bands == {}


def test_mean_and_band_are_at_the_steps_that_all_seeds_logged() -> None:
    # At step 2 the losses are 1 and 3: mean 2, standard deviation √2; of their logarithms 0 and ln 3: e^(½ ln 3) = √3.
    steps, places = np.array([1.0, 2.0]), np.array([10.0, 20.0])
    members = [(steps, places, np.array([5.0, 1.0])), (steps[1:], places[1:] + 2, np.array([3.0]))]
    plain, log = (band(members, colour="#111", log=log) for log in (False, True))
    assert plain is not None
    assert log is not None
    assert (plain.x.tolist(), plain.mean.tolist(), plain.n) == ([21.0], [2.0], 2)
    assert (plain.low[0], plain.high[0]) == pytest.approx((2 - 2**0.5, 2 + 2**0.5))
    spread = np.exp(np.log(3) / 2**0.5)
    assert (log.low[0], log.mean[0], log.high[0]) == pytest.approx((3**0.5 / spread, 3**0.5, 3**0.5 * spread))
    assert band([members[1], (steps[:1], places[:1], np.array([4.0]))], colour="#111", log=False) is None


def test_seeds_stand_faint_behind_their_mean_which_has_the_word_at_its_end() -> None:
    lines = [line(name, series(10, loss=np.full(10, value)), kin="k") for name, value in (("a", 1.0), ("b", 3.0))]
    plotted, drawn = drawn_of(*lines, line("other", series(10, loss=np.ones(10) / 3), kin="another"))
    low, spread, mean, *members, other = drawn.option["series"]
    assert low["stack"] == spread["stack"]
    assert table(drawn) == {
        "x": [float(step) for step in range(1, 11)],
        "low": pytest.approx([2 - 2**0.5] * 10),
        "spread": pytest.approx([2 * 2**0.5] * 10),
        "mean of 2 seeds": [2.0] * 10,
    }
    assert [one["lineStyle"]["opacity"] for one in members] == [0.4, 0.4]
    ends = [one.get("endLabel", {}).get("formatter") for one in (mean, *members, other)]
    assert ends == ["mean of 2 seeds 2", None, None, "other 0.3333"]
    assert "over seeds" in plotted.remark
    assert [one["name"] for one in drawn.option["legend"]["data"]] == ["a", "b", "other", "mean of 2 seeds"]


def test_a_smoothed_line_never_leaves_the_range_of_its_data() -> None:
    falling = 6.8 * np.exp(-np.linspace(0, 6, 400)) * np.where(np.arange(400) % 2, 1.2, 0.8)
    for scale in ("linear", "log"):
        smooth = (
            drawn_of(line("a", series(400, loss=falling)), smoothing=0.95, loss=scale)[0].panels[0].curves[0].smooth
        )
        assert smooth is not None
        assert falling.min() <= smooth.min()
        assert smooth.max() <= falling.max()


def test_a_wide_window_has_two_columns_as_high_as_one_and_a_phone_no_words_beside_lines() -> None:
    read = series(10, loss=np.ones(10), grad_norm=np.ones(10), learning_rate=np.ones(10))
    _, drawn = drawn_of(line("a", read))
    wide, narrow, made = drawn.option["media"]
    assert (wide["query"], narrow["query"], "query" in made) == ({"minWidth": 1690}, {"maxWidth": 560}, False)
    first, second, third = wide["option"]["grid"]
    assert first["top"] == second["top"] < third["top"]
    bottom = max(grid["top"] + grid["height"] for grid in drawn.option["grid"])
    assert third["top"] + third["height"] == pytest.approx(bottom, abs=2)
    assert [axis["name"] for axis in wide["option"]["xAxis"]] == ["", "steps", "steps"]
    assert not any(one["endLabel"]["show"] for one in narrow["option"]["series"])
    assert made["option"]["grid"] == drawn.option["grid"]


def test_the_drawing_says_what_it_is_and_for_print_its_ground_is_white() -> None:
    plotted = plot([line("a", series(3, loss=np.ones(3)))], CurveOptions())
    screen, paper = drawing(plotted, title="a"), drawing(plotted, title="a", ink="#333", paper="#ffffff")
    assert screen.option["title"][-1]["text"] == "a"
    assert "backgroundColor" not in screen.option
    assert paper.option["backgroundColor"] == "#ffffff"
    assert {title["textStyle"]["color"] for title in paper.option["title"]} == {"#333"}


def test_a_logarithmic_bottom_leaves_out_the_start_of_time() -> None:
    _, drawn = drawn_of(line("a", series(3, loss=np.ones(3))), x="seconds", log_x=True)
    assert [axis["type"] for axis in drawn.option["xAxis"]] == ["log"]
    assert [x is None for x in table(drawn)["x"]] == [True, False, False]


@pytest.mark.filterwarnings("error")
def test_what_no_picture_can_hold_is_a_gap_and_counted() -> None:
    plotted, drawn = drawn_of(
        line("a", series(3, loss=np.array([1.0, 1e300, -3.0]), tokens_seen=np.array([1, 2, 1e99])))
    )
    assert table(drawn)["Loss"] == [1, None, -3]
    assert plotted.remark == "1 point is outside the range shown."
    _, drawn = drawn_of(line("a", series(3, loss=np.ones(3), tokens_seen=np.array([1, 1e99, 1e99]))), x="tokens_seen")
    assert np.isfinite([x for x in table(drawn)["x"] if x is not None]).all()


def test_outliers_are_left_out_of_the_range_and_counted() -> None:
    loss = np.linspace(1, 2, 1000)
    loss[[3, 500]] = [80, 90]
    plotted, drawn = drawn_of(line("a", series(1000, loss=loss, learning_rate=loss)), clip=True)
    panel = plotted.panels[0]
    assert panel.low == pytest.approx(0.96, abs=0.01)
    assert panel.high == pytest.approx(2.04, abs=0.01)
    assert plotted.panels[1].high is None
    assert plotted.remark == "2 points are outside the range shown."
    assert drawn.option["yAxis"][0]["max"] < 3


def test_values_that_hardly_differ_have_an_axis_of_few_digits() -> None:
    rate = np.linspace(0.001, 0.0009999993, 50)
    plotted, drawn = drawn_of(line("a", series(50, loss=np.linspace(5, 1, 50), learning_rate=rate)))
    assert [(axis.get("min"), axis.get("max")) for axis in drawn.option["yAxis"]] == [(None, None), (0.00099, 0.00101)]
    assert plotted.remark == ""
    _, drawn = drawn_of(line("a", series(50, loss=np.ones(50))))
    assert "min" not in drawn.option["yAxis"][0]


def test_a_resumed_run_shows_where_and_what_came_before_in_a_quieter_tone() -> None:
    before, after = series(10, loss=np.full(10, 4.0)), series(10, loss=np.full(10, 2.0))
    after.columns["step"] += 10
    mark = Mark(at={"step": 11, "tokens_seen": 11 * 2048, "seconds": 5}, text="resumed after step 10")
    score = Mark(at={"step": 20, "tokens_seen": 20 * 2048, "seconds": 9}, text="exact match", score=0.75)
    own = line("a", after, earlier=before, resumed=(mark,), scores=(score,))
    plotted, drawn = drawn_of(own)
    assert [(curve.part, curve.y[0]) for curve in plotted.panels[0].curves] == [("earlier", 4), ("own", 2)]
    lines = [part for part in drawn.option["series"] if part["type"] == "line"]
    assert [part["lineStyle"]["type"] for part in lines] == ["dashed", "solid"]
    marked = lines[1]["markLine"]["data"]
    assert [(item["xAxis"], item["label"]["formatter"]) for item in marked] == [(11, "resumed after step 10")]
    points = next(part for part in drawn.option["series"] if part["type"] == "scatter")
    assert table(drawn, points["datasetIndex"]) == {"x": [20], "y": [2], "exact match, %": [75]}


def test_a_score_where_nothing_was_measured_has_no_place() -> None:
    marks = tuple(Mark(at={"step": step}, text="exact match", score=0.5) for step in (1, 2))
    plotted, _ = drawn_of(line("a", series(2, loss=np.array([np.nan, 2.0])), scores=marks))
    assert [place.x for place in plotted.panels[0].scores] == [2]


def test_losses_of_evaluations_are_a_line_of_points_and_are_named() -> None:
    losses, evaluated = series(100, loss=np.linspace(5, 1, 100)), series(2, loss=np.array([4.5, 2.5]))
    evaluated.columns["step"] *= 50
    own = line("a", losses, evaluation=evaluated, is_foreign=True)
    plotted, drawn = drawn_of(own, smoothing=0.9)
    assert [panel.title for panel in plotted.panels] == ["Loss, as stated; dotted: at evaluations"]
    assert [
        (part["encode"]["y"], part["lineStyle"]["type"], part["showSymbol"]) for part in drawn.option["series"]
    ] == [
        ("Loss", "solid", False),
        ("Loss, smoothed", "solid", False),
        ("Loss, at evaluations", "dotted", True),
    ]
    assert table(drawn, 1) == {"x": [50, 100], "Loss, at evaluations": [4.5, 2.5]}
    assert [row.rstrip(",") for row in curves_csv([own]).splitlines()[-2:]] == [
        "a,at evaluations,50,2048,0,4.5",
        "a,at evaluations,100,4096,0.5,2.5",
    ]


def test_what_a_mark_is_stands_in_the_title() -> None:
    marks = (Mark(at={"step": 50}, text="accuracy", score=0.5),)
    plotted, _ = drawn_of(line("a", series(100, loss=np.linspace(5, 1, 100)), scores=marks))
    assert [panel.title for panel in plotted.panels] == ["Loss (nats per supervised token); ◆ accuracy"]


def test_beside_a_run_of_another_tool_no_loss_is_said_to_be_of_supervised_tokens() -> None:
    ours, theirs = series(10, loss=np.ones(10), grad_norm=np.ones(10)), series(10, loss=np.ones(10))
    plotted, _ = drawn_of(line("a", ours), line("b", theirs, is_foreign=True))
    assert [panel.title for panel in plotted.panels] == ["Loss, as stated", "Gradient norm (before clipping)"]


def test_two_runs_share_panels_and_are_told_apart_by_a_legend() -> None:
    first, second = series(10, loss=np.ones(10)), series(20, loss=np.ones(20), grad_norm=np.ones(20))
    _, drawn = drawn_of(line("a", first), line("b", second))
    assert drawn.option["legend"]["show"]
    assert [part["name"] for part in drawn.option["series"]] == ["a", "b", "b"]
    assert [part["xAxisIndex"] for part in drawn.option["series"]] == [0, 0, 1]


def test_runs_of_one_colour_differ_in_their_strokes_and_in_the_legend() -> None:
    lines = [line(f"run {place}", series(10, loss=np.ones(10)), dashes=dashes) for place, dashes in enumerate(DASHES)]
    before = series(10, loss=np.ones(10))
    _, drawn = drawn_of(*lines, line("resumed", series(10, loss=np.ones(10)), earlier=before, dashes=DASHES[1]))
    strokes = ["solid", [11, 4], [11, 3, 3, 3], "dashed", [11, 4]]
    assert [part["lineStyle"]["type"] for part in drawn.option["series"]] == strokes
    assert [(item["name"], item["lineStyle"]["type"]) for item in drawn.option["legend"]["data"]] == [
        ("run 0", "solid"), ("run 1", [11, 4]), ("run 2", [11, 3, 3, 3]), ("resumed", [11, 4]),
    ]  # fmt: skip


def test_apart_from_its_data_the_drawing_is_plain_json() -> None:
    _, drawn = drawn_of(line("<b>", series(5, loss=np.ones(5))), clip=True)
    json.dumps({key: value for key, value in drawn.option.items() if key != "dataset"}, allow_nan=False)


def test_nothing_measured_is_an_empty_drawing() -> None:
    plotted, drawn = drawn_of(line("a", series(0)), smoothing=0.5, clip=True, loss="log")
    assert (drawn.option["series"], plotted.total) == ([], 0)


def test_the_csv_has_every_digit() -> None:
    own = series(1, loss=np.array([2.0000000001]), device_memory_bytes=np.array([16911433728.0]))
    row = curves_csv([line("a", own)]).splitlines()[1]
    assert row.rstrip(",") == "a,,1,2048,0,2.0000000001,,,,,,,,,,16911433728"


def test_the_csv_has_every_row_and_no_formula() -> None:
    text = curves_csv([line("=1+1", series(3, loss=np.array([1.0, np.nan, 0.5])))])
    header, *found = text.splitlines()
    assert header == CSV_HEADER
    assert {row.count(",") for row in found} == {header.count(",")}
    assert [row.rstrip(",") for row in found] == ["'=1+1,,1,2048,0,1", "'=1+1,,2,4096,0.5", "'=1+1,,3,6144,1,0.5"]


def test_a_loss_of_rewards_is_not_said_to_be_of_supervised_tokens() -> None:
    plain, rewarded = series(3, loss=np.ones(3)), series(3, loss=np.ones(3), reward_mean=np.ones(3))
    titles = [drawn_of(line("a", own), smoothing=0)[0].panels[0].title for own in (plain, rewarded)]
    assert titles == ["Loss (nats per supervised token)", "Loss (nats)"]
