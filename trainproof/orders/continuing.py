"""Which run `trainproof train` continues: the one that is named, or with `--resume auto` the newest that can be."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from evidence.layout import PROGRAMS
from evidence.writing import as_json_text
from schemas.problems import ProblemError
from schemas.render import as_dicts, as_sentence
from trainer.evaluation.late import evaluate_run
from trainer.recorder.progress import Watch
from trainer.resume import AUTO, UNFIT, awaits_evaluation, find_runs, free_folder, own_folder
from trainer.run import RunRequest, check, run
from trainer.runtime import use_compilation_cache
from trainproof.orders.train import RUNS, TrainFlags, order_of


def carry_out(flags: TrainFlags, watch: Watch) -> int:
    """Carry out what the flags name, and return the exit code.

    Raises:
        ProblemError: as `run` and `evaluate_run`; what is wrong with a run found by `--resume auto` is said instead.
    """
    if flags.session is not None:
        for line in use_compilation_cache((flags.output or RUNS / "run").parent / PROGRAMS):
            watch.say(line)
    for request in requests_of(flags, watch):
        try:
            return continue_run(request, watch)
        except ProblemError as error:
            if flags.resume != Path(AUTO) or not {problem.code for problem in error.problems} <= UNFIT:
                raise
            for problem in error.problems:
                watch.say(f"not continued: {request.resume}: {problem.code}: {as_sentence(problem)}")
    raise AssertionError  # the last request continues nothing


def check_inputs(flags: TrainFlags, *, as_json: bool) -> int:
    """Read all that the run would read, print what came of it, and return the exit code.

    Raises:
        ProblemError: exit code 2 or 3; it cannot begin. As JSON that is printed like everything else.
    """
    code = 0
    try:
        with Watch(quiet=as_json) as watch:
            found = check(next(requests_of(flags, watch)), watch)
    except ProblemError as error:
        if not as_json:
            raise
        unread = {"training_rows": None, "evaluation_items": None}
        found, code = {"can_begin": False, **unread, "findings": as_dicts(error.problems)}, error.exit_code
    if as_json:
        sys.stdout.write(as_json_text(found))
    return code


def requests_of(flags: TrainFlags, watch: Watch) -> Iterator[RunRequest]:
    """Yield what to try in turn: the runs that can be continued, the newest first, then a run from step 0."""
    request = order_of(flags)
    if request.resume != Path(AUTO):
        yield request
        return
    request = replace(request, folder=free_folder(request.folder), resume=None)
    found = find_runs(request.config, request.folder.parent)
    for line in found.said:
        watch.say(line)
    for folder in found.folders:
        watch.say(f"--resume auto: continues {folder}")
        yield replace(request, resume=folder)
    watch.say("--resume auto: begins at step 0, for no run can be continued")
    yield request


def continue_run(request: RunRequest, watch: Watch) -> int:
    """Carry out a request; a run that lacks nothing but its evaluation is given that, and trains no further."""
    if request.resume is None or not awaits_evaluation(request.resume, request.config):
        return run(request, watch)
    folder = own_folder(request.resume, request.folder)
    watch.say(f"all {request.config.limits.steps:,} steps of {folder} are done; its evaluation is made now")
    try:
        evaluate_run(folder, None, watch, session=request.session)
    except ProblemError as error:
        if "TP053" not in {problem.code for problem in error.problems}:
            raise
        return run(request, watch)  # trains the last steps again, from the newest whole checkpoint
    watch.say(f"run folder: {folder}")
    return 0
