"""The data of a run, before anything is spent: rows, what the objective makes of them, and the evaluation set."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from evidence import layout
from evidence.rules.plausibility import describe_overlap
from evidence.scores.overlap import Overlap, find_overlap, row_texts
from evidence.scores.reading import Scoring
from schemas.problems import Problem, collect_problems, problem_of
from schemas.render import as_sentence
from trainer.config.tree import Config, DataConfig
from trainer.data.answers import SCORING, scoring_document, scoring_from
from trainer.data.chat_template import writes_date
from trainer.data.dev_reasoning import generate_rows
from trainer.data.encode import EncodedData, Tokenizer
from trainer.data.kinds import kinds_in, odd_kinds
from trainer.data.prompts import Asked
from trainer.data.render import FORM, PromptForm, form_of, prompt_of
from trainer.data.rows import RowFile, read_dataset, read_eval_set
from trainer.data.shown import first_examples
from trainer.data.source import RowSource, row_source
from trainer.model.model import Model
from trainer.objectives import objective_of
from trainer.objectives.items import Items, items_of
from trainer.objectives.objective import Objective
from trainer.recorder.recorder import Recorder

GENERATOR_SEED_OFFSET = 1_000_003
"""Added to the seed of a run to give the seed of its generated rows."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """What a run learns from and is measured with."""

    settings: DataConfig
    """How rows are read and written."""
    dataset: RowFile
    rows: Sequence[dict[str, Any]]
    """The dataset's rows, then generated ones."""
    generator_seed: int | None
    """Of the generated rows. None: no rows are generated."""
    tokenizer: Tokenizer
    encoded: EncodedData
    source: RowSource
    sequences_each: int
    """Sequences that an example makes: 2 of a pair."""
    form: PromptForm
    """How prompts are put to the model: as the rows were."""
    scoring: Scoring
    """How answers are read and compared: as set, or as the rows show."""
    items: Items | None
    """The evaluation set. None: nothing is evaluated."""
    overlap: Overlap | None
    """What rows and items share. None: nothing is evaluated."""
    warnings: tuple[Problem, ...]
    """What else is odd about rows and items and keeps no one from using them."""
    rendered_at: str | None = None
    """The time that the chat template writes. None: it writes none, or the present."""

    @property
    def asked(self) -> Asked | None:
        """The shape of its prompts. None: nothing."""
        if self.items is None:
            return None
        return Asked(prompts=len(self.items.prompts), longest_tokens=max(map(len, self.items.prompts)))

    def document(self) -> dict[str, Any]:
        """Return the manifest's group `dataset`."""
        overlap = {} if self.overlap is None else {"overlap": self.overlap.document()}
        return {
            "name": self.dataset.name,
            "rows": len(self.dataset.rows),
            "sha256": self.dataset.sha256,
            "split": "all",
            "duplicates": self._duplicates,
            "overlap_with_eval": None if self.overlap is None else self.overlap.rows_same,
            **overlap,
            "generated_rows": len(self.rows) - len(self.dataset.rows),
            "generator_seed": self.generator_seed,
            **({"generator": self.dataset.generator} if self.dataset.generator else {}),
            **({"rendered_at": self.rendered_at} if self.rendered_at else {}),
            "sequences": len(self.source.sequences) * self.sequences_each,
            "tokens": self.source.tokens_per_pass,
        }

    @cached_property
    def _duplicates(self) -> int:
        """Rows whose prompt stands in an earlier one; 8 bytes a row."""
        prompts = np.fromiter((hash(prompt_of(row)) for row in self.rows), np.int64, len(self.rows))
        return len(prompts) - len(np.unique(prompts))

    @property
    def seen(self) -> tuple[Problem, ...]:
        """Warnings about evaluation items that the model is taught."""
        if self.overlap is None or self.items is None:
            return ()
        return tuple(
            problem_of(code, file=str(self.dataset.path), what=what, severity="warning")
            for code, what in describe_overlap(self.overlap.document(), items=len(self.items.file.rows))
        )

    @property
    def refused(self) -> list[Problem]:
        """Errors of the rows that keep a run from beginning."""
        return [each for each in self.warnings if each.severity == "error"]

    def effective(self) -> dict[str, dict[str, Any]]:
        """Return what came of settings that the rows decide, by group of the configuration."""
        came = {} if self.form.conversation else {"data": {"template": self.form.template}}
        return came | {"evaluation": {"answer": self.scoring.answer, "compare": self.scoring.compare}}

    def first_rows(self, count: int) -> list[int]:
        """Return at most `count` of the rows that training sees first, each once."""
        # A batch of more sequences than there are rows has some of them several times.
        return list(dict.fromkeys(self.source.rows(0)))[:count]

    def first_examples(self, count: int, *, run_id: str) -> dict[str, Any]:
        """Return the document `first_examples.json` of a run."""
        order = self.first_rows(count)
        return first_examples(
            self.encoded, order, self.tokenizer, run_id=run_id, rows=self.rows, settings=self.settings
        )


def read_training_rows(config: Config) -> tuple[RowFile, Sequence[dict[str, Any]]]:
    """Return the dataset, and its rows with the generated ones behind them.

    None of these depends on what is evaluated.
    """
    dataset = read_dataset(config.data.dataset, "pairs" if objective_of(config).takes_pairs else config.data.kind)
    if config.data.generated_rows == 0:
        return dataset, dataset.rows
    own = frozenset(prompt_of(row) for row in dataset.rows)
    count, seed = config.data.generated_rows, generator_seed(config)
    return dataset, (*dataset.rows, *generate_rows(dataset.name, count, seed, exclude_prompts=own))


def read_data(
    config: Config,
    model: Model | None,
    objective: Objective,
    problems: list[Problem],
    *,
    devices: int,
    asked: RowFile | None = None,
    rendered_at: str | None = None,
) -> Data | None:
    """Return the data of a run, or None if it cannot be built.

    Args:
        config: the run.
        model: what it trains. None: not known, so that rows are read and not encoded.
        objective: what rows become.
        problems: what is wrong with dataset and evaluation set is added to them.
        devices: devices that share a batch.
        asked: the evaluation set. None: as the configuration names it.
        rendered_at: the time that the chat template writes where it writes one. None: the present.
    """
    tokenizer, dataset, items, encoded, file = None, None, None, None, asked
    too_long: list[Problem] = []
    if model is not None:
        with collect_problems(problems):
            tokenizer = model.source.tokenizer(rendered_at)
        problems += (too_long := too_long_sequences(config, model))
    with collect_problems(problems):
        dataset, rows = read_training_rows(config)
    if file is None and config.evaluation.eval_set:
        with collect_problems(problems):
            file = read_eval_set(config.evaluation.eval_set)
    if dataset is None or model is None or tokenizer is None:
        return None
    path = str(dataset.path)
    problems += unwritten_variables(dataset, tokenizer)
    odd = list(odd_kinds(kinds_in(rows), config.data.template, path))
    problems += [each for each in odd if each.severity == "error"]
    form = form_of(rows, config.data.template)
    form = replace(form, thinks=None) if objective.updates_per_rollout else form
    positions = model.source.spec.max_positions
    scoring = scoring_from(config.evaluation, rows, file.rows if file else ())
    if file is not None:
        with collect_problems(problems):
            items = items_of(config, file, rows, form, tokenizer, scoring, problems, max_positions=positions)
    if not too_long:  # rows of a length that no one means need not be made
        with collect_problems(problems):
            encoded = objective.encode(rows, tokenizer, file=path, lines=dataset.lines, max_positions=positions)
    if encoded is None:
        return None
    return Data(
        settings=config.data,
        dataset=dataset,
        rows=rows,
        generator_seed=generator_seed(config) if config.data.generated_rows else None,
        tokenizer=tokenizer,
        encoded=encoded,
        source=source_of(encoded, objective, config, devices=devices),
        sequences_each=objective.sequences_each,
        form=form,
        scoring=scoring,
        items=items,
        overlap=None if file is None else find_overlap(file.rows, map(row_texts, rows)),
        warnings=(*dataset.warnings, *odd, *encoded.warnings, *(items.warnings if items else ())),
        rendered_at=rendered_at if writes_date(tokenizer) else None,
    )


def unwritten_variables(dataset: RowFile, tokenizer: Tokenizer) -> list[Problem]:
    """Return the problems of what rows give a chat template that does not use it, such as tools."""
    template = tokenizer.chat_template
    text = str(template.get("default") if isinstance(template, dict) else template)
    return [
        problem_of(
            "TP181",
            file=str(dataset.path),
            line=dataset.lines[number],
            what=f"The row gives {name} to the chat template of the model, which does not use it.",
            next="Remove the column, or use a model whose chat template writes it.",
        )
        for name, number in dataset.variables.items()
        if not re.search(rf"\b{re.escape(name)}\b", text)
    ]


def source_of(encoded: EncodedData, objective: Objective, config: Config, *, devices: int) -> RowSource:
    """Return the batches of encoded rows."""
    return row_source(
        encoded.encoded,
        encoded.lengths,
        encoded.widths,
        objective.collate,
        config,
        devices=devices,
        each=objective.sequences_each,
        # What is drawn of a step's prompts comes in microbatches, and prompts alone in one.
        microbatches=1 if objective.updates_per_rollout else config.batch.accumulation_steps,
    )


def generator_seed(config: Config) -> int:
    """Return the seed of generated rows."""
    return config.seed + GENERATOR_SEED_OFFSET


def record_data(recorder: Recorder, data: Data, *, examples: int) -> None:
    """Write down the first training examples, how the model is prompted, and what is odd about the rows."""
    recorder.document(layout.FIRST_EXAMPLES, data.first_examples(examples, run_id=recorder.run_id))
    form = data.form
    asked = "in a conversation" if form.conversation else "with plain prompts"
    asked += f", dated {data.rendered_at[:10]}" if data.rendered_at else ""
    fields: dict[str, Any] = {"conversation": form.conversation, "system": form.system}
    fields |= {"thinks": form.thinks} if form.conversation else {"template": form.template}
    recorder.log("info", FORM, f"the model is asked {asked}", **fields)
    said = f"answers are read as {data.scoring.describe()}"
    recorder.log("info", SCORING, said, **scoring_document(data.scoring))
    for problem in (*data.seen, *data.warnings):
        what = f"{problem.code}: {as_sentence(problem)}"
        level = "info" if problem.severity == "note" else problem.severity
        recorder.note(level, "odd_row", what, code=problem.code, file=problem.file)


def too_long_sequences(config: Config, model: Model) -> list[Problem]:
    """Return the problem of sequences with more tokens than the model has positions."""
    positions = model.source.spec.max_positions
    if config.data.max_length <= positions:
        return []
    what = f"data.max_length is {config.data.max_length}; {config.model.name} has {positions} positions."
    fix = f"Set data.max_length to at most {positions}."
    found = problem_of("TP061", file=config.model.name, pointer="/data/max_length", what=what, why=None, next=fix)
    return [found]
