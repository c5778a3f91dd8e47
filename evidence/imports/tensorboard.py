"""Read the scalars of TensorBoard event files with the package `tensorboard`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from evidence.imports.keys import metric_name
from evidence.imports.run import TENSORBOARD, Citation, FileReading, MetricRow
from evidence.imports.text import finite
from schemas.problems import problem_of

MAX_SCALARS = 2_000_000
"""Scalars of one file that are read."""

_FRAME_BYTES = 16
"""Length and checksums around each record."""


def is_event_file(name: str) -> bool:
    """Return whether a file is an event file, by its name."""
    return "tfevents" in name.rpartition("/")[2]


def read_events(path: Path, file: str) -> FileReading:
    """Read the scalars of an event file, one row per step, up to the first damaged record."""
    try:
        loader = import_module("tensorboard.backend.event_processing.event_file_loader").RawEventFileLoader
        migrate = import_module("tensorboard.data_compat").migrate_event
        parse = import_module("tensorboard.compat.proto.event_pb2").Event.FromString
        to_array = import_module("tensorboard.util.tensor_util").make_ndarray
        decode_error = import_module("google.protobuf.message").DecodeError
    except ImportError:
        what = "TensorBoard event files are read only if the package tensorboard is installed."
        then = "Run `pip install 'trainproof[tensorboard]'`, then repeat the command."
        problem = problem_of("TP521", file=str(path), what=what, next=then)
        return FileReading(tool=TENSORBOARD, needs_package=True, problems=(problem,))
    at_step: dict[int, dict[str, float | None]] = {}
    count, read_bytes, damage = 0, 0, ""
    try:
        for record in loader(str(path)).Load():
            event = migrate(parse(record))
            for value in event.summary.value:
                array = to_array(value.tensor) if value.HasField("tensor") else None
                if array is not None and array.size == 1 and array.dtype.kind in "fiu":
                    at_step.setdefault(event.step, {})[metric_name(value.tag)] = finite(float(array.item()))
                    count += 1
            read_bytes += len(record) + _FRAME_BYTES
            if count > MAX_SCALARS:
                damage = f"has more than the {MAX_SCALARS:,} scalars that are read"
                break
    except (decode_error, ValueError, TypeError, OverflowError, MemoryError) as error:
        damage = f"has a damaged record at byte {read_bytes:,} ({type(error).__name__})"
    if not damage and read_bytes < path.stat().st_size:
        damage = f"is cut off or damaged at byte {read_bytes:,}"
    problem = problem_of("TP521", file=str(path), what=f"The file {damage}; the events before that were read.")
    rows = [
        MetricRow(values={"step": step, **values}, source=Citation(file=file, pointer=f"step {step}"))
        for step, values in sorted(at_step.items())
    ]
    return FileReading(tool=TENSORBOARD, metrics=tuple(rows), problems=(problem,) if damage else ())
