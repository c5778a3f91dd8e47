"""Problems of calls that are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from schemas.problems import Problem, ProblemError
from schemas.render import render_text


def problems_of(call: Callable[..., Any], *arguments: Any, exit_code: int = 2, **named: Any) -> tuple[Problem, ...]:
    """Return the problems that a call is refused with."""
    with pytest.raises(ProblemError) as caught:
        call(*arguments, **named)
    assert caught.value.exit_code == exit_code
    return tuple(caught.value.problems)


def refusal_text(call: Callable[..., Any], *arguments: Any, **named: Any) -> str:
    """Return the text of the problems that a call is refused with."""
    return render_text(problems_of(call, *arguments, **named))
