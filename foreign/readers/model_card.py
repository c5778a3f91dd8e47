"""What a model card states: its `model-index`, and remarks of a user, which are never shown as figures.

Remarks are `key: value` lines, two-celled rows of tables, the lists that the Hugging Face Trainer writes, and sentences
of a few plain forms: steps, epochs and the chip of a training.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from foreign.readers.keys import is_score, plain
from foreign.readers.scores import CourseTable, ScoreTable, metric_and_scope
from foreign.readers.settings import key_value, score_of
from foreign.readers.statement import Citation, Scalar, Scope, Statement
from foreign.readers.text import LogLine, Text, finite, number_of
from foreign.readers.view import FileReading

_CARD = re.compile(r"^(?:readme|model[-_ ]?card)(?:\.md|\.markdown)$", re.IGNORECASE)

_SAID = (
    *("training.learning_rate", "training.microbatch_size", "training.effective_batch_size", "training.seed"),
    *("training.accumulation_steps", "training.steps_planned", "training.steps_done", "training.epochs_planned"),
    *("training.optimizer", "training.sequence_length", "training.weight_decay", "training.warmup_steps"),
    *("training.warmup_ratio", "lora.rank", "lora.alpha", "lora.dropout", "model.name"),
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
    r"warm-?up|every|per epoch|first|next|after(?!\s+[\d,]+ )|original|another|other|inference|teacher|best|example|"
    r"default)\b|(?:\babout|\baround|\broughly|~|≈)\s*\**\d|<|>",
    re.IGNORECASE,
)
"""Words of sentences that are of another run, of a plan, or of a part of the run."""

_OF_A_TRAINING = re.compile(r"\b(?:train(?:ed|ing)?|fine-?tun(?:ed|ing|e)|ran|sft|grpo|dpo|lora)\b", re.IGNORECASE)
_STEPS = re.compile(
    r"\b(\d[\d,]{0,9})\s+(?:(?:optimi[sz]er |training |gradient |update |optimi[sz]ation )?steps|iterations|iters)\b",
    re.I,
)
_EPOCHS = re.compile(r"\bfor\s+\**(\d{1,4}(?:\.\d+)?)\**\s+(?:full )?epochs?\b", re.IGNORECASE)
_CHIP = re.compile(
    r"\b(?:on|using|with)\s+(?:(?:an?|one|a single|the|\d+\s*[x×]?)\s+)?"
    r"((?:NVIDIA |Nvidia |Tesla |Kaggle |Colab |free )*(?:[AHVBLTP]\d{1,3}S?|RTX \d{4}|TPU v\d\w*))\b"
)
_METRICS = r"exact[ -]match|accuracy|pass@1|f1(?: score)?|perplexity|bleu|rouge-?l"
_SCORE_WORDS = re.compile(r"exact match|accuracy|pass at 1|f1 score|f1|perplexity|bleu|rouge ?l", re.IGNORECASE)
_SCORED = re.compile(
    rf"(?:\b({_METRICS}) of )?\**\b(\d{{1,3}}(?:\.\d+)?)\s?%\**(?:\s+({_METRICS}))?(?:\s+on\s+(?:the\s+)?([\w-]+))?",
    re.IGNORECASE,
)
"""A sentence that states a score in percent: `reaches 92.0 % accuracy on GSM8K`."""

_EMPTY_WORDS = {
    *("on", "the", "set", "eval", "evaluation", "test", "validation", "val", "dev", "final", "overall", "of", "score"),
    *("our", "model", "this", "split", "in", "average", "mean", "strict", "total", "result", "results", "for", "at"),
}

_LOSS_OF_EVALUATION = re.compile(r"final[ _](?:val|validation|eval|evaluation)[ _]loss", re.IGNORECASE)

_RESULTS = re.compile(r"achieves the following results on the evaluation set", re.IGNORECASE)


def is_card(name: str) -> bool:
    """Return whether a file is a README or a model card, by its name."""
    return _CARD.match(name.rpartition("/")[2]) is not None


def read_card(text: Text, file: str) -> FileReading:
    """Return what a README states of the run, as statements to be compared."""
    statements = [*_statements(text, file), *of_model_index(text, file)]
    values: dict[tuple[str, Scope], set[Scalar | None]] = defaultdict(set)
    for one in statements:
        values[one.fact, one.scope].add(one.value)
    # Where it states two things of one fact it speaks of two runs or two stages.
    sole = tuple(one for one in statements if len(values[one.fact, one.scope]) == 1)
    return FileReading(encoding=text.encoding, statements=sole)


def _statements(text: Text, file: str) -> Iterator[Statement]:
    in_code = elsewhere = in_results = False
    table, course = ScoreTable(), CourseTable()
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
        if measured := course.values(said):
            source = Citation(file=file, line=line.number)
            for name, value in measured.items():
                yield Statement(fact=f"figure.{name}", value=value, source=source, kind="remark")
            continue
        if scored := table.score(said):
            name, value, words = scored
            metric, scope = metric_and_scope(name, file)
            source = Citation(file=file, line=line.number)
            scope = replace(scope, words=scope.words | words)
            yield Statement(fact=f"score.{metric}", value=value, source=source, kind="remark", scope=scope)
            continue
        yield from _of_line(LogLine(number=line.number, text=_cells(said)), file, of_evaluation=in_results)


def _cells(text: str) -> str:
    """Return a two-celled row of a table as `key: value`; other text as it is, without the mark of a list."""
    cells = [cell.strip() for cell in text.strip("|").split("|")] if text.startswith("|") else []
    return f"{cells[0]}: {cells[1]}" if len(cells) == 2 else re.sub(r"^[-*+]\s+", "", text)


def _of_line(line: LogLine, file: str, *, of_evaluation: bool) -> Iterator[Statement]:
    source = Citation(file=file, line=line.number)
    if _NOT_SAID.search(line.text):
        return
    if score := _score(line.text):
        name, value, words = score
        metric, scope = metric_and_scope(
            f"eval_{name}" if of_evaluation and not name.startswith("eval_") else name, file
        )
        scope = replace(scope, words=scope.words | words)
        yield Statement(fact=f"score.{metric}", value=value, source=source, kind="remark", scope=scope)
        return
    if fact := key_value(re.sub(r"^([\w -]+[:=])(?=\S)", r"\1 ", line.text)):
        name = "training.process_batch_size" if line.text.startswith("train_batch_size") else fact[0]
        if name in _SAID or name == "training.process_batch_size":
            yield Statement(fact=name, value=fact[1], source=source, kind="remark")
        return
    if _OF_A_TRAINING.search(line.text):
        for name, number in _sentence(line.text):
            yield Statement(fact=name, value=number, source=source, kind="remark", how="inferred")


def _score(text: str) -> tuple[str, float, frozenset[str]] | None:
    """Return name and value of the score that a line states, and of what: `Accuracy on GSM8K: 92 %` is of gsm8k."""
    key, colon, value = text.partition(":")
    if not colon:
        sentence = _SCORED.search(text)
        if sentence is None:
            return None
        before, percent, after, on = sentence.groups()
        if (before is None) == (after is None):
            return None
        key, value = f"{before or after} on {on or ''}", f"{percent}%"
    if _LOSS_OF_EVALUATION.fullmatch(key.strip()) and (number := number_of(value.split()[0] if value.split() else "")):
        return "eval_loss", float(number), frozenset()
    if key.strip().lower() == "loss":
        number = number_of(value)
        return None if number is None else ("loss", float(number), frozenset())
    named = _SCORE_WORDS.search(plain(key).replace("_", " "))
    if named is None:
        return None
    name = plain(named.group())
    rest = plain(key).replace("_", " ").replace(named.group(), " ")
    found = score_of(f"{named.group()}: {value.strip()}")
    return None if found is None else (name, found[1], frozenset(set(rest.split()) - _EMPTY_WORDS))


def _sentence(text: str) -> Iterator[tuple[str, Scalar]]:
    for pattern, name in ((_STEPS, "training.steps_done"), (_EPOCHS, "training.epochs_planned")):
        found = pattern.findall(text)
        number = number_of(found[0]) if len(found) == 1 else None
        if number is not None:
            yield name, number
    chips = _CHIP.findall(text)
    if len(chips) == 1:
        yield "device.gpu", chips[0]


_FENCE = "---"


def of_model_index(text: Text, file: str) -> Iterator[Statement]:
    """Yield the scores of a card's only result, as remarks on the run's evaluation.

    A card with several results lists benchmarks, each of its own items; which of them a run evaluated, is unknown.
    """
    results = _results(text.text)
    if len(results) != 1 or not isinstance(metrics := results[0].get("metrics"), list):
        return
    for metric in metrics:
        if not isinstance(metric, dict):
            continue
        name, value = plain(str(metric.get("type") or metric.get("name") or "")), metric.get("value")
        if not is_score(name) or isinstance(value, bool) or not isinstance(value, int | float) or finite(value) is None:
            continue
        line = next((one.number for one in text.lines() if f"value: {value}" in one.text), None)
        kind, scope = metric_and_scope(f"eval_{name}", file)
        source = Citation(file=file, line=line)
        yield Statement(fact=f"score.{kind}", value=float(value), source=source, kind="remark", scope=scope)


def _results(text: str) -> list[dict[str, Any]]:
    """Return the results in the head of a card; none where there is no head, or no such list in it."""
    from schemas.reading import parse_yaml

    begun, _, rest = text.lstrip().partition("\n")
    head, ended, _ = rest.partition(f"\n{_FENCE}")
    if begun.strip() != _FENCE or not ended or "model-index" not in head:
        return []
    parsed = parse_yaml(head.encode("utf-8", "replace"), file="head of the card")
    index = parsed.value.get("model-index") if parsed.is_read and isinstance(parsed.value, dict) else None
    models = [one for one in index if isinstance(one, dict)] if isinstance(index, list) else []
    found = [one for model in models if isinstance(model.get("results"), list) for one in model["results"]]
    return [one for one in found if isinstance(one, dict)]
