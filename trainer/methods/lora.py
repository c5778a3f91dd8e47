"""LoRA: the model stays as it is, and two small matrices beside each chosen projection learn (arXiv 2106.09685).

What an adapter computes stands in `trainer/model/lora.py`. The base keeps the element type `precision.params`, which
may be a half precision one, or its projections 4 or 8 bits (QLoRA, arXiv 2305.14314; `trainer/model/quantised.py`);
adapters and their optimizer state are float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from math import sqrt
from typing import Any, Literal

from schemas.formats import join_words
from schemas.problems import ProblemError, problem_of
from trainer.config.tree import Config
from trainer.methods.method import Method
from trainer.model.adapters.config import modules
from trainer.model.files.source import ModelSource
from trainer.model.lora import Lora, is_lora
from trainer.model.quantised import Kind, can_be_quantised

ALL = "all"


@dataclass(frozen=True)
class LowRank(Method):
    """Adapters learn; everything else is frozen."""

    rank: int
    scale: float
    """What the product of an adapter's matrices is multiplied by."""
    dropout: float
    targets: tuple[str, ...]
    is_rslora: bool
    base: Literal["plain", "nf4", "int8"]
    kind = "lora"
    shape_keys = ("kind", "rank", "targets", "base")

    def is_trained(self, name: str) -> bool:
        """Return whether a parameter belongs to an adapter."""
        return is_lora(name)

    def adapters(self, source: ModelSource) -> dict[str, Lora]:
        """Return an adapter for each projection that a target names.

        Raises:
            ProblemError: exit code 2; a target names none.
        """
        names = projection_names(source)
        unknown = [target for target in self.targets if not any(fits(target, each) for each in names.values())]
        if unknown:
            raise ProblemError([no_target(target, source, names) for target in unknown], exit_code=2)
        chosen = [name for name, own in names.items() if any(fits(target, own) for target in self.targets)]
        # Each drops inputs of its own, distinguished by its number.
        return {
            name: Lora(rank=self.rank, scale=self.scale, dropout=self.dropout, number=number)
            for number, name in enumerate(sorted(chosen))
        }

    def quantised(self, kernels: Mapping[str, tuple[int, ...]]) -> dict[str, Kind]:
        """Return every projection whose kernel can be kept in the few bits that are requested."""
        kind = self.base
        return {} if kind == "plain" else {name: kind for name in kernels if can_be_quantised(kernels[name], kind)}

    def manifest_entry(self, adapters: Mapping[str, Lora]) -> dict[str, Any]:
        """Return rank, alpha and dropout of the adapters that the model has, and what they were chosen by."""
        [lora] = {(each.rank, each.scale, each.dropout) for each in adapters.values()}
        rank, scale, dropout = lora
        return {
            "kind": self.kind,
            "rank": rank,
            "alpha": scale * (sqrt(rank) if self.is_rslora else rank),
            "rslora": self.is_rslora,
            "dropout": dropout,
            "targets": ",".join(self.targets),
            "base": self.base,
        }


def projection_names(source: ModelSource) -> dict[str, tuple[str, ...]]:
    """Return the names under which each projection of a model may be named: our own, and that of its files."""
    return {name: (name, module) for module, projections in modules(source).items() for name in projections}


def fits(target: str, names: tuple[str, ...]) -> bool:
    """Return whether a target means a projection: it is the end of one of its names, from a dot on, or a pattern."""
    return target == ALL or any(fnmatchcase(f".{name}", f"*.{target}") for name in names)


def no_target(target: str, source: ModelSource, names: Mapping[str, tuple[str, ...]]) -> Any:
    """Return the problem of a target that means no projection."""
    ends = sorted({each.rpartition(".")[2] for own in names.values() for each in own})
    close = get_close_matches(target.rpartition(".")[2], ends, n=1)
    return problem_of(
        "TP067",
        file=source.name,
        pointer="/method/targets",
        what=f"The target {target} of method.targets is the name of no projection of {source.name}.",
        expected=f"the end of a projection's name, such as {join_words(ends)}, or {ALL}",
        next=f"Did you mean {close[0]}?" if close else None,
    )


def lora_of(config: Config) -> LowRank:
    """Return the method as a configuration sets it."""
    method = config.method
    return LowRank(
        rank=method.rank,
        scale=method.alpha / (sqrt(method.rank) if method.rslora else method.rank),
        dropout=method.dropout,
        targets=tuple(target.strip() for target in method.targets.split(",")),
        is_rslora=method.rslora,
        base=method.base,
    )
