"""Read a folder of another tool: every file with its reader, and of several runs of a tracker the latest."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import import_module
from itertools import islice
from pathlib import Path

from evidence import layout
from evidence.imports import documents, keys
from evidence.imports.console import read_log
from evidence.imports.keys import PATTERNS, TABLE, Text, decode_text, is_set, metric_name, to_number
from evidence.imports.run import Citation, Fact, FileReading, ImportedRun, MetricRow, Score, Tool, are_nested
from evidence.layout import nested_too_deep
from schemas.problems import Problem, pointer_to, problem_of
from schemas.reading import LARGEST_DOCUMENT, MAX_VALUES, count_values

MAX_FILES = 5000  # files of a folder that are read

MAX_BYTES = 1 << 28  # size of an event file that is read (256 MiB): larger ones hold images

_HEAD_BYTES = 4096
_NAME = re.compile(r"[^\\\x00-\x1f\ud800-\udfff]{1,255}")
_READERS = {
    ".json": documents.read_json_file,
    ".jsonl": documents.read_rows_file,
    ".ndjson": documents.read_rows_file,
    ".yaml": documents.read_yaml_file,
    ".yml": documents.read_yaml_file,
    ".csv": documents.read_csv_file,
    **dict.fromkeys((".log", ".txt", ".out", ".err", ".stdout", ".stderr"), read_log),
}


def read_tool_folder(folder: Path) -> ImportedRun:
    """Read everything that a folder states about a run; never raises on its contents."""
    folder = Path(folder)
    problems: list[Problem] = []
    names = list(islice(walk_files(folder, problems), MAX_FILES))
    if len(names) == MAX_FILES:
        what = f"Only the first {MAX_FILES:,} files of the folder were read."
        problems.append(problem_of("TP521", file=str(folder), what=what))
    readings = {name: _read_file(folder / name, name) for name in names}
    problems += _drop_superseded(readings, folder)
    return ImportedRun(path=folder, files=readings, problems=tuple(problems))


def is_weights(name: str) -> bool:
    """Return whether a file holds weights, by its name."""
    return Path(name).suffix.lower() in TABLE["paths"]["weights"]


def walk_files(folder: Path, problems: list[Problem], prefix: str = "") -> Iterator[str]:
    """Yield the regular files of the other tool below a folder, in order, and append a problem for skipped ones."""
    if prefix.count("/") > layout.DEEPEST:
        problems.append(nested_too_deep(folder / prefix))
        return
    try:
        with os.scandir(folder / prefix) as listing:
            found = sorted(listing, key=lambda entry: entry.name)
    except OSError as error:
        what = f"The folder cannot be read: {error.strerror or error}."
        problems.append(problem_of("TP209", file=str(folder / prefix), what=what))
        return
    for entry in found:
        name, path = prefix + entry.name, Path(entry.path)
        if not _NAME.fullmatch(entry.name):
            shown = os.fsencode(name).decode("utf-8", "backslashreplace")
            what = f"{shown} was skipped: not every system allows such a name."
            problems.append(problem_of("TP524", file=str(folder), what=what))
        elif entry.name.startswith(".") or entry.name.endswith(".tmp"):
            continue
        elif entry.is_dir(follow_symlinks=False):
            is_ours = any(_names_our_schema(path / own) for own in (layout.MANIFEST, layout.IMPORT))
            if not is_ours and entry.name not in TABLE["paths"]["skipped_folders"]:
                yield from walk_files(folder, problems, f"{name}/")
        elif entry.is_file(follow_symlinks=False):
            if name != layout.NOTES or not _names_our_schema(path):
                yield name
        else:
            what = f"{name} is a {'symbolic link' if entry.is_symlink() else 'special file'}; it was not read."
            problems.append(problem_of("TP206", file=str(path), what=what, severity="warning"))


def _names_our_schema(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return b'"schema_version"' in file.read(_HEAD_BYTES)
    except OSError:
        return False


def _read_file(path: Path, name: str) -> FileReading:
    """Read one file; one that cannot be read, or is too large, gives its problem."""
    is_event_file, mlflow = "tfevents" in path.name, _MLFLOW_FILE.match(name)
    read = read_wandb_summary if name.endswith("wandb-summary.json") else _READERS.get(path.suffix.lower())
    is_known = is_event_file or mlflow or read
    if not is_known or is_weights(name) or PATTERNS["other_file"].match(path.name):
        return FileReading()
    limit, what, reading = MAX_BYTES if is_event_file else LARGEST_DOCUMENT, "", FileReading()
    try:
        size = path.stat().st_size
        if size > limit:
            what = f"The file has {size:,} bytes, more than the {limit:,} that are read."
        elif is_event_file:
            reading = read_events(path, name)
        else:
            data = path.read_bytes()
            values = count_values(data) + data.count(b"\n") + data.count(b"\r")
            if values > MAX_VALUES:
                what = f"The file has about {values:,} values and lines, more than the {MAX_VALUES:,} that are read."
            elif mlflow or data.strip():
                text = decode_text(data)
                if mlflow:
                    reading = _read_mlflow(text, mlflow)
                elif read:
                    reading = read(text, name, str(path))
                reading.encoding = text.encoding
    except OSError as error:
        what = f"The file cannot be read: {error.strerror or error}."
    if what:
        return FileReading(problems=[problem_of("TP521", file=str(path), what=what)])
    reading.facts = [fact for fact in reading.facts if is_set(fact.name, fact.value)]
    return reading


_YEAR_2100 = 4_102_444_800

_MLFLOW_FILE = re.compile(
    r"^(?P<run>(?:.*/)?(?P<id>[0-9a-f]{32}))/(?P<part>metrics|params|tags|meta\.yaml)(?:/(?P<name>.+))?$"
)
_MLFLOW_STATUS = {"1": "running", "2": "scheduled", "3": "finished", "4": "failed", "5": "killed"}


def _read_mlflow(text: Text, match: re.Match[str]) -> FileReading:
    """Read one file of an MLflow run: `meta.yaml`, a metric, a parameter or a tag."""
    reading, file, part = FileReading(tool=Tool.MLFLOW), match.string, match.group("part")
    name = match.group("name") or ""
    if part == "metrics":
        _read_metric(text, file, name, reading)
    elif part == "meta.yaml":
        reading.facts = list(_meta_facts(text, file))
    else:
        value, fact = text.text.strip(), keys.fact_name(name.removeprefix("mlflow.source.") if part == "tags" else name)
        given = value if fact in keys.TEXT_FACTS and "\n" not in value and value != "None" else to_number(value)
        if fact is not None and value and given is not None:
            reading.facts = [Fact(name=fact, value=given, source=Citation(file=file, line=1))]
    return reading


def _meta_facts(text: Text, file: str) -> Iterator[Fact]:
    for line in text.lines():
        key, _, value = line.text.partition(":")
        value, source = value.strip().strip("'\""), Citation(file=file, line=line.number)
        if key == "status" and value:
            yield Fact(name="run.status", value=_MLFLOW_STATUS.get(value, value.lower()), source=source)
        elif key == "run_name" and value:
            yield Fact(name="run.id", value=value, source=source)
        elif key in ("start_time", "end_time") and 0 < (milliseconds := to_number(value) or 0) < _YEAR_2100 * 1000:
            time = datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
            name = "run.started_at" if key == "start_time" else "run.finished_at"
            yield Fact(name=name, value=time, source=source, note="Milliseconds in the source.")


def _read_metric(text: Text, file: str, name: str, reading: FileReading) -> None:
    """Read a metric's file, whose lines are `milliseconds value step`."""
    metric, fact = metric_name(name), keys.fact_name(name)
    for line in text.lines():
        numbers = [keys.parse_number(part) for part in line.text.split()[:3]]
        if len(numbers) < 2 or numbers[1] is None:
            continue
        value, source = keys.finite(numbers[1]), Citation(file=file, line=line.number)
        step = numbers[2] if len(numbers) > 2 and isinstance(numbers[2], int) else None
        if keys.is_score(name.rpartition("/")[2]) and value is not None:
            reading.scores = [Score(name=keys.plain(name), value=value, source=source, checkpoint=f"step {step}")]
        if step is not None:
            reading.metrics.append(MetricRow(values={"step": step, metric: value}, source=source))
    if len(reading.metrics) == 1 and fact in ("result.train_seconds", "result.loss") and keys.plain(name) != "loss":
        # A duration, or the mean that a trainer logs once at its end.
        [row] = reading.metrics
        if (value := row.values[metric]) is not None:
            reading.facts, reading.metrics, reading.scores = [Fact(name=fact, value=value, source=row.source)], [], []


def read_wandb_summary(text: Text, file: str, where: str) -> FileReading:
    """Read the last value of each metric: the last loss, but neither the peak learning rate nor the last step."""
    parsed = documents.parse_json(text.text, where)
    if not isinstance(summary := parsed.value, dict) or not parsed.is_read:
        return FileReading(problems=list(parsed.problems))
    reading = documents.read_value(parsed, file, where)
    dropped = ("training.", "result.loss", "result.mean")
    reading.facts = [fact for fact in reading.facts if not fact.name.startswith(dropped)]
    for key, value in summary.items():
        is_mean = key == "train/train_loss" or (key == "train_loss" and "train/loss" in summary)
        number = to_number(value)
        if number is not None and (is_mean or (metric_name(key) == "loss" and key != "train_loss")):
            name = "result.mean_loss" if is_mean else "result.last_loss"
            note = documents.MEAN_NOTE if is_mean else "W&B's summary keeps the last value of each metric."
            source = Citation.at(file, parsed.lines, pointer_to([key]))
            reading.facts.append(Fact(name=name, value=number, source=source, how="inferred", note=note))
    reading.tool = Tool.WANDB
    return reading


# Several runs in one folder

_RUN_FOLDERS = {
    Tool.MLFLOW: _MLFLOW_FILE,
    Tool.WANDB: re.compile(r"^(?P<run>(?:.*/)?(?:offline-)?run-\d{8}_\d{6}-\w+)/"),
    Tool.TRAINER: re.compile(r"^(?P<run>.*?)(?:^|/)(?:checkpoint-\d+/)?trainer_state\.json$"),
}


def _drop_superseded(readings: dict[str, FileReading], folder: Path) -> Iterator[Problem]:
    """Drop the contents of all runs of a tool but its latest, or of the Trainer its longest, and yield warnings."""
    left_out: set[str] = set()
    for tool, pattern in _RUN_FOLDERS.items():
        matches = {name: match.group("run") for name in readings if (match := pattern.match(name))}
        if not matches:
            continue
        latest = max(matches, key=lambda name: (*_progress(readings[name], name), -name.count("/"), name))
        # Below a run and above it are parts of it: checkpoints, and the summary of the whole.
        others = {run for run in matches.values() if not are_nested(run, matches[latest])}
        left_out |= {name for name in readings if name.startswith(tuple(f"{run}/" for run in others))}
        left_out |= {name for name in matches if tool == Tool.TRAINER and name != latest}
        if others:
            what = f"Of {len(others) + 1} runs of {tool}, only {matches[latest].rpartition('/')[2]} was read."
            yield problem_of("TP522", file=str(folder), what=what)
    for name in left_out:
        readings[name] = FileReading(tool=readings[name].tool, encoding=readings[name].encoding)


def _progress(reading: FileReading, name: str) -> tuple[str, float]:
    """Return when a run started (W&B's folders state it) and how many steps it did, as far as a file states it."""
    started = [match.group() for match in re.finditer(r"(?<=run-)\d{8}_\d{6}", name)]
    started += [str(fact.value) for fact in reading.facts if fact.name == "run.started_at" and not started]
    steps = [to_number(fact.value) for fact in reading.facts if fact.name == "training.steps_done"]
    return max(started, default=""), max((step for step in steps if step is not None), default=0.0)


# TensorBoard

MAX_SCALARS = 2_000_000  # scalars of one file that are read

_FRAME_BYTES = 16  # length and checksums around each record


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
        advice = "Run `pip install 'trainproof[tensorboard]'`, then repeat the command."
        problem = problem_of("TP521", file=str(path), what=what, next=advice)
        return FileReading(tool=Tool.TENSORBOARD, needs_package=True, problems=[problem])
    at_step: dict[int, dict[str, float | None]] = {}
    count = read_bytes = 0
    damage = ""
    try:
        for record in loader(str(path)).Load():
            event = migrate(parse(record))
            for value in event.summary.value:
                array = to_array(value.tensor) if value.HasField("tensor") else None
                if array is not None and array.size == 1 and array.dtype.kind in "fiu":
                    at_step.setdefault(event.step, {})[metric_name(value.tag)] = keys.finite(float(array.item()))
                    count += 1
            read_bytes += len(record) + _FRAME_BYTES
            if count > MAX_SCALARS:
                damage = f"has more than the {MAX_SCALARS:,} scalars that are read"
                break
    except (decode_error, ValueError, TypeError, OverflowError, MemoryError) as error:
        damage = f"has a damaged record at byte {read_bytes:,} ({type(error).__name__})"
    if not damage and read_bytes < path.stat().st_size:
        damage = f"is cut off or damaged at byte {read_bytes:,}"
    what = f"The file {damage}; the events before that were read."
    problems = [problem_of("TP521", file=str(path), what=what)] if damage else []
    rows = [
        MetricRow(values={"step": step, **values}, source=Citation(file=file, pointer=f"step {step}"))
        for step, values in sorted(at_step.items())
    ]
    return FileReading(tool=Tool.TENSORBOARD, metrics=rows, problems=problems)
