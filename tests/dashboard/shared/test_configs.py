"""The configuration to which a smoke run leads."""

from __future__ import annotations

from dashboard.shared import configs, form

FULL = ["mode=full", "model.shape=own", "limits.steps=100"]


def test_a_smoke_run_leads_to_its_shipped_configuration_or_to_itself_with_more_steps() -> None:
    demo = configs.read(configs.sources()[0])
    smoke = form.fill_defaults(configs.make_smoke_config(demo))
    assert configs.full_run_parameters(smoke, "a") == {"source": "demo.yaml"}
    smoke["optimizer"]["learning_rate"] *= 2
    assert configs.full_run_parameters(smoke, "a") == {"source": "same as a", "set": ["name=demo", *FULL]}


def test_a_model_that_was_made_small_gets_the_sizes_that_were_queued() -> None:
    queued = form.fill_defaults(configs.make_smoke_config(configs.read(configs.sources()[0])))
    queued["optimizer"]["learning_rate"] *= 2
    small = {
        **queued,
        "model": {**queued["model"], "shape": "small"},
        "batch": {**queued["batch"], "microbatch_size": 4},
    }
    found = configs.full_run_parameters(small, "a", queued=queued)
    assert found["set"] == ["name=demo", *FULL, f"batch.microbatch_size={queued['batch']['microbatch_size']}"]
