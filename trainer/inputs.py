"""What a run works with: its task and its data, read and checked together before anything is spent."""

from __future__ import annotations

from schemas.problems import ProblemError
from trainer.config.tree import Config
from trainer.data.rows import RowFile
from trainer.loop.attending import cannot_attend
from trainer.loop.layout import cannot_stack, is_scanned
from trainer.loop.mesh import build_mesh
from trainer.loop.task import Task
from trainer.model.model import read_model
from trainer.objectives import build_objective, find_contradictions
from trainer.objectives.data import Data, read_data
from trainer.runtime import Devices, refuse_absent_types, supported_types


def read_inputs(
    config: Config,
    devices: Devices,
    *,
    with_weights: bool = True,
    asked: RowFile | None = None,
    rendered_at: str | None = None,
) -> tuple[Task, Data]:
    """Return what is trained, and what it learns from.

    Args:
        config: the run.
        devices: where it is to run.
        with_weights: see that the model's weights can be read; a run that is continued has them in its checkpoint.
        asked: the evaluation set. None: as the configuration names it.
        rendered_at: the time that the chat template writes where it writes one. None: the present.

    Raises:
        ProblemError: exit code 2; settings that do not go together, or else all that is wrong with model, dataset and
            evaluation set at once, as far as one can be judged without the other. Exit code 3; the device does not have
            an element type of the run.
    """
    refused = (*cannot_stack(config, devices=len(devices.list)), *cannot_attend(config, platform=devices.platform))
    if problems := [*find_contradictions(config), *refused]:
        raise ProblemError(problems, exit_code=2)
    refuse_absent_types(config, kind=devices.kind, element_types=supported_types(devices))
    objective = build_objective(config)
    model = read_model(config, problems, with_weights=with_weights)
    data = read_data(
        config, model, objective, problems, devices=len(devices.list), asked=asked, rendered_at=rendered_at
    )
    if problems or model is None or data is None:
        raise ProblemError(problems, exit_code=2)
    scanned = is_scanned(config, model, platform=(platform := devices.platform), devices=len(devices.list))
    mesh = build_mesh(devices.list)
    task = Task(config=config, model=model, objective=objective, mesh=mesh, is_scanned=scanned, platform=platform)
    return task, data
