"""The plan page: nothing asked, running, failed, answered, planted; and the form that advice and addresses fill."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from pages import Open, labels, press, said
from plan_answers import grid_document, plan_document, put_answer, too_large, where_document
from streamlit.testing.v1 import AppTest

from dashboard.shared.config import configs, form
from dashboard.shared.parts import asking
from dashboard.shared.session import state
from launch.tasks import Task, TaskResult

ON = ("--on", "kaggle-tpu-v5e-8")


def tiny(**changed: object) -> dict[str, object]:
    source = next(source for source in configs.sources() if source.key == "tiny.yaml")
    return form.with_defaults(configs.read(source) | changed)


def plotted(app: AppTest) -> int:
    return len(app.get("plotly_chart"))


def test_before_anything_is_answered_the_page_says_what_comes_and_starts_nothing(opened: Open, root: Path) -> None:
    app = opened(state.PLAN, source="tiny.yaml")
    assert "tiny on kaggle-tpu-v5e-8 …" in said(app)
    assert plotted(app) == 0
    assert not (root / ".launch").exists(), "it asks when the form has rested, never while a page is drawn"


def test_each_answer_is_drawn_when_it_is_there(opened: Open, root: Path) -> None:
    put_answer(root, tiny(), (*ON, "--quick"), plan_document(method="closed_form"))
    app = opened(state.PLAN, source="tiny.yaml")
    assert "Yes, it fits on Kaggle, TPU v5e-8, and the whole run takes about 5 h 12 min." in said(app)
    assert "58 % of a session of 9 h (29 to 116 %), 26 % of a week of 20 h (13 to 52 %)." in said(app)
    assert "estimated by formula" in said(app)
    assert plotted(app) == 2
    put_answer(root, tiny(), ("--where", "--quick"), where_document())
    put_answer(root, tiny(), (*ON, "--grid", "--quick"), grid_document())
    put_answer(root, tiny(), ON, plan_document())
    app.run()
    assert plotted(app) == 4
    assert "read from the compiled program" in said(app)
    assert "It fits on 9 of 18 targets. Free within a weekly quota: kaggle-tpu-v5e-8." in said(app)
    assert "Check again" in labels(app)


def test_all_answers_are_asked_for_again(opened: Open, root: Path) -> None:
    for options, document in (
        (ON, plan_document()),
        (("--where", "--quick"), where_document()),
        ((*ON, "--grid", "--quick"), grid_document()),
    ):
        put_answer(root, tiny(), options, document)
    app = press(opened(state.PLAN, source="tiny.yaml"), "Check again")
    assert "tiny on kaggle-tpu-v5e-8 …" in said(app)
    assert plotted(app) == 0


def test_a_planted_answer_is_not_shown(opened: Open, root: Path) -> None:
    folder = put_answer(root, tiny(), (*ON, "--quick"), plan_document())
    (folder / "seal").write_text("0" * 64)
    app = opened(state.PLAN, source="tiny.yaml")
    assert "Yes, it fits" not in said(app)
    assert plotted(app) == 0


def test_why_there_is_no_answer_is_said(opened: Open, root: Path) -> None:
    put_answer(root, tiny(), (*ON, "--quick"), None, code=2, output="error TP001: no <b>such</b> key")
    app = opened(state.PLAN, source="tiny.yaml")
    assert "The check gave no answer: it ended with exit code 2." in said(app)
    assert "tiny on kaggle-tpu-v5e-8 …" not in said(app)
    assert "error TP001: no <b>such</b> key" in [block.value for block in app.code]
    assert "Check again" in labels(app)


def test_what_a_device_does_not_compute_is_said_without_figures_that_there_are_not(opened: Open, root: Path) -> None:
    finding = {
        "code": "TP730",
        "severity": "error",
        "what": "precision.params is bfloat16, which it has not.",
        "next": "x",
    }
    document = plan_document(verdict="unsupported", need_bytes=0, parts=[], programs=[], time=None, findings=[finding])
    put_answer(root, tiny(), ON, document)
    put_answer(root, tiny(), ("--where", "--quick"), where_document())
    app = opened(state.PLAN, source="tiny.yaml")
    assert "does not compute what the configuration asks for." in said(app)
    assert "precision.params is bfloat16, which it has not." in said(app)
    assert "0 B needed" not in said(app)
    assert "What is the memory for?" not in [header.value for header in app.header]


def test_one_that_runs_says_how_far_it_is_and_can_be_cancelled(
    opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled: list[tuple[str, ...]] = []
    running = TaskResult(state="running", output="t4: compiling 3 of 18 layers", seconds=42.0)
    monkeypatch.setattr(Task, "result", lambda task: running)
    monkeypatch.setattr(Task, "cancel", lambda task: cancelled.append(tuple(task.arguments)))
    app = opened(state.PLAN, source="tiny.yaml")
    assert "t4: compiling 3 of 18 layers" in said(app)
    assert "Cancel" in labels(app)
    press(app, "Cancel")
    [arguments] = cancelled
    assert arguments[3:] == (*ON, "--quick", "--json")


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
        plan_document(
            programs=[], time={"session": [{"name": "train", "seconds": {"low": 9, "likely": 1, "high": 0}}]}
        ),
        {"need_bytes": 10**400, "available_bytes": 1e308, "parts": [{"name": "x", "bytes": 10**400}], "max_batch": []},
    ],
)
def test_whatever_an_answer_holds_the_page_stands(opened: Open, root: Path, hostile: dict[str, object]) -> None:
    put_answer(root, tiny(), ON, hostile)
    app = opened(state.PLAN, source="tiny.yaml")
    assert "<script>" not in said(app)
    assert "<img" not in said(app)


def test_advice_goes_into_the_form_the_address_and_launch(opened: Open, root: Path) -> None:
    put_answer(root, tiny(), ON, too_large())
    app = opened(state.PLAN, source="tiny.yaml")
    assert "With optimizer.name=adafactor and memory.donate=true it fits in 5.70 GiB." in said(app), (
        "the cure stands in the first sentence"
    )
    assert "A checkpoint is saved every 17 h; a session is 9 h." in said(app)
    app = press(app, "put 0")
    assert app.query_params["set"] == "optimizer.name=adafactor"
    app.switch_page("views/launch/view.py")
    app.query_params["source"] = "tiny.yaml"
    assert yaml.safe_load(app.run().code[-1].value)["optimizer"]["name"] == "adafactor"


def test_launch_and_plan_lead_to_each_other_with_the_same_configuration(opened: Open) -> None:
    app = press(opened(state.PLAN, source="tiny.yaml", set="limits.steps=7"), "Open in Launch")
    assert "Runs keep going if you close this page." in said(app)
    assert app.selectbox(key="source").value == "tiny.yaml"
    assert yaml.safe_load(app.code[-1].value)["limits"]["steps"] == 7
    app = press(app, "Where else does it fit?")
    assert "Says what a run needs on a device that you do not have yet." in said(app)
    assert app.selectbox(key="source").value == "tiny.yaml"
    assert app.query_params["set"] == "limits.steps=7"


def test_a_link_shows_the_same_configuration_and_target(opened: Open, root: Path) -> None:
    changed = form.edit(tiny(), {("limits", "steps"): 7, ("optimizer", "learning_rate"): 0.5})
    put_answer(root, changed, ("--on", "t4"), too_large())
    app = opened(
        state.PLAN,
        source="tiny.yaml",
        on="t4",
        set=["limits.steps=7", "optimizer.learning_rate=0.5", "no.such=1", "seed=many", "batch"],
    )
    assert "No, it does not fit on" in said(app)


def test_one_question_is_asked_at_a_time_and_none_behind_one_that_failed() -> None:
    assert asking.next_to_ask(["none", "none"]) == 0
    assert asking.next_to_ask(["answered", "cancelled"]) == 1
    assert asking.next_to_ask(["running", "none"]) is None
    assert asking.next_to_ask(["failed", "none"]) is None
    assert asking.next_to_ask(["answered", "answered"]) is None


def test_what_a_surer_answer_says_too_is_not_asked() -> None:
    quick = asking.PlanQuestion(options=("--quick",), said="", before=())
    sure = asking.PlanQuestion(options=(), said="")
    answered = {(): TaskResult(state="answered"), ("--quick",): TaskResult(state="none")}
    assert asking.open_questions([quick, sure], answered) == [sure]


LIBRARIES = """WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795478164.347840   30512 cudart_stub.cc:31] Could not find cuda drivers on your machine.
Traceback (most recent call last):
  RuntimeError: Unable to load CUDA. Is it installed?
"""
ABSENT = "error TP701: --device: No tpu device was found; JAX sees only: cpu.\n  Next: Use --device auto."


def test_of_what_libraries_print_only_the_programs_own_words_are_shown(opened: Open, root: Path) -> None:
    put_answer(root, tiny(), (*ON, "--quick"), None, code=3, output=LIBRARIES + ABSENT)
    app = opened(state.PLAN, source="tiny.yaml")
    assert ABSENT in [block.value for block in app.code]
    assert asking.last_said(LIBRARIES.splitlines()[1]) == ""
    assert asking.last_said(LIBRARIES) == "", "no traceback, and nothing that it ends with"
    assert asking.last_said("my-4060ti: reading the rows\n  learning/runtime/libtpu_init_utils.cc:370\n") == (
        "my-4060ti: reading the rows"
    )
    assert asking.last_said(f"t4: compiling train\n{LIBRARIES.splitlines()[1]}") == "t4: compiling train"
    assert "Unable to load CUDA" in asking.why_not(LIBRARIES), "without a problem of our own, all of it is shown"
