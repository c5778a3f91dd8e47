import dataclasses

import pytest

from schemas.problems.problem import Problem, ProblemError, pointer_to, worst_first


def problem(severity, what):
    return Problem(code="TP101", severity=severity, file="a.json", what=what, next="Look.")


def test_worst_first_keeps_the_order_among_equals():
    given = [problem("note", "1"), problem("error", "2"), problem("warning", "3"), problem("error", "4")]
    assert [one.what for one in worst_first(given)] == ["2", "4", "3", "1"]


def test_the_error_carries_its_problems_worst_first_and_an_exit_code():
    error = ProblemError([problem("warning", "Odd."), problem("error", "Bad.")], exit_code=3)
    assert [one.what for one in error.problems] == ["Bad.", "Odd."]
    assert error.exit_code == 3
    assert str(error) == "Bad.; Odd."
    assert ProblemError([]).exit_code == 1


def test_a_problem_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        problem("error", "Bad.").what = "Good."


@pytest.mark.parametrize(
    ("path", "pointer"), [((), ""), (("a", 0), "/a/0"), (("a/b", "m~n", ""), "/a~1b/m~0n/"), (("~1",), "/~01")]
)
def test_pointers_are_those_of_rfc_6901(path, pointer):
    assert pointer_to(path) == pointer


@pytest.mark.parametrize(
    ("file", "pointer", "path"),
    [
        ("runs/a/config.yaml", "/optimizer/learning_rate", "optimizer.learning_rate"),
        ("c.yml", "/data/rows/0/a~1b", "data.rows[0].a/b"),
        ("--set", "/seed", "seed"),
        ("c.yaml", "", ""),
        ("run_manifest.json", "/dataset/split", "/dataset/split"),
    ],
)
def test_a_place_is_written_as_its_file_writes_keys(file: str, pointer: str, path: str):
    problem = Problem(code="TP120", severity="error", file=file, what="x.", next="y.", pointer=pointer)
    assert problem.key_path == path
