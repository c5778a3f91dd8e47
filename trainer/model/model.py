"""The model that a configuration trains: files, decoder and method, before any parameter is read.

A method decides which parameters are trained: all of them (`full`), or LoRA adapters on chosen projections (`lora`,
arXiv 2106.09685), whose base may be stored in 4 or 8 bits (QLoRA, arXiv 2305.14314). Trained parameters are donated
from step to step and saved in checkpoints; frozen ones are neither. To add a method, subclass `Method` and add it to
`METHODS` and to `method.kind` in `train_config.schema.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from math import sqrt
from pathlib import Path
from typing import Any

from flax import nnx

from schemas.catalog import MODELS
from schemas.formats import format_value, join_words
from schemas.problems import Problem, ProblemError, collect_problems, problem_of
from trainer.config.tree import Config, MethodConfig
from trainer.model.decoder import Decoder, DecoderConfig, DecoderShapes, decoder_shapes, parameter_count
from trainer.model.layers import BLOCK, Kind, Lora, is_lora
from trainer.model.load import refuse_unusable_weights
from trainer.model.peft import merge_loras, projections_by_module
from trainer.model.source import ModelSource, resolve, shrink
from trainer.model.stacks import Params, Remat, unstack_layers
from trainer.recorder.environment import NATIVE


class Method:
    """Decides which parameters are trained: all, unless a subclass overrides it."""

    kind: str = "full"  # value of `method.kind`
    shape_keys: tuple[str, ...] = ("kind",)
    """Keys of the configuration's group `method` that determine the shapes of trained parameters."""

    def is_trained(self, name: str) -> bool:
        """Return whether a parameter is trained."""
        return True

    def adapters(self, source: ModelSource) -> dict[str, Lora]:
        """Return the adapters for a model, by projection."""
        return {}

    def quantised(self, kernels: Mapping[str, tuple[int, ...]]) -> dict[str, Kind]:
        """Return the projections whose kernels, of shape `[inputs outputs]`, are stored in few bits."""
        return {}

    def manifest_entry(self, adapters: Mapping[str, Lora]) -> dict[str, Any]:
        """Return the manifest's description of the method, under the keys of the configuration."""
        return {"kind": self.kind}


@dataclass(frozen=True)
class LoraTraining(Method):
    """Trains adapters and freezes everything else."""

    settings: MethodConfig
    kind = "lora"
    shape_keys = ("kind", "rank", "targets", "base")

    @property
    def targets(self) -> tuple[str, ...]:
        """Names or patterns of the adapted projections."""
        return tuple(target.strip() for target in self.settings.targets.split(","))

    def is_trained(self, name: str) -> bool:
        """Return whether a parameter belongs to an adapter."""
        return is_lora(name)

    def adapters(self, source: ModelSource) -> dict[str, Lora]:
        """Return an adapter for each projection that a target matches.

        A target is "all", a name such as `attention.query` or `q_proj`, ours or that in the model's files, or a pattern
        of such names. A name may omit its first parts. A target without a match raises a ProblemError with exit code 2.
        """
        names = {name: (name, module) for module, names in projections_by_module(source).items() for name in names}
        ends = sorted({each.rpartition(".")[2] for own in names.values() for each in own})
        chosen: set[str] = set()
        problems = []
        for target in self.targets:
            pattern = "*" if target == "all" else f"*.{target}"
            matched = {name for name, own in names.items() if any(fnmatchcase(f".{each}", pattern) for each in own)}
            chosen |= matched
            if not matched:
                what = f"method.targets contains {target}, which matches no projection of {source.name}."
                expected = f"the end of a projection's name, such as {join_words(ends)}, or all"
                close = get_close_matches(target.rpartition(".")[2], ends, n=1)
                fix, pointer = f"Did you mean {close[0]}?" if close else None, "/method/targets"
                problem = problem_of("TP067", file=source.name, pointer=pointer, what=what, expected=expected, next=fix)
                problems.append(problem)
        if problems:
            raise ProblemError(problems, exit_code=2)
        rank, alpha = self.settings.rank, self.settings.alpha
        scale = alpha / (sqrt(rank) if self.settings.rslora else rank)
        return {
            name: Lora(rank=rank, scale=scale, dropout=self.settings.dropout, number=number)
            for number, name in enumerate(sorted(chosen))
        }

    def quantised(self, kernels: Mapping[str, tuple[int, ...]]) -> dict[str, Kind]:
        """Return every projection that can be stored as `base` requests."""
        kind = self.settings.base
        if kind == "plain":
            return {}
        return {name: kind for name, (inputs, _) in kernels.items() if kind == "int8" or inputs % BLOCK == 0}

    def manifest_entry(self, adapters: Mapping[str, Lora]) -> dict[str, Any]:
        """Return rank, alpha and dropout of the adapters, and the settings they came from."""
        [(rank, scale, dropout)] = {(each.rank, each.scale, each.dropout) for each in adapters.values()}
        alpha = scale * (sqrt(rank) if self.settings.rslora else rank)
        own = {"rank": rank, "alpha": alpha, "dropout": dropout, "targets": ",".join(self.targets)}
        return asdict(self.settings) | own


def full_training(config: Config) -> Method:
    """Return the method `full`, or refuse settings of `lora`."""
    problems = []
    for key, value in asdict(config.method).items():
        if value != getattr(MethodConfig(), key):
            what = f"method.{key} is {format_value(value)}, which method.kind full does not use."
            problems.append(problem_of("TP069", file=config.model.name, pointer=f"/method/{key}", what=what))
    if problems:
        raise ProblemError(problems, exit_code=2)
    return Method()


METHODS: dict[str, Callable[[Config], Method]] = {
    "full": full_training,
    "lora": lambda config: LoraTraining(config.method),
}
"""Constructors by `method.kind`."""


def choose_method(config: Config) -> Method:
    """Return the method of a configuration."""
    return METHODS[config.method.kind](config)


def partition(method: Method, params: Mapping[str, Any]) -> tuple[Params, Params]:
    """Split parameters, arrays or shapes, into trained and frozen ones."""
    trained = {name: value for name, value in params.items() if method.is_trained(name)}
    return trained, {name: value for name, value in params.items() if name not in trained}


def combine(trained: Mapping[str, Any], frozen: Mapping[str, Any]) -> Params:
    """Merge trained and frozen parameters, sorted by name: the inverse of `partition`."""
    return dict(sorted({**frozen, **trained}.items()))


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model and how it is trained."""

    source: ModelSource
    decoder: DecoderConfig  # with every layer on its own
    method: Method
    reads_weights: bool  # whether initial parameters are read from files; otherwise they are random

    @property
    def adapters(self) -> Mapping[str, Lora]:
        """Adapters by projection."""
        return self.decoder.adapters

    @property
    def layer_groups(self) -> tuple[range, ...]:
        """Ranges of consecutive layers with equal shapes."""
        return self.decoder.equal_layers()

    @property
    def stacked(self) -> DecoderShapes:
        """The decoder with equal layers stacked."""
        return decoder_shapes(replace(self.decoder, layer_groups=self.layer_groups))

    @property
    def graphdef(self) -> nnx.GraphDef[Decoder]:
        """Structure of the decoder, with every layer on its own."""
        return decoder_shapes(self.decoder).graphdef

    @property
    def shapes(self) -> Params:
        """Parameters by name, as shapes, with every layer on its own."""
        return unstack_layers(self.stacked.shapes)

    @property
    def base(self) -> Params:
        """Shapes of the parameters without adapters."""
        return {name: shape for name, shape in self.shapes.items() if not is_lora(name)}

    @property
    def trained(self) -> Params:
        """Shapes of the trained parameters."""
        return partition(self.method, self.shapes)[0]

    @property
    def frozen(self) -> Params:
        """Shapes of the frozen parameters."""
        return partition(self.method, self.shapes)[1]

    @property
    def origin(self) -> str:
        """Origin of the initial parameters: `pretrained` or `random`."""
        return "pretrained" if self.reads_weights else "random"

    def document(self) -> dict[str, Any]:
        """Return family, origin and parameter counts, for the manifest."""
        return {
            "family": self.source.spec.family,
            "origin": self.origin,
            "parameters": parameter_count(self.base),
            "trained_parameters": parameter_count(self.trained),
        }

    def merged(self, params: Params) -> Params:
        """Return the parameters of the equivalent plain model, for an export."""
        return merge_loras(params, self.adapters) if self.adapters or self.decoder.quantised else params


def build_model(config: Config, source: ModelSource, *, on_cpu: bool = True) -> Model:
    """Return the model of a configuration, with a smaller shape if `model.shape` is small.

    On a CPU, matrix products add in an order that every processor can follow. Settings that conflict, with each other
    or with the model, raise a ProblemError with exit code 2.
    """
    if problems := check_precision_conflicts(config):
        raise ProblemError(problems, exit_code=2)
    source = shrink(source) if config.model.shape == "small" else source
    precision, method = config.precision, choose_method(config)
    decoder = DecoderConfig(
        spec=source.spec,
        params_dtype=precision.params,
        compute_dtype=precision.compute,
        remat=resolve_remat(config),
        deterministic=on_cpu and precision.cpu_isa != NATIVE,
        mlp_chunk_tokens=config.memory.mlp_chunk_tokens,
        adapters=method.adapters(source),
    )
    reads_weights = config.model.weights != "random" and source.weights == "pretrained"
    model = Model(source=source, decoder=decoder, method=method, reads_weights=reads_weights)
    ends = {name.rpartition(".")[::2]: value.shape for name, value in model.shapes.items()}
    kernels = {name: shape for (name, end), shape in ends.items() if end == "kernel"}
    return replace(model, decoder=replace(decoder, quantised=method.quantised(kernels)))


def resolve_remat(config: Config) -> Remat:
    """Return the rematerialisation of layers; `auto` is `layer`."""
    return "layer" if config.memory.remat == "auto" else config.memory.remat


def check_precision_conflicts(config: Config) -> list[Problem]:
    """Return the problems of precision and rematerialisation settings that defeat the purpose of the method."""
    problems, method = [], config.method
    if config.precision.params == "float16" and method.kind == "full":  # adapters are float32
        what = "precision.params is float16 and method.kind is full."
        problems.append(problem_of("TP704", file=config.name, pointer="/precision/params", what=what))
    if method.base != "plain" and config.memory.remat == "none":
        what = f"method.base is {method.base} with memory.remat none."
        problems.append(problem_of("TP705", file=config.name, pointer="/memory/remat", what=what))
    return problems


def read_model(config: Config, problems: list[Problem], *, with_weights: bool = True) -> Model | None:
    """Return the model of a configuration, or None if it cannot be built, and append its problems to `problems`.

    Reads no parameters. A resumed run has them in its checkpoint: without `with_weights` they are not checked.
    """
    name, model, with_weights = config.model.name, None, with_weights and config.model.shape == "own"
    with collect_problems(problems):
        model = build_model(config, resolve(name, config.model.revision, with_weights=with_weights))
        if with_weights and model.reads_weights:
            refuse_unusable_weights(model.source, model.base)
    if with_weights and config.method.adapter is not None and not Path(config.method.adapter).is_file():
        what = f"method.adapter is {config.method.adapter}, which is not a file."
        problems.append(problem_of("TP047", file=config.name, pointer="/method/adapter", what=what))
    if config.model.weights == "pretrained" and name in MODELS:
        what = f"model.weights is pretrained, but the built-in model {name} is defined without weights."
        fix = "Remove model.weights, or set it to random."
        problems.append(problem_of("TP060", file=name, pointer="/model/weights", what=what, why=None, next=fix))
    return model
