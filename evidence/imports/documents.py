"""Read JSON, JSON lines, YAML and CSV by the keys in `keys.toml`: settings, metric rows, scores and answers.

The files of the Hugging Face Trainer are recognised by their contents.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from evidence.imports import keys
from evidence.imports.keys import PLACEHOLDER, RESULTS, TABLE, Text, is_example_file, iter_texts, plain, to_number
from evidence.imports.run import Citation, Fact, FileReading, MetricRow, Prediction, Scalar, Score, Tool
from schemas.formats import format_value, quantity
from schemas.problems import Lines, Problem, pointer_to, problem_of, truncate_problems
from schemas.reading import ParseResult, parse_yaml, read_json

Path = tuple[str | int, ...]

_CHECKPOINT = re.compile(r"(?:checkpoint|ckpt|step|epoch|iter)[-_ ]?\d+", re.IGNORECASE)
_PRETRAINED = re.compile(r"\bpretrained=([^,\s]+)")


def parse_json(text: str, where: str) -> ParseResult:
    """Parse JSON; NaN and repeated keys, which our own documents must not have, are only warnings here."""
    return _with_warnings(read_json(text, file=where))


def _with_warnings(parsed: ParseResult) -> ParseResult:
    return replace(parsed, problems=tuple(replace(problem, severity="warning") for problem in parsed.problems))


def read_json_file(text: Text, file: str, where: str) -> FileReading:
    """Read a JSON document, or JSON lines under the name of one; `where` is the name of the file in problems."""
    parsed = parse_json(text.text, where)
    if not parsed.is_read and text.text.count("\n") > 1 and (rows := read_rows_file(text, file, where)).tool:
        return rows
    return read_value(parsed, file, where) if parsed.is_read else FileReading(problems=list(parsed.problems))


def read_yaml_file(text: Text, file: str, where: str) -> FileReading:
    """Read a YAML configuration; W&B's `key: {value: ...}` counts as `key: ...`."""
    parsed = _with_warnings(parse_yaml(text.text.encode("utf-8", "replace"), file=where))
    if isinstance(value := parsed.value, dict) and ("wandb_version" in value or "_wandb" in value):
        value = {key: item.get("value", item) if isinstance(item, dict) else item for key, item in value.items()}
    return read_value(replace(parsed, value=value), file, where, tool=Tool.CONFIGURATION)


def read_rows_file(text: Text, file: str, where: str) -> FileReading:
    """Read JSON lines: predictions, metric rows or summaries."""
    lines = [(line.number, parse_json(line.text, where)) for line in text.lines()]
    reading = read_rows([(number, parsed.value) for number, parsed in lines if parsed.is_read], file)
    unread = (replace(parsed.problems[0], line=number) for number, parsed in lines if not parsed.is_read)
    reading.problems = list(truncate_problems(unread))
    return reading


def read_csv_file(text: Text, file: str, where: str) -> FileReading:
    """Read a table of predictions or metric rows, each with the line on which it begins."""
    reader = csv.DictReader(io.StringIO(text.text.replace("\x00", ""), newline=""))
    values: list[tuple[int, Any]] = []
    what, begins = "", 2
    try:
        for row in reader:
            # A first column without a name is the index that pandas writes, here of epochs.
            unnamed = "epoch" if "epoch" not in row and "step" not in row else ""
            values.append((begins, {key or unnamed: cell for key, cell in row.items() if None not in (key, cell)}))
            begins = reader.line_num + 1
    except csv.Error as error:
        what = f"The table cannot be read: {error}."
    reading = read_rows(values, file, tool="table")
    reading.problems = [problem_of("TP521", file=where, what=what)] if what else []
    return reading


def _same_line(place: Citation) -> Lines:
    """Return the function for values that are all in the line of a row."""
    return lambda _pointer: place.line


def read_rows(values: Sequence[tuple[int, Any]], file: str, *, tool: str = "JSON lines") -> FileReading:
    """Read numbered rows."""
    if is_example_file(file):
        return FileReading(tool=tool, template=True)
    places = [Citation(file=file, line=line) for line, _ in values]
    if answers := read_predictions([value for _, value in values], file, places):
        return FileReading(tool="predictions", predictions=answers)
    reading = FileReading()
    planned: dict[int, Citation] = {}
    for (_, value), place in zip(values, places, strict=True):
        if not isinstance(value, dict):
            continue
        if any(isinstance(part, dict) and is_trainer_summary(part) for part in (value, *value.values())):
            summary = FileReading()
            _Document(file=file, lines=_same_line(place), reading=summary).walk(value)
            reading.facts += summary.facts
            reading.scores += summary.scores
            continue
        numbers = keys.row_values(value)
        if "current_steps" in value and isinstance(total := value.get("total_steps"), int) and total > 1:
            planned.setdefault(total, place)  # LLaMA-Factory repeats the planned steps in every row.
        if keys.is_metric_row(numbers) and any(word in name for name in numbers for word in ("loss", "reward", "acc")):
            reading.metrics.append(MetricRow(values=numbers, source=place))
    reading.facts += [Fact(name="training.steps_planned", value=n, source=place) for n, place in planned.items()]
    reading.tool = tool if reading.metrics or reading.facts or reading.scores else None
    return reading


def read_value(parsed: ParseResult, file: str, where: str, *, tool: str = "JSON document") -> FileReading:
    """Read a parsed document."""
    value, lines = parsed.value, parsed.lines
    document = value if isinstance(value, dict) else {}
    if isinstance(document.get("log_history"), list) and "global_step" in document:
        return _read_trainer_state(document, lines, file, parsed.problems)
    if isinstance(document.get("loss"), list) and not is_example_file(file):
        # A list for each metric, as Keras' History has them.
        columns = {key: column for key, column in document.items() if isinstance(column, list)}
        rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=False))
        metrics = [
            MetricRow(values={"epoch": i, **keys.row_values(row)}, source=Citation(file=file, pointer=f"/loss/{i}"))
            for i, row in enumerate(rows)
        ]
        return FileReading(tool=tool, metrics=metrics, problems=list(parsed.problems))
    key_of_answers, answers = _find_predictions(value, file, lines)
    remark = keys.template_remark(document)
    reader = _Document(
        file=file,
        lines=lines,
        has_results=remark is None and not is_example_file(file),
        is_evaluation=_is_evaluation(document, file),
        is_model="architectures" in document or "model_type" in document,
    )
    rest = {key: item for key, item in document.items() if key != key_of_answers}
    reader.walk(value if key_of_answers is None else rest)
    reading = reader.reading
    problems = list(reader.template_problems(remark, value, where))
    if reading.facts or reading.metrics or reading.scores or answers or problems:
        reading.tool = Tool.TRAINER if is_trainer_summary(document) else "predictions" if key_of_answers == "" else tool
    reading.template = bool(problems)
    reading.predictions = answers if reader.has_results else []
    reading.problems = [*parsed.problems, *problems]
    return reading


def _is_evaluation(document: dict[str, Any], file: str) -> bool:
    """Return whether a document is about an evaluation: by its name, its folder's, or as lm-eval writes it."""
    if is_trainer_summary(document) and not any(keys.is_score(key) for key in document):
        return False  # A row of the training, whatever its file is called.
    config = document.get("config")
    by_harness = isinstance(config, dict) and "model_args" in config
    return by_harness or any(keys.has_word("evaluation", part) for part in file.rpartition(".")[0].split("/")[-2:])


@dataclass(kw_only=True)
class _Document:
    """Collect facts, metric rows and scores in `reading` while a document is read.

    Settings of an evaluation or of a model's config.json are not those of the training. Results of an example or a
    template are only counted (`withheld`); `missing` has the pointers of null results.
    """

    file: str
    lines: Lines
    has_results: bool = True
    is_evaluation: bool = False
    is_model: bool = False
    reading: FileReading = field(default_factory=FileReading)
    missing: list[str] = field(default_factory=list)
    withheld: int = 0

    def walk(self, value: Any, path: Path = (), checkpoint: str | None = None) -> None:
        """Read a value and everything inside it."""
        if isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, dict):
                    self._read_item(item, (*path, index), checkpoint)
        elif isinstance(value, dict):
            self._read_group(value, path, checkpoint)

    def _read_group(self, value: dict[str, Any], path: Path, checkpoint: str | None) -> None:
        if "peft_type" in value and isinstance(value.get("r"), int):
            self._add_fact("lora.rank", value["r"], (*path, "r"))
        if isinstance(arguments := value.get("model_args"), str) and (named := _PRETRAINED.search(arguments)):
            # In results of lm-eval, `model` is only the kind of backend.
            self._add_fact("model.name", named.group(1), (*path, "model_args"))
            value = {key: item for key, item in value.items() if key != "model"}
        numbers = keys.row_values(value)
        is_row, is_summary = keys.is_metric_row(numbers) and "loss" in numbers, is_trainer_summary(value)
        for key, item in value.items():
            if isinstance(item, dict | list):
                if not keys.has_word("other_subject", key):
                    self.walk(item, (*path, key), key if _CHECKPOINT.fullmatch(key) else checkpoint)
            elif not is_row or keys.fact_name(key) != "training.learning_rate":  # Beside a step it is not the peak.
                self._read_leaf(key, item, (*path, key), checkpoint, is_summary=is_summary)

    def _read_item(self, item: dict[str, Any], path: Path, checkpoint: str | None) -> None:
        """Read one item of a list: a metric row, the scores of a checkpoint, or a group."""
        places = (f"{key} {item[key]}" for key in item if plain(key) in {"step", "epoch", "checkpoint"})
        label, values = next(places, checkpoint), keys.row_values(item)
        if not keys.is_metric_row(values) or is_trainer_summary(item):
            self.walk(item, path, label)
            return
        scores = {key for key in item if keys.is_score(key)}
        if not self.has_results:
            self.withheld += 1
        elif values.keys() - {"step", "epoch"} - {keys.metric_name(key) for key in scores}:
            self.reading.metrics.append(MetricRow(values=values, source=self._source(path)))
        for key in item:
            if key in scores and isinstance(item[key], int | float):
                self._read_leaf(key, item[key], (*path, key), label, is_summary=False)
            elif isinstance(item[key], dict):
                self.walk(item[key], (*path, key), label)

    def _read_leaf(self, key: str, value: Any, path: Path, checkpoint: str | None, *, is_summary: bool) -> None:
        groups = [part for part in path[:-1] if isinstance(part, str)]
        if any(keys.has_word("example", part) for part in (*groups, key)):
            return
        name, number = keys.fact_name(key, groups[-1] if groups else None), to_number(value)
        if value is None and (keys.is_score(key) or name in RESULTS):
            self.missing.append(pointer_to(path))
        in_scores = bool(groups) and re.search(r"(?:^|_)scores$", plain(groups[-1])) is not None
        is_score = keys.is_score(key) or in_scores or (is_summary and key.startswith("eval_"))
        is_eval_loss = key.startswith("eval_") and "loss" in key
        if number is not None and ((is_score and not keys.has_word("timing", key)) or is_eval_loss):
            self._add_score(groups, key, number, path, checkpoint)
        elif is_summary and plain(key) in ("train_loss", "training_loss") and number is not None:
            self._add_fact(SUMMARY_FACTS["train_loss"], number, path, note=MEAN_NOTE)
        elif name is None or (checkpoint and name.startswith(("result.", "training.steps", "training.epochs"))):
            return  # It is of one checkpoint, not of the run.
        elif name in keys.TEXT_FACTS:
            if isinstance(value, str) and value.strip() and not PLACEHOLDER.search(value):
                self._add_fact(name, value.strip(), path)
        elif number is not None:
            unclear = "The file does not say whether this is the last, the best or the mean loss."
            self._add_fact(name, number, path, note=unclear if name == "result.loss" else None)

    def _add_fact(self, name: str, value: Scalar, path: Path, *, note: str | None = None) -> None:
        """Add a fact under the name that it has in this document, unless it is a result of a template."""
        if name in RESULTS and not self.has_results:
            self.withheld += 1
            return
        if self.is_model and name.startswith("training."):
            if name != "training.dtype":
                return
            name = "model.dtype"
        *groups, key = (part for part in path if isinstance(part, str))
        is_of_evaluation = self.is_evaluation or any(keys.has_word("evaluation", group) for group in groups)
        if keys.is_unused_device(name, value):
            name = "device.remark"
        elif is_of_evaluation and not plain(key).startswith(("train_", "training_")):
            name = keys.EVALUATION_NAMES.get(name, name)
        self.reading.facts.append(Fact(name=name, value=value, source=self._source(path), note=note))

    def _add_score(self, groups: list[str], key: str, value: float, path: Path, checkpoint: str | None) -> None:
        if not self.has_results:
            self.withheld += 1
            return
        generic = TABLE["paths"]["generic"]
        kept = [plain(part) for part in groups if plain(part) not in generic and not _CHECKPOINT.fullmatch(part)]
        parts = [plain(part) for part in key.split(",", 1) if part != "none"]
        name = ".".join([*kept, *filter(None, parts)])
        self.reading.scores.append(Score(name=name, value=value, source=self._source(path), checkpoint=checkpoint))

    def _source(self, path: Path) -> Citation:
        return Citation.at(self.file, self.lines, pointer_to(path))

    def template_problems(self, remark: str | None, value: Any, where: str) -> Iterator[Problem]:
        """Yield why the document is a template or an example, and which values are missing."""
        if not self.has_results:
            what = "The document calls itself a template or an example" if remark else "The file is named as an example"
            left = f"; not read: {quantity(self.withheld, 'result')}." if self.withheld else "."
            yield problem_of("TP518", file=where, what=what + left, pointer=remark)
        gaps = ((path, text) for path, text in iter_texts(value) if len(text) < 200 and PLACEHOLDER.search(text))
        for path, text in islice(gaps, 3):
            what = f"The value is still {format_value(text)}."
            yield problem_of("TP518", file=where, what=what, pointer=pointer_to(path))
        if self.missing and not self.reading.scores:
            more = f" and {len(self.missing) - 1} more are" if len(self.missing) > 1 else " is"
            what = f"{self.missing[0]}{more} null: nothing was measured."
            yield problem_of("TP518", file=where, what=what, pointer=self.missing[0])


# Files of the Hugging Face Trainer

MEAN_NOTE = "The Hugging Face Trainer's train_loss is the mean over the whole run, not the loss of its last step."

SUMMARY_FACTS: dict[str, str] = TABLE["trainer_summary"]


def is_trainer_summary(value: Mapping[str, Any]) -> bool:
    """Return whether a dict is what the Trainer writes at the end of training."""
    return not value.keys().isdisjoint({"train_runtime", "train_samples_per_second", "train_steps_per_second"})


def _read_trainer_state(value: dict[str, Any], lines: Lines, file: str, problems: Sequence[Problem]) -> FileReading:
    """Read the settings and the log; the last row of a finished run holds the mean loss, not the last one."""
    reading = FileReading(tool=Tool.TRAINER, problems=list(problems))
    parts: list[tuple[Mapping[str, Any], dict[str, str], str]] = [(value, TABLE["trainer_state"], "")]
    for index, item in enumerate(value["log_history"]):
        pointer = f"/log_history/{index}"
        if not isinstance(item, dict):
            continue
        if is_trainer_summary(item):
            parts.append((item, SUMMARY_FACTS, pointer))
        elif values := keys.row_values(item):
            reading.metrics.append(MetricRow(values=values, source=Citation.at(file, lines, pointer)))
    for part, names, place in parts:
        for key, name in names.items():
            number, source = to_number(part.get(key)), Citation.at(file, lines, f"{place}/{key}")
            if number is not None and not (name == "result.tokens_seen" and number == 0):
                note = MEAN_NOTE if key == "train_loss" else None
                reading.facts.append(Fact(name=name, value=number, source=source, note=note))
    return reading


# Answers of the model

FIELDS: dict[str, list[str]] = TABLE["predictions"]
_JUDGED = {*FIELDS["expected"], *FIELDS["correct"]}
_IDENTIFIED = {*FIELDS["id"], *FIELDS["prompt"]}

_ANSWER_FILE = re.compile(r"pred|output|generat|respons|answer|eval|result|sample", re.IGNORECASE)
"""Names of files in which `answer` and `final_answer` are the model's output."""


def _find_predictions(value: Any, file: str, lines: Lines) -> tuple[str | None, list[Prediction]]:
    """Return the key of the list of answers in a document ("" for the document itself), or None, and the answers."""
    document = value if isinstance(value, dict) else {"": value}
    for key, items in document.items():
        if isinstance(items, list) and (key == "" or plain(key) in TABLE["paths"]["prediction_lists"]):
            prefix = f"/{key}" if key else ""
            places = [Citation.at(file, lines, f"{prefix}/{index}") for index in range(len(items))]
            if rows := read_predictions(items, file, places):
                return key, rows
    return None, []


def read_predictions(items: Sequence[Any], file: str, places: Sequence[Citation]) -> list[Prediction]:
    """Read the answers of a list, or nothing if its items are something else."""
    rows = [_flatten(item) for item in items if isinstance(item, dict)]
    if not rows or len(rows) < len(items):
        return []
    names = set().union(*rows)
    output = _output_key(names, file)
    is_marked = names & {*FIELDS["correct"]} and names & _IDENTIFIED
    holds_answers = output is not None or names & {*FIELDS["extracted_answer"]} or is_marked
    if not holds_answers or not names & {*_IDENTIFIED, *_JUDGED, "answer"}:
        return []
    return [_prediction(row, output, place) for row, place in zip(rows, places, strict=True)]


def _output_key(names: set[str], file: str) -> str | None:
    """Return the field that holds the output; `answer` only if another field holds the right one."""
    for name in FIELDS["output_text"]:
        if name in names and not (name == "output" and "instruction" in names and not names & _JUDGED):
            return name
    if not _ANSWER_FILE.search(file.rpartition("/")[2]):
        return None
    has_truth = names & _JUDGED or "model" in names
    return "final_answer" if "final_answer" in names else "answer" if "answer" in names and has_truth else None


def _prediction(row: dict[str, Any], output: str | None, source: Citation) -> Prediction:
    found = {name: next((row[key] for key in keys if row.get(key) is not None), None) for name, keys in FIELDS.items()}
    if found["expected"] is None and output not in (None, "answer"):
        found["expected"] = row.get("answer")
    found["output_text"] = row.get(output) if output else None
    correct = found.pop("correct")
    correct = TABLE["truth"].get(correct.strip().lower()) if isinstance(correct, str) else correct
    is_truth = isinstance(correct, bool | int | float) and correct in (0, 1)
    texts = {name: _text(value) for name, value in found.items()}
    return Prediction(source=source, correct=bool(correct) if is_truth else None, **texts)


def _flatten(item: dict[str, Any]) -> dict[str, Any]:
    """Return a row by plain names, joined with its group `meta`, `metadata`, `info` or `item`."""
    row = {plain(str(key)): value for key, value in item.items()}
    for group in ("meta", "metadata", "info", "item"):
        if isinstance(row.get(group), dict):
            row = {plain(str(key)): value for key, value in row[group].items()} | row
    return row


def _text(value: Any) -> str | None:
    """Return text, numbers as they are written, and the text in a list of one; None for other values."""
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    is_short = isinstance(value, str | bool | float) or (isinstance(value, int) and abs(value) < 10**300)
    return str(value) if is_short else None
