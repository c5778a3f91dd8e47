"""Task and data of a run, read and checked before anything is compiled."""

from __future__ import annotations

from schemas.problems import Problem, ProblemError
from trainer.config.tree import Config
from trainer.data.rows import RowFile
from trainer.loop.task import Task, build_mesh, refuse_conflicts, uses_scan
from trainer.model.model import read_model
from trainer.objectives import build_objective
from trainer.objectives.data import Data, read_data
from trainer.runtime import Devices, refuse_absent_types, supported_types


def read_inputs(
    config: Config,
    devices: Devices,
    *,
    with_weights: bool = True,
    eval_set: RowFile | None = None,
    rendered_at: str | None = None,
) -> tuple[Task, Data]:
    """Read model, rows and evaluation set, and check that they fit together.

    Without `with_weights` the model's weight files are not checked: a resumed run has them in its checkpoint. The
    default of `eval_set` is the configured one, of `rendered_at`, the time that the chat template writes, now.

    Raises:
        ProblemError: Exit code 2 with contradicting settings, or else with all problems of model, dataset and items;
            exit code 3 if the device lacks an element type.
    """
    platform, count = devices.platform, len(devices.list)
    refuse_conflicts(config, platform=platform, devices=count)
    refuse_absent_types(config, kind=devices.kind, element_types=supported_types(devices))
    objective, problems = build_objective(config), list[Problem]()
    model = read_model(config, problems, with_weights=with_weights)
    data = read_data(config, model, objective, problems, devices=count, eval_set=eval_set, rendered_at=rendered_at)
    if problems or model is None or data is None:
        raise ProblemError(problems, exit_code=2)
    scanned, mesh = uses_scan(config, model, platform=platform, devices=count), build_mesh(devices.list)
    task = Task(config=config, model=model, objective=objective, mesh=mesh, is_scanned=scanned, platform=platform)
    return task, data
