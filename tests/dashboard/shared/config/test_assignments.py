"""What leads from a smoke run to the full run of its configuration."""

from __future__ import annotations

from dashboard.shared.config import configs, form
from dashboard.shared.config.assignments import full_of


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


def test_of_a_configuration_that_is_not_one_it_leads_to_a_form_all_the_same() -> None:
    assert full_of({"limits": [], "name": 3}, "c")["set"] == [
        "name=3",
        "mode=full",
        "model.shape=own",
        "limits.steps=100",
    ]
