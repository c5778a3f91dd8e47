"""What leads from a smoke run to the full run of its configuration."""

from __future__ import annotations

from pathlib import Path

from dashboard.shared.config import configs, form
from dashboard.shared.config.assignments import full_of
from schemas.reading import write_yaml


def test_the_smoke_run_of_a_shipped_configuration_leads_to_that_and_another_to_its_own_with_more_steps() -> None:
    demo = configs.read(next(source for source in configs.sources() if source.key == "demo.yaml"))
    smoke = form.with_defaults(configs.smoke_of(demo))
    assert full_of(smoke, "a") == {"source": "demo.yaml"}
    smoke["optimizer"]["learning_rate"] *= 2
    asked = ["name=demo", "mode=full", "model.shape=own", "limits.steps=100"]
    assert full_of(smoke, "a") == {"source": "same as a", "set": asked}
    smoke["limits"]["steps"] = 500
    assert full_of(smoke, "a")["set"][3] == "limits.steps=500"
    quick = full_of(form.with_defaults(configs.quick_smoke()), "b")
    assert quick == {"source": "same as b", "set": ["name=full", "mode=full", "model.shape=own", "limits.steps=100"]}


def test_a_smoke_run_made_small_leads_to_what_it_was_made_from(tmp_path: Path) -> None:
    demo = form.with_defaults(configs.read(next(source for source in configs.sources() if source.key == "demo.yaml")))
    asked = configs.smoke_of(demo)
    small = {
        **asked,
        "model": {**asked["model"], "shape": "small"},
        "data": {**asked["data"], "generated_rows": 1000},
        "batch": {**asked["batch"], "microbatch_size": 4},
    }
    assert full_of(small, "a") == {"source": "demo.yaml"}
    for one in (demo, asked, small):
        one["optimizer"] = {**one["optimizer"], "learning_rate": 0.5}
    whole = ["data.generated_rows=12000", "batch.microbatch_size=8"]
    assert full_of(small, "a", asked=asked)["set"] == [
        "name=demo",
        "mode=full",
        "model.shape=own",
        "limits.steps=100",
        *whole,
    ]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "config.yaml").write_text(write_yaml(demo), "utf-8")
    assert full_of(small, "a", rehearsed=[tmp_path / "full"], asked=asked) == {"source": "same as full"}
    small["model"]["shape"] = "own"
    assert full_of(small, "a", rehearsed=[tmp_path / "full"])["source"] == "same as a", "its batch is its own"


def test_of_a_configuration_that_is_not_one_it_leads_to_a_form_all_the_same() -> None:
    assert full_of({"limits": [], "name": 3}, "c")["set"] == [
        "name=3",
        "mode=full",
        "model.shape=own",
        "limits.steps=100",
    ]
