"""What a score is of: its metric under one name, and the split, task, set and checkpoint that source and place tell."""

from __future__ import annotations

import re

from evidence.records.foreign.keys import BEST_OF_EVALUATION, SCORE_KEYS, plain
from evidence.records.foreign.statement import Scope
from evidence.records.foreign.view import Score

_SPLITS = {
    **dict.fromkeys(("eval", "val", "valid", "validation", "dev", "evaluation"), "eval"),
    **dict.fromkeys(("test", "testing", "predict"), "test"),
    **dict.fromkeys(("train", "training"), "train"),
}

_SAME = {
    "acc": "accuracy",
    "overall_accuracy": "accuracy",
    "answer_accuracy": "accuracy",
    "final_accuracy": "accuracy",
    "em": "exact_match",
    "f1_score": "f1",
    "ppl": "perplexity",
}
"""Names of one metric, and the one that is compared."""

_OF_NO_METRIC = ("final_", "overall_")

_GENERIC = {
    *("results", "result", "metrics", "metric", "summary", "all", "scores", "score", "output", "outputs", "report"),
    *("final", "trainer", "state", "wandb", "files", "run", "runs", "log", "logs", "logger", "history", "mlruns"),
    *("artifacts", "params", "version", "tensorboard", "events", "out", "tfevents", "checkpoint", "ckpt", "last"),
    *("json", "jsonl", "csv", "samples", "predictions", "answers", "offline", "latest", "lightning", "evaluations"),
    *(
        "eval",
        "evaluation",
        "val",
        "valid",
        "validation",
        "test",
        "predict",
        "train",
        "training",
        "groups",
        "step",
        "epoch",
        "lm",
    ),
    *("harness", "readme", "md", "report", "me", "in", "of", "the", "and", "on", "set", "none", "value", "scorecard"),
    *("performance", "benchmark", "stats", "data", "info", "folder", "original", "keras", "console", "txt", "table"),
    *("checkpoints", "per", "by", "a", "model", "best", "openai", "evals", "mlperf", "mllog", "accuracy", "recorded"),
}
"""Words of names that tell no evaluation from another."""

_TIME = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T_ ]\d{2}[-:_]\d{2}(?:[-:_]\d{2}(?:\.\d+)?)?)?")
_NUMBERED = re.compile(r"(?:checkpoint|ckpt|step|epoch)[-_ ]?(\d+)", re.IGNORECASE)
_VERSION = re.compile(r"version_\d+(?=/)")
_TOLD_BY_MACHINES = re.compile(r"[0-9a-f]{16,}|\d{6,}|\d+t\d+")


def metric_and_scope(name: str, file: str, *, checkpoint: str | None = None) -> tuple[str, Scope]:
    """Return which metric a score is, and what it is of, from its name and the file that states it.

    Example:
        >>> metric, scope = metric_and_scope("gsm8k.exact_match.strict_match", "results_2026-01-02T05-04-12.json")
        >>> metric, sorted(scope.words), scope.when
        ('exact_match', ['gsm8k', 'match', 'strict'], '2026-01-02T05-04-12')
        >>> metric_and_scope("eval_acc", "all_results.json")[1].split
        'eval'
    """
    parts = [part for part in name.split(".") if part]
    at = next((index for index, part in enumerate(parts) if _split_off(part)[1] in SCORE_KEYS), len(parts) - 1)
    best_of = BEST_OF_EVALUATION.fullmatch(parts[at]) if parts else None
    split, metric = _split_off(best_of.group("rest") if best_of else parts[at])
    groups = [part for index, part in enumerate(parts) if index != at]
    split = split or next((_SPLITS[part] for part in groups if part in _SPLITS), "") or _split_of(file)
    best = (
        bool(best_of)
        or metric.startswith("best_")
        or any(part == "best" for part in (*groups, *_words(file, drop=False)))
    )
    words = ({word for part in groups for word in part.split("_") if word} - _GENERIC) | _words(file)
    time, numbered = _TIME.search(file), _NUMBERED.search(file)
    return _SAME.get(metric.removeprefix("best_"), metric.removeprefix("best_")), Scope(
        words=frozenset(words),
        split=split,
        best=best,
        when=time.group() if time else "",
        checkpoint=_number_in(checkpoint) or (numbered.group(1) if numbered else ""),
    )


def identity(score: Score) -> tuple[str, Scope]:
    """Return metric and scope of a score."""
    return metric_and_scope(score.name, score.source.file, checkpoint=score.checkpoint)


def _split_off(part: str) -> tuple[str, str]:
    """Return split and metric of one part of a name: `eval_acc` is of eval, `final_accuracy` of none."""
    for prefix in _OF_NO_METRIC:
        part = part.removeprefix(prefix) if part.removeprefix(prefix) in SCORE_KEYS else part
    head, _, rest = part.partition("_")
    return (_SPLITS[head], rest) if rest and head in _SPLITS else ("", part)


def _split_of(file: str) -> str:
    """Return the split that a file's own name tells: `test_results.json` is of test."""
    named = {_SPLITS[word] for word in _pieces(file.rpartition("/")[2]) if word in _SPLITS}
    named = named - {"eval"} or named  # `eval_test.json` is an evaluation, of test.
    return named.pop() if len(named) == 1 else ""


def _words(file: str, *, drop: bool = True) -> set[str]:
    """Return the words of a path that tell one evaluation from another."""
    pieces = {word for word in _pieces(file) if not _TOLD_BY_MACHINES.fullmatch(word)}
    if file.endswith((".txt", ".log", ".out")):
        pieces = {word for word in pieces if not word.isdigit()}  # Logs are numbered as they are written.
    return pieces - _GENERIC if drop else pieces


def _pieces(path: str) -> list[str]:
    if "tfevents" in path:
        path = path.rpartition("/")[0]  # The name of an event file holds a machine's name.
    if "/metrics/" in f"/{path}" and re.search(r"[0-9a-f]{32}/", path):
        path = ""  # Of a run of MLflow: its folders name nothing.
    path = re.sub(r"(?:offline-)?run-\d{8}_\d{6}-\w+", "", _TIME.sub(" ", path))
    path = _VERSION.sub("", _NUMBERED.sub(" ", path))
    stem = path.rpartition(".")[0] if "." in path.rpartition("/")[2] else path
    return [word for word in re.split(r"[^a-z0-9]+", plain_path(stem)) if word]


def plain_path(path: str) -> str:
    """Return a path in lower case, its folders apart."""
    return "/".join(plain(part) for part in path.split("/")).replace("_", " ")


def _number_in(text: str | None) -> str:
    found = re.search(r"\d+(?:\.\d+)?", text or "")
    return found.group() if found else ""
