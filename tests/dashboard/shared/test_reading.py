"""Pages show what is on disk, or say that they do not yet."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pages import Open
from synthetic import write_run

from dashboard.shared.shared_index import SharedIndex, Snapshot
from dashboard.shared.state import RUNS
from evidence.index.index import index_runs


def test_a_list_shows_new_changed_and_deleted_runs(opened: Open, root: Path) -> None:
    write_run(root, "alpha")
    app = opened(RUNS)
    assert app.dataframe[-1].value["run"].tolist() == ["alpha"]
    write_run(root, "beta", seed=1)
    assert sorted(app.run().dataframe[-1].value["run"]) == ["alpha", "beta"]
    (root / "beta" / "run_manifest.json").write_text("{")
    table = app.run().dataframe[-1].value.set_index("run")
    assert table.loc["beta", "grade"] == ["◔ partial"]
    shutil.rmtree(root / "beta")
    assert app.run().dataframe[-1].value["run"].tolist() == ["alpha"]


def test_while_runs_are_read_for_the_first_time_the_page_says_so(
    opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        write_run(root, f"run-{number}", seed=number)
    whole = index_runs(root)

    def load(self: SharedIndex, patience: float, **_: object) -> Snapshot:
        self.progress = (3, 2000)
        return Snapshot(0, whole[:1])

    monkeypatch.setattr(SharedIndex, "load", load)
    app = opened(RUNS)
    (bar,) = app.get("progress")
    assert bar.proto.text == "Reading runs: 3 of 2,000. Showing the runs loaded so far."
    assert app.dataframe[-1].value["run"].tolist() == [whole[0].path.name]
