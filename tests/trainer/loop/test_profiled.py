"""A trace has the steps that were asked for, and is no part of what is judged or packed."""

from dataclasses import replace
from pathlib import Path

import pytest
from jax.profiler import ProfileData
from whole_runs import errors_of, logged

from evidence.bundle.contents import files_of_run
from evidence.layout import PROFILE


def traced_steps(folder: Path) -> list[int]:
    [file] = (folder / PROFILE).rglob("*.xplane.pb")
    planes = ProfileData.from_file(str(file)).planes
    found = [event for plane in planes for line in plane.lines for event in line.events if event.name == "step"]
    return sorted(dict(event.stats)["step_num"] for event in found)


@pytest.mark.slow
@pytest.mark.parametrize(("asked", "expected"), [(2, [2, 3]), (9, [2, 3, 4])])
def test_a_trace_has_the_steps_after_the_first_and_is_not_packed(asked, expected, config, train):
    folder = train(replace(config, limits=replace(config.limits, steps=4)), profile_steps=asked)
    assert traced_steps(folder) == expected
    [row] = logged(folder, "profiled")
    assert row["message"] == f"profile of {len(expected)} steps: .profile"
    assert errors_of(folder) == []
    assert not any(PROFILE in name for name in files_of_run(folder).packed)
