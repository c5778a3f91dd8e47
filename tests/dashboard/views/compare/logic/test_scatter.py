"""A scatter: which runs have a point, in which group, what the runs of one value reached, and what is drawn of it."""

from __future__ import annotations

import math

import pytest

from dashboard.shared.charts.plan_figures import LIGHT
from dashboard.views.compare.logic.relation import Scale
from dashboard.views.compare.logic.scatter import means, scatter, spread_points
from dashboard.views.compare.logic.scatter_figure import SYMBOLS, draw, runs_at, symbol_of

LOSS = Scale(name="last loss", places=(1.5, 0.0, None, 1.25, 2.0), words=())
RATE = Scale(name="rate", places=(0.1, 0.2, 0.3, 0.4, 0.5), words=())
MODEL = Scale(name="model", places=(1.0, 0.0, 0.0, None, 1.0), words=("gemma", "tiny-gpt2"))
STEPS = Scale(name="steps", places=(1000.0, 20.0, 20.0, 1000.0, 0.5), words=())

# Three seeds at each of two rates, a fourth run at the first that contradicts itself, and a rate with one run.
SWEPT = Scale(name="rate", places=(0.001, 0.001, 0.001, 0.001, 0.1, 0.1, 0.1, 1.0), words=())
SCORES = Scale(name="exact match", places=(0.5, 0.6, 0.7, 0.99, 0.2, 0.2, 0.5, 0.9), words=())
DECAY = Scale(name="decay", places=(0.0, 0.0, 0.1, 0.0, 0.0, 0.1, 0.1, 0.0), words=())
NAMES = list("abcdefgh")


def test_only_a_run_with_a_place_on_both_axes_has_a_point() -> None:
    assert scatter(RATE, LOSS, None).members == (("", (0, 1, 3, 4)),)
    assert scatter(MODEL, LOSS, None).members == (("", (0, 1, 4)),)


def test_zero_has_no_place_on_a_logarithmic_axis_and_words_have_none() -> None:
    logarithmic = scatter(RATE, LOSS, None, logarithmic=frozenset({"last loss"}))
    assert (logarithmic.members, logarithmic.beyond) == ((("", (0, 3, 4)),), (1,))
    assert scatter(RATE, LOSS, None).beyond == ()
    assert scatter(MODEL, LOSS, None, logarithmic=frozenset({"model"})).members == (("", (0, 1, 4)),)


def test_groups_stand_in_the_order_of_their_values() -> None:
    assert scatter(RATE, LOSS, MODEL).members == (("gemma", (1,)), ("tiny-gpt2", (0, 4)), ("–", (3,)))
    assert scatter(RATE, LOSS, STEPS).members == (("0.5", (4,)), ("20", (1,)), ("1000", (0, 3)))


def test_a_model_that_is_called_as_nothing_is_shown_stays_a_group_of_its_own() -> None:
    odd = Scale(name="model", places=(0.0, 0.0, 0.0, None, 0.0), words=("–",))
    assert scatter(RATE, LOSS, odd).members == (("–", (0, 1, 4)), ("–", (3,)))


@pytest.mark.parametrize(
    ("values", "spans"),
    [((0.001, 0.01), True), ((0.1, 1.0), True), ((1.0, 9.9), False), ((0.0, 10.0), False), ((None, 3.0), False)],
)
def test_an_axis_is_logarithmic_by_itself_from_a_decade_on(values: tuple[float | None, ...], spans: bool) -> None:
    assert Scale(name="x", places=values, words=()).spans_a_decade is spans
    assert not Scale(name="x", places=(1.0, 20.0), words=("a", "b")).spans_a_decade


def test_mean_and_spread_are_of_the_sound_runs_that_share_a_value() -> None:
    first, second = means(scatter(SWEPT, SCORES, None, doubtful=[3]))
    assert (first.x, first.n, first.mean, first.spread) == (0.001, 3, pytest.approx(0.6), pytest.approx(0.1))
    # 0.2, 0.2 and 0.5: mean 0.3, squares of 0.1, 0.1 and 0.2 sum up to 0.06, which two divide.
    assert (second.x, second.n, second.mean, second.spread) == (0.1, 3, pytest.approx(0.3), pytest.approx(0.03**0.5))
    assert [(one.group, one.x, one.n) for one in means(scatter(SWEPT, SCORES, DECAY, doubtful=[3]))] == [
        (0, 0.001, 2),
        (1, 0.1, 2),
    ]


def test_where_hardly_two_runs_share_a_value_or_words_lie_upward_there_is_no_mean() -> None:
    many = Scale(name="seed", places=tuple(float(number // 2) for number in range(80)), words=())
    assert means(scatter(many, many, None)) == []
    assert means(scatter(MODEL, MODEL, None)) == []
    assert means(scatter(RATE, LOSS, None, doubtful=range(5))) == []


@pytest.mark.parametrize("logarithmic", [frozenset(), frozenset({"rate"})], ids=["linear", "log"])
def test_points_of_one_value_lie_beside_each_other_and_near_it(logarithmic: frozenset[str]) -> None:
    at = spread_points(scatter(SWEPT, SCORES, None, logarithmic=logarithmic))
    assert len({at[index] for index in range(4)}) == 4
    whole = math.log10(1000) if logarithmic else 0.999
    for index in range(8):
        value = SWEPT.places[index] or 0.0
        apart = math.log10(at[index] / value) if logarithmic else at[index] - value
        assert abs(apart) < 0.01 * whole
    assert at[7] == 1.0
    assert at == spread_points(scatter(SWEPT, SCORES, None, logarithmic=logarithmic))


def test_what_is_drawn_is_what_was_found() -> None:
    shown = scatter(SWEPT, SCORES, None, doubtful=[3], logarithmic=frozenset({"rate"}))
    ends = [(0.1, 0.9)] * 8
    runs, hollow, mean = draw(shown, ["<b>", *NAMES[1:]], ["#111"], LIGHT, ends).data
    assert list(runs.y) == [0.5, 0.6, 0.7, 0.2, 0.2, 0.5, 0.9]
    assert runs.y[0] + runs.error_y.array[0] == pytest.approx(0.9)
    assert runs.y[0] - runs.error_y.arrayminus[0] == pytest.approx(0.1)
    assert runs.hovertext[0] == "<b>&lt;b&gt;</b><br>rate: 0.001<br>exact match: 0.5"
    assert (list(hollow.y), hollow.marker.symbol, hollow.marker.color) == ([0.99], "circle-open", LIGHT.tones["quiet"])
    assert list(mean.y) == pytest.approx([0.6, 0.3])
    assert list(mean.error_y.array) == pytest.approx([0.1, 0.03**0.5])


def test_ticks_are_the_values_that_were_tried_and_each_says_how_many_runs_it_is_of() -> None:
    shown = scatter(SWEPT, SCORES, DECAY, doubtful=[3], logarithmic=frozenset({"rate"}))
    picture = draw(shown, NAMES, ["#111", "#222"], LIGHT)
    assert picture.layout.xaxis.type == "log"
    assert picture.layout.xaxis.ticktext == ("0.001", "0.1", "1")
    assert [(note.x, note.text) for note in picture.layout.annotations] == [(-3.0, "n = 2"), (-1.0, "n = 2")]
    assert picture.layout.title.text == "exact match against rate"
    legend = [trace.name for trace in picture.data if trace.showlegend]
    assert sorted(legend) == ["contradictory, in no mean", "decay: 0", "decay: 0.1"]


def test_axes_are_linear_logarithmic_or_of_words() -> None:
    plain = draw(scatter(RATE, LOSS, None), NAMES, ["#111"], LIGHT).layout
    assert (plain.xaxis.type, plain.yaxis.type, plain.showlegend) == ("linear", "linear", False)
    words = draw(scatter(RATE, MODEL, None), NAMES, ["#111"], LIGHT).layout
    assert words.yaxis.ticktext == ("gemma", "tiny-gpt2")


def test_groups_beyond_the_eighth_have_another_symbol_where_the_colour_comes_again() -> None:
    signs = [(number % 8, symbol_of(number)) for number in range(64)]
    assert len(set(signs)) == 64
    assert [symbol for _, symbol in signs[:9]] == [*SYMBOLS, "diamond"]


def test_chosen_points_are_runs_whatever_their_group_and_a_mean_is_none() -> None:
    picture = draw(scatter(SWEPT, SCORES, DECAY, doubtful=[3]), NAMES, ["#111", "#222"], LIGHT)
    drawn = {run[0] for trace in picture.data if trace.customdata for run in trace.customdata}
    assert drawn == set(range(8))
    assert runs_at([{"customdata": [4]}, {"point_index": 0}, {"customdata": [1]}]) == [1, 4]
    assert runs_at([]) == []
