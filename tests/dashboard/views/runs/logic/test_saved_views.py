"""Saved views: kept, replaced, renamed, deleted; and a hostile or damaged file is named and left as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dashboard.views.runs.logic.saved_views import MOST_VIEWS, SavedView, delete, path_of, rename, save, saved_views
from schemas.problems import ProblemError

ADDRESS = {"q": ("grade:consistent loss<1.2",), "columns": ("loss", "optimizer.learning_rate"), "archived": ("true",)}


def names(root: Path) -> list[str]:
    return [view.name for view in saved_views(root)]


def test_views_are_kept_replaced_renamed_and_deleted(tmp_path: Path) -> None:
    assert saved_views(tmp_path) == []
    save(tmp_path, "  best   of gemma ", ADDRESS)
    save(tmp_path, "All", {})
    assert saved_views(tmp_path) == [
        SavedView(name="All", address={}),
        SavedView(name="best of gemma", address=ADDRESS),
    ]
    save(tmp_path, "All", {"sort": ("loss",)})
    assert saved_views(tmp_path)[0].address == {"sort": ("loss",)}
    rename(tmp_path, "All", "by loss")
    rename(tmp_path, "never there", "by loss")
    assert names(tmp_path) == ["best of gemma", "by loss"]
    delete(tmp_path, "best of gemma")
    assert names(tmp_path) == ["by loss"]
    assert [path.name for path in path_of(tmp_path).parent.iterdir()] == ["views.json"]


def test_the_link_of_a_view_is_an_address() -> None:
    assert SavedView(name="", address={}).link == ""
    link = SavedView(name="", address=ADDRESS).link
    assert link == "?q=grade%3Aconsistent+loss%3C1.2&columns=loss&columns=optimizer.learning_rate&archived=true"


@pytest.mark.parametrize("name", ["", "   ", "x" * 81])
def test_a_view_needs_a_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ProblemError) as refused:
        save(tmp_path, name, ADDRESS)
    (problem,) = refused.value.problems
    assert problem.what == "A view needs a name of 1 to 80 characters."
    assert problem.next == "Write one into Name, and press the button again."
    assert not path_of(tmp_path).exists()


GOOD = {"name": "a", "address": {}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "The saved views cannot be read."),
        ("", "The saved views cannot be read."),
        ("[]", "The file holds no list of views."),
        ('{"schema_version": "1.0", "views": {}}', "The file holds no list of views."),
        ('{"schema_version": "9.0", "views": []}', "The saved views are not of version 1.0."),
        (json.dumps([GOOD]), "The file holds no list of views."),
        ({"address": {}}, "A view has no name, or one that is too long."),
        ({"name": 7, "address": {}}, "A view has no name, or one that is too long."),
        ({"name": "x" * 81, "address": {}}, "A view has no name, or one that is too long."),
        ({"name": "a", "address": []}, "A view has an invalid address."),
        ({"name": "a", "address": {"q": "text"}}, "A view has an invalid address."),
        ({"name": "a", "address": {"q": [None]}}, "A view has an invalid address."),
        ({"name": "a", "address": {"q": ["x" * 5000]}}, "A view has an invalid address."),
    ],
)
def test_a_damaged_file_is_named_and_never_written_over(tmp_path: Path, text: str | dict, said: str) -> None:
    if isinstance(text, dict):
        text = json.dumps({"schema_version": "1.0", "views": [GOOD, text]})
    path = path_of(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    for attempt in (lambda: saved_views(tmp_path), lambda: save(tmp_path, "b", {}), lambda: delete(tmp_path, "a")):
        with pytest.raises(ProblemError) as refused:
            attempt()
        assert said in [problem.what for problem in refused.value.problems]
        assert all(problem.file == str(path) and problem.next for problem in refused.value.problems)
    assert path.read_text() == text


def test_of_a_strangers_address_only_known_parameters_are_taken(tmp_path: Path) -> None:
    path = path_of(tmp_path)
    path.parent.mkdir(parents=True)
    view = {"name": "a", "address": {"q": ["x"], "embed": ["true"], "page": ["7"], "__proto__": ["y"]}}
    path.write_text(json.dumps({"schema_version": "1.0", "views": [view]}))
    assert saved_views(tmp_path)[0].address == {"q": ("x",)}


def test_there_is_an_end_to_views(tmp_path: Path) -> None:
    path = path_of(tmp_path)
    path.parent.mkdir(parents=True)
    views = [{"name": f"view {number}", "address": {}} for number in range(MOST_VIEWS)]
    path.write_text(json.dumps({"schema_version": "1.0", "views": views}))
    with pytest.raises(ProblemError) as refused:
        save(tmp_path, "one more", {})
    (problem,) = refused.value.problems
    assert problem.what == "There are 200 saved views; that is the most."
    assert problem.next == "Delete one that is no longer used, and save again."
    assert len(saved_views(tmp_path)) == MOST_VIEWS


@pytest.mark.parametrize("values", [("x" * 4001,), ("x",) * 201])
def test_what_no_view_keeps_is_refused_before_it_is_saved(tmp_path: Path, values: tuple[str, ...]) -> None:
    save(tmp_path, "a", {"q": ("x" * 4000,) * 200})
    with pytest.raises(ProblemError) as refused:
        save(tmp_path, "b", {"q": values})
    (problem,) = refused.value.problems
    assert problem.what == "Of q a view keeps 200 values of 4,000 characters at most; this has more."
    assert problem.next == "Shorten q and save again."
    assert names(tmp_path) == ["a"]


def test_a_place_that_cannot_be_read_or_written_is_named(tmp_path: Path) -> None:
    path_of(tmp_path).parent.write_text("")
    with pytest.raises(ProblemError) as refused:
        save(tmp_path, "a", {})
    (problem,) = refused.value.problems
    assert problem.what == "The saved views cannot be read: Not a directory."
    assert problem.next == "See that this file can be read; it is left as it is."
    path_of(tmp_path).parent.unlink()
    (tmp_path / ".views").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ProblemError) as refused:
        save(tmp_path, "a", {})
    (problem,) = refused.value.problems
    assert problem.what == "The view could not be saved: File exists."
    assert problem.next == "Fix that and save again."
