"""The plan page: waiting, running, failed, answered, hostile answers; its form, figure and sentences."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import pytest
import yaml
from pages import Open, labels, press, said
from plan_answers import (
    GIB,
    grid_document,
    part,
    place,
    plan_document,
    program,
    put_answer,
    too_large,
    where_document,
)
from streamlit.testing.v1 import AppTest

from dashboard.shared import configs, form, state
from dashboard.shared.charts import theme
from dashboard.shared.charts.theme import LIGHT
from dashboard.shared.parts import plan_answer
from dashboard.shared.parts.plan_answer import PlanQuestion, memory_figure
from dashboard.shared.tables import planned
from launch.tasks import Task, TaskResult

COMPILED = ("--on", "kaggle-tpu-v5e-8")
QUICK = (*COMPILED, "--grid", "--quick")
WHERE = ("--where", "--quick")


def tiny(**changed: object) -> dict[str, object]:
    source = next(source for source in configs.sources() if source.key == "tiny.yaml")
    return form.fill_defaults(configs.read(source) | changed)


def figures(app: AppTest) -> int:
    return len(app.get("plotly_chart"))


def table(app: AppTest, column: str) -> Any:
    """Return the table with this column or index."""
    return next(one.value for one in app.dataframe if column in (*one.value, one.value.index.name))


def test_each_answer_is_drawn_when_it_arrives(opened: Open, root: Path) -> None:
    put_answer(root, tiny(), QUICK, grid_document() | {"method": "closed_form"})
    app = opened(state.PLAN, source="tiny.yaml")
    assert "Fits on Kaggle, TPU v5e-8: needs 9.77 GiB of 15.75 GiB per device, takes about 5 h 12 min." in said(app)
    assert "58 % of a 9 h 00 min session (29 to 116 %), 26 % of the weekly quota of 20 h 00 min (13 to 52 %)." in said(
        app
    )
    assert "Memory on 8 × TPU v5 lite ± 3 %, estimated by formula." in said(app)
    assert (figures(app), len(app.dataframe)) == (1, 1)
    assert '<td class="tp-word">compile</td>' in said(app)
    put_answer(root, tiny(), WHERE, where_document())
    put_answer(root, tiny(), COMPILED, plan_document())
    app.run()
    assert "read from the compiled program" in said(app)
    assert "Fits on 9 of 18 machines. Free within a weekly quota: kaggle-tpu-v5e-8." in said(app)
    assert len(app.dataframe) == 2


def test_compiling_and_planning_again_take_a_click(opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(Task, "start", lambda task: started.append(list(task.arguments[3:-1])))
    for options, document in ((QUICK, grid_document()), (WHERE, where_document())):
        put_answer(root, tiny(), options, document)
    app = press(opened(state.PLAN, source="tiny.yaml"), "Compile for kaggle-tpu-v5e-8")
    assert started == [list(COMPILED)]
    assert figures(press(app, "Plan again")) == 0


LIBRARIES = """I0000 00:00:1795478164.347840   30512 cudart_stub.cc:31] Could not find cuda drivers on your machine.
Traceback (most recent call last):
  RuntimeError: Unable to load CUDA. Is it installed?
"""
ABSENT = "error TP701: --device: No <b>tpu</b> device was found.\n  Next: Use --device auto."


def test_a_failure_shows_the_problems_of_the_program_only(opened: Open, root: Path) -> None:
    put_answer(root, tiny(), QUICK, None, code=3, output=LIBRARIES + ABSENT)
    app = opened(state.PLAN, source="tiny.yaml")
    assert "No answer: the program ended with exit code 3." in said(app)
    assert ABSENT in [block.value for block in app.code]
    assert "Try again" in labels(app)
    assert "Unable to load CUDA" in plan_answer.failure_text(LIBRARIES), "without a problem of ours, all of it is shown"


def test_a_running_plan_can_be_cancelled(opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled: list[list[str]] = []
    running = TaskResult(state="running", output="t4: compiling 3 of 18 layers", seconds=42.0)
    monkeypatch.setattr(Task, "result", lambda task: running)
    monkeypatch.setattr(Task, "cancel", lambda task: cancelled.append(list(task.arguments[3:-1])))
    app = opened(state.PLAN, source="tiny.yaml")
    assert "compiling 3 of 18 layers" in app.get("status")[0].label
    press(app, "Cancel")
    assert cancelled == [list(QUICK)]


def test_questions_start_one_by_one_and_none_after_a_failure() -> None:
    quick, where = PlanQuestion(options=("q",), label=""), PlanQuestion(options=("w",), label="")
    compiled = PlanQuestion(options=("c",), label="", button="Compile")
    wanted = (quick, where, compiled)

    for states, following in {
        ("none", "none", "none"): quick,
        ("answered", "none", "none"): where,
        ("answered", "answered", "none"): None,
        ("running", "none", "none"): None,
        ("failed", "none", "none"): None,
        ("cancelled", "answered", "none"): None,
    }.items():
        assert plan_answer.next_question(dict(zip(wanted, states, strict=True))) == following


def test_an_unsupported_machine_is_named_with_the_reason_and_without_figures(opened: Open, root: Path) -> None:
    what = "precision.params is bfloat16, which it does not have."
    finding = {"code": "TP730", "severity": "error", "what": what, "next": "x"}
    document = plan_document(verdict="unsupported", need_bytes=0, parts=[], programs=[], time=None, findings=[finding])
    put_answer(root, tiny(), QUICK, document)
    put_answer(root, tiny(), WHERE, where_document())
    app = opened(state.PLAN, source="tiny.yaml")
    assert "Cannot run on Kaggle, TPU v5e-8." in said(app)
    assert what in said(app)
    assert "0 B" not in said(app)
    assert [header.value for header in app.header] == ["Where does it fit?"]


def test_machines_are_ordered_by_verdict_and_fill_and_the_plan_replaces_its_row(opened: Open, root: Path) -> None:
    rows = [
        place("large", "does_not_fit", 30.0, 15.0, 4.0),
        place("full", "fits", 12.0, 16.0, 0.5),
        place("kaggle-empty", "fits", 8.0, 80.0, 6.0),
        place("absent", "unsupported", 20.0, 16.0, None),
        place("kaggle-tpu-v5e-8", "fits", 2.0, 16.0, 6 / 3600),
    ]
    put_answer(root, tiny(), WHERE, {"where": rows})
    put_answer(root, tiny(), COMPILED, plan_document(need_bytes=15 * GIB, verdict="tight", available_bytes=16 * GIB))
    found = table(opened(state.PLAN, source="tiny.yaml"), "Machine")
    assert list(found["Machine"]) == ["kaggle-empty", "full", "kaggle-tpu-v5e-8", "large", "absent"]
    assert list(found["Verdict"]) == ["✓ fits", "✓ fits", "! tight", "✕ does not fit", "∅ unsupported"]
    assert list(found["Memory"]) == [0.1, 0.75, 0.938, 2.0, 1.25]
    assert list(found["Time"]) == ["6 h 00 min", "30 min 00 s", "5 h 12 min", "–", "–"]
    assert found["Note"].iloc[2] == "read from the compiled program"
    assert found["Note"].iloc[4] == "no bfloat16 products"


def test_sizes_have_a_symbol_and_a_need_and_the_own_size_is_marked(opened: Open, root: Path) -> None:
    needs = {(1, 100): "fits", (2, 100): "fits", (4, 100): "tight", (1, 200): "fits", (2, 200): "does_not_fit"}
    cells = [
        {"microbatch_size": batch, "max_length": length, "verdict": verdict, "need_bytes": batch * length * GIB // 100}
        for (batch, length), verdict in needs.items()
    ]
    config = form.edit(tiny(), {("batch", "microbatch_size"): 2, ("data", "max_length"): 100})
    put_answer(root, config, QUICK, plan_document(grid={"cells": cells, "available_bytes": 4 * GIB}))
    app = opened(state.PLAN, source="tiny.yaml", set=["batch.microbatch_size=2", "data.max_length=100"])
    found = table(app, "Microbatch")
    assert list(found.columns) == ["100 tokens", "200 tokens"]
    assert found.to_numpy().tolist() == [
        ["✓ 1.00 GiB", "✓ 2.00 GiB"],
        ["✓ 2.00 GiB (yours)", "✕ 4.00 GiB"],
        ["! 4.00 GiB", ""],
    ]
    # 2 × 100 and 1 × 200 have as many tokens; longer sequences count for more.
    assert "Largest that fits: 1 × 200 tokens, 2.00 GiB of 4.00 GiB." in said(app)


BAD_CELLS = [{"microbatch_size": -1, "max_length": 8}, {"microbatch_size": 10**400, "max_length": 1}, 7, None]
MANY_CELLS = [{"microbatch_size": number + 1, "max_length": 8, "verdict": "<b>"} for number in range(5000)]
BACKWARDS = {"session": [{"name": "train", "seconds": {"low": 9, "likely": 1, "high": 0}}]}


@pytest.mark.parametrize(
    "hostile",
    [
        {
            "need_bytes": 1,
            "programs": [{"name": 5, "peak_bytes": -1, "parts": "all"}],
            "time": 7,
            "advice": [{"set": 1}],
        },
        {
            "need_bytes": "<script>",
            "verdict": "<b>",
            "target": {"title": "<img src=x onerror=alert(1)>"},
            "findings": [{}],
        },
        {"grid": {"cells": MANY_CELLS}},
        {"grid": {"cells": BAD_CELLS}},
        plan_document(programs=[], time=BACKWARDS, grid={"cells": "all"}),
        {"need_bytes": 10**400, "available_bytes": 1e308, "parts": [{"name": "x", "bytes": 10**400}], "grid": []},
    ],
)
def test_any_answer_is_drawn_without_its_markup(opened: Open, root: Path, hostile: dict[str, object]) -> None:
    target = place('<a href="https://evil.example">x</a>', "fits", 1e30, -4, None) | {"hours": "soon", "title": 7}
    put_answer(root, tiny(), QUICK, hostile)
    put_answer(root, tiny(), WHERE, {"where": [target, "no target", None, *([place("t", "fits", 1, 2, 3)] * 1000)]})
    app = opened(state.PLAN, source="tiny.yaml")
    assert "<script>" not in said(app)
    assert "<img" not in said(app)
    assert all(len(one.value) <= 40 for one in app.dataframe)


def test_advice_goes_into_the_form_the_address_launch_and_back(opened: Open, root: Path) -> None:
    put_answer(root, tiny(), QUICK, too_large())
    app = opened(state.PLAN, source="tiny.yaml")
    assert "It fits with optimizer.name=adafactor and memory.donate=true (5.70 GiB)." in said(app)
    assert "A checkpoint is saved every 17 h; a session is 9 h." in said(app)
    app = press(app, "apply 0")
    assert app.query_params["set"] == "optimizer.name=adafactor"
    app = press(app, "Open in Launch")
    assert app.selectbox(key="source").value == "tiny.yaml"
    assert yaml.safe_load(app.code[-1].value)["optimizer"]["name"] == "adafactor"
    app = press(app, "Where else does it fit?")
    assert "Check memory and time on any machine before you train." in said(app)
    assert app.selectbox(key="source").value == "tiny.yaml"
    assert app.query_params["set"] == "optimizer.name=adafactor"


def test_an_invalid_configuration_is_not_planned(opened: Open) -> None:
    app = opened(state.PLAN, source="tiny.yaml", set="batch.microbatch_size=-3")
    assert "-3 is below 1." in said(app)
    assert "Fix the problems to get a plan." in said(app)
    assert not app.get("status")


def memory_of(plan: dict[str, Any], **more: float) -> Any:
    return memory_figure(planned.memory_parts(plan), LIGHT, **more)


def lines(figure: Any) -> dict[str, float]:
    return {line.name: line.x0 for line in figure.layout.shapes}


def test_examples_of_units() -> None:
    assert doctest.testmod(theme).failed == 0


def test_parts_are_stacked_in_the_bar_of_their_program() -> None:
    figure = memory_of(plan_document(programs=[program("train", "tight", [part("params", 4), part("x", 2)])]))
    assert {bar.name: (list(bar.x), list(bar.y)) for bar in figure.data} == {
        "parameters": ([4.0], ["Train step<br>! 6.00 GiB"]),
        "other": ([2.0], ["Train step<br>! 6.00 GiB"]),
    }
    assert lines(figure) == {"usable 15.75 GiB": pytest.approx(15.75)}
    assert figure.layout.xaxis.range[1] > 15.75
    far = memory_of(plan_document(programs=[program("train", "fits", [part("params", 0.01)])]))
    assert (lines(far), far.layout.xaxis.title.text) == ({}, "MiB per device"), "a limit far off is not drawn"


def test_a_plan_of_an_earlier_version_has_one_program_and_an_observed_peak_a_line() -> None:
    plan = {"need_bytes": 4 * GIB, "available_bytes": 8 * GIB, "verdict": "fits", "parts": [part("x", 4)]}
    assert {one.program for one in planned.memory_parts(plan)} == {"Train step"}
    assert lines(memory_of(plan, observed=5.0 * GIB)) == {"usable 8.00 GiB": 8, "observed 5.00 GiB": 5}


def test_labels_have_no_markup() -> None:
    hostile = program("<b>x</b>", "fits", [part("<i>", 1, "<a href=x>")])
    text = memory_of(plan_document(programs=[hostile])).to_json()
    assert "<b>" not in text.lower()
    assert "<a" not in text
