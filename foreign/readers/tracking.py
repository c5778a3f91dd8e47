"""MLflow's file store and the plain files of a W&B run, and which of several runs or copies in a folder is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from foreign.readers.keys import TEXT_FACTS, fact_of, is_score, metric_of, plain
from foreign.readers.statement import Citation, Fact
from foreign.readers.structured import HF_TRAINER, read_json_file
from foreign.readers.text import Text, finite, number_of, read_text
from foreign.readers.view import FileReading, ForeignScore, MetricRow, other_runs
from schemas.formats import join_words
from schemas.problems import Problem, problem_of

MLFLOW = "MLflow"
WANDB = "Weights & Biases"

_LAST = "W&B's summary keeps the last value of each metric."

_STATUS = {"1": "running", "2": "scheduled", "3": "finished", "4": "failed", "5": "killed"}
_RUN_OF = re.compile(
    r"^(?P<run>(?:.*/)?(?P<id>[0-9a-f]{32}))/(?P<part>metrics|params|tags|meta\.yaml)(?:/(?P<name>.+))?$"
)
_OF_CHECKPOINT = re.compile(r"(?:^|/)(?:checkpoint-\d+/)?trainer_state\.json$")
_WANDB_RUN = re.compile(r"^(?P<run>(?:.*/)?(?:offline-)?run-\d{8}_\d{6}-\w+)/")


_SYNC = " after `wandb sync`, or download its config.yaml and wandb-summary.json"
_STORES = (
    (r"\.wandb$", b"", "a W&B run that was never synced", _SYNC),
    (r"(^|/)\.aim/|run_metadata\.sqlite$", b"", "an Aim repository", ""),
    (r"\.(db|sqlite3?)$", b"latest_metrics", "a database of MLflow", " with `mlflow experiments csv`"),
    (r"\.db$", b"system_metrics", "a database of Trackio", ""),
    (r"\.zip$", b"experiment.json", "an offline experiment of Comet", " after `comet upload`"),
    (r"\.zip$", b"task.json", "an offline task of ClearML", " after `Task.import_offline_session`"),
    (r"(^|/)\.neptune/", b"", "an offline run of Neptune", " after `neptune sync`"),
)
"""Stores of other trackers that are not read: the file's path, what it contains, what it is, and how to get at it."""


def name_store(file: str, ends: Callable[[], bytes]) -> tuple[str, str] | None:
    """Return what a file is and how to get at its contents, if it belongs to a tracker's store that is not read.

    Args:
        file: Its path.
        ends: Reads its beginning and its end.
    """
    matching = [store for store in _STORES if re.search(store[0], file)]
    content = ends() if any(store[1] for store in matching) else b""
    return next(((what, how) for _, holds, what, how in matching if holds in content), None)


def is_of_mlflow(file: str) -> bool:
    """Return whether a file is one of an MLflow run, by its path inside the folder."""
    return _RUN_OF.match(file) is not None


def read_mlflow(data: bytes, file: str, where: str) -> FileReading | None:
    """Return what one file of an MLflow run folder gives; None where it is not such a file, by its path.

    Args:
        data: The file's content.
        file: Its path inside the folder.
        where: Its name in problems.
    """
    match = _RUN_OF.match(file)
    if match is None:
        return None
    text, part, name = read_text(data, file=where), match.group("part"), match.group("name") or ""
    if part == "meta.yaml":
        return _meta(text, file)
    if part == "metrics":
        return _metric(text, file, name)
    value = text.text.strip()
    fact = fact_of(name.removeprefix("mlflow.source.") if part == "tags" else name)
    facts = []
    if fact is not None and value and "\n" not in value and value != "None":
        number = number_of(value)
        if fact in TEXT_FACTS:
            facts.append(Fact(name=fact, value=value, source=Citation(file=file, line=1)))
        elif number is not None and finite(number) is not None:
            facts.append(Fact(name=fact, value=number, source=Citation(file=file, line=1)))
    return FileReading(tool=MLFLOW, encoding=text.encoding, facts=tuple(facts), problems=text.problems)


def read_wandb_summary(text: Text, file: str, where: str) -> FileReading:
    """Return what a wandb-summary.json gives: the value that each metric had last, hence a last loss, not a mean."""
    reading = read_json_file(text, file, where)
    names = {(fact.source.pointer or "").rpartition("/")[2] for fact in reading.facts}
    # The last learning rate is not the peak, and the last logged step not the last step: settings are in the config.
    measured = [fact for fact in reading.facts if not fact.name.startswith("training.")]
    facts = [_last_loss(fact, by_trainer="train~1loss" in names) for fact in measured]
    last = [fact for fact in _last_values(text, file) if fact.name not in {one.name for one in facts}]
    return FileReading(
        tool=WANDB,
        encoding=reading.encoding,
        template=reading.template,
        facts=(*facts, *last),
        scores=reading.scores,
        problems=reading.problems,
    )


def _last_loss(fact: Fact, *, by_trainer: bool) -> Fact:
    """Return a fact of a summary: a `loss` is the last one, and the Trainer's `train_loss` a mean."""
    if fact.name != "result.loss":
        return fact
    if (fact.source.pointer or "") == "/train_loss":
        note = "Beside train/loss, train_loss is the Hugging Face Trainer's mean over the whole run."
        return replace(fact, name="result.mean_loss", how="inferred", note=note) if by_trainer else fact
    return replace(fact, name="result.last_loss", how="inferred", note=_LAST)


def superseded_files(readings: Mapping[str, FileReading], folder: Path) -> tuple[set[str], list[Problem]]:
    """Return the files that are older copies or belong to older runs, and a warning for the latter.

    Only the newest MLflow or W&B run is read, and of the copies of a trainer_state.json, or of trainings in folders
    beside each other, the one that got furthest.
    """
    left_out: set[str] = set()
    problems = []
    for tool, pattern in ((MLFLOW, _RUN_OF), (WANDB, _WANDB_RUN)):
        of_run: dict[str, list[str]] = {}
        for name in readings:
            if match := pattern.match(name):
                of_run.setdefault(match.group("run"), []).append(name)
        if len(of_run) > 1:
            newest = max(of_run, key=lambda run: (_started_name(of_run[run], readings), run))
            others = [run for run in of_run if run != newest]
            left_out |= {name for run in others for name in of_run[run]}
            shown = join_words([PurePosixPath(run).name for run in others[:3]], last="and")
            more = f" and {len(others) - 3} more" if len(others) > 3 else ""
            what = f"The folder holds {len(of_run)} runs of {tool}; not read: {shown}{more}."
            problems.append(problem_of("TP522", file=str(folder), what=what))
    # A run that was synced, or written by an earlier W&B, has the same in files of its own.
    summaries = {name.removesuffix("files/wandb-summary.json") for name in readings if name.endswith("-summary.json")}
    left_out |= {name for name in readings if name.endswith(".wandb") and name[: name.rfind("/") + 1] in summaries}
    left_out |= _older_states(readings)
    if others := _other_trainings({name: readings[name] for name in readings if name not in left_out}):
        left_out |= {name for name in readings if name.startswith(tuple(f"{other}/" for other in others))}
        what = (
            f"The folder holds {len(others) + 1} runs of {HF_TRAINER}; the one with the most steps was read; "
            f"not read: {join_words(others, last='and')}."
        )
        problems.append(problem_of("TP522", file=str(folder), what=what))
    if sweep := other_runs({name: reading for name, reading in readings.items() if name not in left_out}):
        read, beside = sweep
        left_out |= {name for name in readings if name.startswith(tuple(f"{other}/" for other in beside))}
        more = f" and {len(beside) - 3} more" if len(beside) > 3 else ""
        what = f"The folder holds {len(beside) + 1} runs; {read} was read; not read: {', '.join(beside[:3])}{more}."
        problems.append(problem_of("TP522", file=str(folder), what=what))
    return left_out, problems


def _older_states(readings: Mapping[str, FileReading]) -> set[str]:
    """Return each trainer_state.json whose rows another one begins with."""
    states = {name: reading for name, reading in readings.items() if name.endswith("trainer_state.json")}
    older = set()
    for name, reading in states.items():
        rows = [row.values for row in reading.metrics]
        for other, larger in states.items():
            theirs = [row.values for row in larger.metrics]
            longer = len(theirs) > len(rows) or (
                len(theirs) == len(rows) and (other.count("/"), other) < (name.count("/"), name)
            )
            if other != name and longer and theirs[: len(rows)] == rows:
                older.add(name)
    return older


def _other_trainings(readings: Mapping[str, FileReading]) -> list[str]:
    """Return the folders of all trainings but the one that got furthest; none where one folder holds all states."""
    furthest: dict[str, float] = {}
    for name, reading in readings.items():
        if name.endswith("trainer_state.json"):
            steps = [fact.value for fact in reading.facts if fact.name == "training.steps_done"]
            done = max((float(value) for value in steps if isinstance(value, int | float)), default=0.0)
            folder = _OF_CHECKPOINT.sub("", name)
            furthest[folder] = max(furthest.get(folder, 0.0), done)
    inside = any(one != two and two.startswith(f"{one}/") for one in furthest for two in furthest)
    if len(furthest) < 2 or "" in furthest or inside:
        return []
    read = max(furthest, key=lambda folder: (furthest[folder], folder))
    return sorted(furthest.keys() - {read})


def _started_name(names: list[str], readings: Mapping[str, FileReading]) -> str:
    times = [str(fact.value) for name in names for fact in readings[name].facts if fact.name == "run.started_at"]
    return min(times, default="")


def _meta(text: Text, file: str) -> FileReading:
    """Return the facts of a run's meta.yaml, whose lines are `key: value`."""
    facts = []
    for line in text.lines():
        key, _, value = line.text.partition(":")
        value = value.strip().strip("'\"")
        source = Citation(file=file, line=line.number)
        if key == "status" and value:
            facts.append(Fact(name="run.status", value=_STATUS.get(value, value.lower()), source=source))
        elif key in ("start_time", "end_time") and (time := _time(value)):
            name = "run.started_at" if key == "start_time" else "run.finished_at"
            facts.append(Fact(name=name, value=time, source=source, note="Milliseconds in the source."))
        elif key == "run_name" and value:
            facts.append(Fact(name="run.id", value=value, source=source))
    return FileReading(tool=MLFLOW, encoding=text.encoding, facts=tuple(facts), problems=text.problems)


def _metric(text: Text, file: str, name: str) -> FileReading:
    """Return the rows of a metric's file, whose lines are `milliseconds value step`."""
    rows, scores = [], []
    facts = _stated_once(text, file, name)
    for line in text.lines() if not facts else ():
        parts = line.text.split()
        numbers = [number_of(part) for part in parts[:3]]
        if len(parts) < 2 or None in numbers[:2]:
            continue
        value = finite(float(numbers[1] or 0))
        step = numbers[2] if len(numbers) > 2 and isinstance(numbers[2], int) else None
        source = Citation(file=file, line=line.number)
        if is_score(name.rpartition("/")[2]) and value is not None:
            scores = [ForeignScore(name=plain(name), value=value, source=source, checkpoint=f"step {step}")]
        if step is not None:
            rows.append(MetricRow(values={"step": step, metric_of(name): value}, source=source))
    return FileReading(
        tool=MLFLOW,
        encoding=text.encoding,
        facts=facts,
        metrics=tuple(rows),
        scores=tuple(scores),
        problems=text.problems,
    )


def _stated_once(text: Text, file: str, name: str) -> tuple[Fact, ...]:
    """Return the fact that a metric with one value is: a duration, or the mean that a trainer logs at its end."""
    lines = list(text.lines())
    fact = fact_of(name)
    parts = lines[0].text.split() if len(lines) == 1 else []
    number = number_of(parts[1]) if len(parts) > 1 else None
    if fact not in ("result.train_seconds", "result.loss") or plain(name) == "loss" or number is None:
        return ()
    value = finite(number)
    return () if value is None else (Fact(name=fact, value=value, source=Citation(file=file, line=lines[0].number)),)


def _last_values(text: Text, file: str) -> list[Fact]:
    """Return the last loss that a summary holds under a name with a slash, `train/loss`."""
    facts = []
    for line in text.lines():
        for key, literal in re.findall(r'"(train/loss|train/train_loss|loss)"\s*:\s*([-+.\deE]+)', line.text):
            number = number_of(literal)
            if number is None or finite(number) is None:
                continue
            mean = key.endswith("train_loss")
            facts.append(
                Fact(
                    name="result.mean_loss" if mean else "result.last_loss",
                    value=number,
                    source=Citation(file=file, line=line.number, pointer="/" + key.replace("/", "~1")),
                    how="inferred",
                    note="The Hugging Face Trainer's train_loss is a mean." if mean else _LAST,
                )
            )
    return facts


def _time(milliseconds: str) -> str | None:
    number = number_of(milliseconds)
    if not isinstance(number, int) or not 0 < number < 4_102_444_800_000:
        return None
    return datetime.fromtimestamp(number / 1000, UTC).isoformat(timespec="milliseconds")
