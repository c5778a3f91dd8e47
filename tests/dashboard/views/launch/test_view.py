"""The Launch page: the configuration editor, facts about model and data, the plan, and starting runs."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from pages import Open, labels, press, said
from queued_jobs import job_in
from streamlit.testing.v1 import AppTest
from synthetic import write_run

from dashboard.shared import configs, form, state
from dashboard.shared.words import plain
from evidence.bundle.secrets import strip_invisible
from launch import tasks
from trainproof.cli import app as command

OTHERS = [setting.dotted for setting in form.fields() if setting.path not in form.ESSENTIAL]


def shown(app: AppTest) -> dict[str, Any]:
    """Return the configuration that the page would start."""
    return yaml.safe_load(app.code[-1].value)


def widget(app: AppTest, kind: str, label: str) -> Any:
    return next(each for each in app.get(kind) if each.label == label)


def edit_table(app: AppTest, version: int = 0, source: str = "tiny.yaml", **values: str | None) -> AppTest:
    """Type values into the table of settings, with `__` for the dot of a key."""
    rows = {OTHERS.index(key.replace("__", ".")): {"Value": value} for key, value in values.items()}
    app.session_state[f"table {version} {source}"] = {"edited_rows": rows, "added_rows": [], "deleted_rows": []}
    return app.run()


def open_table(app: AppTest, source: str = "tiny.yaml") -> AppTest:
    app.session_state[f"more {source}"] = True
    return app.run()


def test_a_value_in_the_table_stays_when_it_is_folded_and_other_pages_are_opened(opened: Open, root: Path) -> None:
    app = opened(state.LAUNCH, source="tiny.yaml")
    before = shown(app)
    assert not app.get("arrow_data_frame"), "a folded table is not drawn"
    assert "Undo all changes" not in labels(app)
    app = edit_table(open_table(app), seed="41", optimizer__max_grad_norm=None)
    table = app.data_editor[0].value.set_index("Key")
    assert table.loc["seed"].tolist()[:2] == ["41", "0"]
    assert table.loc["optimizer.schedule", "Meaning"].endswith("One of: constant, linear, cosine.")
    changed = shown(app)
    assert changed == before | {"seed": 41, "optimizer": before["optimizer"] | {"max_grad_norm": None}}
    assert sorted(app.query_params["set"]) == ["optimizer.max_grad_norm=null", "seed=41"]

    app.session_state["more tiny.yaml"] = False
    assert shown(app.run()) == changed
    app.switch_page("views/package.py").run()
    assert "<h1>Package</h1>" in said(app)
    app.switch_page("views/launch.py")
    app.query_params["source"] = "tiny.yaml"
    assert shown(app.run()) == changed
    assert shown(press(app, "Undo all changes")) == before
    assert "Undo all changes" not in labels(app)


def test_a_link_shows_its_changes_and_not_earlier_ones(opened: Open, root: Path) -> None:
    app = opened(state.LAUNCH, source="tiny.yaml", set=["seed=7", "limits.steps=9", "colour=red", "mesh.device=x"])
    assert (shown(app)["seed"], shown(app)["limits"]["steps"]) == (7, 9)
    assert app.query_params["set"] == ["seed=7", "limits.steps=9"]
    assert widget(app, "number_input", "Steps").value == 9


WRONG = {
    "mode": "bogus",
    "mesh": {"device": "gpuu"},
    "batch": {"microbatch_size": -5, "accumulation_steps": 1.5},
    "optimizer": {"name": "adamx", "learning_rate": 11, "max_grad_norm": "none"},
    "data": {"shuffle": "yes", "dataset": 7},
    "checkpoint": "often",
}


def test_wrong_values_stay_until_they_are_changed_and_are_marked_at_their_key(opened: Open, root: Path) -> None:
    stated = yaml.safe_load((configs.SHIPPED / "tiny.yaml").read_text("utf-8")) | WRONG
    (write_run(root, "a") / "config.yaml").write_text(yaml.safe_dump(stated))
    app = open_table(opened(state.LAUNCH, source="same as a"), "same as a")
    for key, wrong in WRONG.items():
        assert shown(app)[key] == (shown(app)[key] | wrong if isinstance(wrong, dict) else wrong), key
    text = said(app)
    essential = ("mode", "mesh.device", "batch.microbatch_size", "optimizer.learning_rate", "data.dataset")
    others = ("batch.accumulation_steps", "optimizer.name", "optimizer.max_grad_norm", "data.shuffle")
    assert [key for key in (*essential, *others, "checkpoint") if f"at {key}</p>" not in text] == []
    assert text.count("<p>✕ ") == len(essential), "beside their widgets"
    meanings = app.data_editor[0].value.set_index("Key")["Meaning"]
    assert [key for key in others if not meanings[key].startswith("✕ ")] == []
    assert "All other settings (85): ✕ 4 not valid" in [part.label for part in app.expander]
    assert not {"Start", "Undo all changes"} & set(labels(app))
    mode = widget(app, "selectbox", "Mode")
    assert (mode.value, mode.options, mode.proto.placeholder) == (None, ["smoke", "full"], "bogus")
    assert "at mode</p>" not in said(mode.set_value("smoke").run())
    app = edit_table(app, source="same as a", data__shuffle="false")
    assert shown(app)["data"]["shuffle"] is False
    assert "at data.shuffle</p>" not in said(app)


@pytest.mark.parametrize("bad", [".inf", "100000000000000000000000", '"text"', "{}"])
def test_any_configuration_can_be_opened(opened: Open, root: Path, bad: str) -> None:
    stated: dict[str, Any] = {}
    for setting in form.fields():
        inside = stated if len(setting.path) == 1 else stated.setdefault(setting.path[0], {})
        inside[setting.path[-1]] = yaml.safe_load(bad)
    (write_run(root, "a") / "config.yaml").write_text(yaml.safe_dump(stated))
    app = open_table(opened(state.LAUNCH, source="same as a"), "same as a")
    assert not app.exception
    assert "Start" not in labels(app)
    assert len(app.data_editor[0].value) == len(OTHERS)


def test_invisible_characters_are_removed_from_the_command_and_the_configuration(opened: Open, root: Path) -> None:
    stated = yaml.safe_load((configs.SHIPPED / "tiny.yaml").read_text("utf-8"))
    turned = stated | {"name": "\u202egpj.exe", "data": {"dataset": "a\u200b\u2066b"}}
    (write_run(root, "a") / "config.yaml").write_text(yaml.safe_dump(turned, allow_unicode=True), "utf-8")
    app = opened(state.LAUNCH, source="same as a")
    assert app.code[0].value == f"trainproof queue add --config 'gpj.exe.yaml' --root {root}"
    assert "dataset: ab\n" in app.code[-1].value
    assert strip_invisible(app.code[-1].value) == app.code[-1].value


def test_a_missing_file_prevents_the_start_until_it_exists(opened: Open, root: Path, tmp_path: Path) -> None:
    app = opened(state.LAUNCH, source="tiny.yaml")
    dataset = widget(app, "selectbox", "Dataset")
    assert f"Relative paths start at {plain(str(tmp_path))}. Key: `data.dataset`" in dataset.help
    app = opened(state.LAUNCH, source="tiny.yaml", set=["data.dataset=rows.jsonl"])
    assert widget(app, "selectbox", "Dataset").value == "rows.jsonl"
    assert "Error TP010: There is no dataset rows.jsonl: it is not built in, and no such file exi" in said(app)
    assert f"Relative paths start at {tmp_path}, where the dashboard was started." in said(app)
    assert not {"Start", "Plan"} & set(labels(app))
    (tmp_path / "rows.jsonl").write_text("")
    assert "Start" in labels(app.run())


def test_an_uploaded_dataset_is_named_by_its_content_and_selected(opened: Open, root: Path) -> None:
    content = b'{"prompt": "a", "completion": "b"}\n'
    app = opened(state.LAUNCH, source="tiny.yaml")
    app.file_uploader[0].set_value(("../my rows.JSONL", content, "application/json")).run()
    [kept] = (root / ".launch" / "rows").iterdir()
    assert re.fullmatch(r"my-rows-[0-9a-f]{8}\.jsonl", kept.name)
    assert kept.read_bytes() == content
    assert shown(app)["data"]["dataset"] == str(kept)


def answer(root: Path, config: dict[str, Any], value: dict[str, Any], *options: str, exit_code: int = 0) -> None:
    """Let a question about a configuration have this answer."""
    folder = tasks.plan_task(root, config, options).folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "answer.json").write_text(json.dumps(value))
    (folder / "output.log").write_text("")
    tasks.finish(folder, exit_code)


CHECKED = {
    "can_begin": True,
    "training_rows": 12_550,
    "evaluation_items": 100,
    "findings": [],
    "model": {"family": "gemma", "origin": "random", "parameters": 1_123_456, "trained_parameters": 98_304},
    "dataset": {"tokens": 477_006, "generated_rows": 12_000},
    "first_examples": {
        "examples": [
            {
                "row": 7,
                "truncated": False,
                "tokens": [
                    {"id": 1, "text": "2 + 2 = <b>", "supervised": False},
                    {"id": 2, "text": "4", "supervised": True},
                ],
            }
        ]
    },
}


def test_facts_about_model_and_data_and_the_first_examples_are_shown(opened: Open, root: Path) -> None:
    answer(root, shown(opened(state.LAUNCH, source="tiny.yaml")), CHECKED, *tasks.CHECK)
    text = said(opened(state.LAUNCH, source="tiny.yaml", rows="true"))
    assert "Model: 1.12 M parameters, 98.3 k trainable; gemma, random weights." in text
    assert "Data: 12,550 examples (12,000 generated), 477 k tokens; 100 evaluation items." in text
    assert '<span class="" title="id 1, context">2 + 2 = &lt;b&gt;</span>' in text
    assert '<span class="tp-on" title="id 2, supervised">4</span>' in text
    assert "Row 7" not in said(opened(state.LAUNCH, source="tiny.yaml")), "folded at first"


def test_a_run_that_the_check_refuses_cannot_be_started(opened: Open, root: Path) -> None:
    finding = {"code": "TP034", "severity": "error", "what": "The rows are empty.", "next": "Name others."}
    refused = {"can_begin": False, "findings": [finding | {"file": "mine.jsonl", "line": 2}]}
    answer(root, shown(opened(state.LAUNCH, source="tiny.yaml")), refused, *tasks.CHECK, exit_code=2)
    app = opened(state.LAUNCH, source="tiny.yaml")
    assert "Error TP034: The rows are empty." in said(app)
    assert "mine.jsonl line 2" in said(app)
    assert not app.get("status"), "it is not planned"
    assert "Start" not in labels(app)


def test_each_value_of_a_setting_is_started_as_a_run(opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, Any]] = []
    monkeypatch.setattr("launch.queue.start", lambda _root, config, **_: started.append(config) or job_in(root))
    app = opened(state.LAUNCH, source="tiny.yaml", over="optimizer.learning_rate", values="0.001, 0.002, 0.001")
    press(app, "Start 2 runs")
    assert [(one["name"], one["optimizer"]["learning_rate"]) for one in started] == [
        ("tiny-learning_rate-0.001", 0.001),
        ("tiny-learning_rate-0.002", 0.002),
    ]


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ("0.001, fast", "Learning rate cannot be fast. Allowed: number."),
        ("0.001, 11", "11"),
        (", ".join(str(0.001 + each / 1e6) for each in range(33)), "These are 33 values. You can start up to 32 runs"),
    ],
)
def test_wrong_values_of_a_setting_start_nothing(opened: Open, root: Path, values: str, line: str) -> None:
    app = opened(state.LAUNCH, source="tiny.yaml", over="optimizer.learning_rate", values=values)
    assert line in said(app)
    assert not [label for label in labels(app) if label.startswith("Start ") and "runs" in label]


def test_the_equivalent_command_does_what_start_does(opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = opened(state.LAUNCH, source="tiny.yaml")
    assert app.code[0].value == f"trainproof queue add --config tiny.yaml --root {root}"
    app = widget(app, "toggle", "Start even if memory may run out").set_value(True).run()
    command_line = app.code[0].value
    assert command_line == f"trainproof queue add --config tiny.yaml --root {root} --force"
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr("launch.queue.start", lambda *given, **flags: calls.append((*given, flags)) or job_in(root))
    Path("tiny.yaml").write_text(app.code[-1].value, "utf-8")
    press(app, "Start")
    monkeypatch.setattr(sys, "argv", shlex.split(command_line))
    with pytest.raises(SystemExit):
        command.main()
    assert len(calls) == 2
    assert calls[0] == calls[1]
