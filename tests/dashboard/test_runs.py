"""The Runs page without a browser: search, columns, order, groups, pages, notes, hostile text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pages import Open, press, said
from streamlit.testing.v1 import AppTest
from synthetic import STARTED, write_run

from dashboard.shared.state import RUNS
from dashboard.shared.tables import runs as table
from dashboard.shared.tables.runs import parse_search
from evidence.index.index import index_runs
from evidence.index.summary import RunSummary
from evidence.notes import NotesEdit, change_notes, read_notes

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
HOSTILE = "<img src=x onerror=alert(1)> **b** :red[c] [d](javascript:e) =1+1"


@pytest.fixture
def three(root: Path) -> Path:
    for number, name in enumerate(("alpha", "beta", "gamma")):
        config = {"model": {"name": "small" if number else "big"}}
        started = STARTED - timedelta(days=number)
        write_run(root, name, steps=10 * (number + 1), items=8, seed=number, started=started, config=config)
    return root


def listed(app: AppTest) -> list[str]:
    return app.dataframe[-1].value["run"].tolist()


def chosen(app: AppTest, names: Sequence[str]) -> AppTest:
    """Tick rows, as a click on their boxes does."""
    app.session_state["selected runs"] = list(names)
    # The grid takes a choice from outside only when it is new.
    app.session_state["rows and number of the grid"] = ([], 1)
    return app.run()


def test_columns_and_order_stand_in_the_address(opened: Open, three: Path) -> None:
    app = opened(RUNS, columns=["Steps", "optimizer.learning_rate", "last.grad_norm", "no.such"], sort="Steps")
    table = app.dataframe[0].value
    assert table.columns.tolist() == ["run", "steps", "optimizer.learning_rate", "last.grad_norm"]
    assert table["run"].tolist() == ["alpha", "beta", "gamma"]
    assert table["optimizer.learning_rate"].tolist() == [0.001] * 3
    assert listed(opened(RUNS, sort="Steps", order="descending")) == ["gamma", "beta", "alpha"]
    assert listed(opened(RUNS, sort="no.such")) == ["alpha", "beta", "gamma"]
    assert listed(opened(RUNS, q="last.step>15 optimizer.learning_rate<0.01 -run:beta")) == ["gamma"]


def test_a_long_list_has_pages(opened: Open, three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "PAGE_ROWS", 2)
    note = "1–2 of 3. Search and Sort by use all runs, a click on a column title only this page."
    assert note in said(opened(RUNS))
    app = opened(RUNS, page="2", sort="Steps", order="descending")
    assert listed(app) == ["alpha"]
    assert "3–3 of 3" in said(app)
    assert listed(opened(RUNS, page="9")) == ["alpha", "beta"]
    # A tick on another page stays, and the buttons know it.
    app = chosen(opened(RUNS, page="2"), ["alpha", "gamma"])
    assert "2 selected; 3 of 3 runs." in said(app)


def test_archived_runs_are_hidden_counted_and_come_back(opened: Open, three: Path) -> None:
    press(chosen(opened(RUNS), ["beta"]), "Archive")
    assert read_notes(three / "beta").archived_at is not None
    app = opened(RUNS)
    assert listed(app) == ["alpha", "gamma"]
    assert "3 runs in" in said(app)
    assert "1 archived run not listed" in said(app)
    assert "Archived runs are not searched" in said(opened(RUNS, q="beta"))
    app = opened(RUNS, archived="true", q="archived:yes")
    assert listed(app) == ["beta"]
    assert "not listed" not in said(app)
    press(chosen(app, ["beta"]), "Restore")
    assert read_notes(three / "beta").archived_at is None
    assert (three / "beta" / "run_manifest.json").exists()


def test_tags_and_notes_are_columns_and_fields_and_never_more_than_text(opened: Open, three: Path) -> None:
    change_notes([three / "alpha", three / "beta"], NotesEdit(add=("baseline", "good"), note=HOSTILE), NOW)
    app = opened(RUNS, q="note:onerror", tag="baseline", columns=["Tags", "Note", "Grade"])
    table = app.dataframe[0].value
    assert table["note"].tolist() == [HOSTILE, HOSTILE]
    assert [list(cell) for cell in table["tag"]] == [["baseline", "good"]] * 2
    assert [list(cell) for cell in table["grade"]] == [["● consistent"]] * 2
    assert "<img" not in said(app)


def alpha_and_beta() -> None:
    """Draw the dialog of two runs: AppTest draws a part of a page only with the whole page, which would close it."""
    from dashboard.shared import reading
    from dashboard.shared.parts import run_box

    known = reading.by_name(reading.summaries())
    run_box.edit([known["alpha"], known["beta"]])


@pytest.mark.usefixtures("opened")
def test_tags_and_notes_of_several_runs_are_changed_at_once(three: Path) -> None:
    change_notes([three / "alpha", three / "beta"], NotesEdit(add=("old", "kept"), note="of both"), NOW)
    change_notes([three / "beta"], NotesEdit(note="of beta"), NOW)
    app = AppTest.from_function(alpha_and_beta).run()
    assert "Tags in common: old, kept." in said(app)
    app.text_input[0].set_value("new")
    app.multiselect[0].set_value(["old"])
    press(app, "Save")
    notes = [read_notes(three / name) for name in ("alpha", "beta")]
    assert [(one.tags, one.note) for one in notes] == [(("kept", "new"), "of both"), (("kept", "new"), "of beta")]
    app.toggle[0].set_value(True).run()
    app.text_area[0].set_value("of all")
    press(app, "Save")
    assert [read_notes(three / name).note for name in ("alpha", "beta")] == ["of all", "of all"]


def test_damaged_notes_are_listed_as_a_problem_and_left_alone(opened: Open, three: Path) -> None:
    (three / "alpha" / "notes.json").write_text("{")
    app = opened(RUNS)
    assert app.dataframe[0].value["problems"].tolist()[0] > 0
    app = press(chosen(app, ["alpha"]), "Archive")
    assert "notes.json is not valid." in said(app)
    assert (three / "alpha" / "notes.json").read_text() == "{"


def test_a_tick_counts_from_the_moment_it_is_made() -> None:
    """A tick and the button beside it may arrive together, before the table is drawn again."""

    def script() -> None:
        import streamlit as st

        from dashboard.views import runs as grid

        st.session_state["selected runs"] = ["elsewhere", "beta"]
        st.session_state["rows and number of the grid"] = (["alpha", "beta", "gamma"], 3)
        st.session_state["runs_table 3"] = {"selection": {"rows": [0, 2, 7]}}
        st.text(" ".join(grid.selected_runs()))
        grid.clear_selection()
        st.text(" ".join(grid.selected_runs()))

    app = AppTest.from_function(script, default_timeout=60).run()
    assert [text.value for text in app.text] == ["elsewhere alpha gamma", ""]


def test_groups_keep_evaluation_sets_and_objectives_apart(opened: Open, three: Path) -> None:
    write_run(three, "delta", seed=7, config={"model": {"name": "small"}, "objective": {"kind": "dpo"}})
    app = opened(RUNS, group="Model")
    groups = app.dataframe[0].value
    assert groups[["Group", "Objective", "Runs"]].to_numpy().tolist() == [
        ["small", "dpo", 1],
        ["small", "supervised", 2],
        ["big", "supervised", 1],
    ]
    assert groups["± loss"].notna().tolist() == [False, True, False]
    assert (groups["Lowest last loss"] <= groups["Mean last loss"]).all()
    assert sorted(listed(app)) == ["alpha", "beta", "delta", "gamma"]
    assert listed(app)[-1] == "alpha"


@pytest.mark.parametrize("key", [*table.FIELDS, "a", "b", "no.such"])
def test_no_value_of_a_run_breaks_sorting_grouping_display_or_csv(key: str) -> None:
    hostile: list[dict[str, Any]] = [
        {"started_at": "9999-12-31T23:59:59+00:00", "steps_done": 10**30, "settings": {"a": 10**30, "b": "x"}},
        {"started_at": "0001-01-01T00:00:00+00:00", "last_loss": float("inf"), "settings": {"a": 1.5, "b": True}},
        {"loss_points": (1.0, float("nan")), "tags": ("=1", "\ud800"), "settings": {"a": float("nan"), "b": None}},
        {"model": "\ud800M", "note": "=1\ud800", "settings": {"evaluation.eval_set": 3}},
    ]
    names = [f"{number}\udcff" for number in range(len(hostile))]
    common: dict[str, Any] = {"grade": "measured", "reasons": ()}
    given = zip(names, hostile, strict=True)
    runs = table.RunTable([RunSummary(path=Path(name), run_id=name, **common, **values) for name, values in given])
    assert sorted(runs.sort(names, key)) == sorted(runs.sort(names, key, descending=True)) == names
    groups, ordered = table.group_runs(runs, names, key)
    assert sorted(ordered) == names
    for frame in (runs.display(names, ["run", key]), groups):
        assert pa.Table.from_pandas(frame).num_rows == len(frame)
    assert all(not line.startswith("=") for line in runs.csv(names, [key]).splitlines())


def test_changes_are_told_with_defaults_filled_in(three: Path) -> None:
    older, newer = (index_runs(three)[0] for _ in range(2))
    older = replace(older, path=Path("older"), run_id="older", settings={"optimizer.learning_rate": 0.001})
    newer = replace(newer, settings={"optimizer.learning_rate": 0.002, "data.packing": False, "seed": 0})
    assert table.describe_changes([newer, older])[0] == ("learning_rate 0.001 → 0.002", "older")
    many = {"optimizer.name": "adafactor", "method.kind": "lora", "limits.steps": 9, "batch.microbatch_size": 2}
    text, reference = table.describe_changes([replace(older, settings=many)])[0]
    assert (text, reference) == ("optimizer adafactor, method lora +2 more", "defaults")
    assert len(text) <= table.MAX_CHANGED


def test_the_list_names_documents_that_are_not_valid_and_short_durations(opened: Open, three: Path) -> None:
    (three / "beta" / "eval_summary.json").unlink()
    (three / "gamma" / "metrics.jsonl").write_text("{}\n")
    shown = opened(RUNS).dataframe[0].value.set_index("run")
    assert shown["evidence"].map(list).to_dict() == {
        "alpha": ["✓ all valid"],
        "beta": ["✕ run manifest invalid", "– eval summary missing"],
        "gamma": ["✕ logs invalid"],
    }
    assert shown["minutes"]["alpha"] >= pd.Timedelta(seconds=1)


CELLS = {
    "run": "demo-1",
    "grade": "consistent",
    "mode": "full",
    "model": "google/gemma 2b",
    "loss": 1.15,
    "steps": 200,
    "score": 0.625,
    "status": None,
    "tag": ("baseline", "seed-3"),
    "note": "Look at the log, it's odd",
    "started": datetime(2026, 11, 20, 12, 0, tzinfo=UTC),
    "optimizer.learning_rate": 0.0003,
    "data.shuffle": True,
}
FIELDS = tuple(key for key in CELLS if "." not in key)
OTHERS = ("optimizer.learning_rate", "data.shuffle", "model.revision")


def finds(text: str) -> bool:
    words = " ".join(value for value in CELLS.values() if isinstance(value, str)).lower()
    found = parse_search(text, FIELDS, OTHERS).matches(
        pd.Series([words]), lambda key: pd.Series([CELLS.get(key)], dtype=object)
    )
    return bool(found.item())


WORDS = ["", "GEMMA demo", '"google/gemma 2b"', 'model="google/gemma 2b"', "model:gemma loss<1.2 mode:full"]
VALUES = ["grade:measured,consistent", "-grade:partial", "tag:baseline", 'status=""', "data.shuffle:true"]
NUMBERS = ["score>60%", "score>=62.5%", "steps:200", "optimizer.learning_rate:3e-4"]
TIMES = ["started>2026-11-20", "started<2026-11-20T12:00:01+00:00", "started:2026-11-20"]
NO_WORDS = ['"loss<1"', "model=gemma", "tag=seed", "model.revision:main"]
NO_NUMBERS = ["score>62.5%", "status<3", 'optimizer.learning_rate>"0.001"', "loss>2026-11-20", "started>2026-11-21"]


@pytest.mark.parametrize("text", [*WORDS, *VALUES, *NUMBERS, *TIMES, *NO_WORDS, *NO_NUMBERS])
def test_what_a_search_finds(text: str) -> None:
    assert parse_search(text, FIELDS, OTHERS).complaints == []
    assert finds(text) is (text not in NO_WORDS + NO_NUMBERS)


def test_invalid_parts_are_named_and_the_rest_still_counts() -> None:
    text = "colour:red loss<low optimizer.learnig_rate<1 gemma"
    assert parse_search(text, FIELDS, OTHERS).complaints == [
        f"Unknown field colour; the fields are {', '.join(sorted(FIELDS))}, settings and figures.",
        "loss< needs a number or a date, not low.",
        "Unknown field optimizer.learnig_rate; did you mean optimizer.learning_rate?",
    ]
    assert finds(text)


@given(st.text(st.sampled_from('"-:<>=()@._,%a1 \x00'), max_size=40))
@example("(" * 500)
@example("@df.to_csv('x')")
@example("__import__('os')")
def test_nothing_that_is_typed_breaks_it_or_is_evaluated(text: str) -> None:
    finds(text)
