"""What a README says of its run: remarks of a person, held against what the run wrote and never shown as figures.

Read are `key: value` lines and two-celled rows of tables, the lists that the Hugging Face Trainer writes into a model
card, and sentences of a few plain forms: steps, epochs and the chip of a training.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from evidence.records.foreign.console.lines import key_value, score_of
from evidence.records.foreign.keys import is_score
from evidence.records.foreign.numbers import number_of
from evidence.records.foreign.score_names import metric_and_scope
from evidence.records.foreign.text import Line, Text
from evidence.records.foreign.view import FileReading, Scalar, Source
from evidence.records.statements import Statement

_CARD = re.compile(r"^(?:readme|model[-_ ]?card)(?:\.md|\.markdown)$", re.IGNORECASE)

_SAID = (
    *("training.learning_rate", "training.microbatch_size", "training.effective_batch_size", "training.seed"),
    *("training.accumulation_steps", "training.steps_planned", "training.steps_done", "training.epochs_planned"),
    *("training.optimizer", "training.sequence_length", "training.weight_decay", "training.warmup_steps"),
    *("training.warmup_ratio", "lora.rank", "lora.alpha", "lora.dropout", "dataset.rows", "model.name"),
    *("model.parameters", "model.trainable_parameters", "device.gpu", "device.kind", "device.count"),
    *("result.mean_loss", "result.last_loss", "result.train_seconds"),
)
"""Facts that are taken from a README."""

_HEADING = re.compile(r"^\s*#{1,6}\s+(.*)$")
_OF_SOMETHING_ELSE = re.compile(
    r"\b(?:examples?|expected|baselines?|compar\w+|plan(?:ned)?|usage|install\w*|how to|quick ?start|todo|related|"
    r"references?|requirements?|roadmap|goals?|targets?|recommend\w*|ablations?|previous|future|citations?|faq|smoke|"
    r"default\w*|options?|limitations?|benchmarks?|leaderboard)\b",
    re.IGNORECASE,
)
"""Headings of parts that are of something else than this run."""

_NOT_SAID = re.compile(
    r"\b(?:base(?:line)?(?! model\b)|before|versus|vs|compared?|untrained|zero-shot|previous|targets?|goals?|expect\w*|"
    r"sota|paper|should|would|could|can|may|might|recommend\w*|requires?|minimum|at least|up to|e\.g|if|smoke|"
    r"warm-?up|every|per epoch|first|next|after|original|another|other|inference|teacher|best|example|"
    r"default)\b|(?:\babout|\baround|\broughly|~|≈)\s*\**\d|<|>",
    re.IGNORECASE,
)
"""Words of sentences that are of another run, of a wish, or of a part of the run."""

_OF_A_TRAINING = re.compile(r"\b(?:train(?:ed|ing)?|fine-?tun(?:ed|ing|e)|ran|sft|grpo|dpo|lora)\b", re.IGNORECASE)
_STEPS = re.compile(r"\b(\d[\d,]{0,9})\s+(?:optimi[sz]er |training |gradient |update |optimi[sz]ation )?steps\b", re.I)
_EPOCHS = re.compile(r"\bfor\s+\**(\d{1,4}(?:\.\d+)?)\**\s+(?:full )?epochs?\b", re.IGNORECASE)
_CHIP = re.compile(
    r"\b(?:on|using|with)\s+(?:(?:an?|one|a single|the|\d+\s*[x×]?)\s+)?"
    r"((?:NVIDIA |Nvidia |Tesla |Kaggle |Colab |free )*(?:[AHVBLTP]\d{1,3}S?|RTX \d{4}|TPU v\d\w*))\b"
)
_RESULTS = re.compile(r"achieves the following results on the evaluation set", re.IGNORECASE)


def is_card(name: str) -> bool:
    """Return whether a file is a README or a model card, by its name."""
    return _CARD.match(name.rpartition("/")[2]) is not None


def read_card(text: Text, file: str) -> FileReading:
    """Return what a README says of the run, as statements to be compared."""
    return FileReading(encoding=text.encoding, statements=tuple(_statements(text, file)))


def _statements(text: Text, file: str) -> Iterator[Statement]:
    in_code = elsewhere = in_results = False
    for line in text.lines():
        if line.text.lstrip().startswith("```"):
            in_code = not in_code
            continue
        if heading := _HEADING.match(line.text):
            elsewhere, in_results = _OF_SOMETHING_ELSE.search(heading.group(1)) is not None, False
        if in_code or elsewhere or line.text.lstrip().startswith(">"):
            continue
        in_results = in_results or _RESULTS.search(line.text) is not None
        said = re.sub(r"[*`_]{2,}|`", "", line.text).strip()
        yield from _of_line(Line(number=line.number, text=_cells(said)), file, of_evaluation=in_results)


def _cells(text: str) -> str:
    """Return a two-celled row of a table as `key: value`; other text as it is, without the mark of a list."""
    cells = [cell.strip() for cell in text.strip("|").split("|")] if text.startswith("|") else []
    return f"{cells[0]}: {cells[1]}" if len(cells) == 2 else re.sub(r"^[-*+]\s+", "", text)


def _of_line(line: Line, file: str, *, of_evaluation: bool) -> Iterator[Statement]:
    source = Source(file=file, line=line.number)
    if _NOT_SAID.search(line.text):
        return
    if score := _score(line.text):
        metric, scope = metric_and_scope(f"eval_{score[0]}" if of_evaluation else score[0], file)
        yield Statement(fact=f"score.{metric}", value=score[1], source=source, kind="remark", scope=scope)
        return
    if fact := key_value(re.sub(r"^([\w -]+[:=])(?=\S)", r"\1 ", line.text)):
        name = "training.process_batch_size" if line.text.startswith("train_batch_size") else fact[0]
        if name in _SAID or name == "training.process_batch_size":
            yield Statement(fact=name, value=fact[1], source=source, kind="remark")
        return
    if _OF_A_TRAINING.search(line.text):
        for name, value in _sentence(line.text):
            yield Statement(fact=name, value=value, source=source, kind="remark", how="inferred")


def _score(text: str) -> tuple[str, float] | None:
    key, colon, value = text.partition(":")
    if not colon or not (is_score(key.strip()) or key.strip().lower() == "loss"):
        return None
    if key.strip().lower() == "loss":
        number = number_of(value)
        return None if number is None else ("loss", float(number))
    found = score_of(f"{key.strip()}: {value.strip()}")
    return None if found is None else found[:2]


def _sentence(text: str) -> Iterator[tuple[str, Scalar]]:
    for pattern, name in ((_STEPS, "training.steps_done"), (_EPOCHS, "training.epochs_planned")):
        found = pattern.findall(text)
        number = number_of(found[0]) if len(found) == 1 else None
        if number is not None:
            yield name, number
    chips = _CHIP.findall(text)
    if len(chips) == 1:
        yield "device.gpu", chips[0]
