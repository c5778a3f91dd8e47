"""Which parameters learn: a method divides a model's parameters into trained ones and frozen ones.

Each method has a file of its own and an entry in `METHODS` (see `__init__.py`); step, checkpoint, manifest, plan and
export call it and know none by name. Trained arrays are donated from step to step and saved; frozen ones are neither.
What is minimised is an objective's question (`trainer/objectives`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from trainer.model.files.source import ModelSource
from trainer.model.lora import Lora
from trainer.model.params import Params
from trainer.model.quantised import Kind


class Method(ABC):
    """What a method decides; `is_trained` is all that most define."""

    kind: str
    """The name in `method.kind`."""

    shape_keys: tuple[str, ...] = ("kind",)
    """Keys of the configuration's group `method` from which the shapes of the trained parameters follow."""

    @abstractmethod
    def is_trained(self, name: str) -> bool:
        """Return whether the parameter of this name learns."""

    def adapters(self, source: ModelSource) -> dict[str, Lora]:
        """Return the adapters that the method adds to a model, by the name of their projection.

        Raises:
            ProblemError: exit code 2; the model has no place for them.
        """
        return {}

    def quantised(self, kernels: Mapping[str, tuple[int, ...]]) -> dict[str, Kind]:
        """Return the projections whose kernels are kept in few bits, and how.

        Args:
            kernels: the shape `[inputs outputs]` of each projection's kernel, by name.
        """
        return {}

    def manifest_entry(self, adapters: Mapping[str, Lora]) -> dict[str, Any]:
        """Return what the manifest states of the method and its adapters, under the configuration's own keys."""
        return {"kind": self.kind}


def partition(method: Method, params: Mapping[str, Any]) -> tuple[Params, Params]:
    """Return the trained and the frozen ones of parameters by name, arrays or shapes."""
    trained = {name: value for name, value in params.items() if method.is_trained(name)}
    return trained, {name: value for name, value in params.items() if name not in trained}


def combine(trained: Mapping[str, Any], frozen: Mapping[str, Any]) -> Params:
    """Return trained and frozen parameters together, in the order of their names; the inverse of `split`."""
    return dict(sorted({**frozen, **trained}.items()))
