"""A smoke run and its full run: questions, stages, figures, predictions, and which runs belong together."""

import json
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from comparing import compared, runs_of
from mutations import apply
from synthetic import STARTED, write_rows, write_run

from evidence.compare.scores import Comparison, compare_runs
from evidence.compare.smoke import (
    STAGES,
    SmokeCheck,
    SmokeFigure,
    check_smoke_run,
    find_counterparts,
    find_full_runs,
    find_lineage,
    find_smoke_runs,
    newest_smoke_pair,
)
from evidence.index.index import index_folder
from evidence.index.summary import RunSummary
from evidence.layout import LOG, METRICS
from evidence.proof.verification import grade_run
from evidence.report import build_record, headlines
from evidence.run import read_run


def smoke_check(comparison: Comparison) -> SmokeCheck:
    assert comparison.smoke is not None
    return comparison.smoke


def test_smoke_against_full(tmp_path: Path):
    smoke, full = runs_of(
        tmp_path,
        {"mode": "smoke", "steps": 2},
        {
            "seed": 0,
            "manifest": {
                "devices": {"platform": "tpu", "kind": "TPU v5e", "count": 8},
                "dataset": {"sha256": "0" * 64},
            },
        },
    )
    check = smoke_check(compared(full, smoke))
    assert (check.smoke, check.full) == ("a", "b")
    assert len(check.answers) == 11
    assert [answer.question for answer in check.answers if not answer.same] == [
        "same training data", "same kind of device", "same number of devices", "same sizes, steps and log interval",
    ]  # fmt: skip
    assert all((answer.smoke == answer.full) is answer.same for answer in check.answers)
    assert check.proved[0] == "The pipeline runs to the end and seals its evidence: 2 of 2 steps on 1 × cpu."
    assert check.not_proved == (
        "That the model learns: 2 steps say nothing about 20.",
        (
            "That the full run compiles and fits in memory: its program differs (devices.platform tpu, not cpu; "
            "devices.kind TPU v5e, not cpu; devices.count 8, not 1)."
        ),
        "That the data of the full run can be read: it differs, or is unknown.",
    )


def test_a_smoke_run_with_other_settings_is_another_pipeline(tmp_path: Path):
    smoke, full = runs_of(
        tmp_path,
        {"seed": 1, "mode": "smoke", "steps": 2, "items": 0, "config": {"optimizer": {"learning_rate": 0.01}}},
        {"seed": 1, "items": 8},
    )
    check = smoke_check(compared(smoke, full))
    answer = check.answers[-1]
    assert (answer.same, answer.smoke, answer.full) == (
        False,
        ("optimizer.learning_rate = 0.01",),
        ("optimizer.learning_rate = 0.001",),
    )
    assert check.not_proved[-2:] == (
        "That the settings of the full run work together: they differ in more than size, or are unknown.",
        "That the evaluation works: the smoke run was not evaluated.",
    )


def test_code_that_is_not_known_is_not_the_same(tmp_path: Path):
    unknown = {"manifest": {"code": {"commit": None, "branch": None, "dirty": None}}}
    smoke, full = runs_of(tmp_path, {"mode": "smoke", "steps": 2} | unknown, unknown)
    check = smoke_check(compared(smoke, full))
    assert [answer.same for answer in check.answers if answer.question == "same code"] == [None]
    assert "That the code of the full run works: it differs, or is unknown." in check.not_proved


def test_a_smoke_run_that_failed_before_it_had_a_model_is_compared_all_the_same(tmp_path: Path):
    smoke, full = runs_of(tmp_path, {"mode": "smoke", "status": "failed", "steps": 4, "items": 0}, {})
    apply(smoke, {"file": "run_manifest.json", "pointer": "/model", "value": None})
    apply(smoke, {"file": "run_manifest.json", "pointer": "/training", "value": None})
    check = smoke_check(compare_runs([read_run(smoke), read_run(full)]))
    assert check.proved == ("Nothing: the smoke run did not succeed (status failed).",)
    assert check.not_proved[0] == "That the model learns: 0 steps say nothing about 20."
    assert check.answers[0].same is None


@pytest.mark.parametrize("forged", ["smoke", "full"])
def test_nothing_is_proved_by_or_about_a_run_that_contradicts_itself(forged: str, tmp_path: Path):
    runs = dict(zip(("smoke", "full"), runs_of(tmp_path, {"mode": "smoke", "steps": 2}, {}), strict=True))
    apply(runs[forged], {"file": "run_manifest.json", "pointer": "/result/best_loss", "value": 0.5})
    check = smoke_check(compare_runs([read_run(run) for run in runs.values()]))
    if forged == "smoke":
        assert check.proved == ("Nothing: the smoke run contradicts itself; run `trainproof check` for details.",)
    else:
        assert check.not_proved[0] == (
            "Anything about the full run: it contradicts itself; run `trainproof check` for details."
        )


def told(smoke: Path, full: Path) -> SmokeCheck:
    ours, theirs = read_run(smoke), read_run(full)
    return check_smoke_run(ours, grade_run(ours), theirs, grade_run(theirs))


def pair(root: Path, **smoke: Any) -> SmokeCheck:
    return told(write_run(root, "s", mode="smoke", **({"steps": 2} | smoke)), write_run(root, "f", steps=200))


def figures(found: SmokeCheck) -> dict[str, SmokeFigure]:
    return {figure.name: figure for figure in found.figures}


def test_a_sound_smoke_run_passes_all_but_what_it_did_not_do(tmp_path: Path) -> None:
    found = pair(tmp_path)
    assert [stage.name for stage in found.smoke_stages] == [*STAGES[:3], "2 steps", *STAGES[4:]]
    skipped = [stage.name for stage in found.smoke_stages if stage.state == "not exercised"]
    assert (skipped, len(found.smoke_stages)) == (["save", "resume"], 8)
    assert found.smoke_stages[1].seconds == 4.0
    assert found.summary == "s passed 6 of the 8 stages of f; save and resume were not tested; first loss differs."


def test_seconds_are_read_from_the_log(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "s", mode="smoke", steps=2)
    times = {"run_started": 0, "planned": 3, "checkpoint_saved": 5, "trained": 6, "evaluated": 8, "run_sealed": 9}
    records = [
        {
            "time": f"2026-11-20T12:00:0{second}.000+00:00",
            "level": "info",
            "event": event,
            "message": event,
            "fields": {"seconds": 0.25},
        }
        for event, second in times.items()
    ]
    write_rows(folder / LOG, records)
    stages = {stage.name: stage for stage in told(folder, write_run(tmp_path, "f", steps=200, seed=1)).smoke_stages}
    assert [stages[name].seconds for name in ("load", "save", "evaluate", "seal")] == [3.0, 0.25, 2.0, 1.0]
    assert stages["save"].state == "passed"


def test_a_run_has_one_speed() -> None:
    """The median after the first row, wherever it is shown."""
    full, smoke = (Path("submission_runs") / name for name in ("demo-full", "demo-smoke"))
    _, *rows = (full / METRICS).read_text("utf-8").splitlines()
    speed = median(json.loads(row)["tokens_per_second"] for row in rows)
    assert figures(told(smoke, full))["speed"].full.number == speed
    (headline,) = (one for one in headlines(build_record(read_run(full), ())) if one.name == "speed")
    assert headline.value == speed


def test_a_failed_smoke_run_failed_at_one_stage(tmp_path: Path) -> None:
    found = pair(tmp_path, steps=10, status="failed")
    assert [stage.state for stage in found.smoke_stages].count("failed") == 1
    assert found.smoke_stages[3].state == "failed"
    assert found.smoke_stages[3].name == "5 steps"


@pytest.mark.parametrize(
    ("model", "name", "agrees", "remark"),
    [
        ({}, "parameters", True, ""),
        ({"parameters": 7}, "parameters", False, ""),
        ({"dtypes": {"compute": "bfloat16"}}, "number types", False, ""),
        ({}, "first loss", False, ""),
        ({"weights_sha256": "a" * 64}, "first loss", None, "other first parameters"),
    ],
)
def test_figures_that_must_agree(tmp_path, model, name, agrees, remark):
    found = figures(pair(tmp_path, manifest={"model": model}))[name]
    assert (found.agrees, found.remark) == (agrees, remark)


def test_figures_of_the_full_run_are_predicted_if_the_program_is_the_same(tmp_path: Path) -> None:
    found = figures(pair(tmp_path))
    step = found["step time"].smoke.number
    time = found["training time"].expected
    assert step is not None
    assert time is not None
    assert time.number == pytest.approx(200 * step)
    assert found["memory"].expected == found["memory"].smoke or found["memory"].smoke.number is None
    assert found["first loss"].expected == found["first loss"].smoke
    assert found["score"].expected is None
    other = figures(pair(tmp_path / "other", manifest={"devices": {"kind": "TPU v5e"}}))
    assert (other["training time"].expected, other["training time"].remark) == (None, "different kind of device")


REPOSITORY = Path(__file__).parents[3]


def runs(root: Path, **configs: dict[str, Any]) -> dict[str, RunSummary]:
    for seed, (name, config) in enumerate(configs.items()):
        mode = "smoke" if "smoke" in name else "full"
        steps = config.pop("steps", 2 if mode == "smoke" else 200)
        write_run(root, name, steps=steps, mode=mode, items=0, seed=seed, config={"seed": 0} | config)
    return {summary.path.name: summary for summary in index_folder(root)}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, "same configuration"),
        ({"evaluation": {"eval_set": "eval_v1"}, "mesh": {"device": "cpu"}}, "same configuration"),
        ({"model": {"name": "tiny-gpt2"}, "batch": {"microbatch_size": 4}}, "same but for size"),
        ({"optimizer": {"learning_rate": 0.5}}, None),
        ({"optimizer": {"weight_decay": 0.3}}, None),
        ({"steps": 200}, None),
    ],
    ids=["same", "other machine", "smaller", "other rate", "other decay", "as long"],
)
def test_lineage_follows_from_the_settings(tmp_path: Path, config: dict[str, Any], expected: str | None) -> None:
    found = runs(tmp_path, full={}, smoke=config)
    assert find_lineage(found["smoke"], found["full"]) == expected
    assert find_lineage(found["full"], found["smoke"]) is None


def test_the_same_configuration_goes_before_a_newer_smaller_one(tmp_path: Path) -> None:
    day, same = timedelta(days=1), {"seed": 0}
    write_run(tmp_path, "own", steps=2, mode="smoke", seed=1, started=STARTED - 3 * day, config=same)
    small = {"model": {"name": "tiny-gpt2"}}
    write_run(tmp_path, "small", steps=2, mode="smoke", seed=2, started=STARTED - 2 * day, config=small)
    write_run(tmp_path, "full", steps=200, started=STARTED - day)
    write_run(tmp_path, "later", steps=2, mode="smoke", seed=3, started=STARTED, config=same)
    write_run(tmp_path, "failed", steps=200, status="failed", seed=4, started=STARTED + day, config=same)
    found = {summary.path.name: summary for summary in index_folder(tmp_path)}
    assert [run.path.name for run in find_smoke_runs(found["full"], found.values())] == ["own", "later", "small"]
    assert [run.path.name for run in find_full_runs(found["own"], found.values())] == ["full", "failed"]
    assert newest_smoke_pair(list(found.values())) == ("own", "full")


def test_newer_smoke_runs_of_other_configurations_do_not_hide_the_own_one(tmp_path, monkeypatch):
    monkeypatch.setattr("evidence.compare.smoke._MAX_SMOKE_RUNS", 1)
    write_run(tmp_path, "full", steps=200, config={"seed": 0})
    for days, name, config in ((-1, "own", {}), (1, "other", {"optimizer": {"learning_rate": 0.5}})):
        started = STARTED + timedelta(days=days)
        write_run(tmp_path, name, steps=2, mode="smoke", seed=days + 2, started=started, config={"seed": 0} | config)
    assert newest_smoke_pair(index_folder(tmp_path)) == ("own", "full")


def test_the_committed_runs_of_an_earlier_version_pair_by_what_they_state() -> None:
    found = {summary.path.name: summary for summary in index_folder(REPOSITORY / "submission_runs")}
    assert find_lineage(found["demo-smoke"], found["demo-full"]) in ("same configuration", "same but for size")


LIKE = {"model.name": "demo", "data.dataset": "arithmetic", "evaluation.eval_set": "arithmetic"}


def summary(name: str, day: int, **more) -> RunSummary:
    stated = {"grade": "consistent", "mode": "full", "settings": LIKE, "started_at": f"2026-11-{day:02}T10:00:00Z"}
    return RunSummary(path=Path(name), run_id=name, reasons=(), **(stated | more))


def counterpart_ids(one: RunSummary, *others: RunSummary) -> dict[str, str]:
    return {what: other.run_id for what, other in find_counterparts(one, [one, *others]).items()}


def test_the_previous_run_is_the_newest_before_it_of_its_model_and_data() -> None:
    one = summary("c", 3)
    late, other_model = summary("d", 4), summary("x", 2, settings=LIKE | {"model.name": "gemma"})
    assert counterpart_ids(one, late, other_model, summary("b", 2), summary("a", 1)) == {"previous run": "b"}
    assert "previous run" not in counterpart_ids(one, summary("s", 2, mode="smoke"))


def test_the_best_is_of_other_runs_on_the_same_items_whatever_their_model() -> None:
    one = summary("c", 1, score=0.9)
    other_items = summary("x", 2, score=1.0, settings=LIKE | {"evaluation.eval_set": "own.jsonl"})
    gemma = summary("g", 2, score=0.8, settings=LIKE | {"model.name": "gemma"})
    assert counterpart_ids(one, other_items, gemma, summary("b", 2, score=0.7)) == {"best on its items": "g"}


def test_a_run_that_contradicts_itself_is_nothing_to_compare_with() -> None:
    assert counterpart_ids(summary("c", 3), summary("b", 2, score=1.0, grade="contradictory")) == {}


def test_parent_and_rehearsal_are_found_by_id_and_by_settings() -> None:
    one = summary("c", 3, parent="a", steps_planned=100)
    assert counterpart_ids(one, summary("a", 1)) == {"parent": "a", "previous run": "a"}
    smoke = summary("s", 2, mode="smoke", steps_planned=2)
    assert counterpart_ids(one, smoke) == {"smoke run": "s"}
    assert counterpart_ids(smoke, one) == {"full run": "c"}
