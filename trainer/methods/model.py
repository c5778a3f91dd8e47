"""The model that a run trains, before any of its parameters is read: files, structure, shapes, method."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from flax import nnx

from schemas.problems import Problem, ProblemError, collect_problems, problem_of
from trainer.config.tree import Config
from trainer.methods import method_of
from trainer.methods.method import Method, partition
from trainer.model.adapters.merging import merge_loras
from trainer.model.build import abstract, layer_kinds, projections
from trainer.model.decoder import Decoder
from trainer.model.files.loading import refuse_unusable_weights
from trainer.model.files.shrinking import shrunk
from trainer.model.files.source import ModelSource, resolve
from trainer.model.lora import Lora, is_lora
from trainer.model.params import Params, flatten, parameter_count
from trainer.model.quantised import Kind
from trainer.model.spec import ModelSpec
from trainer.model.stacking import apart, members, runs_of
from trainer.model.stacks import Remat
from trainer.recorder.environment import NATIVE


@dataclass(frozen=True, kw_only=True)
class Structure:
    """Everything that a decoder is built of but its parameters."""

    spec: ModelSpec
    params_dtype: str
    compute_dtype: str
    remat: Remat
    cpu_isa: str = NATIVE
    mlp_chunk_tokens: int | None = None
    adapters: tuple[tuple[str, Lora], ...] = ()
    quantised: tuple[tuple[str, Kind], ...] = ()


class Layout(NamedTuple):
    """The layers of a decoder and what they hold; of equal layers one is looked at."""

    runs: tuple[range, ...]
    """The layers in runs of equal ones."""
    shapes: Params
    """The parameters by name, every layer by itself."""
    projections: dict[str, tuple[int, ...]]
    """The shape `[inputs outputs]` of each projection's kernel, by name."""


@functools.lru_cache(maxsize=64)
def layout_of(structure: Structure) -> Layout:
    """Return the layers of a decoder; kept, as `built`."""
    runs = runs_of(layer_kinds(structure.spec, dict(structure.adapters), dict(structure.quantised)))
    found = build(structure, runs)
    projections = {member: shape for name, shape in found.projections.items() for member in members(name)}
    return Layout(runs, apart(found.shapes), projections)


class DecoderShapes(NamedTuple):
    """A decoder without arrays."""

    graphdef: nnx.GraphDef[Decoder]
    shapes: Params
    projections: dict[str, tuple[int, ...]]


@functools.lru_cache(maxsize=64)
def build(structure: Structure, runs: tuple[range, ...] = ()) -> DecoderShapes:
    """Return a decoder's structure, its shapes by name and those of its projections.

    Kept, because a plan needs the same few models once for each change that it tries.

    Args:
        structure: what it is built of.
        runs: equal layers that are stacked. None: every layer by itself.
    """
    decoder = abstract(
        structure.spec,
        params_dtype=structure.params_dtype,
        compute_dtype=structure.compute_dtype,
        remat=structure.remat,
        one_path=structure.cpu_isa != NATIVE,
        adapters=dict(structure.adapters),
        quantised=dict(structure.quantised),
        runs=runs,
        mlp_chunk_tokens=structure.mlp_chunk_tokens,
    )
    graphdef, shapes = flatten(decoder)
    return DecoderShapes(graphdef, shapes, {name: linear.shape for name, linear in projections(decoder).items()})


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model and how it is adapted."""

    source: ModelSource
    structure: Structure
    """What the decoder is built of."""
    shapes: Params
    """Its parameters by name, as shapes, every layer by itself."""
    method: Method
    adapters: Mapping[str, Lora]
    """What the method adds, by the name of a projection."""
    quantised: Mapping[str, Kind]
    """The projections whose kernels are kept in few bits."""
    reads_weights: bool
    """Whether the first parameters come from files: else they are drawn."""

    @property
    def graphdef(self) -> nnx.GraphDef[Decoder]:
        """The decoder's structure, without parameters, every layer by itself."""
        return build(self.structure).graphdef

    @property
    def runs(self) -> tuple[range, ...]:
        """Its layers in runs of equal ones."""
        return layout_of(self.structure).runs

    @property
    def stacked(self) -> DecoderShapes:
        """The same decoder with equal layers stacked."""
        return build(self.structure, self.runs)

    @property
    def origin(self) -> str:
        """Where its first parameters come from: `pretrained` or `random`."""
        return "pretrained" if self.reads_weights else "random"

    def document(self) -> dict[str, Any]:
        """Return the family, the origin, and how many parameters the model has and how many of them learn."""
        return {
            "family": self.source.spec.family,
            "origin": self.origin,
            "parameters": parameter_count(self.base),
            "trained_parameters": parameter_count(self.trained),
        }

    def merged(self, params: Params) -> Params:
        """Return the parameters of the plain model that all of these make together: what an export holds."""
        return merge_loras(params, self.adapters) if self.adapters or self.quantised else params

    @property
    def base(self) -> Params:
        """The shapes of the parameters that the model has without the method."""
        return {name: shape for name, shape in self.shapes.items() if not is_lora(name)}

    @property
    def trained(self) -> Params:
        """The shapes of the parameters that learn."""
        return partition(self.method, self.shapes)[0]

    @property
    def frozen(self) -> Params:
        """The shapes of the others."""
        return partition(self.method, self.shapes)[1]


def model_of(config: Config, source: ModelSource) -> Model:
    """Return the model of a configuration with shapes in place of arrays; made small if the configuration states it.

    Raises:
        ProblemError: exit code 2; the model has no place for the method's adapters, or settings defeat each other.
    """
    if problems := what_defeats_itself(config):
        raise ProblemError(problems, exit_code=2)
    source = shrunk(source) if config.model.shape == "small" else source
    precision, method = config.precision, method_of(config)
    adapters = method.adapters(source)
    structure = Structure(
        spec=source.spec,
        params_dtype=precision.params,
        compute_dtype=precision.compute,
        remat=remat_of(config),
        cpu_isa=precision.cpu_isa,
        mlp_chunk_tokens=config.memory.mlp_chunk_tokens,
        adapters=tuple(adapters.items()),
    )
    quantised = method.quantised(layout_of(structure).projections)
    structure = replace(structure, quantised=tuple(quantised.items()))
    shapes = dict(layout_of(structure).shapes)
    return Model(
        source=source,
        structure=structure,
        shapes=shapes,
        method=method,
        adapters=adapters,
        quantised=quantised,
        reads_weights=config.model.weights != "random" and source.weights == "pretrained",
    )


def remat_of(config: Config) -> Remat:
    """Return how far layers are computed again; where that is left open, as by default."""
    return "layer" if config.memory.remat == "auto" else config.memory.remat


def what_defeats_itself(config: Config) -> list[Problem]:
    """Return the problems of element types and rematerialisation under which a method does not do what it is for."""
    problems, method = [], config.method
    if config.precision.params == "float16" and method.kind == "full":  # adapters are in float32
        what = "precision.params is float16 and method.kind is full, so every parameter learns in it."
        problems.append(problem_of("TP704", file=config.name, pointer="/precision/params", what=what))
    if method.base != "plain" and config.memory.remat == "none":
        what = f"method.base is {method.base} and memory.remat is none."
        problems.append(problem_of("TP705", file=config.name, pointer="/memory/remat", what=what))
    return problems


def read_model(config: Config, problems: list[Problem], *, with_weights: bool = True) -> Model | None:
    """Return the model, or None if it cannot be built; no parameter is read or drawn.

    Args:
        config: the run.
        problems: what is wrong with the model is added to them.
        with_weights: see that its weights can be read. A run that is continued has them in its checkpoint.
    """
    model, with_weights = None, with_weights and config.model.shape == "own"
    with collect_problems(problems):
        source = resolve(config.model.name, config.model.revision, with_weights=with_weights)
        model = model_of(config, source)
    if model is None:
        return None
    problems += absent_weights(config, model.source)
    if with_weights and model.reads_weights:
        with collect_problems(problems):
            refuse_unusable_weights(model.source, model.base)
    return model


def absent_weights(config: Config, source: ModelSource) -> list[Problem]:
    """Return the problem of requesting pretrained weights of a built-in model: there are not any."""
    if config.model.weights != "pretrained" or source.weights != "builtin" or source.full_spec is not None:
        return []
    return [
        problem_of(
            "TP060",
            file=config.model.name,
            pointer="/model/weights",
            what=f"model.weights is pretrained, but the built-in model {config.model.name} has no weights.",
            why=None,
            next="Leave model.weights out, or set it to random.",
        )
    ]
