"""Everything a run needs before anything is spent: read, checked, planned; no folder made, no parameter drawn.

Whatever is wrong with names, rows or devices is found here, in a second or two. The model's weights and a checkpoint
are read where they will lie, which `assemble.py` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from schemas.problems.problem import Problem, ProblemError
from trainer.config.tree import Config
from trainer.data.dev_reasoning import generate_rows
from trainer.data.encode import EncodedData, Tokenizer, encode_rows
from trainer.data.order import rows_of_step
from trainer.data.render import PromptForm, form_of, prompt_of, question_of
from trainer.data.rows import GENERATED, RowFile, read_dataset, read_eval_set
from trainer.data.special_tokens import special_token_problems
from trainer.evaluation.evaluate import prompts_of
from trainer.loop.program import batch_size_of
from trainer.model.build import abstract
from trainer.model.decoder import Decoder
from trainer.model.files.loading import refuse_unusable_weights
from trainer.model.files.source import ModelSource, resolve
from trainer.model.params import Params, flatten
from trainer.planning.devices import Devices, choose_devices
from trainer.planning.estimate import Asked
from trainer.planning.fit import refuse_too_long_sequences, refuse_what_leaves_no_room
from trainer.planning.plan import plan_run

Found = TypeVar("Found")

GENERATOR_SEED_OFFSET = 1_000_003
"""Added to the run's seed for generated rows, so that they never repeat the committed file's own seed."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What a run works with."""

    config: Config
    devices: Devices
    source: ModelSource
    tokenizer: Tokenizer
    dataset: RowFile
    rows: tuple[dict[str, Any], ...]
    """The dataset's rows, then generated ones."""
    data: EncodedData
    items: RowFile | None
    """The evaluation set. None: nothing is evaluated."""
    form: PromptForm
    """How its prompts are put to the model: as the rows were."""
    warnings: tuple[Problem, ...]
    """What is odd about rows and items and keeps nobody from using them."""
    plan: dict[str, Any]

    def dataset_document(self) -> dict[str, Any]:
        """Return the manifest's group `dataset`."""
        prompts = [prompt_of(row) for row in self.rows]
        asked = None if self.items is None else {item["prompt"] for item in self.items.rows}
        generated = len(self.rows) - len(self.dataset.rows)
        return {
            "name": self.dataset.name,
            "rows": len(self.dataset.rows),
            "sha256": self.dataset.sha256,
            "split": "all",
            "duplicates": len(prompts) - len(set(prompts)),
            "overlap_with_eval": None if asked is None else sum(question_of(row) in asked for row in self.rows),
            "generated_rows": generated,
            "generator_seed": generator_seed(self.config) if generated else None,
        }

    def first_rows(self) -> list[int]:
        """Return the rows that `first_examples.json` shows, each once: those that training sees first."""
        order = rows_of_step(
            0,
            rows=len(self.rows),
            batch_size=max(batch_size_of(self.config, devices=len(self.devices.list)), 1),
            seed=self.config.seed,
            shuffle=self.config.data.shuffle,
        )
        # A batch of more sequences than there are rows has some of them several times.
        return list(dict.fromkeys(int(row) for row in order))[: self.config.recording.first_examples]


def prepare(config: Config, *, forced: bool, continued: bool = False) -> Prepared:
    """Read and check everything that a run needs.

    Args:
        config: the run.
        forced: start even if the plan says that it does not fit.
        continued: the parameters come from a checkpoint, so the model's weights need not be there.

    Raises:
        ProblemError: exit code 3 for an absent device; 2 for names, files and rows, all that is wrong with model,
            dataset and evaluation set at once, as far as one can be judged without the other.
    """
    devices = choose_devices(config.mesh.device, config.mesh.devices)
    gathered = Gathered()
    model = read_model(config, gathered, with_weights=not continued)
    training = gathered.of(lambda: read_training_rows(config))
    items = gathered.of(lambda: read_items(config))
    data = None if model is None or training is None else encode(config, model, training, items, gathered)
    gathered.finish()
    assert model is not None, "gathered knows why"
    assert training is not None, "gathered knows why"
    assert data is not None, "gathered knows why"
    return Prepared(
        config=config,
        devices=devices,
        source=model.source,
        tokenizer=model.tokenizer,
        dataset=training.dataset,
        rows=training.rows,
        data=data,
        items=items,
        form=training.form,
        warnings=(*training.dataset.warnings, *data.warnings, *odd_items(items, model.tokenizer)),
        plan=plan_run(
            config,
            model.source.spec,
            model.shapes,
            devices,
            forced=forced,
            asked=asked_of(items, training.form, model.tokenizer),
        ),
    )


class Gathered:
    """Problems of several checks, told together."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def of(self, check: Callable[[], Found]) -> Found | None:
        """Return what a check gives; what it refuses is noted, and None returned."""
        try:
            return check()
        except ProblemError as error:
            self.problems.extend(error.problems)
            return None

    def finish(self) -> None:
        """Raise everything noted so far, if anything was."""
        if self.problems:
            raise ProblemError(self.problems, exit_code=2)


@dataclass(frozen=True, kw_only=True)
class ReadModel:
    """The model, as far as it is known before its parameters are read."""

    source: ModelSource
    tokenizer: Tokenizer
    shapes: Params


@dataclass(frozen=True, kw_only=True)
class TrainingRows:
    """What there is to learn."""

    dataset: RowFile
    rows: tuple[dict[str, Any], ...]
    """The dataset's, then generated ones."""

    @property
    def form(self) -> PromptForm:
        """How most rows ask."""
        return form_of(self.rows)


def read_model(config: Config, gathered: Gathered, *, with_weights: bool) -> ReadModel | None:
    """Return the model, None where there is none to work with; its weights and its length are checked too."""
    source = gathered.of(lambda: resolve(config.model.name, config.model.revision, with_weights=with_weights))
    if source is None:
        return None
    _, shapes = flatten(abstract_decoder(config, source))
    gathered.of(lambda: refuse_weights_that_do_not_exist(config, source))
    if with_weights and reads_weights(config, source):
        gathered.of(lambda: refuse_unusable_weights(source, shapes))
    tokenizer = gathered.of(source.tokenizer)
    gathered.of(lambda: refuse_too_long_sequences(config, source))
    return None if tokenizer is None else ReadModel(source=source, tokenizer=tokenizer, shapes=shapes)


def read_training_rows(config: Config) -> TrainingRows:
    """Return the rows of the dataset and the generated ones."""
    dataset = read_dataset(config.data.dataset)
    return TrainingRows(dataset=dataset, rows=(*dataset.rows, *further_rows(config)))


def read_items(config: Config) -> RowFile | None:
    """Return the evaluation set, None where nothing is evaluated."""
    return read_eval_set(config.evaluation.eval_set) if config.evaluation.eval_set else None


def encode(
    config: Config, model: ReadModel, training: TrainingRows, items: RowFile | None, gathered: Gathered
) -> EncodedData | None:
    """Return the rows as arrays, and see that prompts have room beside an output."""
    positions = model.source.spec.max_positions
    if items is not None:
        gathered.of(
            lambda: refuse_what_leaves_no_room(
                config, model.source, items, prompts_of(items, training.form, model.tokenizer)
            )
        )
    if config.data.max_length > positions:
        return None  # told already; rows of a length that nobody means need not be made
    return gathered.of(
        lambda: encode_rows(
            training.rows,
            model.tokenizer,
            max_length=config.data.max_length,
            file=str(training.dataset.path),
            lines=training.dataset.lines,
            max_positions=positions,
        )
    )


def asked_of(items: RowFile | None, form: PromptForm, tokenizer: Tokenizer) -> Asked | None:
    """Return how many prompts an evaluation set has and how long they are, None where there is no set."""
    if items is None:
        return None
    lengths = [len(prompt) for prompt in prompts_of(items, form, tokenizer)]
    return Asked(prompts=len(lengths), longest_tokens=max(lengths))


def abstract_decoder(config: Config, source: ModelSource) -> Decoder:
    """Return the decoder of a configuration with shapes in place of arrays."""
    precision = config.precision
    return abstract(
        source.spec, params_dtype=precision.params, compute_dtype=precision.compute, remat=config.memory.remat
    )


def reads_weights(config: Config, source: ModelSource) -> bool:
    """Return whether the first parameters come from files: else they are drawn."""
    return config.model.weights != "random" and source.weights == "pretrained"


def odd_items(items: RowFile | None, tokenizer: Tokenizer) -> tuple[Problem, ...]:
    """Return what is odd about the evaluation set: blank lines, special tokens in prompts."""
    if items is None:
        return ()
    special = special_token_problems(
        items.rows,
        lambda item: [("/prompt", item["prompt"], False)],
        tokenizer,
        file=str(items.path),
        lines=items.lines,
    )
    return (*items.warnings, *special)


def further_rows(config: Config) -> list[dict[str, Any]]:
    """Return the generated rows that the configuration asks for; none of them asks what an evaluation set asks."""
    if config.data.generated_rows == 0:
        return []
    if config.data.dataset != GENERATED:
        raise ProblemError([no_generator(config)], exit_code=2)
    own = frozenset(prompt_of(row) for row in read_dataset(GENERATED).rows)
    return generate_rows(config.data.generated_rows, generator_seed(config), exclude_prompts=own)


def generator_seed(config: Config) -> int:
    """Return the seed of generated rows."""
    return config.seed + GENERATOR_SEED_OFFSET


def refuse_weights_that_do_not_exist(config: Config, source: ModelSource) -> None:
    """Refuse pretrained weights of a built-in model, which has none."""
    if config.model.weights == "pretrained" and source.weights == "builtin":
        problem = Problem(
            code="TP060",
            severity="error",
            file=config.model.name,
            pointer="/model/weights",
            what=f"model.weights is pretrained, but the built-in model {config.model.name} has no weights.",
            next="Leave model.weights out, or set it to random.",
        )
        raise ProblemError([problem], exit_code=2)


def no_generator(config: Config) -> Problem:
    """Return the problem of asking for generated rows of a dataset that has no generator."""
    return Problem(
        code="TP013",
        severity="error",
        file=config.data.dataset,
        pointer="/data/generated_rows",
        what=f"data.generated_rows is {config.data.generated_rows}, but only {GENERATED} has a generator.",
        next=f"Set data.generated_rows to 0, or train on {GENERATED}.",
    )
