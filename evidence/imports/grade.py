"""Grade a folder of another tool: find contradictions, and take the figures that its sources agree on.

The contradictions are a fact with two values, a final loss that no row shows, and a score that its answers do not give.
Places are only compared where it is clear that they mean the same thing.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from evidence.imports import keys
from evidence.imports.keys import EXACT, TABLE, count_decimals, has_word, is_score, plain, rounds_to
from evidence.imports.run import (
    Citation,
    Fact,
    ImportedRun,
    MetricRow,
    Prediction,
    Score,
    Tool,
    are_nested,
    continues,
    longest_course,
    loss_series,
)
from evidence.run import Figures
from schemas.formats import format_value, join_words, quantity
from schemas.problems import Problem, problem_of, truncate_problems, worst_first

COMPARED = TABLE["compared"]
_SAME_VALUES: dict[str, str] = COMPARED["values"]
_STOPPED: dict[str, str] = TABLE["stopped"]

MAX_COMPARED = 100  # sources of one fact that are compared with each other
MAX_REASONS = 5  # of one kind that a grade names

ImportGrade = Literal["measured", "partial", "template", "contradictory", "not a run"]

_DAMAGE = {"TP521", "TP101", "TP105", "TP106", "TP107", "TP108"}  # findings that mean that some of a file is missing


def tool_findings(run: ImportedRun) -> list[Problem]:
    """Return every finding, worst first: of reading, contradictions, and that nothing was measured."""
    problems = [*run.problems, *(problem for reading in run.files.values() for problem in reading.problems)]
    problems += [problem for name in COMPARED["names"] for problem in _check_fact(run, name)]
    for check in (_check_scores, _check_rows, _check_final_loss, _check_end, _check_answers):
        problems += check(run)
    if not run.is_measured:
        problems.append(problem_of("TP519", file=str(run.path), what="No file holds a loss, a score or an answer."))
    return list(worst_first(problems))


def grade_tool_run(run: ImportedRun, findings: Sequence[Problem]) -> tuple[ImportGrade, tuple[str, ...]]:
    """Return the grade and its reasons, worst first; documents that only declare something are a template."""
    errors = [problem.what for problem in findings if problem.code.startswith("TP3") and problem.severity == "error"]
    if not run.looks_like_run:
        return "not a run", ("Nothing in the folder is recognised as part of a run.",)
    if run.shows_a_run and errors:
        return "contradictory", _first_reasons(errors)
    if not run.is_measured:
        templates = [f"{Path(one.file).name}: {one.what}" for one in findings if one.code == "TP518"]
        return "template", ("No step and no answer was measured.", *_first_reasons(templates), *_first_reasons(errors))
    if reasons := (*_stopped_reasons(run), *_missing_reasons(run)):
        return "partial", reasons
    return "measured", (
        f"trainproof did not carry it out; it was read from {join_words(sorted(run.tools), last='and')}.",
    )


def _first_reasons(reasons: Sequence[str]) -> tuple[str, ...]:
    more = len(reasons) - MAX_REASONS
    return (*reasons[:MAX_REASONS], f"{more} more.") if more > 0 else tuple(reasons)


def _stopped_reasons(run: ImportedRun) -> Iterator[str]:
    statuses = [fact for fact in run.facts_named("run.status") if not is_finished(fact.value)]
    if statuses and str(statuses[-1].value).lower() in _STOPPED:
        yield f"The run's status is {statuses[-1].value} ({statuses[-1].source})."
    for fact in run.facts_named("failure.error")[:1]:
        yield f"The log ends in an error: {fact.value} ({fact.source})."
    lasts = {rows[-1].source.file: rows[-1] for rows in loss_series(run.metrics).values()}
    yield from (f"The last loss is not finite ({row.source})." for row in lasts.values() if row.values["loss"] is None)
    is_ended = bool(run.facts_named("result.mean_loss"))  # The Trainer states a mean at its end.
    for place in ("step", "epoch"):
        planned = run.numbers(f"training.{place}s_planned")
        reached = [value for row in run.metrics if (value := row.values.get(place)) is not None]
        reached += run.numbers(f"training.{place}s_done")
        if planned and reached and not is_ended:
            is_from_zero = place == "epoch" and min(reached) == 0  # As Lightning and Keras count.
            if max(reached) + is_from_zero < 0.9 * max(planned):
                yield f"The last {place} shown is {max(reached):g} of {max(planned):g}."
            return


def _missing_reasons(run: ImportedRun) -> Iterator[str]:
    if not run.metrics and not run.predictions:
        yield "Figures are stated, but no row and no answer shows how they came about."
    for name, reading in run.files.items():
        for problem in [problem for problem in reading.problems if problem.code in _DAMAGE][:1]:
            yield f"{name} could not be read whole: {problem.what}"
    answered, has_one_file = len(run.predictions), len({each.source.file for each in run.predictions}) == 1
    for fact in run.facts_named("evaluation.items")[:1]:
        if has_one_file and not isinstance(fact.value, str) and answered < fact.value:
            yield f"{answered} of {fact.value:g} items were answered ({fact.source})."


def tool_figures(run: ImportedRun) -> Figures:
    """Return the figures of a run as far as its sources agree on them."""
    series = longest_course(run.metrics)
    steps = [int(step) for row in series if (step := row.values.get("step")) is not None]
    losses = np.array([loss for row in series if (loss := row.values["loss"]) is not None], dtype=np.float64)

    def agreed(*names: str) -> Any:
        """Return the value of the first stated fact, or None if two places differ."""
        facts = next(filter(None, map(run.facts_named, names)), [])
        return facts[0].value if facts and all(values_agree(facts[0], fact) for fact in facts[1:]) else None

    def number(name: str) -> float | None:
        value = agreed(name)
        return None if value is None else float(value)

    def integer(name: str) -> int | None:
        value = number(name)
        return int(value) if value is not None and value == int(value) and abs(value) < 2**53 else None

    status, seconds, done = agreed("run.status"), number("result.train_seconds"), integer("training.steps_done")
    if not run.facts_named("training.steps_done"):
        done = max(steps) if steps else integer("training.step")
    return Figures(
        model=agreed("model.name", "evaluation.model"),
        dataset=agreed("dataset.name"),
        method=agreed("training.method"),
        device=agreed("device.gpu", "device.kind", "device.platform"),
        commit=agreed("code.commit"),
        status="succeeded" if is_finished(status) else _STOPPED.get((status or "").lower()) or None,
        started_at=agreed("run.started_at"),
        steps_done=done,
        steps_planned=integer("training.steps_planned"),
        tokens_seen=integer("result.tokens_seen"),
        losses=losses,
        first_loss=float(losses[0]) if len(losses) else None,
        best_loss=float(losses.min()) if len(losses) else None,
        last_loss=series[-1].values["loss"] if series else None,
        mean_loss=number("result.mean_loss"),
        train_seconds=seconds,
        duration_seconds=seconds,
    )


def is_finished(status: object) -> bool:
    """Return whether a status means that the run finished."""
    return isinstance(status, str) and _SAME_VALUES.get(status.strip().lower()) == "finished"


def values_agree(one: Fact, two: Fact) -> bool:
    """Return whether two facts of one name state the same value; values that cannot be compared agree."""
    left, right = _normalise(one), _normalise(two)
    if left is None or right is None:
        return True
    if isinstance(left, str) and isinstance(right, str):
        if one.name.startswith("device."):
            return not any(_differ(left, right, words) for words in (_CHIP, _PLATFORM))
        if one.name == "model.name" and not all(_BASE_KEY.search(_key(fact)) for fact in (one, two)):
            # One model may be derived from the other, but not from another family or size.
            bare, other = (re.sub("[-_.]", "", name) for name in (left, right))
            return not _differ(bare, other, _FAMILY) and not _differ(left, right, _SIZE)
        is_prefix = left.startswith(right) or right.startswith(left)
        return left == right or (is_prefix and one.name in ("code.commit", "training.schedule"))
    if isinstance(left, str) or isinstance(right, str):
        return False
    if one.name in COMPARED["factors"]:
        small, large = sorted((abs(left), abs(right)))
        return large <= COMPARED["factors"][one.name] * small or rounds_to(left, right)
    if one.name == "training.epochs_planned":
        return math.ceil(left) == math.ceil(right)  # The Hugging Face Trainer rounds parts of an epoch up.
    return rounds_to(left, right) if one.name.startswith("result.") else math.isclose(left, right, rel_tol=1e-9)


def _problem(run: ImportedRun, source: Citation, code: str, what: str, expected: str | None = None) -> Problem:
    file = str(run.path / source.file)
    return problem_of(code, file=file, what=what, expected=expected, line=source.line, pointer=source.pointer)


# One fact, two values

_OPTIMIZER = re.compile(r"^(?:paged_)?(adamw|adam|adafactor|sgd|lion|lamb)")
_DATA_FILE = re.compile(r"\.(?:jsonl?|csv|tsv|parquet|arrow|txt|ya?ml|zip|gz)$")
_BASE_KEY = re.compile(r"base|pretrained|name_or_path")
_FAMILY = re.compile("|".join(COMPARED["families"]))
_SIZE = re.compile(r"(?<![a-z0-9.])(?:\d+(?:\.\d+)?[bm]|medium|large|xl)(?![a-z0-9])")
_PLATFORM = re.compile(r"tpu|cpu|(?P<gpu>gpu|cuda|nvidia|rtx|tesla|t4|p100|a100|h100|l4)")
_CHIP = re.compile(r"\b(?:[ahb][12]0{1,2}0?|v100|p100|k80|t4|l4|l40s?|a10g?|a40|a6000|rtx ?\d{4}(?: ?ti)?|v[2-6]e)\b")


def _check_fact(run: ImportedRun, name: str) -> Iterator[Problem]:
    """Yield a problem for the first two sources that state different values of a fact."""
    asked = [fact for fact in run.facts_named("training.steps_planned") if "trainer_state" not in fact.source.file]
    if name == "training.epochs_planned" and asked:
        return  # Steps decide when a training ends; a number of epochs beside them is not used, or computed.
    sources: dict[tuple[str, str], list[Fact]] = defaultdict(list)
    for fact in run.facts_named(name):
        if _is_comparable(run, fact):
            # Planned steps in the rows of logs belong together: a resumed run may be given more.
            is_row = name == "training.steps_planned" and fact.how == "inferred"
            place = "" if fact.source.file.endswith(".jsonl") else fact.source.pointer or ""
            sources["" if is_row else fact.source.file, place].append(fact)
    # A log that prints the learning rate again and again shows its schedule, not the peak.
    kept = [one for one in sources.values() if name != "training.learning_rate" or len({f.value for f in one}) < 3]
    for first, other in combinations(kept[:MAX_COMPARED], 2):
        if not any(values_agree(one, two) or not _are_of_one_run(one, two) for one in first for two in other):
            one, two = first[0], other[0]
            what = f"{name} is {format_value(one.value)} in {one.source} and {format_value(two.value)} in {two.source}."
            yield _problem(run, two.source, "TP371", what)
            return


def _is_comparable(run: ImportedRun, fact: Fact) -> bool:
    name, groups = fact.name, [part for part in (fact.source.pointer or "").split("/")[1:-1] if not part.isdigit()]
    if name == "training.epochs_done" and fact.source.file.rpartition("/")[2] not in TABLE["paths"]["end_files"]:
        return False
    # A log states the end of one of several parts, and a summary of W&B the last loss that was logged.
    is_of_part = name == "run.status" and run.files[fact.source.file].tool == Tool.CONSOLE
    if is_of_part or (name == "result.last_loss" and fact.how == "inferred"):
        return False
    is_of_training = "log_history" in groups or plain(groups[-1] if groups else "") in TABLE["paths"]["training_groups"]
    return is_of_training or not name.startswith(("training.", "result.", "run.status"))


def _are_of_one_run(one: Fact, two: Fact) -> bool:
    """Return whether two facts are about one run: of one folder and those above it, under keys of one meaning."""
    has_same_key = one.name not in COMPARED["same_key"] or _key(one) == _key(two)
    has_same_items = one.name != "evaluation.items" or _label(one.source.file) == _label(two.source.file)
    return has_same_key and has_same_items and _are_related(one.source.file, two.source.file)


def _are_related(one: str, two: str) -> bool:
    """Return whether one file is in the other's folder or a subfolder."""
    return are_nested(one.rpartition("/")[0], two.rpartition("/")[0])


def _key(fact: Fact) -> str:
    """Return the key of a fact; a line of a log stands for the plain batch size."""
    key = plain((fact.source.pointer or "").rpartition("/")[2])
    return key or ("batch_size" if fact.name == "training.batch_size" else "")


def _normalise(fact: Fact) -> str | float | None:
    """Return a value in the form in which it is compared, or None if it cannot be (a path instead of a name)."""
    name, value = fact.name, fact.value
    if not isinstance(value, str):
        return value
    text = value.strip().lower()
    if name == "training.optimizer":
        return match.group(1) if (match := _OPTIMIZER.match(text)) else text
    if name == "run.status":
        return _SAME_VALUES.get(text)
    if name == "code.commit":
        return text if re.fullmatch(r"[0-9a-f]{7,64}", text) else None
    if name in ("model.name", "dataset.name"):
        is_path = text.count("/") > 1 or "\\" in text or text.startswith((".", "/", "~"))
        return None if is_path or "checkpoint" in text or _DATA_FILE.search(text) else text.rpartition("/")[2]
    text = text.removeprefix("schedulertype.").removeprefix("torch.").removeprefix("jnp.")
    return _SAME_VALUES.get(text, text)


def _differ(one: str, two: str, words: re.Pattern[str]) -> bool:
    """Return whether both texts have such words, and none in common."""
    first, second = ({match.lastgroup or match.group() for match in words.finditer(text)} for text in (one, two))
    return bool(first and second) and not first & second


# One score, two values


Point = tuple[float, Citation]


def _check_scores(run: ImportedRun) -> Iterator[Problem]:
    """Yield a problem for a score that no other file with this metric and evaluation has."""
    found: dict[tuple[str, frozenset[str]], dict[tuple[str, str], list[Point]]] = defaultdict(lambda: defaultdict(list))
    for name, value, source in (*((one.name, one.value, one.source) for one in run.scores), *_evaluated(run)):
        metric, split, words = _identify(name, source.file)
        found[metric, words][source.file, split].append((value, source))
    for (metric, _), series in found.items():
        for (file, split), points in series.items():
            value, source = points[-1]
            others = [
                theirs
                for (other, of), theirs in series.items()
                if other != file and (split == of or {split, of} == {"", "eval"})
            ]
            wrong = [theirs for theirs in others if not any(_same_score(value, number) for number, _ in theirs)]
            # Without a split it may be any of them; two single scores may be the best and the last of a series.
            is_wrong = len(wrong) == len(others) or (split and any(len({n for n, _ in theirs}) > 1 for theirs in wrong))
            if wrong and is_wrong and len({number for number, _ in points}) == 1:
                there, place = wrong[-1][-1]
                what = f"{metric} is {format_value(there)} in {place} and {format_value(value)} in {source}."
                yield _problem(run, source, "TP371", what)
                break


def _evaluated(run: ImportedRun) -> Iterator[tuple[str, float, Citation]]:
    """Yield name, value and place of each evaluation in rows, unless the last one may be in another file."""
    for reading in run.files.values():
        steps = [row.values.get("step") or row.values.get("epoch") or 0.0 for row in reading.metrics]
        columns: dict[str, list[tuple[float, MetricRow]]] = defaultdict(list)
        for step, row in zip(steps, reading.metrics, strict=True):
            for name, value in row.values.items():
                if value is not None and (is_score(name) or "eval_loss" in name) and not has_word("timing", name):
                    columns[name].append((step, row))
        for name, rows in columns.items():
            if rows[-1][0] == max(steps):
                yield from ((name, row.values[name] or 0.0, row.source) for _, row in rows)


def _identify(name: str, file: str) -> tuple[str, str, frozenset[str]]:
    """Return metric, split and the words that distinguish the evaluation from others.

    >>> _identify("gsm8k.exact_match.strict_match", "all_results.json"), _identify("eval_acc", "test_results.json")
    (('exact_match', '', frozenset({'gsm8k'})), ('accuracy', 'eval', frozenset()))
    """
    splits, parts = COMPARED["splits"], {part: _split_off(part) for part in name.split(".")}
    scored = (each for each in parts.values() if each[1] in keys.SCORES | {"loss"})
    split, metric = next(scored, _split_off(name.rpartition(".")[2]))
    groups = "_".join(part for part, each in parts.items() if each != (split, metric))
    named = {splits[word] for word in re.split(r"[^a-z0-9]+", file.rpartition("/")[2].lower()) if word in splits}
    named = named - {"eval"} or named  # `eval_test.json` is an evaluation, of test.
    split = split or (named.pop() if len(named) == 1 else "")
    return COMPARED["metrics"].get(metric, metric), split, _label(file) | _label(f"{groups}.")


def _split_off(part: str) -> tuple[str, str]:
    """Return split and metric of a name: `best_eval_acc` is (`eval`, `acc`)."""
    part = re.sub(r"^(?:best|final|overall)_", "", part)
    head, _, rest = part.partition("_")
    return (COMPARED["splits"][head], rest) if rest and head in COMPARED["splits"] else ("", part)


def _label(file: str) -> frozenset[str]:
    """Return the words of a path that distinguish evaluations."""
    if "tfevents" in file or re.search(r"[0-9a-f]{32}/metrics/", file):
        return frozenset()  # The name of an event file holds a machine's name, and MLflow's folders name nothing.
    path = re.sub(r"(?:offline-)?run-\d{8}_\d{6}-\w+|version_\d+(?=/)", "", file).rpartition(".")[0].lower()
    return frozenset(re.split(r"[^a-z0-9]+", path)) - {"", *TABLE["paths"]["generic"]}


def _same_score(one: float, two: float) -> bool:
    """Return whether two scores agree, also if one is rounded or a percentage."""
    small, large = sorted((one, two), key=abs)
    is_percent = abs(small) <= 1 < abs(large)
    return rounds_to(one, two) or (is_percent and rounds_to(large / 100, small, min_decimals=count_decimals(large) + 2))


_NUMBERED = re.compile(r"\d+|(?<=[-_])[a-z](?=\.\w+$)")


def _check_rows(run: ImportedRun) -> Iterator[Problem]:
    """Yield problems for two files that state different values at one step."""
    columns: dict[str, dict[str, dict[float, MetricRow]]] = defaultdict(lambda: defaultdict(dict))
    for row in run.metrics:
        for name in row.values:
            if "loss" in name or "reward" in name or is_score(name):
                columns[name][row.source.file][row.values.get("step") or -1] = row
    for name, files in columns.items():
        for (one, first), (two, second) in combinations(files.items(), 2):
            # Files of processes and of a sweep are numbered, and a resumed run repeats some steps.
            is_other = _NUMBERED.sub("0", one) == _NUMBERED.sub("0", two) or not _are_related(one, two)
            rows, others = list(first.values()), list(second.values())
            is_staged = any(row.stage > 1 for row in (*rows, *others))  # Each training counts its steps anew.
            if is_other or is_staged or continues(rows, others) or continues(others, rows):
                continue
            problems = []
            for step in sorted(first.keys() & second.keys() - {-1}):
                left, right = first[step].values[name], second[step].values[name]
                if left is not None and right is not None and not rounds_to(left, right):
                    there, here = first[step].source, second[step].source
                    values = f"{format_value(left)} in {there} and {format_value(right)} in {here}"
                    what = f"The {name} at step {step:g} is {values}."
                    problems.append(_problem(run, here, "TP371", what))
            yield from truncate_problems(problems, limit=3)


# The end of the run


def _check_final_loss(run: ImportedRun) -> Iterator[Problem]:
    """Yield a problem for a final loss with which no series ends."""
    ends = [rows[-1].values["loss"] for rows in loss_series(run.metrics).values()]
    last = next(reversed(longest_course(run.metrics)), None)
    loss = last.values["loss"] if last else None
    ending = "a loss that is not finite" if loss is None else format_value(loss)
    shows = f"the last row, {last.source}, has {ending}" if last else "no row shows the last one"
    for fact in run.facts_named("result.last_loss"):
        # W&B's summary may be of a row that other files logged earlier.
        shown = [*ends, *(row.values.get("loss") for row in run.metrics if fact.how == "inferred")]
        value = fact.value
        if isinstance(value, str) or any(loss is not None and rounds_to(value, loss) for loss in shown):
            continue
        means = [one for one in run.facts_named("result.mean_loss") if rounds_to(value, float(one.value))]
        mean = f", the mean of the run ({means[0].source})" if means else ""
        if last or means:
            what = f"The final loss is stated as {format_value(value)}{mean}; {shows}."
            yield _problem(run, fact.source, "TP372", what, None if loss is None else format_value(loss))


def _check_end(run: ImportedRun) -> Iterator[Problem]:
    """Yield a problem for a run that claims more steps than its rows show, or success after an error."""
    steps = [step for row in run.metrics if (step := row.values.get("step")) is not None]
    series = ([row.values.get("step") or 0.0 for row in rows] for rows in loss_series(run.metrics).values())
    gaps = [after - before for places in series for before, after in pairwise(places)]
    gap = max([*gaps, *sorted(steps)[:1]], default=0.0)  # The first row is one interval after the start.
    finished = next((fact for fact in run.facts_named("run.status") if is_finished(fact.value)), None)
    done, planned = run.facts_named("training.steps_done"), run.facts_named("training.steps_planned")
    # Where each epoch or training counts anew, the last step does not tell how many were done.
    is_counted = bool(steps) and all(row.stage == 1 for row in run.metrics)
    for claim in (*done, *(planned if finished and not done else ())) if is_counted else ():
        if not isinstance(claim.value, str) and max(steps) + gap < claim.value:
            source = finished.source if finished and not done else claim.source
            what = f"{claim.value:g} steps are said to be done ({claim.source}); the rows end at step {max(steps):g}."
            yield _problem(run, source, "TP374", what)
            return
    error = next(iter(run.facts_named("failure.error")), None)
    if finished and error and finished.source.file == error.source.file and not run.metrics:
        what = f"The run is said to have finished; {error.source} has {format_value(error.value)} and no row follows."
        yield _problem(run, finished.source, "TP374", what)


# Answers and their scores


def _check_answers(run: ImportedRun) -> Iterator[Problem]:
    """Yield problems for scores, counts and marks that the answers do not give."""
    for file, reading in run.files.items():
        wrong = [answer for answer in reading.predictions if answer.correct and _is_plainly_wrong(answer)]
        if wrong:
            first, count = wrong[0], quantity(len(reading.predictions), "answer")
            what = (
                f"{len(wrong)} of {count} in {file} marked as right differ from the expected one; {first.source} has "
                f"{format_value(first.output_text)} instead of {format_value(first.expected)}."
            )
            yield _problem(run, first.source, "TP371", what)
    answers = run.predictions
    if len({answer.source.file for answer in answers}) != 1:
        return
    file, scored = answers[0].source.file, run.facts_named("evaluation.scored")
    if scored and all(fact.value != len(answers) for fact in scored):
        fact, count = scored[0], quantity(len(answers), "answer")
        what = f"{fact.name} is {format_value(fact.value)} in {fact.source}; {file} has {count}."
        yield _problem(run, fact.source, "TP371", what)
    judged = [answer.correct for answer in answers if answer.correct is not None]
    ids = [answer.id for answer in answers if answer.id is not None]
    if not judged or len(set(ids)) < len(ids):
        return  # How scores of repeated items are put together is unknown.
    share = sum(judged) / len(judged)
    scores = [score for score in run.scores if _is_of_answers(run, score, len(judged))]
    # A ratio states its share to two decimals.
    given = [
        s for s in scores if rounds_to(s.value, share, min_decimals=2) or (not s.note and _same_score(s.value, share))
    ]
    for score in scores:
        # A log may state several evaluations. Letter for letter and by a grader are two scores of the same answers.
        beside = [one for one in given if one.source.file == score.source.file]
        is_again = score.source.pointer is None and any(one.name == score.name for one in beside)
        is_by_another = any((one.name in EXACT) != (score.name in EXACT) for one in beside)
        if score not in given and not is_again and not is_by_another:
            counts = f"{sum(judged)} of {len(judged)} answers in {file} are right"
            what = f"{score.name} is stated as {format_value(score.value)}; {counts}."
            yield _problem(run, score.source, "TP373", what, f"{share:.6g}")


def _is_of_answers(run: ImportedRun, score: Score, count: int) -> bool:
    """Return whether a score is the share of right answers of this model, over all these answers."""
    reading = run.files[score.source.file]
    items = [fact.value for fact in reading.facts if fact.name == "evaluation.items"]
    is_of_more = any(not isinstance(number, str) and number > count for number in items)
    last_row = max((row.source.line or 0 for row in reading.metrics), default=0)
    is_during_training = score.source.pointer is None and (score.source.line or 0) < last_row
    is_other = bool(score.checkpoint) or has_word("other_model", score.source.file)
    # A score inside a group is of one task; it belongs to answers whose file names the same task and time.
    metric, _, words = _identify(score.name, score.source.file if "." in score.name else "")
    is_share = metric in keys.GRADED | EXACT and words <= _label(run.predictions[0].source.file)
    return is_share and not (is_of_more or is_during_training or is_other)


def _is_plainly_wrong(answer: Prediction) -> bool:
    """Return whether output and expected answer are two bare numbers or letters that no grader takes for the same."""
    expected, given, extracted = (
        re.sub(r"(?<=\d),(?=\d{3}(?:\D|$))", "", (text or "").strip().strip("$€£.()[]*\"'% ")).lower()
        for text in (answer.expected, answer.output_text, answer.extracted_answer or answer.output_text)
    )
    if all(re.fullmatch(r"[a-z]", text) for text in (expected, given, extracted)):
        return expected not in (given, extracted)
    if not all(re.fullmatch(r"[-+]?\d{1,15}(?:\.\d{1,15})?", text) for text in (expected, given, extracted)):
        return False
    # A grader may accept a number nearby, and a percentage for a fraction.
    accepted = [float(text) * scale for text in (given, extracted) for scale in (1, 100, 0.01)]
    return not any(abs(float(expected) - number) <= 0.1 * abs(float(expected)) for number in accepted)
