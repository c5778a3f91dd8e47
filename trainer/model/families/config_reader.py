"""Reads values out of a config.json and notes everything that is missing, wrong or not computed here.

What a key means stands in the file of each family.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from schemas.problems import Problem, ProblemError, problem_of
from trainer.model.spec import Activation

ACTIVATIONS: Mapping[str, Activation] = {
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
}
"""Hugging Face's names (transformers/activations.py, ACT2FN) for the activations computed here."""


MOST = 2**24
"""Largest size of anything: more than the longest context, the largest vocabulary and the widest layer there are."""

MOST_LAYERS = 1024
"""Several times the deepest model there is. Each layer is built, on paper too, so a wrong figure would take hours."""


class ConfigReader:
    """One config.json: typed reads that note problems and go on, so that all of them are reported at once.

    A key that is absent has the value that `defaults` gives it, as transformers' class for the family does.
    """

    def __init__(
        self, config: Mapping[str, Any], *, file: str, path: tuple[str, ...] = (), problems: list[Problem] | None = None
    ) -> None:
        self.config = config
        self.defaults: Mapping[str, Any] = {}
        self.file = file
        self.path = path
        self.problems: list[Problem] = [] if problems is None else problems

    def inside(self, key: str) -> ConfigReader:
        """Return a reader of the object under a key, empty if it is missing; what it notes is noted here too."""
        value = self.value(key)
        if value is not None and not isinstance(value, dict):
            self.note(key, "an object")
        found = value if isinstance(value, dict) else {}
        return ConfigReader(found, file=self.file, path=(*self.path, key), problems=self.problems)

    def value(self, key: str) -> Any:
        """Return what stands under a key, or its default where the key is absent; null is null."""
        return self.config[key] if key in self.config else self.defaults.get(key)

    def size(self, key: str, default: int | None = None, *, most: int = MOST) -> int:
        """Return a positive whole number; null or absent gives the default, and without one is a problem."""
        value = self.value(key)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            self.note(key, "a whole number above 0")
            return 1
        if value > most:
            self.note(key, f"at most {most:,}")
            return 1
        return value

    def optional_size(self, key: str) -> int | None:
        """Return a positive whole number, or None where null stands."""
        return None if self.value(key) is None else self.size(key)

    def number(self, key: str, default: float | None = None) -> float:
        """Return a number above 0; null or absent gives the default, and without one is a problem."""
        value = self.value(key)
        value = default if value is None else value
        # Infinity is a number in Python's JSON, and whole numbers of hundreds of digits are no float.
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= sys.float_info.max:
            return float(value)
        self.note(key, "a number above 0")
        return 1.0 if default is None else default

    def optional_number(self, key: str) -> float | None:
        """Return a number above 0, or None where null stands."""
        return None if self.value(key) is None else self.number(key)

    def numbers(self, key: str, count: int) -> tuple[float, ...]:
        """Return a list of that many numbers above 0."""
        value = self.value(key)
        if isinstance(value, list) and len(value) == count:
            each = ConfigReader({str(place): each for place, each in enumerate(value)}, file=self.file)
            found = tuple(each.number(place) for place in each.config)
            if not each.problems:
                return found
        self.note(key, f"a list of {count} numbers above 0")
        return (1.0,) * count

    def flag(self, key: str, *, default: bool = False) -> bool:
        """Return true or false; null or absent gives the default."""
        value = self.value(key)
        value = default if value is None else value
        if isinstance(value, bool):
            return value
        self.note(key, "true or false")
        return default

    def activation(self, key: str, default: str) -> Activation:
        """Return the activation behind Hugging Face's name for it."""
        value = self.value(key)
        name = default if value is None else value
        if isinstance(name, str) and name in ACTIVATIONS:
            return ACTIVATIONS[name]
        self.note(key, "one of " + ", ".join(ACTIVATIONS))
        return "gelu"

    def only(self, key: str, *, allowed: tuple[Any, ...]) -> None:
        """Note a problem unless the value is absent, null or among those that this decoder computes."""
        value = self.value(key)
        if value is not None and not any(value == each and type(value) is type(each) for each in allowed):
            self.note(key, " or ".join([*map(json.dumps, allowed), "nothing"]))

    def note(self, key: str, expected: str) -> None:
        """Note, once a key, that its value is not what this decoder can compute."""
        pointer = "/" + "/".join((*self.path, key))
        if any(problem.pointer == pointer for problem in self.problems):
            return
        name = ".".join((*self.path, key))
        found = f"`{name}` is {short(self.config[key])}" if key in self.config else f"`{name}` is missing"
        self.problems.append(
            problem_of(
                "TP042",
                file=self.file,
                pointer=pointer,
                what=f"{found}; this decoder needs {expected}.",
                expected=expected,
            )
        )

    def finish(self) -> None:
        """Raise everything noted so far, if anything was."""
        if self.problems:
            raise ProblemError(self.problems, exit_code=2)


def short(value: Any) -> str:
    """Return the value as JSON, cut to what fits in a message."""
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
