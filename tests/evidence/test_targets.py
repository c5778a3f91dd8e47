"""The table of targets follows the schema of a user's own file."""

from pathlib import Path

import pytest

from evidence.targets import find_target, load_target, target_not_found, targets
from schemas.problems import ProblemError
from schemas.validate import check_value

CASES = Path(__file__).parents[1] / "cases" / "documents"
GIB = 2**30


@pytest.mark.parametrize("name", targets())
def test_every_target_follows_the_schema_of_a_users_own(name: str):
    target = targets()[name]
    assert check_value("target", dict(target.document), file=name) == []
    assert set(target.element_types) == set(target.peak_flops)
    assert target.name == name


@pytest.mark.parametrize(
    ("name", "gib", "devices"),
    [
        ("tpu-v3-8", 15.48, 8),
        ("tpu-v5e-1", 15.75, 1),
        ("kaggle-tpu-v5e-8", 15.75, 8),
        ("tpu-v5p-8", 95.73, 4),
        ("tpu-v6e-8", 31.24, 8),
        ("kaggle-t4x2", 14.56, 2),
    ],
)
def test_usable_memory_is_what_compilers_and_machines_state(name: str, gib: float, devices: int):
    target = load_target(name)
    assert target.memory_bytes is not None
    assert abs(target.memory_bytes - gib * GIB) < 1
    assert target.devices == devices


def test_a_session_of_nine_hours_and_a_week_of_twenty_are_seconds():
    target = load_target("kaggle-tpu-v5e-8")
    assert (target.session_seconds, target.week_seconds) == (9 * 3600, 20 * 3600)
    assert target.peak_flops["bfloat16"] == 197e12


def test_a_users_own_file_is_a_target():
    target = load_target(str(CASES / "valid" / "target.own_gpu.yaml"))
    assert (target.name, target.kind, target.host_memory_bytes) == (
        "my-4060ti",
        "NVIDIA GeForce RTX 4060 Ti",
        64 * 10**9,
    )
    assert target.session_seconds is None


def test_everything_wrong_with_a_users_file_is_said_at_once():
    with pytest.raises(ProblemError) as refused:
        load_target(str(CASES / "broken" / "target.several.yaml"))
    assert refused.value.exit_code == 2
    assert len(refused.value.problems) >= 4


@pytest.mark.parametrize(
    ("name", "next_words"),
    [
        ("kaggle-tpu", "Did you mean kaggle-tpu-v5e-8"),
        ("T4X2", "kaggle-t4x2"),
        ("rtx4090", "rtx-4090"),
        ("gone.yaml", "or a YAML file"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, next_words: str):
    with pytest.raises(ProblemError) as refused:
        load_target(name)
    problem = refused.value.problems[0]
    assert next_words in problem.next
    assert "this-machine" in (problem.expected or "")
    assert problem == target_not_found(name)


def test_a_device_is_found_by_what_jax_calls_it():
    assert [find_target("TPU v5 lite", count).name for count in (8, 1, 4)] == [
        "kaggle-tpu-v5e-8",
        "tpu-v5e-1",
        "kaggle-tpu-v5e-8",
    ]
    assert find_target("cpu") is None
