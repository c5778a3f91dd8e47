"""Everything a run needs before anything is spent: read, checked, planned; no folder made, no parameter drawn.

Whatever is wrong with names, rows or devices is found here, in a second or two. Only the model's weights and a
checkpoint are not opened yet: they are read where they will lie, which `assemble.py` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from schemas.problems import Problem, ProblemError
from trainer.config.tree import Config
from trainer.data.encode import EncodedData, Tokenizer, encode_rows
from trainer.data.generator import generate_rows
from trainer.data.order import rows_of_step
from trainer.data.render import prompt_of
from trainer.data.rows import GENERATED, RowFile, read_dataset, read_eval_set
from trainer.evaluation.evaluate import prompt_ids
from trainer.loop.program import batch_size_of
from trainer.model.build import abstract
from trainer.model.params import flatten
from trainer.model.source import ModelSource, resolve
from trainer.planning.devices import Devices, choose_devices
from trainer.planning.estimate import Asked
from trainer.planning.plan import plan_run

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
            "overlap_with_eval": None if asked is None else sum(prompt in asked for prompt in prompts),
            "generated_rows": generated,
            "generator_seed": generator_seed(self.config) if generated else None,
        }

    def first_rows(self) -> list[int]:
        """Return the rows that `first_examples.json` shows: those that training sees first."""
        order = rows_of_step(
            0,
            rows=len(self.rows),
            batch_size=max(batch_size_of(self.config, devices=len(self.devices.list)), 1),
            seed=self.config.seed,
            shuffle=self.config.data.shuffle,
        )
        return [int(row) for row in order[: self.config.recording.first_examples]]


def prepare(config: Config, *, forced: bool) -> Prepared:
    """Read and check everything that a run needs.

    Raises:
        ProblemError: exit code 2 for names, rows and what exceeds the model, 3 for an absent device.
    """
    devices = choose_devices(config.mesh.device, config.mesh.devices)
    source = resolve(config.model.name, config.model.revision)
    refuse_weights_that_do_not_exist(config, source)
    dataset = read_dataset(config.data.dataset)
    rows = (*dataset.rows, *further_rows(config))
    items = read_eval_set(config.evaluation.eval_set) if config.evaluation.eval_set else None
    tokenizer = source.tokenizer()
    refuse_too_many_positions(config, source, items, tokenizer)
    data = encode_rows(rows, tokenizer, max_length=config.data.max_length, file=str(dataset.path))
    _, shapes = flatten(
        abstract(
            source.spec,
            params_dtype=config.precision.params,
            compute_dtype=config.precision.compute,
            remat=config.memory.remat,
        )
    )
    return Prepared(
        config=config,
        devices=devices,
        source=source,
        tokenizer=tokenizer,
        dataset=dataset,
        rows=rows,
        data=data,
        items=items,
        plan=plan_run(config, source.spec, shapes, devices, forced=forced, asked=asked_of(items, tokenizer)),
    )


def asked_of(items: RowFile | None, tokenizer: Tokenizer) -> Asked | None:
    """Return how many prompts an evaluation set has and how long they are, None where there is no set."""
    if items is None:
        return None
    return Asked(
        prompts=len(items.rows), longest_tokens=max(len(prompt_ids(item["prompt"], tokenizer)) for item in items.rows)
    )


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


def refuse_too_many_positions(config: Config, source: ModelSource, items: RowFile | None, tokenizer: Tokenizer) -> None:
    """Refuse sequences longer than the model's positions, and outputs so long that no prompt has room beside them.

    A single prompt that is too long is an error of its row: the others are answered.
    """
    problems = []
    if config.data.max_length > source.spec.max_positions:
        problems.append(too_long_sequences(config, source))
    if items is not None:
        lengths = [len(prompt_ids(item["prompt"], tokenizer)) for item in items.rows]
        if min(lengths) + config.evaluation.max_new_tokens > source.spec.max_positions:
            problems.append(no_room_for_a_prompt(config, source, items, lengths))
    if problems:
        raise ProblemError(problems, exit_code=2)


def too_long_sequences(config: Config, source: ModelSource) -> Problem:
    """Return the problem of rows with more tokens than the model has positions."""
    positions = source.spec.max_positions
    return Problem(
        code="TP061",
        severity="error",
        file=config.model.name,
        pointer="/data/max_length",
        what=f"data.max_length is {config.data.max_length}; {config.model.name} has {positions} positions.",
        next=f"Set data.max_length to at most {positions}.",
    )


def no_room_for_a_prompt(config: Config, source: ModelSource, items: RowFile, lengths: list[int]) -> Problem:
    """Return the problem of an evaluation in which no prompt leaves room for an output of the length asked for."""
    positions = source.spec.max_positions
    for_one, for_all = positions - min(lengths), positions - max(lengths)
    return Problem(
        code="TP062",
        severity="error",
        file=config.model.name,
        pointer="/evaluation/max_new_tokens",
        what=f"evaluation.max_new_tokens is {config.evaluation.max_new_tokens} and the shortest prompt of {items.name} "
        f"has {min(lengths)} tokens; {config.model.name} has {positions} positions.",
        why="Prompt and output share the positions, so no item could be answered.",
        next=f"Set evaluation.max_new_tokens to at most {for_one}"
        + (f"; up to {for_all} leave room for every prompt." if 0 < for_all < for_one else ".")
        if for_one > 0
        else "Use an evaluation set with shorter prompts, or a model with more positions.",
    )


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
