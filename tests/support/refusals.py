"""What a call that is refused says."""

from collections.abc import Callable

import pytest

from schemas.problems import Problem, ProblemError


def refused(act: Callable[[], object], *, exit_code: int = 2) -> list[Problem]:
    """Return the problems of a call that is refused with an exit code."""
    with pytest.raises(ProblemError) as caught:
        act()
    assert caught.value.exit_code == exit_code
    return list(caught.value.problems)
