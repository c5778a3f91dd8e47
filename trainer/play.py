"""Chat with models of runs: prompts or evaluation items, answered token by token. Nothing is recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from evidence.proof.signatures import problem_error
from evidence.scores.reading import accepted_answers
from schemas.problems import ProblemError, problem_of
from schemas.reading import read_json
from trainer.config.tree import Config, ModelConfig
from trainer.data.answers import infer_scoring
from trainer.data.conversations import PromptForm, has_template
from trainer.data.rows import RowFile, read_eval_set
from trainer.evaluation.answers import Sampler, unanswered_row
from trainer.evaluation.evaluate import available_devices
from trainer.evaluation.recorded import (
    find_model,
    load_run_params,
    missing_params,
    param_readers,
    read_answers,
    read_config,
    read_manifest,
    read_sampler,
    recorded_items,
)
from trainer.generate.decode import stream_tokens
from trainer.loop.state import initial_params, refuse_other_base, refuse_other_tokenizer
from trainer.loop.task import Task, build_mesh
from trainer.model.source import resolve
from trainer.model.stacks import Params, unstack_on_devices
from trainer.recorder.progress import Watch
from trainer.recorder.recorder import explain_full_device
from trainer.runtime import Devices

Event = Mapping[str, Any]
"""An object with the key `event`: ready, text, answer, refused or done."""

INCOMPLETE = "\ufffd"
"""Decoded for the first bytes of a character whose other bytes are still missing."""


@dataclass(frozen=True, kw_only=True)
class ChatModel:
    """A model, before its parameters are loaded from `where`; `folder` contains its run or its files."""

    name: str
    folder: Path
    sampler: Sampler
    items: RowFile | None = None
    """Evaluation set of its run, or None."""
    where: str
    load: Callable[[], Params]


@dataclass(frozen=True, kw_only=True)
class Question:
    """A prompt of the user, or an evaluation item."""

    row: Mapping[str, Any]
    items: RowFile | None = None
    """Evaluation set of the item, or None for a prompt."""

    def encode(self, model: ChatModel) -> list[int]:
        """Return the token ids of the prompt in the form of a model; raise `ProblemError` if it cannot be answered."""
        one = RowFile(name="", path=Path("--prompt"), rows=(dict(self.row),), lines=(1,), sha256="", warnings=())
        [prompt] = model.sampler.encode_prompts(one)
        if not model.sampler.has_room(prompt):
            row = unanswered_row({"id": "", "expected": "", **self.row}, len(prompt), model.sampler)
            raise problem_error(file="--prompt", code="TP118", what=f"{model.name} cannot answer: {row['error']}.")
        return prompt


def trained_model(folder: Path, devices: Devices) -> ChatModel:
    """Return the trained model of a run.

    Raises `ProblemError` with exit code 2 if the run, its model or its rows cannot be read, and 3 if it lacks
    parameters or the tokenizer is another one.
    """
    config, manifest = read_config(folder), read_manifest(folder)
    source = find_model(folder, config, None)
    refuse_other_tokenizer(manifest, source, file=str(folder))
    task = Task.of(config, source, build_mesh(devices.list))
    where = next((name for name, _ in param_readers(folder, task)), None)
    if where is None:
        raise missing_params(folder, task)
    try:
        summary, rows = read_answers(folder)
    except ProblemError:
        summary, rows = {}, []  # not evaluated, or not validly
    sha256 = summary["checkpoint"]["params_sha256"] if rows else None
    items = recorded_items(summary, rows) if rows else None
    if items is None and config.evaluation.eval_set is not None:
        items = read_eval_set(config.evaluation.eval_set)

    def load() -> Params:
        if sha256 is None:
            refuse_other_base(manifest, task, file=str(folder), trains=False)
        return load_run_params(folder, task, sha256=sha256)[0]

    sampler = read_sampler(folder, task, items)
    return ChatModel(name=folder.resolve().name, folder=folder, sampler=sampler, items=items, where=where, load=load)


def untrained_model(trained: ChatModel) -> ChatModel:
    """Return the model before training: initialized from the seed, or read from the files that the run names."""
    config, manifest = trained.sampler.task.config, read_manifest(trained.folder)
    # `find_model` would return the run's own export if the base model is missing.
    source = resolve(config.model.name, config.model.revision)
    task = Task.of(config, source, trained.sampler.task.mesh)

    def load() -> Params:
        refuse_other_base(manifest, task, file=str(trained.folder), trains=not task.model.frozen)
        return initial_params(task)

    return replace(trained, name=f"{trained.name}, untrained", where=_first_source(task), load=load)


def bare_model(config: Config, devices: Devices) -> ChatModel:
    """Return a model without a run; prompts are a user's turn if its tokenizer has a chat template."""
    source = resolve(config.model.name, config.model.revision)
    task, tokenizer = Task.of(config, source, build_mesh(devices.list)), source.tokenizer()
    form, settings = PromptForm(conversation=has_template(tokenizer), thinks=None), config.evaluation
    scoring = infer_scoring(settings, (), ())
    return ChatModel(
        name=Path(source.name).name,
        folder=Path(config.model.name),
        sampler=Sampler(task=task, settings=settings, form=form, scoring=scoring, tokenizer=tokenizer),
        where=_first_source(task),
        load=partial(initial_params, task),
    )


def _first_source(task: Task) -> str:
    """Return the source of a model's first parameters."""
    return task.model.source.name if task.model.reads_weights else f"seed {task.config.seed}"


def open_models(
    folder: Path | None, *, model: str | None = None, beside: Path | None, untrained: bool, watch: Watch
) -> tuple[ChatModel, ...]:
    """Find the models of a chat: of a run, or else the one named `model`, before training, and of a second run.

    See `trained_model` for errors.
    """
    config = Config(model=ModelConfig(name=model or "")) if folder is None else read_config(folder)
    devices = available_devices(config, watch)
    models = [bare_model(config, devices) if folder is None else trained_model(folder, devices)]
    if untrained:
        models.append(untrained_model(models[0]))
    if beside is not None:
        models.append(trained_model(beside, devices))
    return tuple(models)


def load_models(models: Sequence[ChatModel]) -> tuple[Params, ...]:
    """Load the parameters of each model; a ProblemError with exit code 4 reports a full device."""
    loaded = []
    for model in models:
        with explain_full_device(str(model.folder)):
            loaded.append(unstack_on_devices(model.load()))
    return tuple(loaded)


def answer(
    question: Question, models: Sequence[ChatModel], params: Sequence[Params], *, in_turn: bool
) -> Iterator[Event]:
    """Yield the texts of the models as they grow, and their answers.

    With `in_turn`, one model answers after the other; otherwise each writes a token in turn. Raises `ProblemError` with
    exit code 2 if a model cannot answer it, and 4 if the device is full.
    """
    streams = [
        _stream(number, model, params[number], question, question.encode(model)) for number, model in enumerate(models)
    ]
    with explain_full_device(str(models[0].folder)):
        if in_turn:
            yield from chain(*streams)
        else:
            yield from (event for events in zip_longest(*streams) for event in events if event is not None)
    yield {"event": "done"}


def _stream(
    number: int, model: ChatModel, params: Params, question: Question, prompt: Sequence[int]
) -> Iterator[Event]:
    """Yield the text of one model after each token, then its answer; an item is answered as within its whole set."""
    sampler, tokens = model.sampler, list[int]()
    others = [] if question.items is None else sampler.encode_prompts(question.items)
    for token in stream_tokens(
        sampler.task.model.graphdef,
        params,
        prompt,
        max_new_tokens=sampler.settings.max_new_tokens,
        stop_token_id=sampler.stop_token_id,
        batch_size=sampler.settings.batch_size if question.items else 1,
        like=[each for each in others if sampler.has_room(each)],
        options=sampler.task.compiler_options,
    ):
        tokens.append(token)
        if token != sampler.stop_token_id:
            text = str(sampler.tokenizer.decode(tokens)).rstrip(INCOMPLETE)
            yield {"event": "text", "model": number, "text": text}
    reason, text = "stop" if tokens[-1] == sampler.stop_token_id else "length", sampler.decode_answer(tokens)
    event = {"event": "answer", "model": number, "text": text, "tokens": len(tokens), "finish_reason": reason}
    if question.items is not None:
        accepted, stop = accepted_answers(dict(question.row)), sampler.settings.stop
        event |= {"expected": question.row["expected"], **sampler.scoring.verdict(text, reason, accepted, stop=stop)}
    yield event


def ready_event(models: Sequence[ChatModel]) -> Event:
    """Return the event for loaded models."""
    names = [{"name": model.name, "where": model.where} for model in models]
    return {"event": "ready", "models": names, "evidence": False}


def refused_event(error: ProblemError) -> Event:
    """Return the event for a question that cannot be answered."""
    problems = [{"code": each.code, "what": each.what, "next": each.next} for each in error.problems]
    return {"event": "refused", "problems": problems}


def find_question(prompt: str | None, item: str | None, model: ChatModel) -> Question:
    """Return the question for a prompt, or for the item with an id; raise `ProblemError` if it does not exist."""
    if item is None:
        return Question(row={"prompt": prompt or ""})
    for row in model.items.rows if model.items else ():
        if row["id"] == item:
            return Question(row=row, items=model.items)
    why = f"was evaluated on {model.items.name}, without {item}" if model.items else "lacks an evaluation set"
    raise problem_error(model.folder, "TP116", what=f"{model.name} {why}.")


def read_question(line: str, number: int, model: ChatModel) -> Question:
    """Parse a question, `{"prompt": "…"}` or `{"item": "…"}`; raise `ProblemError` if it is invalid."""
    value = read_json(line, file="standard input").value
    [(key, text)] = value.items() if isinstance(value, dict) and len(value) == 1 else [("", None)]
    if key not in ("prompt", "item") or not isinstance(text, str):
        what = f"{line.strip()[:80]!r} is not a question."
        raise ProblemError([problem_of("TP117", file="standard input", line=number, what=what)], exit_code=2)
    return find_question(text if key == "prompt" else None, text if key == "item" else None, model)
