"""A packed run from end to end: recorded, resumed bit for bit, judged; its tokens are real ones."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tasks import inputs_of

from evidence import layout
from evidence.grade import check_run
from evidence.run import read_run
from trainer.config.tree import BatchConfig, Config, LimitsConfig, RecordingConfig
from trainer.recorder.progress import Watch
from trainer.run import RunRequest, run

QUIET = Watch(quiet=True)


def rows(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / layout.METRICS).read_text().splitlines()]


def codes(folder: Path) -> set[str]:
    return {problem.code for problem in check_run(read_run(folder)).findings if problem.severity == "error"}


@pytest.fixture
def packed(config: Config) -> Config:
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
def test_a_packed_run_resumes_bit_for_bit_and_counts_real_tokens(
    packed: Config, order_of: Callable[..., RunRequest], tmp_path: Path
):
    short = replace(packed, limits=LimitsConfig(steps=2))
    whole, first = order_of(packed, "whole"), order_of(short, "first")
    rest = order_of(packed, "rest", resume=first.folder)
    assert [run(order, QUIET) for order in (whole, first, rest)] == [0, 0, 0]
    assert [codes(order.folder) for order in (whole, first, rest)] == [set(), set(), set()]
    exact = ("step", "tokens_seen", "loss", "grad_norm")
    by_step = {row["step"]: [row[key] for key in exact] for row in rows(whole.folder)}
    assert list(by_step) == [1, 2, 4]
    for row in rows(first.folder) + [row for row in rows(rest.folder) if row["step"] in by_step]:
        assert [row[key] for key in exact] == by_step[row["step"]]
    _, data = inputs_of(packed)
    encoded, computed = data.encoded.encoded, 4 * packed.data.max_length
    seen = [sum(len(encoded[row]) for row in data.source.rows(step)) for step in range(4)]
    found = rows(whole.folder)
    assert [row["tokens_seen"] for row in found] == [sum(seen[:step]) for step in (1, 2, 4)]
    assert found[-1]["padding_fraction"] == pytest.approx(1 - (seen[2] + seen[3]) / (2 * computed))
    assert found[-1]["padding_fraction"] < 0.1
    manifest = json.loads((whole.folder / layout.MANIFEST).read_text())
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
def test_tokens_that_the_rows_do_not_take_in_are_found(
    line: int, changes: dict, code: str, packed: Config, order_of: Callable[..., RunRequest]
):
    order = order_of(packed)
    assert run(order, QUIET) == 0
    found = rows(order.folder)
    found[line] |= changes
    (order.folder / layout.METRICS).write_text("".join(json.dumps(row) + "\n" for row in found))
    assert code in codes(order.folder)


@pytest.mark.slow
def test_a_run_cannot_be_continued_packed(packed: Config, config: Config, order_of: Callable[..., RunRequest]):
    from schemas.problems import ProblemError

    first = order_of(replace(packed, data=config.data, limits=LimitsConfig(steps=1)), "first")
    assert run(first, QUIET) == 0
    with pytest.raises(ProblemError) as caught:
        run(order_of(packed, "rest", resume=first.folder), QUIET)
    assert [problem.what for problem in caught.value.problems] == [
        "data.packing is true; the run to continue has false."
    ]
