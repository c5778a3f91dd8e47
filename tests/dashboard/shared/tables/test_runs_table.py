"""The list of runs as rows: cells, columns by choice, order, pages, CSV, and what is not done twice."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from effort import calls
from synthetic import write_run

from dashboard.shared.tables import runs_table
from dashboard.shared.tables.query import parse
from dashboard.shared.tables.run_rows import Row, RowCache, describe_changes, row_of
from dashboard.shared.tables.runs_table import column_of
from dashboard.views.runs.logic.look import PAGE_ROWS, in_order, page_of
from evidence.index.index import index_runs
from evidence.index.summary import RunSummary
from evidence.notes import NotesEdit, change_notes


def summary(name: str, **fields: Any) -> RunSummary:
    return RunSummary(path=Path(name), run_id=name, **{"grade": "consistent", "reasons": (), **fields})


def rows_of(*summaries: RunSummary) -> list[Row]:
    return [row_of(one) for one in summaries]


def names(rows: Sequence[Row]) -> list[str]:
    return [row.name for row in rows]


def columns(*keys: str, rows: Sequence[Row] = ()) -> list[runs_table.Column]:
    return [column_of(key, rows) for key in keys]


def test_a_row_for_each_run_with_numbers_as_numbers(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "alpha", steps=30, items=10, correct=1.0)
    change_notes([folder], NotesEdit(add=("baseline",), note="odd"), datetime.now(UTC))
    (row,) = rows_of(*index_runs(tmp_path))
    found = [row.get(key) for key in ("run", "grade", "mode", "steps", "score", "tag", "note", "archived")]
    assert found == ["alpha", "consistent", "full", 30, 1.0, ("baseline",), "odd", "no"]
    assert set(row.cells) == set(runs_table.BY_KEY)
    assert (row.get("optimizer.learning_rate"), row.get("last.step_seconds"), row.get("nothing")) == (0.001, 0.5, None)
    assert all(parse(word, []).matches(row) for word in ("alpha", "BASELINE", "odd", "full"))
    assert not any(parse(word, []).matches(row) for word in ("no", "%"))
    table = runs_table.table([row], columns("run", *runs_table.FIRST_CHOICE))
    [picture] = table["interval"].to_pylist()
    assert picture.startswith("data:image/svg+xml;score=1.000000,")
    assert ">100.0 %</text>" in unquote(picture)
    assert "line-through" not in picture
    assert "100.0 % (72.2–100.0 %),1.0" in runs_table.as_csv([row], columns("interval", "score")).decode()
    assert table["grade"].to_pylist() == [["● consistent"]]


def test_what_is_not_stated_is_empty_and_never_zero(tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    table = runs_table.table(rows_of(*index_runs(tmp_path)), columns(*runs_table.BY_KEY))
    for name in ("steps", "tokens", "loss", "score", "minutes", "started"):
        assert table[name].to_pylist() == [None]
    assert table["status"].to_pylist() == [[]]


def test_grade_and_ending_are_one_mark_and_a_contradictory_score_is_struck_out() -> None:
    made = rows_of(
        summary("a", status="succeeded"),
        summary("b", grade="partial", status="failed"),
        summary("c", grade="contradictory", status="failed", score=0.78, score_low=0.6, score_high=0.9),
        summary("d", grade="partial", status="running"),
    )
    table = runs_table.table(made, columns("grade", "interval"))
    marks = [["● consistent"], ["✕ failed"], ["≠ contradictory"], ["▸ running"]]
    assert table["grade"].to_pylist() == marks
    assert 'text-decoration="line-through"' in unquote(table["interval"].to_pylist()[2])
    assert str(made[2].get("interval")) == "78.0 % (60.0–90.0 %), contradictory"


def test_columns_that_say_the_same_in_every_row_go_and_are_said_once() -> None:
    made = rows_of(summary("a", model="m", mode="full"), summary("b", model="m", mode="smoke"))
    asked = columns("run", "grade", "model", "mode", "device", "loss")
    kept, same = runs_table.telling(made, asked)
    assert ([column.key for column in kept], same) == (["run", "grade", "mode"], ["model m"])
    assert [column.key for column in runs_table.telling(made[:1], asked)[0]] == [column.key for column in asked]


def test_what_was_changed_is_named_against_the_parent_the_run_before_or_the_default() -> None:
    rate, seed = "optimizer.learning_rate", "seed"
    newest_first = [
        summary("e", model="m", parent="a", settings={rate: 0.1, seed: 9}),
        summary("d", model="other", settings={rate: 0.002, "limits.steps": 7, "model.name": "x"}),
        summary("c", model="m", settings={rate: 0.2, seed: 1, "name": "c"}),
        summary("b", model="m", settings={rate: 0.2, seed: 1, "name": "b"}),
        summary("a", model="m", settings={rate: 0.1, seed: 1}),
        summary("torn"),
    ]
    assert describe_changes(newest_first) == [
        "seed 1 → 9",
        "learning_rate 0.002, steps 7",
        "nothing",
        "learning_rate 0.1 → 0.2",
        "learning_rate 0.1, seed 1",
        "",
    ]


@pytest.mark.parametrize("started", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "1677-01-01T00:00:00Z"])
def test_a_time_that_no_calendar_holds_is_left_out(started: str) -> None:
    rows = rows_of(summary("a", started_at=started))
    assert runs_table.table(rows, columns("started", "started_utc"))["started"].to_pylist() == [None]
    assert not parse("started>2000-01-01 started:2000", ["started"]).matches(rows[0])


def test_any_setting_or_figure_is_a_column_of_its_own_kind() -> None:
    rows = rows_of(
        summary(
            "a",
            settings={"limits.steps": 20, "rate": 3e-5, "shuffle": True, "mixed": 1},
            figures={"last.x": 0.5, "last.bytes": 2.0**29},
        ),
        summary("b", settings={"limits.steps": None, "rate": 1, "shuffle": False, "mixed": "x\ny"}),
    )
    kinds = {key: column_of(key, rows).kind for key in ("limits.steps", "rate", "shuffle", "last.x", "last.bytes")}
    assert list(kinds.values()) == ["count", "number", "text", "number", "count"]
    assert column_of("mixed", rows).kind == "text"
    table = runs_table.table(rows, columns("rate", "shuffle", "mixed", rows=rows))
    assert table["rate"].to_pylist() == [3e-5, 1]
    assert table["shuffle"].to_pylist() == ["true", "false"]
    assert table["mixed"].to_pylist() == ["1", "x y"]
    assert column_of("last.x", rows).meaning == "Figure of the run."
    listing = RowCache().listing([row.summary for row in rows])
    assert listing.settings == ("limits.steps", "mixed", "rate", "shuffle")
    assert listing.figures == ("last.bytes", "last.x")


def test_names_that_nobody_could_ask_for_are_no_columns() -> None:
    hostile = {"_index": 1, "a b": 1, "<b>": 1, "": 1, "x" * 101: 1, "fine-1.x/y": 1, "grade": "faked"}
    listing = RowCache().listing([summary("a", settings=hostile, figures={"loss": 99.0, "=1+1": 1.0})])
    assert (listing.settings, listing.figures) == (("fine-1.x/y",), ())
    assert (listing.rows[0].get("grade"), listing.rows[0].get("loss")) == ("consistent", None)


def test_the_csv_of_hostile_runs_has_no_formula(tmp_path: Path) -> None:
    (tmp_path / "=cmd|'x'!A1").mkdir()
    change_notes([tmp_path / "=cmd|'x'!A1"], NotesEdit(add=("+1", "@x"), note="-1+1\n=2"), datetime.now(UTC))
    rows = rows_of(*index_runs(tmp_path))
    text = runs_table.as_csv(rows, columns("run", "grade", "curve", "tag", "note")).decode()
    cells = list(csv.reader(io.StringIO(text)))
    assert cells == [["run", "grade", "tag", "note"], ["'=cmd|'x'!A1", "not a run", "'+1 @x", "'-1+1\n=2"]]


def test_a_name_that_is_no_text_is_in_table_and_csv(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"=a\xff")
    folder.mkdir()
    rows = rows_of(*index_runs(tmp_path))
    assert runs_table.table(rows, columns("run"))["run"].to_pylist() == ["=a"]
    assert runs_table.as_csv(rows, columns("run")) == b"run\n'=a\\udcff\n"


def test_names_that_turn_text_round_are_shown_without_it(tmp_path: Path) -> None:
    (tmp_path / "a\u202eb").mkdir()
    (row,) = rows_of(*index_runs(tmp_path))
    assert runs_table.table([row], columns("run"))["run"].to_pylist() == ["ab"]
    assert row.shown_name == "ab"


def test_order_by_any_column_with_missing_values_last() -> None:
    rows = rows_of(
        summary("b", last_loss=2.0, grade="partial", settings={"x": "B"}),
        summary("none", grade="contradictory"),
        summary("a", last_loss=1.0, settings={"x": "a"}),
        summary("A", last_loss=1.0, grade="measured", settings={"x": 3}),
    )
    assert names(in_order(rows, None)) == ["b", "none", "a", "A"]
    assert names(in_order(rows, "loss")) == ["a", "A", "b", "none"]
    assert names(in_order(rows, "loss", descending=True)) == ["b", "a", "A", "none"]
    assert names(in_order(rows, "grade")) == ["a", "A", "b", "none"]
    assert names(in_order(rows, "x")) == ["A", "a", "b", "none"]
    assert names(in_order(rows, "run")) == ["a", "A", "b", "none"]
    assert names(in_order(rows, "no-such-column")) == names(rows)


def test_pages_say_which_rows_they_are() -> None:
    rows = rows_of(*(summary(f"run-{number}") for number in range(4201)))
    part = page_of(rows, 2)
    assert (part.page, part.pages, part.said(len(rows))) == (2, 3, "2,001–4,000 of 4,201")
    assert names(page_of(rows, 99).rows)[-1] == "run-4200"
    assert page_of(rows, -3).page == 1
    assert page_of([], 1).rows == ()


def test_a_row_is_made_again_only_for_a_run_that_changed() -> None:
    cache = RowCache()
    one, two = summary("one", settings={"x": 1}), summary("two")
    before = cache.listing([one, two])
    assert cache.listing([replace(one), two]) is before
    after = cache.listing([replace(one, last_loss=1.0), two])
    assert after.rows[1] is before.rows[1]
    assert after.rows[0].get("loss") == 1.0
    some = [two]
    assert names(cache.listing(some).rows) == ["two"]
    assert names(cache.listing([one]).rows) == ["one"]
    assert names(cache.listing(some).rows) == ["two"]


def test_ten_thousand_runs_are_searched_sorted_and_drawn_with_a_few_calls_for_each() -> None:
    started = datetime(2026, 1, 1, tzinfo=UTC)
    settings = {f"group.setting_{number}": number for number in range(40)}
    summaries = [
        summary(
            f"run-{number:05d}",
            model=f"model-{number % 7}",
            last_loss=float(number % 1000),
            loss_points=tuple(map(float, range(40))),
            started_at=(started + timedelta(minutes=number)).isoformat(),
            settings={**settings, "optimizer.learning_rate": 1e-4 * (number % 3)},
        )
        for number in range(10_000)
    ]
    cache = RowCache()
    cache.listing(summaries)
    assert calls(lambda: cache.listing(summaries)) < 10  # The same sequence is not gone through again.

    def click() -> None:
        listing = cache.listing(summaries)
        words = "run-0 model:model-3,model-4,model-5 loss<900 optimizer.learning_rate>0"
        asked = parse(words, ["model", "loss"], listing.settings)
        kept = in_order([row for row in listing.rows if asked.matches(row)], "loss", descending=True)
        part = page_of(kept, 1)
        runs_table.table(part.rows, columns("run", *runs_table.FIRST_CHOICE, "group.setting_3", rows=part.rows))
        assert len(part.rows) == PAGE_ROWS

    # 31 for each, which took 0.05 s in all where this was written; anything that looks at 40 settings needs more.
    assert calls(click) < 40 * len(summaries)
