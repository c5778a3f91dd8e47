"""Problems of calls that are refused."""

from collections.abc import Callable
from typing import Any

import pytest

from schemas.problems import Problem, ProblemError
from schemas.render import render_text


def catch_problems(call: Callable[..., object], *arguments: Any, exit_code: int = 2, **named: Any) -> list[Problem]:
    """Return the problems that a call is refused with."""
    with pytest.raises(ProblemError) as caught:
        call(*arguments, **named)
    assert caught.value.exit_code == exit_code
    return list(caught.value.problems)


def catch_problem(call: Callable[..., object], *arguments: Any, exit_code: int = 2, **named: Any) -> Problem:
    """Return the only problem that a call is refused with."""
    [problem] = catch_problems(call, *arguments, exit_code=exit_code, **named)
    return problem


def refusal_text(call: Callable[..., object], *arguments: Any, **named: Any) -> str:
    """Return the text of the problems that a call is refused with."""
    return render_text(catch_problems(call, *arguments, **named))
