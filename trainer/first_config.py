"""`trainproof init`: read a model and rows, choose settings that fit a machine, and write a commented configuration."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from evidence.rules.plausibility import describe_overlap
from evidence.scores.overlap import RowTexts, find_overlap, row_texts, split_words
from evidence.scores.reading import ANSWER_OPEN, extract_answer, last_boxed
from evidence.targets import THIS_MACHINE, Target, load_target
from evidence.writing import output_error
from schemas.catalog import DATASETS, EVAL_SETS, GYM, MODELS
from schemas.formats import join_words, quantity, short_count, size
from schemas.problems import Problem, ProblemError, collect_problems, problem_of, truncate_problems
from trainer.config.load import TEXTS, USAGE, Setting, comment_lines, settings_text
from trainer.config.names import EVAL_SETS_BY_DATASET, missing_dataset, missing_eval_set, model_path
from trainer.config.tree import Config, MethodConfig, ModelConfig
from trainer.convert import Conversion, convert
from trainer.data.answers import EvalShape
from trainer.data.builtin import FOLDER
from trainer.data.files import RowTable, open_table
from trainer.data.rows import RowKind, find_shape, read_eval_set, scan_rows
from trainer.loop.task import Task, shapes_mesh
from trainer.model.decoder import parameter_count
from trainer.model.model import Model, read_model
from trainer.objectives import build_objective
from trainer.objectives.data import Data, read_data
from trainer.planning.memory import Estimator, ProgramMemory, deciding
from trainer.planning.subject import PACKED_FRACTION
from trainer.runtime import available_bytes, this_machine

SMALL_PARAMETERS, TINY_PARAMETERS = 100_000_000, 10_000_000
"""Models below the first are trained in full, larger ones with adapters; tiny ones with a larger learning rate."""
PASSES = 3
STEPS_PER_PASS = 25
MIN_STEPS = 10
MAX_STEPS = 5_000
MAX_SEQUENCES_PER_STEP = 16
TOKENS_PER_MICROBATCH = {"cpu": 4_096, "gpu": 16_384, "tpu": 16_384}
"""Tokens beyond which a larger microbatch is not faster."""
LENGTH_MULTIPLE = 32
TEXT_LENGTH = 512
MIN_PACKED_LENGTH = 256
MIN_PADDING, MIN_PACKED_SEQUENCES = 0.3, 200
"""Rows are packed if at least this fraction is padding and this many sequences result."""
MAX_ITEMS = 100
HELD_OUT = 10
MIN_ITEMS = 10
MIN_QUESTIONS = 30  # one question in `HELD_OUT` becomes an item if there are at least `MIN_QUESTIONS`
MAX_ANSWER_CHARACTERS = 60  # a longer completion is a text with many right forms, not an answer
TRAINING, ITEMS = "train.jsonl", "eval.jsonl"
_MARKED = re.compile(r"####\s*(\S.*?)\s*$")


@dataclass(frozen=True, kw_only=True)
class Order:
    """Arguments of `trainproof init`; `on` is a machine as in `plan --on`, or None for this one."""

    model: str
    data: str
    eval_set: str | None
    on: str | None
    output: Path
    force: bool


def find_answer(row: dict[str, Any]) -> tuple[str, str] | None:
    """Return question and expected answer of a row, or None; a conversation must have a single question."""
    if (found := find_shape(row, "rows")) is None:
        return None
    converted = found[1].convert(row)
    if isinstance(turns := converted.get("messages"), list):
        if [turn.get("role") for turn in turns] not in (["user", "assistant"], ["system", "user", "assistant"]):
            return None
        question, answer = turns[-2].get("content"), _read_answer(turns[-1].get("content"))
    else:
        question = converted.get("prompt")
        answer = converted["final_answer"] if "final_answer" in converted else _read_answer(converted.get("completion"))
    is_pair = isinstance(question, str) and isinstance(answer, str) and question.strip() and answer.strip()
    return (str(question), str(answer).strip()) if is_pair else None


def _read_answer(text: Any) -> str | None:
    """Return the answer of a completion: tagged, boxed, marked as in GSM8K, or all of a short line."""
    if not isinstance(text, str):
        return None
    if ANSWER_OPEN in text or "\\boxed" in text:
        return extract_answer(text) if ANSWER_OPEN in text else last_boxed(text)
    if marked := _MARKED.search(text):
        return marked[1]
    plain = text.strip()
    return plain if len(plain) <= MAX_ANSWER_CHARACTERS and "\n" not in plain else None


def question_key(question: str) -> str:
    """Return the words of a question, by which `trainproof check` compares questions."""
    return " ".join(split_words(question))


@dataclass(frozen=True, kw_only=True)
class EvalChoice:
    """The evaluation set of the configuration."""

    name: str | None  # built-in set or existing file, or None if the items are to be written or nothing is evaluated
    because: str
    items: Sequence[dict[str, Any]] = ()
    questions: frozenset[str] = frozenset()  # keys of the held-out questions

    def holds_out(self, texts: RowTexts) -> bool:
        """Return whether a row contains a held-out question."""
        return any(question_key(question) in self.questions for question in texts[0])


@dataclass(frozen=True, kw_only=True)
class RowsShape:
    """A file with rows of one kind."""

    name: str
    kind: RowKind
    columns: tuple[str, ...]
    table: RowTable

    def configure(self, config: Config) -> Config:
        """Return the configuration with the settings that follow from the kind."""
        kind, objective = "text" if self.kind == "text" else "rows", "dpo" if self.kind == "pairs" else "supervised"
        return config.changed(data={"kind": kind}, objective={"kind": objective})


def read_shape(name: str) -> RowsShape:
    """Return what a built-in dataset or a file contains, or raise a ProblemError with exit code 2."""
    if (missing := missing_dataset(name)) is not None:
        fix = missing.next.replace("--dataset", "the second argument as")
        raise ProblemError([replace(missing, next=fix)], exit_code=USAGE)
    if name.startswith(GYM):
        what = f"{name} is not a file: reasoning-gym generates tasks for rewards."
        fix = "Write the configuration by hand: objective.kind grpo with the reward reasoning_gym."
        raise ProblemError([problem_of("TP010", file=name, what=what, why=None, next=fix)], exit_code=USAGE)
    path = FOLDER / f"{name}.jsonl" if name in DATASETS else Path(name)
    table = open_table(path)
    scan = scan_rows(table, "pairs", "rows", "text")
    problems = [*truncate_problems(scan.problems)]
    if len(scan.shapes) > 1:
        each = [
            f"{quantity(len(rows), 'row')} with {join_words(names, last='and')} (first in line {table.lines[rows[0]]})"
            for (_, names), rows in scan.shapes.items()
        ]
        what = f"The file contains {join_words(each, last='and')}."
        problems.append(problem_of("TP033", file=str(path), what=what))
    if problems:
        raise ProblemError(problems, exit_code=USAGE)
    [(kind, columns)] = scan.shapes
    return RowsShape(name=name, kind=kind, columns=columns, table=table)


def split_rows(rows: RowsShape) -> EvalChoice:
    """Select a tenth of the questions for evaluation by their SHA-256, independent of the file's order."""
    found: dict[str, tuple[int, tuple[str, str]]] = {}
    answered, total = 0, len(rows.table)
    for number, row in enumerate(rows.table) if rows.kind == "rows" else ():
        if (pair := find_answer(row)) is not None:
            answered += 1
            found.setdefault(question_key(pair[0]), (rows.table.lines[number], pair))
    if rows.kind != "rows":
        because = f"rows with {' and '.join(rows.columns)} cannot be scored"
    elif 2 * answered < total:
        count = answered or "none"
        because = f"{count} of the {total:,} rows have an answer to compare with (tags, ####, or a short line)"
    elif len(found) < MIN_QUESTIONS:
        because = f"the rows ask {len(found):,} different questions, too few for a split (at least {MIN_QUESTIONS})"
    else:
        because = f"drawn from {len(found):,} questions by the hash of each"
        count = min(MAX_ITEMS, max(MIN_ITEMS, len(found) // HELD_OUT))
        drawn = sorted(found, key=lambda key: hashlib.sha256(key.encode()).hexdigest())[:count]
        items = _to_items(sorted(found[key] for key in drawn))
        return EvalChoice(name=None, because=because, items=items, questions=frozenset(drawn))
    return EvalChoice(name=None, because=because)


def _to_items(answered: Iterable[tuple[int, tuple[str, str]]]) -> list[dict[str, Any]]:
    return [{"id": f"line-{line}", "prompt": question, "expected": answer} for line, (question, answer) in answered]


def choose_eval_set(eval_set: str | None, rows: RowsShape | None) -> EvalChoice | None:
    """Return the named evaluation set, the set of a built-in dataset, or a split of the rows, None without rows."""
    name, because = eval_set, "the set that you named"
    if name is None:
        if rows is None or rows.name not in DATASETS:
            return None if rows is None else split_rows(rows)
        name, because = EVAL_SETS_BY_DATASET[rows.name], f"the built-in set that belongs to {rows.name}"
    if (missing := missing_eval_set(name)) is not None:
        fix = missing.next.replace("--set evaluation.eval_set", "--eval")
        raise ProblemError([replace(missing, next=fix)], exit_code=USAGE)
    if name in EVAL_SETS or not _has_training_rows(Path(name)):
        return EvalChoice(name=name, because=because, items=read_eval_set(name).rows)
    shape = read_shape(name)
    pairs = ((shape.table.lines[number], find_answer(row)) for number, row in enumerate(shape.table))
    answered = [(line, pair) for line, pair in pairs if pair is not None]
    if lacking := len(shape.table) - len(answered):
        what = f"{lacking:,} of {quantity(len(shape.table), 'row')} lack an answer to compare outputs with."
        raise ProblemError([problem_of("TP036", file=name, what=what)], exit_code=USAGE)
    return EvalChoice(name=None, because=f"the rows of {name} as items", items=_to_items(answered))


def _has_training_rows(path: Path) -> bool:
    try:
        return all("expected" not in row and find_shape(row, "rows") for row in open_table(path))
    except ProblemError:
        return False  # reported by `read_eval_set`


@dataclass(frozen=True, kw_only=True)
class ModelAndData:
    """Model, rows and evaluation set; `longest_answer` is in tokens, with the end token."""

    model: Model
    rows: RowsShape
    data: Data
    evaluated: EvalChoice
    longest_answer: int
    warnings: tuple[Problem, ...]

    @property
    def widths(self) -> np.ndarray:
        """Tokens of the longest sequence of each row."""
        return self.data.encoded.widths


def read_inputs(order: Order) -> ModelAndData:
    """Read model, rows and evaluation set, or raise a ProblemError with all problems."""
    problems: list[Problem] = []
    rows: RowsShape | None = None
    evaluated: EvalChoice | None = None
    plain = Config(model=ModelConfig(name=order.model))
    is_local = order.model in MODELS or model_path(order.model) is not None
    model = read_model(plain, problems, with_weights=is_local)  # weights on the hub are not downloaded
    with collect_problems(problems):
        rows = read_shape(order.data)
    with collect_problems(problems):
        evaluated = choose_eval_set(order.eval_set, rows)
    with collect_problems(problems):
        if model is not None:
            model.source.tokenizer()
    if model is None or rows is None or evaluated is None or problems:
        raise ProblemError(problems, exit_code=USAGE)
    draft = rows.configure(plain).changed(
        data={"dataset": order.data, "max_length": model.source.spec.max_positions},
        evaluation={"eval_set": evaluated.name, "max_new_tokens": 1},
    )
    data = read_data(draft, model, build_objective(draft), problems, devices=1)
    problems += data.refused if data else []
    if problems or data is None:
        raise ProblemError(problems, exit_code=USAGE)
    return ModelAndData(
        model=model,
        rows=rows,
        data=data,
        evaluated=evaluated,
        longest_answer=max((each.learned_count for each in data.encoded.encoded if rows.kind != "pairs"), default=0),
        warnings=(*data.warnings, *_overlap(evaluated, data, order.eval_set or order.data)),
    )


def _overlap(evaluated: EvalChoice, data: Data, file: str) -> list[Problem]:
    """Return warnings about items that are training rows; if all are, raise a ProblemError."""
    texts = (texts for texts in map(row_texts, data.rows) if not evaluated.holds_out(texts))
    overlap, total = find_overlap(evaluated.items, texts), len(evaluated.items)
    if 0 < total == len(overlap.items_same):
        what = f"The training rows contain all of its {quantity(total, 'item')}."
        raise ProblemError([problem_of("TP034", file=file, what=what)], exit_code=USAGE)
    found = describe_overlap(overlap.document(), items=total)
    return [problem_of(code, file=file, what=what, severity="warning") for code, what in found]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A configuration and its estimated memory."""

    config: Config
    need: ProgramMemory  # of the program that needs most, by formula
    devices: int
    sequences: int  # of one pass over the rows
    parameters: int
    trained: int

    @property
    def fits(self) -> bool:
        """Whether it fits, or the memory is unknown."""
        return self.need.verdict in ("fits", "unknown")

    @property
    def batch_size(self) -> int:
        """Sequences of an optimizer step over all devices."""
        return self.config.batch.microbatch_size * self.config.batch.accumulation_steps * self.devices


def choose(inputs: ModelAndData, target: Target, config: Config) -> Choice:
    """Return the first candidate that fits the machine, or else the one that needs least."""
    length, packing = choose_length(inputs)
    if config.evaluation.eval_set is not None:
        longest = math.ceil(1.25 * inputs.longest_answer / 8) * 8
        room = max(8, min(longest, inputs.model.source.spec.max_positions // 2))
        config = config.changed(evaluation={"max_new_tokens": room})
    config = inputs.rows.configure(config).changed(data={"max_length": length, "packing": packing})
    tried: list[Choice] = []
    for candidate in candidates(config, inputs, target):
        tried.append(measure(candidate, inputs, target))
        if tried[-1].fits:
            return tried[-1]
    return min(reversed(tried), key=lambda choice: choice.need.peak_bytes)


def choose_length(inputs: ModelAndData) -> tuple[int, bool]:
    """Return `data.max_length`, which holds every row whole, and whether rows are packed.

    Rows of 20 to 93 tokens, 40 on average, would be padded to 96; 2,000 such rows are packed into sequences of 256.
    """
    positions, widths = inputs.model.source.spec.max_positions, inputs.widths
    if inputs.rows.kind == "text":
        return min(positions, TEXT_LENGTH), True
    longest = int(widths.max())
    multiple = LENGTH_MULTIPLE if longest > 4 * LENGTH_MULTIPLE else LENGTH_MULTIPLE // 4
    length = min(positions, max(LENGTH_MULTIPLE, math.ceil(longest / multiple) * multiple))
    packed = min(positions, max(length, MIN_PACKED_LENGTH))
    is_enough = float(widths.sum()) / (PACKED_FRACTION * packed) >= MIN_PACKED_SEQUENCES
    if inputs.rows.kind == "rows" and is_enough and widths.mean() < (1 - MIN_PADDING) * length:
        return packed, True
    return length, False


def candidates(config: Config, inputs: ModelAndData, target: Target) -> Iterator[Config]:
    """Yield configurations by method, and for each from the largest microbatch down to one sequence or pair."""
    reads_weights, is_cpu = inputs.model.reads_weights, target.platform == "cpu"
    is_small = not reads_weights or parameter_count(inputs.model.shapes) < SMALL_PARAMETERS
    methods = [MethodConfig(kind="full")] if is_small else []
    if reads_weights:
        methods.append(MethodConfig(kind="lora", rank=16, alpha=32.0))
        methods += [] if is_cpu else [replace(methods[-1], base="nf4")]
    remats = ("none", "layer") if is_cpu else ("layer",)  # a CPU has much memory for its speed
    each = 2 if inputs.rows.kind == "pairs" else 1
    most = math.ceil(_step_sequences(config, inputs, target) / target.devices)
    most = max(1, min(most, TOKENS_PER_MICROBATCH[target.platform] // config.data.max_length))
    sizes = [2**power for power in range(int(math.log2(most)), -1, -1) if 2**power >= each] or [each]
    for method, remat, size_ in product(methods, remats, sizes):
        # Every GPU has a full copy of the frozen model: gathering shards would take longer than the step.
        shard = method.kind == "full" or target.platform != "gpu" or target.devices == 1
        candidate = replace(config, method=method).changed(
            mesh={"shard_params": shard}, memory={"remat": remat}, batch={"microbatch_size": size_}
        )
        yield _with_steps(_with_precision(candidate, inputs, target), inputs, target)


def _with_precision(config: Config, inputs: ModelAndData, target: Target) -> Config:
    """Set 16-bit compute if an accelerator has it, and 16-bit parameters if they are frozen."""
    compute = "bfloat16" if "bfloat16" in target.element_types else "float16"
    overflows = compute == "float16" and "gemma3" in inputs.model.source.spec.family
    if target.platform == "cpu" or compute not in target.element_types or overflows:
        compute = "float32"
    params = "float32" if config.method.kind == "full" else compute
    return config.changed(precision={"params": params, "compute": compute})


def _step_sequences(config: Config, inputs: ModelAndData, target: Target) -> int:
    """Return the sequences of a step: few enough for 25 steps a pass, at least one per device."""
    few = min(MAX_SEQUENCES_PER_STEP, _pass_sequences(config, inputs) // STEPS_PER_PASS)
    return max(few, target.devices, 1)


def _pass_sequences(config: Config, inputs: ModelAndData) -> int:
    rows = len(inputs.widths)
    held_out = len(inputs.evaluated.items) if inputs.evaluated.questions else 0
    if config.data.packing or inputs.rows.kind == "text":
        tokens = float(inputs.data.encoded.lengths.sum()) * (rows - held_out) / rows
        return max(1, math.ceil(tokens / (PACKED_FRACTION * config.data.max_length)))
    return (rows - held_out) * (2 if inputs.rows.kind == "pairs" else 1)


def _with_steps(config: Config, inputs: ModelAndData, target: Target) -> Config:
    sequences = config.batch.microbatch_size * target.devices
    accumulation = max(1, _step_sequences(config, inputs, target) // sequences)
    steps = math.ceil(PASSES * _pass_sequences(config, inputs) / (sequences * accumulation))
    steps = min(MAX_STEPS, max(MIN_STEPS, steps))
    is_lora, is_tiny = config.method.kind == "lora", parameter_count(inputs.model.shapes) < TINY_PARAMETERS
    rate = 2e-4 if is_lora else 5e-4 if is_tiny else 5e-5
    if inputs.rows.kind == "pairs":
        rate = 1e-5 if is_lora else 1e-6
    elif not inputs.model.reads_weights:
        rate = 1e-3
    return config.changed(
        batch={"accumulation_steps": accumulation},
        optimizer={"learning_rate": rate, "warmup_steps": max(1, steps // 20)},
        limits={"steps": steps},
        recording={"log_every_steps": max(1, steps // 100)},
        checkpoint={"save_every_steps": steps // 4 if steps >= 100 else 0},
    )


def measure(config: Config, inputs: ModelAndData, target: Target) -> Choice:
    """Estimate the memory of a configuration by formula."""
    task = Task.of(config, inputs.model.source, shapes_mesh(target.devices), platform=target.platform)
    longest = min(int(inputs.widths.max()), config.data.max_length)
    longest = inputs.data.eval_shape.longest_tokens if inputs.data.eval_shape else longest
    shape = EvalShape(prompts=len(inputs.evaluated.items), longest_tokens=longest)
    estimator = Estimator(platform=target.platform, available_bytes=available_bytes(target))
    return Choice(
        config=config,
        need=deciding(estimator.programs(task, shape if config.evaluation.eval_set else None)),
        devices=target.devices,
        sequences=_pass_sequences(config, inputs),
        parameters=parameter_count(inputs.model.base),
        trained=parameter_count(task.model.trained),
    )


def explain(choice: Choice, inputs: ModelAndData, target: Target) -> Iterator[Setting]:
    """Yield the settings of the file in order, each with its comment."""
    config, spec, repeated = choice.config, inputs.model.source.spec, inputs.data.duplicates
    available = choice.need.available_bytes
    rows = f"{quantity(len(inputs.rows.table), 'row')} with {join_words(inputs.rows.columns, last='and')}"
    rows += f"; {quantity(repeated, 'row')} with a question of an earlier one" if repeated else ""
    rows += "; the evaluation set was split off" if inputs.evaluated.questions else ""
    facts = {
        "parameters": short_count(choice.parameters),
        "trained": short_count(choice.trained),
        "family": spec.family,
        "positions": spec.max_positions,
        "weights": "pretrained" if inputs.model.reads_weights else "random",
        "rows": rows,
        **percentiles(inputs.widths),
        "filled": 100 * min(float(inputs.widths.mean()) / config.data.max_length, 1),
        "need": size(choice.need.peak_bytes),
        "available": f" of {size(available)}" if available is not None else "",
        "machine": target.title,
        "batch": quantity(choice.batch_size, "sequence"),
        "devices": quantity(choice.devices, "device"),
        "because": inputs.evaluated.because,
        "answer": inputs.longest_answer,
        "passes": config.limits.steps * choice.batch_size / choice.sequences,
    }
    default = Config(model=config.model)
    for key, comment in TEXTS["comments"].items():
        value, usual = (reduce(getattr, key.split("."), each) for each in (config, default))
        if key in TEXTS["written"]["always"] or value != usual:
            yield Setting(key, value, comment.format(**facts))


@dataclass(frozen=True, kw_only=True)
class WrittenConfig:
    """A configuration that was written."""

    order: Order
    looked: ModelAndData
    choice: Choice
    reasons: tuple[Setting, ...]
    written: tuple[Path, ...]
    warnings: tuple[Problem, ...]

    def document(self) -> dict[str, Any]:
        """Return the output of `trainproof init --json`."""
        inputs, need = self.looked, self.choice.need
        return {
            "config": str(self.order.output),
            "written": [str(path) for path in self.written],
            "model": {
                "name": self.order.model,
                "family": inputs.model.source.spec.family,
                "parameters": self.choice.parameters,
                "trained_parameters": self.choice.trained,
                "positions": inputs.model.source.spec.max_positions,
            },
            "data": {
                "name": self.order.data,
                "rows": len(inputs.rows.table),
                "columns": list(inputs.rows.columns),
                "tokens": percentiles(inputs.widths),
                "duplicates": inputs.data.duplicates,
            },
            "evaluation": {"items": len(inputs.evaluated.items) or None, "because": inputs.evaluated.because},
            "memory": {"need_bytes": need.peak_bytes, "available_bytes": need.available_bytes, "verdict": need.verdict},
            "settings": [{"key": key, "value": value, "because": because} for key, value, because in self.reasons],
            "findings": [
                {"code": each.code, "severity": each.severity, "file": each.file, "what": each.what, "next": each.next}
                for each in self.warnings
            ],
            "next": self.commands(),
        }

    def commands(self) -> list[str]:
        """Return the next commands, in order."""
        config = shlex.quote(str(self.order.output))
        return [
            f"trainproof train --config {config} --check",
            f"trainproof plan --config {config}",
            f"trainproof train --config {config} --smoke-steps 2",
            f"trainproof train --config {config} --output submission_runs/first",
            "trainproof package submission_runs/first --output first.zip",
            "trainproof verify first.zip",
        ]


def write_first_config(order: Order) -> WrittenConfig:
    """Choose settings and write configuration and split files, or raise a ProblemError with all problems."""
    problems: list[Problem] = []
    target: Target | None = None
    inputs: ModelAndData | None = None
    with collect_problems(problems):
        is_here = order.on in (None, THIS_MACHINE)
        target = this_machine(Config(model=ModelConfig(name=order.model))) if is_here else load_target(str(order.on))
    with collect_problems(problems):
        inputs = read_inputs(order)
    files: dict[Path, Iterable[str]] = {}
    if inputs and inputs.evaluated.questions:
        files[order.output.parent / TRAINING] = training_lines(inputs.rows, inputs.evaluated)
    if inputs and inputs.evaluated.items and inputs.evaluated.name is None:
        files[order.output.parent / ITEMS] = map(_to_line, inputs.evaluated.items)
    given = [Path(name) for name in (order.data, order.eval_set) if name]
    problems += find_output_problems([*files, order.output], given, force=order.force)
    if problems or inputs is None or target is None:
        raise ProblemError(problems, exit_code=USAGE)
    names = {path.name: str(path) for path in files}
    dataset, eval_set = names.get(TRAINING, order.data), names.get(ITEMS, inputs.evaluated.name)
    config = Config(name=run_name(order.model, order.data), model=ModelConfig(name=order.model))
    choice = choose(inputs, target, config.changed(data={"dataset": dataset}, evaluation={"eval_set": eval_set}))
    reasons, warnings = tuple(explain(choice, inputs, target)), inputs.warnings
    if not choice.fits:
        length, need, available = choice.config.data.max_length, choice.need.peak_bytes, choice.need.available_bytes
        what = f"One sequence of {length:,} tokens at a time needs about {size(need)} of {size(available)}."
        warnings += (problem_of("TP037", file=str(order.output), what=what),)
    title = (
        f"A first configuration for the model {order.model} and the rows {order.data}, written by `trainproof init`. "
        "It has not been tried. Other keys have their defaults: see docs/reference/configuration.md."
    )
    lines = [*comment_lines(title), "", *settings_text(reasons)]
    files[order.output] = [f"{line}\n" for line in lines]
    write_files(files)
    return WrittenConfig(
        order=order, looked=inputs, choice=choice, reasons=reasons, written=tuple(files), warnings=warnings
    )


def write_conversion(source: Path, settings: Sequence[str], output: Path, *, force: bool) -> Conversion:
    """Convert a configuration of another trainer and write it, or raise a ProblemError with exit code 2."""
    problems = find_output_problems([output], [source], force=force)
    with collect_problems(problems):
        converted = convert(source, settings)
    if problems:
        raise ProblemError(problems, exit_code=USAGE)
    write_files({output: [converted.text()]})
    return converted


def training_lines(rows: RowsShape, evaluated: EvalChoice) -> Iterator[str]:
    """Yield the training rows as lines of JSON."""
    for row in rows.table:
        found = find_shape(row, "rows")
        assert found is not None, "every row was checked"
        if not evaluated.holds_out(row_texts(found[1].convert(row))):
            yield _to_line(row)


def _to_line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"


def find_output_problems(outputs: Sequence[Path], given: Sequence[Path], *, force: bool) -> list[Problem]:
    """Return a problem for each output that exists, is a folder or is an input; inputs are never replaced."""
    problems = []
    for path in outputs:
        is_input = path.resolve() in [each.resolve() for each in given]
        if is_input or path.is_dir() or (path.exists() and not force):
            state = "is a folder" if path.is_dir() else "already exists"
            state = "is an input; it is not replaced" if is_input else state
            fix = "Name a file in another folder with --output." if is_input or path.is_dir() else None
            problems.append(problem_of("TP035", file=str(path), what=f"{path} {state}.", next=fix))
    return problems


def write_files(files: Mapping[Path, Iterable[str]]) -> None:
    """Write files atomically, or raise a ProblemError with exit code 2."""
    for path, lines in files.items():
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("w", encoding="utf-8", newline="\n") as file:
                file.writelines(lines)
            temporary.replace(path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise output_error(error, path, subject=f"The file {path.name}") from error


def percentiles(widths: np.ndarray) -> dict[str, int]:
    """Return percentiles of the row lengths: half of the rows have at most `p50` tokens."""
    found = {f"p{share}": int(np.percentile(widths, share, method="inverted_cdf")) for share in (50, 90, 99)}
    return {**found, "longest": int(widths.max())}


def run_name(model: str, data: str) -> str:
    """Return the name of a run: `run_name("models/SmolLM2", "my rows.jsonl")` is `SmolLM2-my-rows`."""
    words = [Path(model).name.removesuffix(".gguf"), Path(data).stem if Path(data).suffix else Path(data).name]
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(words)).strip("._-")
    return plain[:40].rstrip("._-") or "first"
