"""What a call is refused with."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from schemas.problems import Problem, ProblemError


def catch_problems(call: Callable[[], object], exit_code: int = 2) -> list[Problem]:
    """Return the problems of a call that must be refused."""
    with pytest.raises(ProblemError) as caught:
        call()
    assert caught.value.exit_code == exit_code
    return list(caught.value.problems)


def catch_problem(call: Callable[[], object], exit_code: int = 2) -> Problem:
    """Return the only problem of a call that must be refused."""
    [problem] = catch_problems(call, exit_code)
    return problem
