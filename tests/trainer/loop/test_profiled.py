"""A trace has the steps that were asked for, and is no part of what is judged or packed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from jax.profiler import ProfileData
from whole_runs import carried_out, errors_of, logged

from evidence.bundle.contents import files_of_run
from evidence.layout import PROFILE
from trainer.config.tree import Config
from trainer.run import RunRequest


def traced_steps(folder: Path) -> list[int]:
    [file] = (folder / PROFILE).rglob("*.xplane.pb")
    planes = ProfileData.from_file(str(file)).planes
    found = [event for plane in planes for line in plane.lines for event in line.events if event.name == "step"]
    return sorted(dict(event.stats)["step_num"] for event in found)


@pytest.mark.slow
@pytest.mark.parametrize(("asked", "expected"), [(2, [2, 3]), (9, [2, 3, 4])])
def test_a_trace_has_the_steps_after_the_first_and_is_not_packed(
    asked: int, expected: list[int], config: Config, order_of: Callable[..., RunRequest]
):
    order = order_of(replace(config, limits=replace(config.limits, steps=4)), profile_steps=asked)
    assert carried_out(order) == 0
    assert traced_steps(order.folder) == expected
    [row] = logged(order.folder, "profiled")
    assert row["message"] == f"profile of {len(expected)} steps: .profile"
    assert errors_of(order.folder) == []
    assert not any(PROFILE in name for name in files_of_run(order.folder).packed)
