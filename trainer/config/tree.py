"""The training configuration as frozen dataclasses.

`schemas/documents/v1/train_config.schema.json` documents each key with unit and range, validates the YAML and generates
the launch form; a test keeps names, order and defaults of both equal. `load.py` builds a `Config` from YAML and flags.

If the default of a key differs from the behaviour before the key existed, the schema has that behaviour (`x-before`)
and the version that introduced the key (`x-since`). A document without a version is a new one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, TypeVar, get_type_hints

from schemas.catalog import VERSION, resolve_node, schema


def add_newer_keys(document: dict[str, Any]) -> dict[str, Any]:
    """Add the keys that are newer than a configuration, set to the behaviour of its version."""
    version = str(document.get("schema_version", VERSION))
    return document if version == VERSION else _complete(document, schema("train_config"), version)


def _complete(document: dict[str, Any], node: dict[str, Any], version: str) -> dict[str, Any]:
    result = dict(document)
    for key, item in node.get("properties", {}).items():
        inner = resolve_node(item, schema("train_config"))
        if "properties" in inner:
            if group := _complete(document.get(key, {}), inner, version):
                result[key] = group
        elif key not in document and "x-before" in inner and inner["x-since"] > version:
            result[key] = inner["x-before"]
    return result


T = TypeVar("T")
ElementType = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Model to train."""

    name: str
    revision: str | None = None
    weights: Literal["pretrained", "random"] | None = None
    shape: Literal["own", "small", "auto"] = "own"


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Training data."""

    dataset: str = "dev-reasoning-v2"
    kind: Literal["rows", "text"] = "rows"
    generated_rows: int = 0
    max_length: int = 256
    packing: bool = False
    buckets: int = 1
    supervise: Literal["last", "all"] = "last"
    template: str | None = None
    system_prompt: str | None = None
    shuffle: bool = True


@dataclass(frozen=True, kw_only=True)
class MethodConfig:
    """Full training or adapters."""

    kind: Literal["full", "lora"] = "full"
    rank: int = 8
    alpha: float = 16.0
    rslora: bool = False
    dropout: float = 0.0
    targets: str = "all"
    base: Literal["plain", "nf4", "int8"] = "plain"
    adapter: str | None = None


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """Objective."""

    kind: Literal["supervised", "dpo", "grpo"] = "supervised"
    beta: float = 0.1
    label_smoothing: float = 0.0
    rewards: str | None = None
    loss_type: Literal["dapo", "grpo", "dr_grpo", "gspo", "cispo"] = "dapo"
    epsilon_low: float = 0.2
    epsilon_high: float | None = None
    kl_beta: float = 0.0
    scale_rewards: Literal["group", "batch", "none"] = "group"
    group_size: int = 8
    updates_per_rollout: int = 1
    mask_truncated: bool = True
    max_completion_tokens: int = 128
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    stop_when_flat: bool = False


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """Optimizer and learning rate schedule."""

    name: Literal["adamw", "adafactor"] = "adamw"
    learning_rate: float = 1e-3
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    warmup_steps: int = 0
    final_learning_rate_fraction: float = 0.0
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    max_grad_norm: float | None = 1.0
    max_nonfinite_steps: int | None = None
    state: Literal["float32", "bfloat16", "int8"] = "float32"


@dataclass(frozen=True, kw_only=True)
class BatchConfig:
    """Batch size."""

    microbatch_size: int = 8
    accumulation_steps: int = 1


@dataclass(frozen=True, kw_only=True)
class PrecisionConfig:
    """Dtypes and CPU instruction set."""

    params: ElementType = "float32"
    compute: ElementType = "float32"
    cpu_isa: Literal["x86-64-v3", "native"] = "x86-64-v3"


@dataclass(frozen=True, kw_only=True)
class MemoryConfig:
    """Rematerialization, layer stacking, attention and chunking."""

    remat: Literal["auto", "none", "dots", "layer"] = "layer"
    layers: Literal["auto", "unrolled", "scanned"] = "auto"
    attention: Literal["auto", "plain", "splash", "blockwise"] = "auto"
    loss_chunk_tokens: int | None = 1024
    mlp_chunk_tokens: int | None = None
    donate: bool = True


@dataclass(frozen=True, kw_only=True)
class MeshConfig:
    """Devices and sharding."""

    device: Literal["auto", "cpu", "gpu", "tpu"] = "auto"
    devices: int | None = None
    shard_params: bool = True


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """Checkpoints."""

    save_every_steps: int = 0
    keep: int = 2
    keep_best: Literal["held_out_score", "held_out_loss"] | None = None


@dataclass(frozen=True, kw_only=True)
class RecordingConfig:
    """What a run records."""

    log_every_steps: int = 1
    chain_every_steps: int | None = None
    first_examples: int = 4
    system_every_seconds: float | None = 5.0
    time_authority: str | None = None
    params_mib: int = 32
    states_mib: int = 16
    phase: str | None = None


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Evaluation."""

    eval_set: str | None = None
    baseline: bool = True
    answer: Literal["tags", "boxed", "whole", "last_number", "last_line", "choice", "regex"] | None = None
    answer_regex: str | None = None
    compare: Literal["exact", "folded", "numeric"] | None = None
    tolerance: float = 1e-6
    max_new_tokens: int = 160
    batch_size: int = 32
    samples: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    stop: str | None = None
    every_steps: int = 0
    during_items: int = 32


@dataclass(frozen=True, kw_only=True)
class LimitsConfig:
    """Limits."""

    steps: int = 100
    max_minutes: float | None = None


@dataclass(frozen=True, kw_only=True)
class Config:
    """Configuration of a run."""

    schema_version: str = VERSION
    name: str = "run"
    mode: Literal["smoke", "full"] = "full"
    seed: int = 0
    model: ModelConfig
    data: DataConfig = field(default_factory=DataConfig)
    method: MethodConfig = field(default_factory=MethodConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    batch: BatchConfig = field(default_factory=BatchConfig)
    precision: PrecisionConfig = field(default_factory=PrecisionConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    mesh: MeshConfig = field(default_factory=MeshConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    recording: RecordingConfig = field(default_factory=RecordingConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)

    def changed(self, **groups: dict[str, Any]) -> Config:
        """Return the configuration with settings changed: `config.changed(limits={"steps": 4})`."""
        return replace(self, **{name: replace(getattr(self, name), **values) for name, values in groups.items()})


GROUPS: dict[str, Any] = {name: hint for name, hint in get_type_hints(Config).items() if is_dataclass(hint)}
"""Dataclass of each group."""


def build_config(document: dict[str, Any]) -> Config:
    """Build a configuration from a document that is valid for `train_config.schema.json`."""
    document = add_newer_keys(document)
    values = {key: _build_group(GROUPS[key], value) if key in GROUPS else value for key, value in document.items()}
    return _build_group(Config, values)


def _build_group(group: type[T], values: dict[str, Any]) -> T:
    """Build a dataclass; numbers are converted to the field's type, since JSON Schema accepts 5.0 as an integer."""
    kinds = {entry.name: str(entry.type) for entry in fields(group)}  # type: ignore[arg-type]  # T is always a dataclass
    numbers = {key: each for key, each in values.items() if type(each) in (int, float)}
    converted = {key: float(each) if kinds[key].startswith("float") else int(each) for key, each in numbers.items()}
    return group(**values | converted)


def to_document(config: Config) -> dict[str, Any]:
    """Return a configuration as a document, defaults included."""
    return asdict(config)
