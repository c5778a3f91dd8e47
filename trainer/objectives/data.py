"""The data of a run: rows, encoded examples, batches and the evaluation set."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from evidence import layout
from evidence.rules.plausibility import describe_overlap
from evidence.scores.overlap import Overlap, find_overlap, row_texts
from evidence.scores.reading import Scoring
from schemas.catalog import VERSION
from schemas.problems import Problem, collect_problems, problem_of
from schemas.render import render_sentence
from trainer.config.tree import Config
from trainer.data import answers, conversations
from trainer.data.batches import RowSource, bucket_lengths, global_batch_size, one_each, pack_rows
from trainer.data.builtin.reasoning import generate_rows
from trainer.data.encode import EncodedData, EncodedRow
from trainer.data.rows import (
    RowFile,
    add_system_prompt,
    check_kinds,
    find_template,
    read_dataset,
    read_eval_set,
    split_sides,
)
from trainer.model.model import Model
from trainer.objectives import build_objective
from trainer.objectives.objective import Objective
from trainer.recorder.recorder import Recorder

GENERATOR_SEED_OFFSET = 1_000_003
"""Added to the seed of a run to give the seed of its generated rows."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """Training rows and evaluation set of a run."""

    config: Config
    objective: Objective
    dataset: RowFile
    rows: Sequence[dict[str, Any]]
    """Rows of the dataset, then generated ones."""
    tokenizer: conversations.Tokenizer
    encoded: EncodedData
    source: RowSource
    form: conversations.PromptForm
    """Form of prompts, as in the rows."""
    scoring: Scoring
    """How answers are read and compared."""
    items: answers.Items | None
    """Evaluation set, or None."""
    overlap: Overlap | None
    """Overlap of rows and items, or None without items."""
    duplicates: int
    """Rows with the prompt of an earlier row."""
    warnings: tuple[Problem, ...]
    rendered_at: str | None = None
    """Time that the chat template writes, or None if it writes none or the present."""

    @property
    def eval_shape(self) -> answers.EvalShape | None:
        """Shape of the evaluation prompts, or None."""
        if self.items is None:
            return None
        return answers.EvalShape(prompts=len(self.items.prompts), longest_tokens=max(map(len, self.items.prompts)))

    def document(self) -> dict[str, Any]:
        """Return the group `dataset` of the manifest."""
        return {
            "name": self.dataset.name,
            "rows": len(self.dataset.rows),
            "sha256": self.dataset.sha256,
            "split": "all",
            "duplicates": self.duplicates,
            "overlap_with_eval": None if self.overlap is None else self.overlap.rows_same,
            **({} if self.overlap is None else {"overlap": self.overlap.document()}),
            "generated_rows": len(self.rows) - len(self.dataset.rows),
            "generator_seed": self.config.seed + GENERATOR_SEED_OFFSET if self.config.data.generated_rows else None,
            **({"generator": self.dataset.generator} if self.dataset.generator else {}),
            **({"rendered_at": self.rendered_at} if self.rendered_at else {}),
            "sequences": len(self.source.sequences) * self.objective.sequences_each,
            "tokens": self.source.tokens_per_pass,
        }

    @property
    def overlap_warnings(self) -> tuple[Problem, ...]:
        """Warnings about evaluation items that are in the training rows."""
        if self.overlap is None or self.items is None:
            return ()
        path, found = str(self.dataset.path), describe_overlap(self.overlap.document(), items=len(self.items.file.rows))
        return tuple(problem_of(code, file=path, what=what, severity="warning") for code, what in found)

    @property
    def refused(self) -> list[Problem]:
        """Errors that keep a new run from starting."""
        return [each for each in self.warnings if each.severity == "error"]

    def effective(self) -> dict[str, dict[str, Any]]:
        """Return the settings that follow from the rows, by group of the configuration."""
        data: dict[str, Any] = {} if self.form.conversation else {"template": self.form.template}
        data |= {} if self.config.data.system_prompt is None else {"system_prompt": self.form.system}
        evaluation = {"answer": self.scoring.answer, "compare": self.scoring.compare}
        return ({"data": data} if data else {}) | {"evaluation": evaluation}

    def first_examples(self, count: int, *, run_id: str) -> dict[str, Any]:
        """Build `first_examples.json`: at most `count` sequences of the first step as the model sees them."""
        # A batch with more sequences than there are rows repeats rows.
        chosen = [self.encoded.encoded[index] for index in dict.fromkeys(self.source.rows(0))]
        rows = [row for each in chosen for row in (each if isinstance(each, tuple) else (each,))]
        examples = [self._show(row) for row in rows[:count]]
        return {"schema_version": VERSION, "run_id": run_id, "examples": examples, "counts": self.encoded.counts}

    def _show(self, encoded: EncodedRow) -> dict[str, Any]:
        """Return a sequence with the text of each token and whether it is learned."""
        row, ids, settings = self.rows[encoded.row], encoded.token_ids.tolist(), self.config.data
        decode = self.tokenizer.decode
        if encoded.spans:
            options: dict[str, Any] = {"every_turn": settings.supervise == "all", "template": settings.template}
            example = conversations.render_sides(row, self.tokenizer, **options)[0]
        else:
            example = conversations.render_question(row, self.tokenizer, template=settings.template)
        learned = {place for first, last in encoded.spans for place in range(max(first, 1), last)}
        shown = {}
        if (template := find_template(split_sides(row)[0], settings.template)) is not None:
            shown = {"template": conversations.add_system_text(settings.system_prompt, template)}
        tokens = [{"id": each, "text": str(decode([each])), "supervised": at in learned} for at, each in enumerate(ids)]
        return {
            "row": encoded.row,
            "text": str(decode(ids)),
            "tokens": tokens,
            "truncated": encoded.truncated,
            **shown,
            "prompt_utf8": example.first_prompt.encode("utf-8", "surrogatepass").hex(),
        }


def read_training_rows(config: Config) -> tuple[RowFile, Sequence[dict[str, Any]]]:
    """Read the dataset; return it, and its rows followed by generated ones."""
    dataset = read_dataset(config.data.dataset, "pairs" if build_objective(config).takes_pairs else config.data.kind)
    count, seed = config.data.generated_rows, config.seed + GENERATOR_SEED_OFFSET
    rows = dataset.rows
    if count:
        prompts = frozenset(conversations.row_prompt(row) for row in rows)
        rows = (*rows, *generate_rows(dataset.name, count, seed, exclude_prompts=prompts))
    return dataset, add_system_prompt(rows, config.data.system_prompt)


def read_data(
    config: Config,
    model: Model | None,
    objective: Objective,
    problems: list[Problem],
    *,
    devices: int,
    eval_set: RowFile | None = None,
    rendered_at: str | None = None,
) -> Data | None:
    """Read and encode the data of a run, or return None if there are errors, which are added to `problems`.

    Without a model, rows are read but not encoded. `devices` share a batch, `eval_set` replaces the configured one, and
    `rendered_at` is the time that the chat template writes, by default the present.
    """
    tokenizer, dataset, items, encoded, file, too_long = None, None, None, None, eval_set, list[Problem]()
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
    path, positions, settings = str(dataset.path), model.source.spec.max_positions, config.data
    problems += unused_variables(dataset, tokenizer)
    summary = conversations.summarize_rows(rows, settings.template)
    kinds, warnings = list(check_kinds(summary.kinds, settings.template, path)), list[Problem]()
    problems += [each for each in kinds if each.severity == "error"]
    if settings.system_prompt is not None and not summary.takes_system_prompt:
        what = "data.system_prompt is set, but no row has a prompt without a system prompt of its own."
        problems.append(problem_of("TP006", file=path, pointer="/data/system_prompt", what=what))
    form = replace(summary.form, thinks=None) if objective.updates_per_rollout else summary.form
    scoring = answers.infer_scoring(config.evaluation, rows, file.rows if file else ())
    if file is not None:
        with collect_problems(problems):
            items = answers.Items(file=file, prompts=answers.encode_items(file, form, tokenizer))
            problems += answers.check_prompt_room(config, file, items.prompts, max_positions=positions)
            problems += (unreadable := answers.unreadable_items(file, scoring))
            room = positions - config.evaluation.max_new_tokens
            warnings += answers.check_items(file, tokenizer, items.prompts, scoring, max_prompt_tokens=room)
            if not unreadable:
                stop = config.evaluation.stop
                warnings += answers.check_learned_form(rows, scoring, file, file=settings.dataset, stop=stop)
    if not too_long:  # encoding would report the same rows again
        options: dict[str, Any] = {"file": path, "lines": dataset.lines, "max_positions": positions}
        with collect_problems(problems):
            encoded = objective.encode(rows, tokenizer, form=form, **options)
    if encoded is None:
        return None
    return Data(
        config=config,
        objective=objective,
        dataset=dataset,
        rows=rows,
        tokenizer=tokenizer,
        encoded=encoded,
        source=RowSource(
            examples=encoded.encoded,
            sequences=pack_rows(encoded.lengths, settings.max_length, in_order=not settings.shuffle)
            if settings.packing
            else one_each(len(encoded.encoded)),
            lengths=encoded.lengths,
            widths=encoded.widths,
            collate=objective.collate,
            shapes=bucket_lengths(settings.max_length, settings.buckets),
            batch_size=global_batch_size(config, devices=devices) // objective.sequences_each,
            # The prompts of a rollout are one microbatch.
            accumulation_steps=1 if objective.updates_per_rollout else config.batch.accumulation_steps,
            seed=config.seed,
            shuffle=settings.shuffle,
        ),
        form=form,
        scoring=scoring,
        items=items,
        overlap=None if file is None else find_overlap(file.rows, map(row_texts, rows)),
        duplicates=summary.duplicates,
        warnings=(*dataset.warnings, *kinds, *encoded.warnings, *warnings),
        rendered_at=rendered_at if conversations.writes_date(tokenizer) else None,
    )


def unused_variables(dataset: RowFile, tokenizer: conversations.Tokenizer) -> list[Problem]:
    """Return a problem for each variable of the rows, such as tools, that the chat template does not use."""
    template = tokenizer.chat_template
    text = str(template.get("default") if isinstance(template, dict) else template)
    problems = []
    for name, number in dataset.variables.items():
        if not re.search(rf"\b{re.escape(name)}\b", text):
            what = f"The row gives {name} to the chat template of the model, which does not use it."
            fix, line = "Remove the column, or use a model whose chat template writes it.", dataset.lines[number]
            problems.append(problem_of("TP181", file=str(dataset.path), line=line, what=what, next=fix))
    return problems


def record_data(recorder: Recorder, data: Data, *, examples: int) -> None:
    """Record the first training examples, the form of prompts, and warnings about rows."""
    recorder.document(layout.FIRST_EXAMPLES, data.first_examples(examples, run_id=recorder.run_id))
    form = data.form
    how = "chat template" if form.conversation else "plain text"
    how += f", dated {data.rendered_at[:10]}" if data.rendered_at else ""
    fields: dict[str, Any] = {"conversation": form.conversation, "system": form.system}
    fields |= {"thinks": form.thinks} if form.conversation else {"template": form.template}
    recorder.log("info", conversations.FORM, f"prompts: {how}", **fields)
    recorder.log(
        "info", answers.SCORING, f"answers: {data.scoring.describe()}", **answers.scoring_document(data.scoring)
    )
    for problem in (*data.overlap_warnings, *data.warnings):
        what = f"{problem.code}: {render_sentence(problem)}"
        level = "info" if problem.severity == "note" else problem.severity
        recorder.note(level, "odd_row", what, code=problem.code, file=problem.file)


def too_long_sequences(config: Config, model: Model) -> list[Problem]:
    """Return a problem if sequences have more tokens than the model has positions."""
    name, positions = config.model.name, model.source.spec.max_positions
    if config.data.max_length <= positions:
        return []
    what = f"data.max_length is {config.data.max_length}; {name} has {positions} positions."
    fix = f"Set data.max_length to at most {positions}."
    return [problem_of("TP061", file=name, pointer="/data/max_length", what=what, why=None, next=fix)]
