"""YAML text to a value, strictly, by the rules of YAML 1.2's core schema.

PyYAML reads YAML 1.1, where `no` is false, `1e-3` is text and `12:30` is 750. Here `no` is text, `1e-3` is a number and
`12:30` is text, as JSON's values are and as the reader expects. Anchors, aliases and tags are refused: a configuration
needs none, and an alias can blow a small file up to gigabytes.
"""

from __future__ import annotations

from typing import Any

import yaml

from schemas.problems.problem import Problem, ProblemError, pointer_to
from schemas.problems.rule import problem_of
from schemas.problems.words import show
from schemas.reading.fast_yaml import NotFiniteError, is_plain_text, value_of
from schemas.reading.json_text import is_text
from schemas.reading.limits import MOST_LEVELS
from schemas.reading.text import ParseResult, unread

LONGEST_SHOWN = 40
MOST_CHARACTERS = 1 << 20
"""PyYAML reads some 100 kB per second; a longer configuration is a mistake or an attack."""


class _Dumper(yaml.SafeDumper):
    """Writes text that reads as a number here, such as `1e-3`, in quotation marks; PyYAML would not."""


def _text_node(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = None if is_plain_text(text) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text_node)


class _Loader(yaml.SafeLoader):
    """Gives every plain scalar the tag of text, so that this module alone decides what it is."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own attribute, replaced and never changed


class _FastLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # absent without libyaml
    """The same by libyaml, ten times as fast."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - as above


def read_yaml(text: str, *, file: str) -> ParseResult:
    """Return the value of a YAML text; a duplicate key has its last value, `.nan` and `.inf` are null."""
    if len(text) > MOST_CHARACTERS:
        return unread(_too_long(len(text), file=file))
    reader = _YamlReader(file)
    try:
        root = reader.compose(text)
        value = reader.value(root, ()) if root is not None else None
    except ProblemError as refused:
        return unread(*refused.problems)
    except yaml.MarkedYAMLError as error:
        return unread(_syntax(error, file=file))
    except yaml.reader.ReaderError as error:
        return unread(_control_character(text, error, file=file))
    except (ValueError, OverflowError):
        # PyYAML passes "\UFFFFFFFF" on to chr(), which knows no such character.
        return unread(_no_character(file=file))
    if not is_text(value):
        return unread(_no_character(file=file))
    return ParseResult(value=value, is_read=True, problems=tuple(reader.problems), lines=reader.lines.get)


def write_yaml(value: Any) -> str:
    r"""Return a YAML text that `read_yaml` gives back as the same value; keys stay in their order.

    Example:
        >>> write_yaml({"name": "1e-3", "optimizer": {"learning_rate": 0.5}})
        "name: '1e-3'\noptimizer:\n  learning_rate: 0.5\n"
    """
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


class _YamlReader:
    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.lines: dict[str, int] = {}

    def compose(self, text: str) -> yaml.Node | None:
        """Return the tree of a text. What libyaml refuses, PyYAML's own reader reads again, for its better words."""
        try:
            self.refuse_depth(text, _FastLoader)
            return yaml.compose(text, Loader=_FastLoader)
        except (yaml.YAMLError, ValueError, OverflowError):
            self.refuse_depth(text, _Loader)
            return yaml.compose(text, Loader=_Loader)

    def refuse_depth(self, text: str, loader: type[Any]) -> None:
        """Refuse deep nesting, aliases and tags while the text is still a flat series of events."""
        depth = 0
        for event in yaml.parse(text, Loader=loader):
            line = event.start_mark.line + 1 if event.start_mark else 1
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                raise ProblemError([self._refused_feature("an anchor or alias (& or *)", line, "Write the value out.")])
            if getattr(event, "tag", None):
                raise ProblemError([self._refused_feature("a tag (!)", line, "Delete the tag; write a plain value.")])
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > MOST_LEVELS:
                raise ProblemError([self._too_deep(line)])

    def value(self, node: yaml.Node, path: tuple[str | int, ...]) -> Any:
        """Return the value of a node; the line of each value inside is noted."""
        self.lines.setdefault(pointer_to(path), node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode) and not node.style:
            return self._plain(node, path)
        return node.value

    def _mapping(self, node: yaml.MappingNode, path: tuple[str | int, ...]) -> dict[str, Any]:
        value: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise ProblemError(
                    [self._refused_feature("a key that is not text", line, "Write the key as one word.")]
                )
            key = key_node.value
            pointer = pointer_to((*path, key))
            if key in value:
                self.problems.append(self._repeated(key, pointer, line))
            self.lines.setdefault(pointer, line)
            value[key] = self.value(value_node, (*path, key))
        return value

    def _plain(self, node: yaml.ScalarNode, path: tuple[str | int, ...]) -> Any:
        try:
            return value_of(node.value)
        except NotFiniteError:
            self.problems.append(self._not_finite(node.value, pointer_to(path), node.start_mark.line + 1))
            return None

    def _repeated(self, key: str, pointer: str, line: int) -> Problem:
        what = f"Duplicate key {show(key)} in one group, first on line {self.lines[pointer]}."
        return problem_of("TP109", file=self.file, line=line, pointer=pointer, what=what)

    def _not_finite(self, text: str, pointer: str, line: int) -> Problem:
        literal = text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
        return problem_of(
            "TP110",
            file=self.file,
            line=line,
            pointer=pointer,
            what=f"{literal} is not a finite number.",
            why=None,
            expected="a finite number",
            next="Write a number below 1.8e308, or null where the field allows it.",
        )

    def _too_deep(self, line: int) -> Problem:
        what = f"Groups and lists are nested more than {MOST_LEVELS} levels deep."
        return problem_of("TP111", file=self.file, line=line, what=what, why=None)

    def _refused_feature(self, what: str, line: int, advice: str) -> Problem:
        why = "A configuration is written plainly, so that people can read it without knowing all of YAML."
        what = f"The file uses {what}, which trainproof does not read."
        return problem_of("TP108", file=self.file, line=line, what=what, why=why, next=advice)


def _syntax(error: yaml.MarkedYAMLError, *, file: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    what, advice = "the text there does not continue the text before it", "Check indentation and colons there."
    if error.problem and "'\\t'" in error.problem:
        what, advice = "a tab is used where YAML wants spaces", "Indent with spaces."
    elif error.problem and "mapping values are not allowed" in error.problem:
        what, advice = "a colon is inside a value", "Put the value in quotation marks, or start a new line."
    elif error.context and "expected a single document" in error.context:
        what, advice = "a second document begins", "Keep one document in the file; delete the line ---."
    place = f" at column {mark.column + 1}" if mark else ""
    line = mark.line + 1 if mark else None
    return problem_of("TP108", file=file, line=line, what=f"This is not YAML: {what}{place}.", why=None, next=advice)


def _control_character(text: str, error: yaml.reader.ReaderError, *, file: str) -> Problem:
    what = f"The text holds a control character (U+{ord(text[error.position]):04X})."
    line = text.count("\n", 0, error.position) + 1
    return problem_of("TP108", file=file, line=line, what=what, why=None, next="Delete it.")


def _no_character(*, file: str) -> Problem:
    what = "An escape (\\u or \\U) does not name a character."
    why = "Such text cannot be written as UTF-8."
    return problem_of("TP112", file=file, what=what, why=why, next="Write the character itself.")


def _too_long(characters: int, *, file: str) -> Problem:
    return problem_of(
        "TP108",
        file=file,
        what=f"The file has {characters:,} characters.",
        why=None,
        expected=f"a configuration of at most {MOST_CHARACTERS:,} characters",
        next="Check that this is the right file.",
    )
