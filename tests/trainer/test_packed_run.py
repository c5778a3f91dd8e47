"""A packed run from end to end: recorded, resumed bit for bit, judged; its tokens are real ones."""

import shutil
from dataclasses import replace
from operator import itemgetter

import pytest
from model_folders import row_file
from tasks import inputs_of
from whole_runs import errors_of, manifest_of, rows

from evidence import layout
from evidence.grade import check_run
from evidence.run import read_run
from trainer.config.tree import BatchConfig, Config, LimitsConfig, RecordingConfig


@pytest.fixture
def packed(config) -> Config:
    """Four steps of two microbatches, a row for the first step, every second one and the last."""
    return replace(
        config,
        data=replace(config.data, packing=True),
        optimizer=replace(config.optimizer, schedule="constant"),
        batch=BatchConfig(microbatch_size=2, accumulation_steps=2),
        recording=RecordingConfig(log_every_steps=2),
        limits=LimitsConfig(steps=4),
    )


@pytest.mark.slow
def test_a_packed_run_resumes_bit_for_bit_and_counts_real_tokens(packed, finished, train):
    whole, first = finished(packed), train(replace(packed, limits=LimitsConfig(steps=2)), "first")
    rest = train(packed, "rest", resume=first)
    assert [errors_of(folder) for folder in (whole, first, rest)] == [[], [], []]
    exact = itemgetter("step", "tokens_seen", "loss", "grad_norm")
    by_step = {row["step"]: exact(row) for row in rows(whole)}
    assert list(by_step) == [1, 2, 4]
    for row in rows(first) + [row for row in rows(rest) if row["step"] in by_step]:
        assert exact(row) == by_step[row["step"]]
    _, data = inputs_of(packed)
    encoded, computed = data.encoded.encoded, 4 * packed.data.max_length
    seen = [sum(len(encoded[row]) for row in data.source.rows(step)) for step in range(4)]
    found = rows(whole)
    assert [row["tokens_seen"] for row in found] == [sum(seen[:step]) for step in (1, 2, 4)]
    assert found[-1]["padding_fraction"] == pytest.approx(1 - (seen[2] + seen[3]) / (2 * computed))
    assert found[-1]["padding_fraction"] < 0.1
    manifest = manifest_of(whole)
    assert manifest["effective"]["data"]["packing"] is True
    assert manifest["dataset"]["tokens"] == sum(map(len, encoded))
    assert manifest["dataset"]["sequences"] == len(data.source.sequences)
    assert manifest["training"]["tokens_per_step"] == computed


@pytest.mark.parametrize(
    ("line", "changes", "code"),
    [
        (1, {"tokens_seen": 500}, "TP312"),
        (0, {"tokens_seen": 513}, "TP312"),
        (1, {"padding_fraction": 0.5}, "TP313"),
        (2, {"tokens_per_second": 1.0}, "TP313"),
    ],
)
def test_tokens_that_the_rows_do_not_take_in_are_found(line, changes, code, packed, finished, tmp_path):
    folder = shutil.copytree(finished(packed), tmp_path / "run")
    found = rows(folder)
    found[line] |= changes
    row_file(folder / layout.METRICS, *found)
    assert code in {problem.code for problem in check_run(read_run(folder)).findings if problem.severity == "error"}
