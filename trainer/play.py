"""Chat with models of runs: prompts or evaluation items, answered token by token. Nothing is recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from evidence import layout
from evidence.scores.reading import accepted_answers
from schemas.problems import ProblemError, problem_of
from schemas.reading import read_json
from trainer.config.tree import Config, ModelConfig
from trainer.data.answers import infer_scoring
from trainer.data.conversations import PromptForm, has_template, rendered_at
from trainer.data.rows import RowFile, read_eval_set
from trainer.evaluation.answers import Sampler, unanswered_row
from trainer.evaluation.late import available_devices
from trainer.evaluation.recorded import (
    find_model,
    load_run_params,
    missing_params,
    param_readers,
    read_answers,
    read_config,
    read_form,
    read_manifest,
    read_run_scoring,
    recorded_items,
)
from trainer.generate.decode import stream_tokens
from trainer.loop.state import initial_params, refuse_other_base, refuse_other_tokenizer
from trainer.loop.task import Task, build_mesh
from trainer.model.source import resolve
from trainer.model.stacks import Params, unstack_on_devices
from trainer.recorder.failure import explain_full_device
from trainer.recorder.progress import Watch
from trainer.runtime import Devices

Event = Mapping[str, Any]
"""An object with the key `event`: ready, text, answer, refused or done."""

INCOMPLETE = "\ufffd"
"""Decoded for the first bytes of a character whose other bytes are still missing."""


@dataclass(frozen=True, kw_only=True)
class ChatModel:
    """A model, before its parameters are loaded."""

    name: str
    folder: Path
    """Folder of its run, or of the model."""
    task: Task
    sampler: Sampler
    items: RowFile | None
    """Evaluation set of its run, or None."""
    where: str
    """Source of its parameters."""
    load: Callable[[], Params]


@dataclass(frozen=True, kw_only=True)
class Question:
    """A prompt of the user, or an evaluation item."""

    row: Mapping[str, Any]
    items: RowFile | None = None
    """Evaluation set of the item, or None for a prompt."""

    def encode(self, model: ChatModel) -> list[int]:
        """Return the token ids of the prompt in the form of a model.

        Raises:
            ProblemError: Exit code 2; the chat template refuses it, or there is no room for an answer.
        """
        one = RowFile(name="", path=Path("--prompt"), rows=(dict(self.row),), lines=(1,), sha256="", warnings=())
        [prompt] = model.sampler.encode_prompts(one)
        if not model.sampler.has_room(prompt):
            row = unanswered_row({"id": "", "expected": "", **self.row}, len(prompt), model.sampler)
            what = f"{model.name} cannot answer: {row['error']}."
            raise ProblemError([problem_of("TP118", file="--prompt", what=what)], exit_code=2)
        return prompt


def trained_model(folder: Path, devices: Devices) -> ChatModel:
    """Return the trained model of a run.

    Raises:
        ProblemError: Exit code 2; the run, its model or its rows cannot be read. Exit code 3: it has no parameters, or
            the tokenizer is another one.
    """
    config, manifest = read_config(folder), read_manifest(folder)
    source = find_model(folder, config, None)
    refuse_other_tokenizer(manifest, source, file=str(folder))
    task = Task.of(config, source, build_mesh(devices.list))
    where = next((name for name, _ in param_readers(folder, task)), None)
    if where is None:
        raise missing_params(folder, task)
    sha256, items = _evaluated_params(folder, config)

    def load() -> Params:
        if sha256 is None:
            refuse_other_base(manifest, task, file=str(folder), trains=False)
        return load_run_params(folder, task, manifest, sha256=sha256).params

    name, sampler = folder.resolve().name, run_sampler(folder, config, task, items)
    return ChatModel(name=name, folder=folder, task=task, sampler=sampler, items=items, where=where, load=load)


def run_sampler(folder: Path, config: Config, task: Task, items: RowFile | None) -> Sampler:
    """Return the sampler of a run's model."""
    return Sampler.for_task(
        task,
        form=read_form(folder, config),
        scoring=read_run_scoring(folder, config, items),
        tokenizer=task.model.source.tokenizer(rendered_at(read_manifest(folder))),
    )


def _evaluated_params(folder: Path, config: Config) -> tuple[str | None, RowFile | None]:
    """Return the hash of the evaluated parameters and the evaluation set of a run, each None if unknown."""
    if (folder / layout.EVAL_SUMMARY).is_file():
        try:
            summary, rows = read_answers(folder)
        except ProblemError:
            rows = []  # an invalid evaluation says nothing about the parameters
        if rows:
            return summary["checkpoint"]["params_sha256"], recorded_items(summary, rows)
    name = config.evaluation.eval_set
    return None, None if name is None else read_eval_set(name)


def untrained_model(trained: ChatModel) -> ChatModel:
    """Return the model before training: drawn from the seed, or read from the files that the run names."""
    config, manifest = trained.task.config, read_manifest(trained.folder)
    # `find_model` would return the run's own export if the base model is missing.
    source = resolve(config.model.name, config.model.revision)
    task = Task.of(config, source, trained.task.mesh)

    def load() -> Params:
        refuse_other_base(manifest, task, file=str(trained.folder), trains=not task.model.frozen)
        return initial_params(task)

    where = source.name if task.model.reads_weights else f"seed {config.seed}"
    return replace(trained, name=f"{trained.name}, untrained", task=task, where=where, load=load)


def bare_model(config: Config, devices: Devices) -> ChatModel:
    """Return a model without a run; prompts are a user's turn if its tokenizer has a chat template."""
    source = resolve(config.model.name, config.model.revision)
    task, tokenizer = Task.of(config, source, build_mesh(devices.list)), source.tokenizer()
    return ChatModel(
        name=Path(source.name).name,
        folder=Path(config.model.name),
        task=task,
        sampler=Sampler.for_task(
            task,
            form=PromptForm(conversation=has_template(tokenizer), thinks=None),
            scoring=infer_scoring(config.evaluation, (), ()),
            tokenizer=tokenizer,
        ),
        items=None,
        where=source.name if task.model.reads_weights else f"seed {config.seed}",
        load=lambda: initial_params(task),
    )


def open_models(
    folder: Path | None, *, model: str | None = None, beside: Path | None, untrained: bool, watch: Watch
) -> tuple[ChatModel, ...]:
    """Find the models of a chat.

    Args:
        folder: Run, or None for a model without a run.
        model: Name of that model.
        beside: Another run whose model answers too.
        untrained: Add the model before training.
        watch: Reports if other devices than the run's are used.

    Raises:
        ProblemError: As `trained_model`.
    """
    config = Config(model=ModelConfig(name=model or "")) if folder is None else read_config(folder)
    devices = available_devices(config, watch)
    first = bare_model(config, devices) if folder is None else trained_model(folder, devices)
    return (
        first,
        *([untrained_model(first)] if untrained else []),
        *([trained_model(beside, devices)] if beside is not None else []),
    )


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

    Args:
        question: The question.
        models: The models.
        params: Parameters of each.
        in_turn: One model after the other; otherwise each writes a token in turn.

    Raises:
        ProblemError: Exit code 2; a model cannot answer it. Exit code 4: the device is full.
    """
    prompts = [question.encode(model) for model in models]
    streams = [_stream(number, model, params[number], question, prompts[number]) for number, model in enumerate(models)]
    with explain_full_device(str(models[0].folder)):
        yield from chain(*streams) if in_turn else _interleave(streams)
    yield {"event": "done"}


def _stream(
    number: int, model: ChatModel, params: Params, question: Question, prompt: Sequence[int]
) -> Iterator[Event]:
    """Yield the text of one model after each token, then its answer; an item is answered as within its whole set."""
    sampler, tokens = model.sampler, list[int]()
    others = [] if question.items is None else sampler.encode_prompts(question.items)
    for token in stream_tokens(
        sampler.graphdef,
        params,
        prompt,
        max_new_tokens=sampler.settings.max_new_tokens,
        stop_token_id=sampler.stop_token_id,
        batch_size=sampler.settings.batch_size if question.items else 1,
        like=[each for each in others if sampler.has_room(each)],
        options=sampler.options,
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


def _interleave(streams: Sequence[Iterator[Event]]) -> Iterator[Event]:
    left = list(streams)
    while left:
        for stream in tuple(left):
            if (event := next(stream, None)) is None:
                left.remove(stream)
            else:
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
    """Return the question for a prompt, or for the item with an id in the run's evaluation set.

    Raises:
        ProblemError: Exit code 2; the run has no evaluation set, or there is no such item.
    """
    if item is None:
        return Question(row={"prompt": prompt or ""})
    found = next((row for row in model.items.rows if row["id"] == item), None) if model.items else None
    if model.items is None or found is None:
        why = "has no evaluation set" if model.items is None else f"was evaluated on {model.items.name}, without {item}"
        problem = problem_of("TP116", file=str(model.folder), what=f"{model.name} {why}.")
        raise ProblemError([problem], exit_code=2)
    return Question(row=found, items=model.items)


def read_question(line: str, number: int, model: ChatModel) -> Question:
    """Parse a question, `{"prompt": "…"}` or `{"item": "…"}`.

    Raises:
        ProblemError: Exit code 2; the line is not a question, or there is no such item.
    """
    value = read_json(line, file="standard input").value
    [(key, text)] = value.items() if isinstance(value, dict) and len(value) == 1 else [("", None)]
    if key not in ("prompt", "item") or not isinstance(text, str):
        what = f"{line.strip()[:80]!r} is not a question."
        raise ProblemError([problem_of("TP117", file="standard input", line=number, what=what)], exit_code=2)
    return find_question(text if key == "prompt" else None, text if key == "item" else None, model)
