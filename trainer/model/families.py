"""Model families: how a Hugging Face `config.json` becomes a `ModelSpec`, and how its files name tensors.

transformers' own configuration classes fill in defaults and unify older spellings (`rope_theta` and `rope_scaling`,
`sliding_window_pattern`), so a config has the same meaning here and there. Options that the decoder does not
implement are refused, never ignored. To add a family, add it to `FAMILIES`; new features go into `ModelSpec`.
"""

from __future__ import annotations

import difflib
import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, get_args

from numpy.typing import NDArray

from schemas.problems import Problem, ProblemError, problem_of
from trainer.model.spec import Activation, BlockSpec, ModelSpec, Rope, RopeKind


@dataclass(frozen=True, kw_only=True)
class TensorLink:
    """A tensor in a file and the parameters it contains.

    `TensorLink(tensor="transformer.h.0.attn.c_attn.weight", params=(query, key, value))`: the three are concatenated
    along the last axis. With `transposed` the file stores the transpose, `[outputs inputs]`, as torch's Linear does.
    """

    tensor: str  # name in the file, including the prefix of the family
    params: tuple[str, ...]  # names as in `flatten`
    transposed: bool = False


@dataclass(frozen=True, kw_only=True)
class StoredTensor:
    """A tensor in a file, read on demand."""

    shape: tuple[int, ...]
    dtype: str  # such as F32, BF16 or Q4_K
    read: Callable[[], NDArray[Any]]  # returns the values, dequantized
    read_codes: Callable[[str, tuple[int, ...]], tuple[NDArray[Any], NDArray[Any]] | None] = lambda dtype, blocks: None
    """Reads codes and magnitudes in the form of `layers.quantise`, given the dtype of the codes and the shape of the
    magnitudes; None if the file does not store them so."""


Tensors = Mapping[str, StoredTensor]  # by name


@dataclass(frozen=True, kw_only=True)
class Family:
    """One Hugging Face architecture: its names, and the choices that its config classes leave implicit."""

    model_type: str  # as in config.json
    architecture: str  # class name in an exported config.json
    prefix: str = "model."  # of all tensor names except the head's; some files omit it
    prefixes: Mapping[str, str] = field(default_factory=dict)  # other prefixes found in files, and their replacement
    buffers: str = r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq"
    """Regular expression of tensors without parameters, which are skipped; matched without the prefix."""
    text_key: str | None = None
    """Key of config.json with the configuration of the text model, or None if it is the whole document."""
    choices: Mapping[str, Any] = field(default_factory=dict)  # fields of `ModelSpec` that no config states
    block: Mapping[str, bool] = field(default_factory=dict)  # the same for `BlockSpec`
    linears: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: LINEARS)
    """Linear layers of a block by name in the file, each with the projections that it holds side by side."""

    @property
    def config_class(self) -> str:
        """`model_type` of the transformers class that reads the text model's configuration."""
        return "gemma3_text" if self.text_key else self.model_type

    @property
    def size_keys(self) -> Mapping[str, str]:
        """Keys of config.json by field of `ModelSpec`."""
        return GPT2_SIZE_KEYS if self.model_type == "gpt2" else SIZE_KEYS

    def links(self, spec: ModelSpec) -> tuple[TensorLink, ...]:
        """List the tensors of a model, each parameter once."""
        is_gpt2 = spec.family == "gpt2"
        names = GPT2_NAMES if is_gpt2 else LLAMA_NAMES
        links = [TensorLink(tensor=f"{names['tokens']}.weight", params=("tokens.table",))]
        if spec.learned_positions:
            links.append(TensorLink(tensor="transformer.wpe.weight", params=("positions.table",)))
        links += _norm_links(spec, names["norm"], "final_norm")
        for index, block in enumerate(spec.blocks):
            file, ours = f"{names['layers']}.{index}", f"layers.{index}"
            norms = GPT2_NORMS if is_gpt2 else POST_NORMS if block.post_norms else NORMS
            for tensor, norm in (norms | (QUERY_KEY_NORMS if block.query_key_norm else {})).items():
                links += _norm_links(spec, f"{file}.{tensor}", f"{ours}.{norm}")
            for tensor, parts in self.linears.items():
                kernels, biases = (tuple(f"{ours}.{part}.{end}" for part in parts) for end in ("kernel", "bias"))
                # torch's Linear stores `[outputs inputs]`, GPT-2's Conv1D `[inputs outputs]` as we do.
                links.append(TensorLink(tensor=f"{file}.{tensor}.weight", params=kernels, transposed=not is_gpt2))
                attention_bias = spec.output_bias if parts == ("attention.out",) else spec.attention_bias
                if spec.mlp_bias if parts[0].startswith("mlp.") else attention_bias:
                    links.append(TensorLink(tensor=f"{file}.{tensor}.bias", params=biases))
        return tuple(links if spec.tied_head else [*links, TensorLink(tensor=HEAD, params=("head.table",))])


def _norm_links(spec: ModelSpec, tensor: str, norm: str) -> list[TensorLink]:
    ends = {"weight": "scale"} | ({"bias": "bias"} if spec.norm == "layer" else {})
    return [TensorLink(tensor=f"{tensor}.{end}", params=(f"{norm}.{own}",)) for end, own in ends.items()]


SIZE_KEYS: Mapping[str, str] = {
    "embed": "hidden_size",
    "mlp": "intermediate_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "max_positions": "max_position_embeddings",
    "norm_epsilon": "rms_norm_eps",
    "kv_heads": "num_key_value_heads",
}
"""Keys of config.json by field of `ModelSpec`."""
GPT2_SIZE_KEYS: Mapping[str, str] = {
    **{"embed": "n_embd", "mlp": "n_inner", "layers": "n_layer", "heads": "n_head", "max_positions": "n_positions"},
    "norm_epsilon": "layer_norm_epsilon",
}
LLAMA_NAMES = {"tokens": "model.embed_tokens", "norm": "model.norm", "layers": "model.layers"}
GPT2_NAMES = {"tokens": "transformer.wte", "norm": "transformer.ln_f", "layers": "transformer.h"}
LINEARS: Mapping[str, tuple[str, ...]] = {
    "self_attn.q_proj": ("attention.query",),
    "self_attn.k_proj": ("attention.key",),
    "self_attn.v_proj": ("attention.value",),
    "self_attn.o_proj": ("attention.out",),
    **{f"mlp.{name}_proj": (f"mlp.{name}",) for name in ("gate", "up", "down")},
}
GPT2_LINEARS: Mapping[str, tuple[str, ...]] = {
    "attn.c_attn": ("attention.query", "attention.key", "attention.value"),
    "attn.c_proj": ("attention.out",),
    "mlp.c_fc": ("mlp.up",),
    "mlp.c_proj": ("mlp.down",),
}
GPT2_NORMS = {"ln_1": "attention_norm", "ln_2": "mlp_norm"}
NORMS = {"input_layernorm": "attention_norm", "post_attention_layernorm": "mlp_norm"}
POST_NORMS = {
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "attention_post_norm",
    "pre_feedforward_layernorm": "mlp_norm",
    "post_feedforward_layernorm": "mlp_post_norm",
}
QUERY_KEY_NORMS = {"self_attn.q_norm": "attention.query_norm", "self_attn.k_norm": "attention.key_norm"}
HEAD = "lm_head.weight"
"""The head's tensor in every family; files of a tied model may repeat the token table under this name."""


_GEMMA = {"norm": "rms_one_plus", "scale_embeddings": True}
_GEMMA3 = Family(
    model_type="gemma3_text",
    architecture="Gemma3ForCausalLM",
    choices=_GEMMA,
    block={"post_norms": True, "query_key_norm": True},
)
_GEMMA3_IMAGES = replace(
    _GEMMA3,
    model_type="gemma3",
    prefixes={
        "language_model.model.": "model.",
        "model.language_model.": "model.",
        "language_model.lm_head.": "lm_head.",
    },
    buffers=rf"{_GEMMA3.buffers}|(model\.)?(vision_tower|multi_modal_projector)\..*",
    text_key="text_config",
)
_ALL = (
    Family(model_type="gemma", architecture="GemmaForCausalLM", choices=_GEMMA),
    Family(model_type="gemma2", architecture="Gemma2ForCausalLM", choices=_GEMMA, block={"post_norms": True}),
    _GEMMA3_IMAGES,
    _GEMMA3,
    Family(
        model_type="gpt2",
        architecture="GPT2LMHeadModel",
        prefix="transformer.",
        buffers=r"h\.\d+\.attn\.(bias|masked_bias)",
        choices={
            **{"norm": "layer", "learned_positions": True, "gated_mlp": False, "scale_residual_init": True},
            **dict.fromkeys(("attention_bias", "output_bias", "mlp_bias"), True),
        },
        linears=GPT2_LINEARS,
    ),
    Family(model_type="llama", architecture="LlamaForCausalLM"),
    Family(model_type="mistral", architecture="MistralForCausalLM"),
    Family(model_type="qwen2", architecture="Qwen2ForCausalLM", choices={"attention_bias": True, "output_bias": False}),
    Family(model_type="qwen3", architecture="Qwen3ForCausalLM", block={"query_key_norm": True}),
    Family(model_type="smollm3", architecture="SmolLM3ForCausalLM"),
)
FAMILIES: Mapping[str, Family] = {family.model_type: family for family in _ALL}

ACTIVATIONS: Mapping[str, Activation] = {
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_accurate", "gelu_pytorch_tanh", "gelu_python_tanh"), "gelu_tanh"),
    **dict.fromkeys(("gelu", "gelu_python"), "gelu"),
    **dict.fromkeys(("silu", "swish"), "silu"),
    "relu": "relu",
}
"""Hugging Face's names of the supported activations (`ACT2FN`)."""

UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "add_cross_attention": (False,),
    "partial_rotary_factor": (1.0, 1),
    "scale_attn_by_inverse_layer_idx": (False,),
    "scale_attn_weights": (True,),
    "use_bidirectional_attention": (False,),
}
"""Options that change the result and are not implemented, with the values that the decoder computes."""

LIMITS: Mapping[str, int] = {
    # Above the longest context, the largest vocabulary and the widest layer of any model.
    **dict.fromkeys(("vocab_size", "hidden_size", "n_embd", "intermediate_size", "n_inner"), 2**24),
    **dict.fromkeys(("num_attention_heads", "n_head", "num_key_value_heads", "head_dim", "sliding_window"), 2**24),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "original_max_position_embeddings"), 2**24),
    **dict.fromkeys(("sliding_window_pattern", "no_rope_layer_interval"), 2**24),
    # A wrong layer count would otherwise take hours: every layer is built, even for shapes only.
    **dict.fromkeys(("num_hidden_layers", "n_layer"), 1024),
}
"""Largest accepted whole numbers."""
NUMBERS = (
    *("rms_norm_eps", "layer_norm_epsilon", "initializer_range", "rope_theta", "rope_local_base_freq"),
    *("query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping"),
)
OLDER_KEYS = ("rope_scaling", "rope_theta", "rope_local_base_freq", "sliding_window_pattern")
"""Keys that transformers still reads and that its classes do not declare."""
ROPE_TYPES: tuple[str, ...] = get_args(RopeKind)
ROPE_KEYS = {
    *("rope_type", "type", "rope_theta", "original_max_position_embeddings", "partial_rotary_factor", "finetuned"),
    *("factor", "low_freq_factor", "high_freq_factor", "attention_factor", "short_factor", "long_factor"),
    *("beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"),
}
"""Rotary parameters that are implemented; transformers checks which a `rope_type` requires."""
LAYER_KINDS = ("full_attention", "sliding_attention")


def spec_from_config(config: Mapping[str, Any], *, file: str = "config.json") -> ModelSpec:
    """Return the spec of a Hugging Face config.json, or raise a ProblemError with exit code 2 that names its `file`."""
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        near = difflib.get_close_matches(str(model_type).strip().lower(), FAMILIES, n=1)
        hint = f"The most similar name is {near[0]}, a different architecture. " if near else ""
        problem = problem_of(
            "TP041",
            file=file,
            pointer="/model_type",
            what="`model_type` is missing." if model_type is None else f"`model_type` {model_type!r} is not supported.",
            expected=", ".join(sorted(FAMILIES)),
            next=f"{hint}Choose a model of a supported family, or a built-in model.",
        )
        raise ProblemError([problem], exit_code=2)
    family = FAMILIES[model_type]
    check = _Checker(config, file)
    if config.get("quantization") is not None:  # MLX's key; newer files repeat it as quantization_config
        check.note("quantization", "absent: convert the weights with `mlx_lm.convert --dequantize`")
    elif config.get("quantization_config") is not None:
        quantisation = check.enter("quantization_config")
        if quantisation.config.get("quant_method") != "bitsandbytes":
            quantisation.note("quant_method", "bitsandbytes")
        quantisation.require("bnb_4bit_quant_type", ("nf4", "fp4"))
    if family.text_key is not None:
        check = check.enter(family.text_key)
        check.require("model_type", (family.config_class,))
    _check_values(check, is_gemma3=family.config_class == "gemma3_text")
    check.finish()
    spec = _build_spec(_parse(check, family.config_class), check, family)
    check.finish()
    return spec


@dataclass(frozen=True)
class _Checker:
    """Collects the problems of one config.json, so that all are reported together."""

    config: Mapping[str, Any]
    file: str
    path: str = ""
    problems: list[Problem] = field(default_factory=list)

    def enter(self, key: str) -> _Checker:
        """Return a checker of the object under a key, which adds to the same problems."""
        value = self.config.get(key)
        if value is not None and not isinstance(value, dict):
            self.note(key, "an object")
        return _Checker(value if isinstance(value, dict) else {}, self.file, f"{self.path}/{key}", self.problems)

    def note(self, key: str, expected: str) -> None:
        """Add the problem of a value that cannot be used, once per key."""
        pointer = f"{self.path}/{key}"
        if any(problem.pointer == pointer for problem in self.problems):
            return
        text = json.dumps(self.config[key], default=str) if key in self.config else "missing"
        text = text if len(text) <= 60 else text[:57] + "..."
        what = f"`{pointer[1:].replace('/', '.')}` is {text}, but must be {expected}."
        self.problems.append(problem_of("TP042", file=self.file, pointer=pointer, what=what, expected=expected))

    def require(self, key: str, allowed: tuple[Any, ...]) -> None:
        """Note a value other than null and the allowed ones."""
        value = self.config.get(key)
        if value is not None and not any(value == each and type(value) is type(each) for each in allowed):
            self.note(key, " or ".join([*map(json.dumps, allowed), "absent"]))

    def finish(self) -> None:
        """Raise the collected problems, if there are any."""
        if self.problems:
            raise ProblemError(self.problems, exit_code=2)


def _is_number(value: Any) -> bool:
    """Return whether a value is a number above 0 that fits a float: Infinity is a number in Python's JSON."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= sys.float_info.max


def _check_values(check: _Checker, *, is_gemma3: bool) -> None:
    """Note values out of range and options that are not implemented, before transformers sees the config."""
    for key, value in check.config.items():
        limit = LIMITS.get(key)
        if limit is not None and value is not None and not (type(value) is int and 0 < value <= limit):
            check.note(key, f"a whole number from 1 to {limit:,}")
        elif key in NUMBERS and value is not None and not _is_number(value):
            check.note(key, "a number above 0")
        elif key in UNSUPPORTED:
            check.require(key, UNSUPPORTED[key])
    for key in ("rope_scaling", "rope_parameters"):
        rope = check.enter(key)
        # Newer configs of Gemma 3 have rotary parameters for each kind of layer.
        kinds = [kind for kind in LAYER_KINDS if kind in rope.config and is_gemma3]
        for each in [rope.enter(kind) for kind in kinds] or [rope]:
            _check_rope(each)


def _check_rope(rope: _Checker) -> None:
    name = "rope_type" if "rope_type" in rope.config else "type"
    if (rope.config.get(name) or "default") not in ROPE_TYPES:
        rope.note(name, f"one of {', '.join(ROPE_TYPES)}")
        return
    rope.require("partial_rotary_factor", (1.0, 1))
    for key, value in rope.config.items():
        if key not in ROPE_KEYS:
            rope.require(key, ())
        elif isinstance(value, int | float) and not isinstance(value, bool) and not _is_number(value):
            rope.note(key, "a number above 0")


def _parse(check: _Checker, model_type: str) -> Any:
    """Return transformers' configuration object, which checks types and required rotary parameters."""
    # transformers otherwise advises to install torch, which is not needed for configurations and tokenizers.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    from huggingface_hub.errors import StrictDataclassError
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    cls = CONFIG_MAPPING[model_type]
    # `head_dim` is read by the models of all families, also if the class does not declare it.
    known = {each.name for each in fields(cls)} - {"dtype", "id2label", "label2id", "problem_type"} | {"head_dim"}
    given = {key: value for key, value in check.config.items() if key in known or key in OLDER_KEYS}
    for key in ("rope_scaling", "rope_parameters"):
        if isinstance(rope := given.get(key), dict):  # transformers changes it in place
            rope = json.loads(json.dumps(rope))
            given[key] = {"rope_type": rope["type"], **rope} if rope.get("type") else rope
    try:
        return cls(**given)
    except (StrictDataclassError, ValueError, TypeError, LookupError, AttributeError) as error:
        text = " ".join(str(error).split()).strip('"') or type(error).__name__
        key = next((f"/{key}" for key in given if f"'{key}'" in text or f"`{key}`" in text), "")
        what = f"transformers cannot read this config: {text}"
        problem = problem_of("TP042", file=check.file, pointer=check.path + key, what=what)
        raise ProblemError([problem], exit_code=2) from error


def _build_spec(hf: Any, check: _Checker, family: Family) -> ModelSpec:
    """Return the spec of a configuration that transformers has completed; GPT-2's dropout is not used."""
    name, embed, heads = family.config_class, hf.hidden_size, hf.num_attention_heads
    is_gpt2 = name == "gpt2"
    kv_heads = getattr(hf, "num_key_value_heads", None) or heads
    head_dim = None if is_gpt2 else getattr(hf, "head_dim", None)
    if head_dim is None and embed % heads:
        check.note("n_head" if is_gpt2 else "num_attention_heads", f"a divisor of the width, {embed}")
    head_dim = head_dim or embed // heads
    if not is_gpt2 and (head_dim % 2 or not head_dim):
        check.note("head_dim", "an even number")
    if heads % kv_heads:
        check.note("num_key_value_heads", f"a divisor of `num_attention_heads`, {heads}")
    bias = getattr(hf, "attention_bias", False)
    choices: dict[str, Any] = {"norm": "rms", "gated_mlp": True, "attention_bias": bias, "output_bias": bias}
    choices |= {"mlp_bias": getattr(hf, "mlp_bias", False), **family.choices}
    if name in ("gemma2", "gemma3_text"):
        choices |= {"query_scale": hf.query_pre_attn_scalar**-0.5, "final_softcap": hf.final_logit_softcapping}
    if name == "gemma2":
        choices["attention_softcap"] = hf.attn_logit_softcapping
    if name == "gemma3_text":
        check.require("attn_logit_softcapping", ())  # transformers has the key and does not compute it
    return ModelSpec(
        family=family.model_type,
        vocab=hf.vocab_size,
        blocks=(BlockSpec(),) * hf.n_layer if is_gpt2 else _blocks(hf, check, family, head_dim),
        embed=embed,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        mlp=(hf.n_inner or 4 * embed) if is_gpt2 else hf.intermediate_size,
        max_positions=hf.max_position_embeddings,
        norm_epsilon=hf.layer_norm_epsilon if is_gpt2 else hf.rms_norm_eps,
        activation=_activation(hf, check, name),
        tied_head=bool(hf.tie_word_embeddings),
        initializer_std=hf.initializer_range,
        **choices,
    )


def _activation(hf: Any, check: _Checker, name: str) -> Activation:
    """Return the activation of the MLP.

    Early files of Gemma have `hidden_act: gelu` and mean its tanh form; transformers 5 reads them so. Their older key
    `hidden_activation` counts in transformers 4 only: a contradiction is refused.
    """
    keys = {"gpt2": "activation_function", "gemma2": "hidden_activation", "gemma3_text": "hidden_activation"}
    key = keys.get(name, "hidden_act")
    activation = getattr(hf, key)
    if name == "gemma":
        activation = "gelu_new" if activation == "gelu" else activation
        older = check.config.get("hidden_activation")
        if older is not None and ACTIVATIONS.get(str(older)) != ACTIVATIONS.get(activation):
            check.note("hidden_activation", f"the same as `hidden_act`, {hf.hidden_act}")
    if activation not in ACTIVATIONS:
        check.note(key, "one of " + ", ".join(ACTIVATIONS))
    return ACTIVATIONS.get(activation, "gelu")


def _blocks(hf: Any, check: _Checker, family: Family, head_dim: int) -> tuple[BlockSpec, ...]:
    """Return the layers, each with its window and its rotary positions."""
    count = hf.num_hidden_layers
    window = getattr(hf, "sliding_window", None)
    kinds = getattr(hf, "layer_types", None)
    if kinds is None:  # all layers are alike in this family
        kinds = ["full_attention" if window is None else "sliding_attention"] * count
        check.require("layer_types", (kinds,))
    if len(kinds) != count or not set(kinds) <= {*LAYER_KINDS}:
        check.note("layer_types", f"a list of {count} times full_attention or sliding_attention")
    if "sliding_attention" in kinds and window is None:
        check.note("layer_types", "full_attention for each layer, since no window is in use")
    rotates = getattr(hf, "no_rope_layers", None) or [1] * count
    if len(rotates) < count or not set(rotates) <= {0, 1}:
        check.note("no_rope_layers", f"a list of {count} times 0 or 1")
    if check.problems:
        return ()
    stated = hf.rope_parameters
    if "rope_type" in stated:
        stated = dict.fromkeys(LAYER_KINDS, stated)
    ropes = {kind: _rope(stated[kind], hf, check, head_dim) for kind in set(kinds)}
    windows = {"full_attention": None, "sliding_attention": window}
    return tuple(
        BlockSpec(rope=ropes[kind] if rotate else None, window=windows[kind], **family.block)
        for kind, rotate in zip(kinds, rotates, strict=False)
    )


def _rope(stated: Mapping[str, Any], hf: Any, check: _Checker, head_dim: int) -> Rope:
    """Return the rotary positions that transformers computes from one set of parameters (modeling_rope_utils.py)."""
    kind, theta, longest = stated["rope_type"], float(stated["rope_theta"]), hf.max_position_embeddings
    trained = check.config.get("original_max_position_embeddings") or stated.get("original_max_position_embeddings")
    trained = int(trained or longest)
    factor = float(stated.get("factor") or longest / trained)
    own: dict[str, Any] = {}
    if kind in ("linear", "dynamic"):
        own = {"factor": factor} | ({"positions": longest} if kind == "dynamic" else {})
        if kind == "dynamic" and head_dim <= 2:
            check.note("head_dim", "above 2 for rotary positions of type dynamic")
    elif kind == "llama3":
        own = {key: float(stated[key]) for key in ("low_freq_factor", "high_freq_factor")}
        if own["high_freq_factor"] <= own["low_freq_factor"]:
            check.note("rope_scaling", "with a high_freq_factor above its low_freq_factor")
        own |= {"factor": factor, "positions": trained}
    elif kind == "yarn":
        if theta <= 1:
            check.note("rope_theta", "above 1 for rotary positions of type yarn")
        weights: list[Any] = [stated.get("mscale"), stated.get("mscale_all_dim")]
        weights = weights if all(weights) else [1.0, 0.0]
        over, under = (0.1 * each * math.log(max(factor, 1.0)) + 1.0 for each in weights)
        own = {"factor": factor, "positions": trained, "truncate": stated.get("truncate", True)}
        own["attention_factor"] = float(stated.get("attention_factor") or over / under)
        own |= {key: float(stated[key]) for key in ("beta_fast", "beta_slow") if stated.get(key)}
    elif kind == "longrope":
        growth = math.sqrt(1 + math.log(factor) / math.log(trained)) if factor > 1 < trained else 1.0
        own = {"positions": trained, "attention_factor": float(stated.get("attention_factor") or growth)}
        for key in ("short_factor", "long_factor"):
            values, pairs = stated[key], head_dim // 2
            if not isinstance(values, list) or len(values) != pairs or not all(map(_is_number, values)):
                check.note("rope_scaling", f"with a {key} of {pairs} numbers above 0")
                break
            own[f"{key}s"] = tuple(map(float, values))
    return Rope(theta=theta, kind=kind, **own)
