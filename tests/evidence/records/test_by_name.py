"""Every setting and figure by name."""

from pathlib import Path

from synthetic import write_run

from evidence.effective import flatten, scalar_settings
from evidence.index.summary import collect_figures
from evidence.index.workers import read_entry
from evidence.run import read_run


def test_flatten():
    assert flatten({"a": {"b": 3, "c": {"d": [1, {"e": 2}]}}, "f": {}}) == {"a.b": 3, "a.c.d": [1, {"e": 2}], "f": {}}


def test_settings_are_the_single_values_of_the_configuration(tmp_path: Path):
    facts = read_run(write_run(tmp_path, "one"))
    settings = scalar_settings(facts)
    assert settings["optimizer.learning_rate"] == facts.config["optimizer"]["learning_rate"]
    assert "model.name" in settings
    assert not [name for name, value in settings.items() if isinstance(value, list | dict)]


def test_figures_are_named_after_where_they_stand(tmp_path: Path):
    facts = read_run(write_run(tmp_path, "one"))
    figures = collect_figures(facts)
    assert figures["last.loss"] == facts.metrics[-1]["loss"]
    assert figures["result.mean_loss"] == facts.manifest["result"]["mean_loss"]
    assert figures["score.exact_match"] == facts.eval_summary["metrics"]["exact_match"]["value"]
    assert figures["baseline.exact_match"] == 0.0
    assert "last.device_memory_bytes" not in figures, "null is no figure"


def test_a_score_that_cannot_be_traced_is_no_figure(tmp_path: Path):
    folder = write_run(tmp_path, "one", eval_summary={"metrics": {"exact_match": {"value": 0.99}}})
    summary = read_entry(folder).summary
    assert summary.score is None
    assert not [name for name in summary.figures if name.startswith(("score.", "baseline."))]
    assert "last.loss" in summary.figures
