"""What stands beside a model's answers, compared with them: scores, their number, and the marks of the answers.

Only what must follow is compared with them: a score of a baseline, of a part of the items or of another set may
differ, and a grader may count as right what is written in another way.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from foreign.readers.keys import SHARES_OF_RIGHT_ANSWERS
from foreign.readers.text import agree
from foreign.readers.view import ForeignRun, ForeignScore, Prediction, found_at
from schemas.formats import format_value, quantity
from schemas.problems import Problem

_OF_ANOTHER = re.compile(
    r"(?:^|[^a-z])(?:baseline|base|before|untrained|pretrained|previous|reference|parent|teacher|zero_?shot)(?:[^a-z]|$)"
)
"""Names of files and folders whose scores are of another model."""

_PLAIN_NUMBER = re.compile(r"[-+]?\d{1,15}(?:\.\d{1,15})?")
_CHOICE = re.compile(r"[a-z]")

_NEAR = 0.1
"""Share by which a grader of numbers may let an answer differ; one that differs more is another number."""


_PART_OF_A_PERCENT = 0.006
"""How far a share may lie above what it can be, by rounding to two decimals."""


def against_answers(view: ForeignRun) -> Iterator[Problem]:
    """Yield everything that is stated against the answers of a folder, where they stand in one file."""
    if len({one.source.file for one in view.predictions}) == 1:
        yield from _scores(view)
        yield from _counts(view)
    for reading in view.files.values():
        yield from _marks(view, reading.predictions)


def _scores(view: ForeignRun) -> Iterator[Problem]:
    """Yield a problem for a share of right answers that the answers do not give."""
    judged = [one.correct for one in view.predictions if one.correct is not None]
    if any(one.fact.startswith("score.") for one in view.files[view.predictions[0].source.file].statements):
        return  # The reader of these answers knows which score is theirs.
    if not judged:
        yield from _at_most(view)
    if not judged or _are_drawn_again(view.predictions):
        return
    share = sum(judged) / len(judged)
    for scores in _shares(view, len(judged)).values():
        for score in _not_following(scores, share):
            what = (
                f"{score.name} is stated as {format_value(score.value)}; {sum(judged)} of {len(judged)} answers in "
                f"{view.predictions[0].source.file} are right."
            )
            yield found_at(view, score.source, "TP373", what, expected=f"{share:.6g}")


def _at_most(view: ForeignRun) -> Iterator[Problem]:
    """Yield a problem for a share of right answers above what answers can give that no one marked.

    Where every expected answer is a number or a letter, those that are plainly another cannot be right.
    """
    answers = view.predictions
    wrong = sum(_differs_plainly(one) for one in answers)
    if not wrong or _are_drawn_again(answers) or any(not _is_plain(one.expected) for one in answers):
        return
    most = 1 - wrong / len(answers)
    for score in (one for scores in _shares(view, len(answers)).values() for one in scores):
        share = score.value / 100 if score.value > 1 else score.value
        if share > most + _PART_OF_A_PERCENT:
            what = (
                f"{score.name} is stated as {format_value(score.value)}; {wrong} of "
                f"{quantity(len(answers), 'answer')} in "
                f"{answers[0].source.file} are plainly other than expected, which leaves {most:.6g} at most."
            )
            yield found_at(view, score.source, "TP373", what, expected=f"at most {most:.6g}")


def _is_plain(text: str | None) -> bool:
    bare = _bare(text)
    return bare is not None and (_CHOICE.fullmatch(bare) or _PLAIN_NUMBER.fullmatch(bare)) is not None


def _are_drawn_again(answers: Sequence[Prediction]) -> bool:
    """Return whether items were answered more than once: how their scores are put together, is unknown."""
    ids = [one.id for one in answers if one.id is not None]
    return len(set(ids)) < len(ids)


def _shares(view: ForeignRun, count: int) -> dict[str, list[ForeignScore]]:
    """Return the scores of each file that are shares of right answers, of this model and of all these answers."""
    items = {fact.source.file: fact.value for fact in view.facts_named("evaluation.items")}
    of_file: dict[str, list[ForeignScore]] = defaultdict(list)
    for score in view.scores:
        file = score.source.file
        of_more = isinstance(stated := items.get(file, 0), int | float) and stated > count
        is_of_these = not (of_more or score.checkpoint or _OF_ANOTHER.search(file.lower()))
        if score.name in SHARES_OF_RIGHT_ANSWERS and is_of_these and not _is_of_training(view, score):
            of_file[file].append(score)
    return of_file


def _is_of_training(view: ForeignRun, score: ForeignScore) -> bool:
    """Return whether a log goes on with training after a score: then it is not of the answers at the end."""
    rows = view.files[score.source.file].metrics
    last = max((row.source.line or 0 for row in rows), default=0)
    return score.source.pointer is None and (score.source.line or 0) < last


def _not_following(scores: Sequence[ForeignScore], share: float) -> Iterator[ForeignScore]:
    """Yield the scores of a file that the answers do not give.

    A log may state a score of several evaluations, and the answers are of one of them. Letter for letter and by a
    grader are two scores of the same answers, which are marked by one of them.
    """
    following = [score for score in scores if _follows(score, share)]
    kinds = {SHARES_OF_RIGHT_ANSWERS[score.name] for score in following}
    for score in scores:
        is_again = score.source.pointer is None and any(score.name == one.name for one in following)
        if score not in following and not is_again and not kinds - {SHARES_OF_RIGHT_ANSWERS[score.name]}:
            yield score


def _follows(score: ForeignScore, share: float) -> bool:
    """Return whether a score is a share of answers; a percent, and a number of answers, state it to two decimals."""
    is_percent = score.value > 1 or score.note is not None
    return agree(score.value / 100 if score.value > 1 else score.value, share, decimals_stated=2 if is_percent else 0)


def _counts(view: ForeignRun) -> Iterator[Problem]:
    """Yield a problem for a number of scored answers that is not the number of answers."""
    scored = view.facts_named("evaluation.scored")
    if not scored or any(fact.value == len(view.predictions) for fact in scored):
        return
    fact = scored[0]
    has = f"{view.predictions[0].source.file} has {quantity(len(view.predictions), 'answer')}"
    what = f"{fact.name} is {format_value(fact.value)} in {fact.source}; {has}."
    yield found_at(view, fact.source, "TP371", what)


def _marks(view: ForeignRun, answers: Sequence[Prediction]) -> Iterator[Problem]:
    """Yield one problem for answers of a file that are marked right and are plainly other than the expected ones."""
    wrong = [one for one in answers if one.correct and _differs_plainly(one)]
    if not wrong:
        return
    first = wrong[0]
    verbs = "is marked as right and differs" if len(wrong) == 1 else "are marked as right and differ"
    what = (
        f"{len(wrong)} of {quantity(len(answers), 'answer')} {verbs} from what is expected; the first "
        f"({first.source}) is {format_value(first.output_text)} where {format_value(first.expected)} is expected."
    )
    yield found_at(view, first.source, "TP371", what)


def _differs_plainly(answer: Prediction) -> bool:
    """Return whether output and expected answer are both nothing but a number, or a letter, and not the same.

    Anything longer a grader may rightly take for the same in another form. So may it a number near by, a percent for a
    fraction, or an answer that was found in the output.
    """
    expected, *said = (
        _bare(text) for text in (answer.expected, answer.output_text, answer.extracted_answer or answer.output_text)
    )
    if expected is None or None in said:
        return False
    return all(_are_other(expected, one) for one in said if one is not None)


def _bare(text: str | None) -> str | None:
    """Return an answer without case and what stands around it: `$1,000.` is `1000`, and `1,5` stays what it is."""
    if text is None:
        return None
    return re.sub(r"(?<=\d),(?=\d{3}(?:\D|$))", "", text.strip().strip("$€£.()[]*\"'% ")).lower()


def _are_other(expected: str, said: str) -> bool:
    if _CHOICE.fullmatch(expected) and _CHOICE.fullmatch(said):
        return expected != said
    if not _PLAIN_NUMBER.fullmatch(expected) or not _PLAIN_NUMBER.fullmatch(said):
        return False
    one, other = float(expected), float(said)
    return not any(abs(one - scaled) <= _NEAR * abs(one) for scaled in (other, other * 100, other / 100))
