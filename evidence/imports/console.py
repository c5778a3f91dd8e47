"""Read console logs: printed losses, scores, settings, errors and the end of the run."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from evidence.imports import keys
from evidence.imports.documents import MEAN_NOTE, SUMMARY_FACTS, is_trainer_summary
from evidence.imports.keys import NUMBER, Line, Text, is_example_file, split_templates, to_number
from evidence.imports.run import Citation, Fact, FileReading, How, MetricRow, Scalar, Score, Tool
from schemas.formats import quantity
from schemas.problems import problem_of

_MAX_LINE = 5000

_DICT = re.compile(r"\{\s*['\"][^{}]{3,4000}\}")
_MEMBER = re.compile(rf"['\"]([\w@./ -]{{1,80}})['\"]\s*:\s*['\"]?({NUMBER})['\"]?(?=\s*[,}}])", re.IGNORECASE)
_STEP = re.compile(
    r"\b(?:global[_ ]?step|train(?:ing)?[_ ]step|step|iteration|iter)\b\s*[:=#]?\s*[\[(]?\s*(\d[\d,]{0,19})(?![\d,]*\d)"
    r"(?:\s*(?:/|of)\s*(\d[\d,]{0,19})(?![\d,]*\d))?",
    re.IGNORECASE,
)
_COUNTED = re.compile(r"^\W*\[\s*(\d{1,20})\s*/\s*(\d{1,20})\s*\]")
_BAR = re.compile(r"\d+%\|[^|]*\|\s*(\d{1,15})/(\d{1,15})\s*\[")
_EPOCH = re.compile(r"\bepoch\b\s*[:=#]?\s*[\[(]?\s*(\d+(?:\.\d+)?)", re.IGNORECASE)
_LOSS = re.compile(
    r"(?P<mean>\b(?:avg|average|mean|running|smoothed)[ _.]*)?(?P<name>\b(?:(?:train(?:ing)?|eval(?:uation)?|"
    rf"val(?:idation)?|valid|test)[ _/]?)?loss)\b\s*(?:at step \d+\s*)?(?:[:=]|is|->)?\s*(?P<value>{NUMBER})",
    re.IGNORECASE,
)
_PAIR = re.compile(rf"\b([A-Za-z][\w./@]*(?: [a-z]\w*)?)\s*[:=]\s*({NUMBER})(?![\w%/])", re.IGNORECASE)
_SETTING = re.compile(r"^[^A-Za-z]{0,60}([A-Za-z][\w /.-]{1,60}?)\s*(?:\([^)]*\))?\s*[:=]\s+(\S.*)$")
_PIECES = re.compile(r"\s+\|\s+|\s{3,}|\.\s+(?=[A-Z][\w ]{1,30}[:=])")
_RATIO = re.compile(r"(\d{1,15})\s*(?:/|of|out of)\s*(\d{1,15})\b")
_PERCENT = re.compile(rf"({NUMBER})\s*(%?)", re.IGNORECASE)
_FINAL_LOSS = re.compile(
    r"\b(final|last|mean|average|avg|best|lowest)[ _](?:train(?:ing)?[ _])?loss\b\s*[:=]\s*(\S+)", re.IGNORECASE
)
_LOSS_KINDS = {"final": "last", "last": "last", "best": "best", "lowest": "best"}
_RUN_ENDED = re.compile(
    r"^\W*(?:\w+ )?(?:training|run|fine-?tuning) (?:(?:is )?(completed?|finished|succeeded|done)|(?:has )?failed)\b",
    re.I,
)
_ERROR = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)\b")
_HEADING = re.compile(r"(?:\*{3,}|={3,}|#{2,}|-{3,})\s*([A-Za-z][^*=#\n]{1,60})")
_TRAINING = re.compile(r"\b(?:train|fine-?tun)", re.IGNORECASE)


def read_log(text: Text, file: str, where: str) -> FileReading:
    """Read a log, except for examples and empty templates; `where` is the name of the file in problems."""
    lines = [Line(line.number, line.text[:_MAX_LINE]) for line in text.lines()]
    kept, template, opening = split_templates(lines)
    if is_example_file(file):
        kept, template, opening = [], lines, opening or next(iter(lines), None)
    log = _Log(file)
    for line in kept:
        log.read_line(line)
    reading = FileReading(template=opening is not None)
    reading.facts, reading.metrics, reading.scores = list(log.facts.values()), log.rows, log.scores
    if opening is not None:
        quoted = f"“{opening.text.strip()[:60]}” marks a template"
        opens = "The file is named as an example" if is_example_file(where) else quoted
        what = f"{opens}; not read: {quantity(len(template), 'line')}."
        reading.problems = [problem_of("TP518", file=where, what=what, line=opening.number)]
    if log.rows or log.facts or log.scores or opening:
        reading.tool = Tool.CONSOLE
    return reading


@dataclass
class _Log:
    """State of reading a log: facts are kept once per name and value; an evaluation lasts until the next row."""

    file: str
    rows: list[MetricRow] = field(default_factory=list)
    facts: dict[tuple[str, Scalar], Fact] = field(default_factory=dict)
    scores: list[Score] = field(default_factory=list)
    stage_ended: bool = False
    in_evaluation: bool = False
    in_traceback: bool = False

    def read_line(self, line: Line) -> None:
        """Read one line."""
        if "Traceback (most recent call last)" in line.text:
            self.in_traceback = True
        elif self.in_traceback and _ERROR.match(line.text):
            self.in_traceback = False
            self.add("failure.error", line.text.strip()[:200], line, note="No row follows this error.")
        if heading := _HEADING.search(line.text):
            title = heading.group(1)
            is_evaluation = self.in_evaluation or keys.has_word("evaluation", title)
            self.in_evaluation = is_evaluation and not _TRAINING.search(title)
            self.stage_ended |= "Running training" in title
        members = _dict_numbers(line.text)
        if is_trainer_summary(members):
            for key, name in SUMMARY_FACTS.items():
                if (number := members.get(key)) is not None:
                    self.add(name, number, line, note=MEAN_NOTE if key == "train_loss" else None)
            self.stage_ended = True
        elif members:
            self._add_row({keys.metric_name(key): value for key, value in members.items()}, line)
        elif row := _row_in_words(line.text):
            values, planned = row
            if planned is not None:
                self.add("training.steps_planned", planned, line, how="inferred", note="The number behind the step.")
            self._add_row(values, line)
        else:
            self._read_statement(line)

    def add(self, name: str, value: Scalar, line: Line, *, note: str | None = None, how: How = "stated") -> None:
        """Add a fact, unless the same was stated before."""
        name = keys.EVALUATION_NAMES.get(name, name) if self.in_evaluation else name
        name = "device.remark" if keys.is_unused_device(name, value) else name
        source = Citation(file=self.file, line=line.number)
        self.facts.setdefault((name, value), Fact(name=name, value=value, source=source, how=how, note=note))

    def _add_row(self, values: dict[str, float | None], line: Line) -> None:
        """Add a row; a new stage begins after a summary, and where the step or the epoch goes back."""
        last = self.rows[-1] if self.rows else None
        self.in_evaluation = False
        self.facts = {key: fact for key, fact in self.facts.items() if key[0] != "failure.error"}
        if last is not None and last.values == values:
            return  # Printed twice, by the program and by its logger.
        if last is not None and _BAR.search(line.text) and last.values.get("step") == values.get("step"):
            self.rows.pop()  # A bar is drawn again with the same count.
        stage = 1
        if last is not None:
            pairs = ((values.get(key), last.values.get(key)) for key in ("step", "epoch"))
            goes_back = any(now is not None and before is not None and now < before for now, before in pairs)
            stage = last.stage + (self.stage_ended or goes_back)
        self.stage_ended = False
        self.rows.append(MetricRow(values=values, source=Citation(file=self.file, line=line.number), stage=stage))

    def _read_statement(self, line: Line) -> None:
        """Read a score, a final loss, the end of the run, or settings."""
        if score := _parse_score(line.text):
            name, value, note = score
            source = Citation(file=self.file, line=line.number)
            self.scores.append(Score(name=name, value=value, source=source, note=note))
        elif final := _FINAL_LOSS.search(line.text):
            if (number := to_number(final.group(2).rstrip(",;)"))) is not None:
                self.add(f"result.{_LOSS_KINDS.get(final.group(1).lower(), 'mean')}_loss", number, line)
        elif ended := _RUN_ENDED.search(line.text):
            status = "completed" if ended.group(1) else "failed"
            self.add("run.status", status, line, note=f"The log says: {line.text.strip()[:80]}")
        else:
            for piece in _PIECES.split(line.text):
                if setting := _parse_setting(piece):
                    self.add(*setting, line)


def _dict_numbers(text: str) -> dict[str, float | None]:
    """Return the numbers of a printed dict or JSON object of metrics, or an empty dict.

    >>> _dict_numbers("{'loss': 1.2, 'grad_norm': nan, 'epoch': '0.5'}")
    {'loss': 1.2, 'grad_norm': None, 'epoch': 0.5}
    """
    match = _DICT.search(text) if "{" in text else None
    members = dict(_MEMBER.findall(match.group()) if match else ())
    is_row = len(members) > 1 and any(key in members for key in keys.TABLE["words"]["row"])
    return {name: to_number(number) for name, number in members.items()} if is_row else {}


def _row_in_words(text: str) -> tuple[dict[str, float | None], int | None] | None:
    """Return the values of a line with a step or an epoch and a loss, and the total of `step 10/200`.

    >>> _row_in_words("iter 250: train loss 1.9, val loss 2.1")
    ({'step': 250, 'loss': 1.9, 'eval_loss': 2.1}, None)
    """
    losses, epoch = list(_LOSS.finditer(text)), _EPOCH.search(text)
    step = _STEP.search(text) or _COUNTED.search(text)
    bar = _BAR.search(text) if not step and not epoch and "%|" in text else None
    if not losses or not (step or epoch or bar):
        return None
    values: dict[str, float | None] = {}
    if place := step or bar:
        values["step"] = int(place.group(1).replace(",", ""))
    elif epoch:
        values["epoch"] = to_number(epoch.group(1))
    for loss in losses:
        name = "mean_loss" if loss.group("mean") else keys.metric_name(loss.group("name"))
        values.setdefault(name, to_number(loss.group("value")))
    for key, number in _PAIR.findall(text):
        if (name := keys.metric_name(key)) in keys.TABLE["words"]["beside_loss"]:
            values.setdefault(name, to_number(number))
    total = step.group(2) if step and not epoch else None  # Beside an epoch, it may be the epoch's.
    return values, int(total.replace(",", "")) if total else None


def _parse_setting(text: str) -> tuple[str, Scalar] | None:
    """Return the fact that `key: value` states, or None.

    >>> _parse_setting("   Model: gpt2 (revision: main)"), _parse_setting("  Num examples = 1,000")
    (('model.name', 'gpt2'), ('dataset.rows', 1000))
    """
    match = _SETTING.match(text) if len(text) <= 200 else None
    if match is None:
        return None
    key, value = match.groups()
    name = keys.fact_name(key)
    if name is None or name.startswith("run."):
        return None
    word = value.split(" (")[0].strip().strip("`'\"")
    if name in keys.TEXT_FACTS:
        is_name = " " not in word or name in ("device.kind", "device.gpu")
        return (name, word) if is_name and 0 < len(word) <= 100 and not word.endswith((":", "...")) else None
    number = to_number(word.split()[0].rstrip(",;")) if word.split() else None
    return None if number is None else (name, number)


def _parse_score(text: str) -> tuple[str, float, str | None] | None:
    """Return name, value and note of a score.

    >>> _parse_score("Accuracy: 12/50 (24.00%)"), _parse_score("Exact match = 41.5%")
    (('accuracy', 0.24, '12 of 50.'), ('exact_match', 0.415, '41.5 % in the source.'))
    """
    match = _SETTING.match(text) if len(text) <= 200 else None
    if match is None or not keys.is_score(match.group(1)):
        return None
    name, value = keys.plain(match.group(1)), match.group(2)
    if (ratio := _RATIO.match(value)) and int(ratio.group(2)) > 0:
        return name, int(ratio.group(1)) / int(ratio.group(2)), f"{ratio.group(1)} of {ratio.group(2)}."
    percent = _PERCENT.match(value)
    if percent is None or (number := to_number(percent.group(1))) is None:
        return None
    if percent.group(2):
        return name, round(number / 100, 12), f"{percent.group(1)} % in the source."
    return name, float(number), None
