"""`trainproof init --from`: convert a configuration of another trainer. `convert.toml` has the names of its keys."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from schemas.catalog import DATASETS, GYM, resolve_node, schema
from schemas.formats import format_value, join_words, quantity
from schemas.problems import Lines, Problem, ProblemError, collect_problems, pointer_to, problem_of
from schemas.validate import check_value
from trainer.config.load import (
    USAGE,
    ConfigSource,
    Setting,
    comment_lines,
    locate_problem,
    read_mapping,
    read_settings,
    set_path,
    settings_text,
)
from trainer.config.names import missing_dataset, missing_model
from trainer.config.tree import Config, build_config
from trainer.data.builtin import FOLDER
from trainer.data.files import open_table
from trainer.objectives import find_contradictions

Names = tuple[str, ...]  # path of a key


@dataclass(frozen=True, kw_only=True)
class Origin:
    """A value of the other configuration, with further keys of that value, or a default of the trainer `tool`."""

    path: Names
    value: Any
    tool: str | None = None
    others: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Dotted name of the key."""
        return ".".join(self.path)

    @property
    def number(self) -> Any:
        """The value; a number that is written as text, such as "2e-5", as a number."""
        return parse_number(self.value)

    def __str__(self) -> str:
        return f"default of {self.tool}" if self.tool else f"from {join_words([self.name, *self.others], last='and')}"


class Unconverted(NamedTuple):
    """A key of the other configuration without an equivalent."""

    name: str
    value: Any
    reason: str


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """A converted configuration and the keys without an equivalent; `form` is the trainer of the other one."""

    source: Path
    form: str
    settings: tuple[Setting, ...]
    unconverted: tuple[Unconverted, ...]
    config: Config

    def document(self) -> dict[str, Any]:
        """Return the output of `trainproof init --from FILE --json`."""
        return {
            "source": str(self.source),
            "form": self.form,
            "settings": [{"key": each.key, "value": each.value, "from": each.comment} for each in self.settings],
            "unconverted": [each._asdict() for each in self.unconverted],
        }

    def text(self) -> str:
        """Return the configuration as YAML, with the origin of each value."""
        lines = [f"# Converted from {self.source.name} ({self.form}) by `trainproof init --from`."]
        lines += settings_text(self.settings)
        lines += ["", "# Without an equivalent:"] if self.unconverted else []
        for each in self.unconverted:
            lines += comment_lines(" ".join(f"{each.name}: {each.value} ({each.reason})".split()))
        return "\n".join(lines) + "\n"


def parse_number(value: Any) -> Any:
    """Return a number that is written as text as a number, and other values unchanged."""
    if not isinstance(value, str) or not re.fullmatch(r"[+-]?(\d[\d_]*\.?\d*|\.\d+)(e[+-]?\d+)?", value.strip(), re.I):
        return value
    number = float(value.replace("_", ""))
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def is_true(value: Any) -> bool:
    """Return whether a flag is on; `auto` is, since trainers then use what the device has."""
    return _plain(value) in ("true", "yes", "on", "1", "auto")


def _plain(name: Any) -> str:
    return str(name).strip().lower().replace("-", "_")


# Tables of key names.


@cache
def _tables() -> dict[str, Any]:
    tables = tomllib.loads(files("trainer").joinpath("convert.toml").read_text(encoding="utf-8"))
    tables["group_of"] = {name: group for group, names in tables["groups"].items() for name in names}
    return tables


@cache
def _concepts(form: str) -> dict[str, str]:
    """Return what each name means: a key of trainproof, or a quantity that one is computed from."""
    tables = (_tables()["keys"], _tables()["forms"][form].get("keys", {}))
    return {name: concept for table in tables for concept, names in table.items() for name in names}


@cache
def keys() -> dict[str, dict[str, Any]]:
    """Return the JSON Schema of each key of trainproof, in order."""
    found: dict[str, dict[str, Any]] = {}
    for name, node in schema("train_config")["properties"].items():
        nodes = {f"{name}.{key}": inner for key, inner in node["properties"].items()} if "properties" in node else {}
        found |= nodes or {name: node}
    return {key: node | resolve_node(node, schema("train_config")) for key, node in found.items()}


def _names(path: Names) -> list[str]:
    """Return the names under which a key is looked up, most specific first; none inside of an unknown group."""
    *above, key = map(_plain, path)
    groups = [_tables()["group_of"].get(each) for each in above]
    if None in groups:
        return []
    is_strict = any(group in _tables()["strict"] for group in groups)
    return [f"{group}.{key}" for group in reversed(groups or ["top"])] + ([] if is_strict else [key])


def concept(form: str, path: Names) -> str | None:
    """Return what a key means: `training.lr` and `learning_rate` are `optimizer.learning_rate`."""
    return next((_concepts(form)[name] for name in _names(path) if name in _concepts(form)), None)


def reason(path: Names) -> str | None:
    """Return the reason for a missing equivalent, or None for an unknown key."""
    names = [".".join(map(_plain, path)), *_names(path), _plain(path[-1])]
    for text, patterns in _tables()["reasons"].items():
        if any(fnmatchcase(name, pattern) for name in names for pattern in patterns):
            return str(text)
    return None


def _walk(document: Mapping[Any, Any], path: Names = ()) -> Iterator[tuple[Names, Any]]:
    """Yield the path and value of each key; a group without any equivalent is one value."""
    for key, value in document.items():
        here, name = (*path, str(key)), _plain(key)
        is_group = isinstance(value, dict) and value and name != "dataset_mixer"
        if is_group and (name in _tables()["group_of"] or reason(here) is None):
            yield from _walk(value, here)
        else:
            yield here, value


def recognize(document: Mapping[Any, Any]) -> str | None:
    """Return the trainer whose keys a configuration has, or None; axolotl has `base_model` and `datasets`."""
    forms, paths = _tables()["forms"], [path for path, _ in _walk(document)]
    names = {_plain(path[-1]) for path in paths if _names(path)}
    found = {form: len(names.intersection(tables["marks"])) for form, tables in forms.items()}
    best = max(("axolotl", "llama-factory", "trl"), key=lambda form: found[form])
    is_grouped = any(len(path) > 1 and _plain(path[0]) in ("training", "train") for path in paths)
    if found["transformers"] + found[best] and not (is_grouped and not names & {*forms["transformers"]["sure"]}):
        return best if found[best] else "transformers"
    return "grouped" if sum(concept("grouped", path) is not None for path in paths) > 1 else None


# Conversion.


def convert(path: Path, settings: Sequence[str] = ()) -> Conversion:
    """Convert a YAML or JSON configuration of another trainer; `key=value` settings of `--set` take precedence.

    Raises:
        ProblemError: Exit code 2, with all problems: the file cannot be read or is of an unknown form, a value has
            several readings or no equivalent, or the result is not valid.
    """
    problems: list[Problem] = []
    found, file = read_mapping(path, problems), str(path)
    document, lines = found or ({}, None)
    others = [f"The file is {title}." for key, title in _tables()["refused"].items() if key in document]
    form = recognize(document)
    if document and not any(each.code == "TP123" for each in check_value("train_config", document, file=file)):
        others = ["This is a configuration of trainproof."]
    elif form is None and found is not None and not problems:
        others = others or ["No keys of a known trainer were found."]
    problems += [problem_of("TP190", file=file, what=what) for what in others]
    if problems or form is None or lines is None:
        raise ProblemError(problems, exit_code=USAGE)
    converter = _Converter(file=file, form=form, lines=lines)
    for key, value, source in read_settings({}, settings, converter.problems):
        converter.sources.append(source)
        converter.settings[key] = Setting(key, value, f"from --set {key}")
    converter.given = frozenset(converter.settings)
    for names, value in _walk(document):
        origin, what = Origin(path=names, value=value), concept(form, names)
        if value is None or what is None:
            converter.drop(origin, "not set" if value is None else reason(names) or "unknown key")
        else:
            converter.found.setdefault(what, []).append(origin)
    converter.compute(path.stem)
    config = converter.validate()
    return Conversion(
        source=path,
        form=_tables()["forms"][form]["title"],
        settings=tuple(converter.settings[key] for key in keys() if key in converter.settings),
        unconverted=tuple(converter.unconverted),
        config=config,
    )


@dataclass(kw_only=True)
class _Converter:
    """Groups values by meaning, and computes settings from them."""

    file: str
    form: str
    lines: Lines
    given: frozenset[str] = frozenset()  # keys of `--set`
    sources: list[ConfigSource] = field(default_factory=list)
    found: dict[str, list[Origin]] = field(default_factory=dict)  # values that are not converted yet, by their meaning
    settings: dict[str, Setting] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)  # values that settings were computed from, by key
    unconverted: list[Unconverted] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    steps_per_epoch: float | None = None

    def drop(self, origin: Origin, why: str) -> None:
        """List a value without an equivalent."""
        if origin.tool is None:
            value = quantity(len(origin.value), "key") if isinstance(origin.value, dict) else format_value(origin.value)
            self.unconverted.append(Unconverted(origin.name, value, why))

    def take(self, concept: str, key: str | None = None, *, drop: str | None = None) -> Origin | None:
        """Return a value and remove it, or list it with the reason `drop`; further values must agree with the first."""
        origins = self.found.pop(concept, [])
        if drop or (key or concept) in self.given:
            for origin in origins:
                self.drop(origin, drop or f"replaced by --set {key or concept}")
            return None
        for other in origins[1:]:
            if other.number != origins[0].number:
                self.conflict(key or concept, origins[0], other, origins[0].value, other.value)
        return replace(origins[0], others=tuple(each.name for each in origins[1:])) if origins else None

    def set(self, key: str, value: Any, comment: str, origin: Origin | None = None) -> None:
        """Set a key; `--set` takes precedence, and another value from the file is a conflict."""
        if key in self.given:
            return
        before, stated = self.settings.get(key), self.origins.get(key)
        if before is None or (stated is None and origin is not None and before.value != value):
            self.settings[key] = Setting(key, value, comment)  # a flag that is on replaces one that is off
            if origin is not None:
                self.origins[key] = origin
        elif origin and not origin.tool:
            if before.value == value:
                self.settings[key] = before._replace(comment=f"{before.comment}; {comment}")
            elif stated and not stated.tool:
                self.conflict(key, stated, origin, before.value, value)

    def get(self, key: str) -> Any:
        """Return the value of a key: from `--set`, the file or the default."""
        return self.settings[key].value if key in self.settings else keys()[key].get("default")

    def number(self, key: str) -> Any:
        """Return a positive number, or the default (1 without one) if the value, reported elsewhere, is not one."""
        value = parse_number(self.get(key))
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e12
        return value if is_number else keys()[key]["default"] or 1

    def decide(self, key: str, what: str, choices: Sequence[Any], origin: Origin | None = None, more: str = "") -> None:
        """Report that the user has to choose a value, unless `--set` has it."""
        if key in self.given:
            return
        pointer = pointer_to(origin.path) if origin and not origin.tool else None
        line = None if pointer is None else self.lines(pointer)
        fix = f"Pass {join_words([f'`--set {key}={choice}`' for choice in dict.fromkeys(choices)], last='or')}{more}."
        self.problems.append(problem_of("TP191", file=self.file, pointer=pointer, line=line, what=what, next=fix))

    def conflict(self, key: str, one: Origin, other: Origin, *values: Any) -> None:
        """Report two values of one setting."""
        shown = [f"{each.name} is {format_value(each.value)}" for each in (one, other)]
        key = "limits.steps" if key == "epochs" else key
        self.decide(key, f"{shown[0]}, but {shown[1]}: both set {key}.", list(map(str, values)), other)

    def compute(self, stem: str) -> None:
        tables, objective = _tables(), self.find_objective()
        each = {"dpo": 2, "grpo": self.number("objective.group_size")}.get(objective, 1)
        self.add_defaults("defaults", objective)
        self.convert_method()
        for condition, concepts in tables["only"].items():
            key, _, value = condition.partition("=")
            for what in concepts if self.get(key) != value else ():
                self.take(what, drop=f"only used with {key} {value}")
        self.convert_names(stem)
        self.convert_objective(objective)
        self.convert_precision()
        for what in (*tables["tables"], *tables["flags"]):
            self.look_up(what)
        self.convert_batch(2 if objective == "dpo" else 1)
        self.convert_dataset()
        self.convert_steps(each)
        self.convert_optimizer()
        self.convert_saving()
        for what, key in tables["shares"].items():
            self.convert_share(what, key)
        for what in [*self.found]:
            self.copy(what) if what in keys() else self.take(what, drop="not used with the other settings")
        for key in ("optimizer.learning_rate", "optimizer.schedule"):
            self.settings.setdefault(key, Setting(key, self.get(key), "not in the file: default"))

    def add_defaults(self, *groups: str) -> None:
        form = _tables()["forms"][self.form]
        for what, value in (pair for group in groups for pair in form.get(group, {}).items()):
            self.found.setdefault(what, [Origin(path=(what,), value=value, tool=form["title"])])

    def look_up(self, what: str) -> None:
        """Convert a flag, or a value by its table."""
        tables = _tables()
        key, *values = tables["flags"].get(what) or tables["tables"][what]
        if (origin := self.take(what, key)) is None:
            return
        if what in tables["flags"]:
            on, *off = values
            if is_true(origin.value):
                note = "; set float16 for a GPU without bfloat16" if _plain(origin.value) == "auto" else ""
                self.set(key, on, f"{origin}{note}", origin)
            elif off and key not in self.settings:
                self.set(key, off[0], str(origin))  # without an origin, so that another flag replaces it
            else:
                self.drop(origin, "off")
            return
        known = tables["values"][values[0]]
        if (text := known.get(_plain(origin.value))) is None:
            what = f"{origin.name} is {format_value(origin.value)}, which is not supported."
            self.decide(key, what, [text.split()[0] for text in known.values()], origin)
            return
        value, *further = text.split()
        self.set(key, value, str(origin), origin)
        for other, _, text in (each.partition("=") for each in further):
            self.set(other, text, str(origin), origin)

    def copy(self, what: str, key: str | None = None) -> None:
        """Copy a value; numbers and booleans may be written as text."""
        key = key or what
        if (origin := self.take(what, key)) is not None:
            types = keys()[key].get("type", ())
            value = origin.value if "string" in types else origin.number
            if types == "boolean" and _plain(value) in ("true", "false", "yes", "no"):
                value = is_true(value)
            self.set(key, value, str(origin), origin)

    def find_objective(self) -> str:
        """Return the objective that the file names, or whose keys it has."""
        key = "objective.kind"
        self.look_up("objective")
        if key not in self.settings:
            names = {_plain(each.path[-1]) for origins in self.found.values() for each in origins}
            names |= {_plain(each.name.rpartition(".")[2]) for each in self.unconverted}
            marks = _tables()["forms"][self.form].get("objective")
            for kind, marked in (marks or _tables()["objective"]).items():
                if signs := sorted(names.intersection(marked)):
                    self.set(key, kind, f"the file has {signs[0]}")
            if marks and key not in self.settings:
                what = "No key of the file tells whether it is for SFT, DPO or GRPO."
                self.decide(key, what, ("supervised", "dpo", "grpo"))
        return str(self.get(key))

    def convert_names(self, stem: str) -> None:
        name = self.take("name")
        text = re.sub(r"[^A-Za-z0-9._-]+", "-", str(name.value if name else stem)).strip("._-")[:64]
        self.set("name", text or "run", str(name or "name of the file"), name)
        if "model.name" in self.given:
            self.take("model.revision", drop="of the model that --set replaces")
        self.copy("model.name")
        model = self.get("model.name")
        if model is None:
            self.decide("model.name", "The file names no model.", ["MODEL"])
        elif isinstance(model, str) and (missing := missing_model(model)) is not None:
            self.problems.append(replace(missing, next=f"{missing.next} Pass `--set model.name=MODEL`."))
        self.copy("seed")
        self.take("data_seed", drop="the order of rows follows from seed alone")

    def convert_objective(self, objective: str) -> None:
        if objective != "supervised":
            self.copy("beta", "objective.beta" if objective == "dpo" else "objective.kl_beta")
        if (loss := self.take("loss_type", "objective.loss_type")) is not None:
            kind = loss.value[0] if isinstance(loss.value, list) and len(loss.value) == 1 else loss.value
            if objective == "grpo":
                level = self.take("importance_sampling_level", "objective.loss_type")
                kind = "gspo" if level and level.value == "sequence" else kind
                self.set("objective.loss_type", kind, str(loss), loss)
            elif kind == ("sigmoid" if objective == "dpo" else "nll"):
                self.drop(loss, "the only loss of this objective")
            else:
                what = f"{loss.name} is {format_value(kind)}; trainproof has nll (supervised) and sigmoid (dpo)."
                self.decide("objective.kind", what, [objective], loss, " to use this loss instead")
        if objective != "grpo":
            self.take("max_prompt_length", drop="data.max_length limits prompt and answer together")
            return
        self.copy("objective.max_completion_tokens")
        prompt = self.take("max_prompt_length", "data.max_length")
        if prompt is not None and isinstance(prompt.number, int):
            tokens = self.number("objective.max_completion_tokens")
            self.take("data.max_length", drop="replaced by max_prompt_length plus max_completion_length")
            self.set("data.max_length", prompt.number + tokens, f"{prompt}, plus {tokens} completion tokens", prompt)
        rewards = self.take("rewards", "objective.rewards")
        what = "Reward functions are code; trainproof takes the names of its rewards or a function of yours."
        self.decide("objective.rewards", what, ["exact", "module:function"], rewards)

    def convert_method(self) -> None:
        adapters = [*self.found.get("method.rank", []), *self.found.get("method.targets", [])]
        is_named = self.form not in ("grouped", "transformers") and all(len(each.path) == 1 for each in adapters)
        if adapters and not is_named and not {"method", "use_lora"} & self.found.keys():
            self.set("method.kind", "lora", str(adapters[0]), adapters[0])
        for what in ("method", "use_lora", "use_qlora"):
            self.look_up(what)
        if self.get("method.kind") == "lora":
            self.add_defaults("lora")
            self.convert_adapters()

    def convert_adapters(self) -> None:
        """Convert rank, scale, quantization and projections of adapters."""
        self.copy("method.rank")
        if self.form == "llama-factory" and "method.alpha" not in self.found:
            self.set("method.alpha", 2 * self.number("method.rank"), "twice the rank: default of LLaMA-Factory")
        if (kind := self.take("quant_type", "method.base")) is not None:
            if _plain(kind.value) != "nf4":
                what = f"{kind.name} is {format_value(kind.value)}, which is not supported."
                self.decide("method.base", what, ["nf4", "int8", "plain"], kind)
            self.drop(kind, "the only type of 4 bits")
        if any(is_true(each.value) for each in self.found.get("lora_target_linear", [])):
            self.take("method.targets", drop="lora_target_linear stands for every projection")
            return
        choices, targets = ("q_proj,v_proj", "all"), self.take("method.targets")
        if targets is None and self.form != "llama-factory":
            what = "The file does not name the projections that get adapters."
            self.decide("method.targets", what, choices, more=": PEFT's choice for most models, or every projection")
        elif targets is not None:
            value = targets.value if isinstance(targets.value, list) else _plain(targets.value).split(",")
            names = ["all" if _plain(name) in ("all", "all_linear") else str(name).strip() for name in value]
            if not all(re.fullmatch(r"[\w.]+", name) for name in names):
                what = f"{targets.name} is the pattern {format_value(targets.value)}; trainproof takes names."
                self.decide("method.targets", what, choices, targets)
            self.set("method.targets", "all" if "all" in names else ",".join(names), str(targets), targets)

    def convert_precision(self) -> None:
        """Convert element types; computations have the type of the parameters unless the file has another."""
        if any(_plain(each.value) == "auto" for each in self.found.get("precision.params", [])):
            self.take("precision.params", drop="parameters are float32 unless precision.params is set")
        for what in ("precision.params", "compute_dtype", "bf16", "fp16"):
            self.look_up(what)
        dtype = self.get("precision.params")
        if dtype != "float32" and "precision.compute" not in self.settings:
            self.set("precision.compute", dtype, "element type of the parameters")

    def convert_batch(self, each: int) -> None:
        """Convert batch sizes; an example has `each` sequences."""
        size, accumulation = "batch.microbatch_size", "batch.accumulation_steps"
        if (micro := self.take(size)) is not None:
            examples = "sequences" if each == 1 else "pairs, 2 sequences each,"
            value = micro.number * each if isinstance(micro.number, int) else micro.number
            self.set(size, value, f"{micro}: {examples} per device", micro)
        self.copy("mesh.devices")
        self.copy(accumulation)
        devices = self.number("mesh.devices")
        per_pass = self.number(size) * devices
        if (total := self.take("total_batch_size", accumulation)) is not None:
            sequences = total.number * each if isinstance(total.number, int) else 0
            if sequences < per_pass or sequences % per_pass:
                what = f"{total.name} is {format_value(total.value)}, not a multiple of {per_pass} sequences per pass."
                self.decide(accumulation, what, [max(1, round(sequences / per_pass))], total)
            else:
                note = f"{total} ÷ {self.number(size)} sequences ÷ {quantity(devices, 'device')}"
                self.set(accumulation, sequences // per_pass, note, total)
        if (setting := self.settings.get(accumulation)) is not None and accumulation not in self.given:
            step = quantity(per_pass * self.number(accumulation), "sequence")
            note = f"{setting.comment}: {step} a step on {quantity(devices, 'device')}"
            self.settings[accumulation] = setting._replace(comment=note)

    def convert_dataset(self) -> None:
        """Convert the dataset, which must be a single one on this machine."""
        self.copy("data.packing")
        origin = self.take("data.dataset")
        names = [] if origin is None else list(self.iter_datasets(origin))
        others = [each for each in self.unconverted if each.name.endswith("dataset") and each.reason != "not set"]
        if origin is not None and len(names) == 1:
            self.set("data.dataset", names[0], str(origin), origin)
        elif names:
            what = f"The file names {len(names)} datasets: {join_words(names[:5], last='and')}."
            self.decide("data.dataset", what, names[:5], origin, ", or the file of all rows")
        elif self.form == "grouped" and not others:
            self.set("data.dataset", self.get("data.dataset"), "not in the file: default")
        else:
            choices = [*(each.value.strip('"') for each in others), "FILE"]
            self.decide("data.dataset", "The file names no dataset.", choices)
        name = names[0] if len(names) == 1 else ""
        if name and (missing := missing_dataset(name)) is not None:
            is_hub = re.fullmatch(r"[\w.-]+/[\w.-]+", name) and Path(name).suffix not in (".json", ".jsonl", ".parquet")
            fix = f"Download it with `hf download --repo-type dataset {name} --local-dir FOLDER`. " if is_hub else ""
            what, fix = f"The dataset {name} is not on this machine.", f"{fix}Pass `--set data.dataset=FILE_OR_FOLDER`."
            self.problems.append(replace(missing, file=self.file, what=what, next=fix))

    def iter_datasets(self, origin: Origin) -> Iterator[str]:
        """Yield names of datasets: text with commas, a list of names or of groups with a path, or names with shares."""
        if isinstance(origin.value, str):
            yield from (name.strip() for name in origin.value.split(",") if name.strip())
            return
        for place, each in enumerate(origin.value if isinstance(origin.value, list | dict) else [origin.value]):
            group = each if isinstance(each, dict) else {"path": each}
            name = next((key for key in ("data_files", "path", "id", "dataset", "name") if group.get(key)), None)
            for key, value in group.items():
                if key == "type" and value in ("completion", "pretrain"):
                    self.set("data.kind", "text", f"from {origin.name}[{place}].type", origin)
                elif key != name:
                    path = (*origin.path[:-1], f"{origin.path[-1]}[{place}]", str(key))
                    self.drop(Origin(path=path, value=value), "rows are recognized by their columns")
            if name is not None:
                yield from map(str, group[name] if isinstance(group[name], list) else [group[name]])

    def convert_steps(self, each: int) -> None:
        """Convert steps or epochs; an example has `each` sequences."""
        steps = self.take("limits.steps")
        if steps is not None and (steps.number == -1 or steps.number == 0):
            self.drop(steps, "not set")
            steps = None
        precedes = steps.name if steps else "--set limits.steps" if "limits.steps" in self.given else None
        epochs = next(iter(self.found.get("epochs", ())), None)
        count = epochs.number if epochs and isinstance(epochs.number, int | float) and epochs.number > 0 else None
        self.take("epochs", drop=f"{precedes} takes precedence" if precedes else None)
        if steps is not None:
            self.set("limits.steps", steps.number, str(steps), steps)
        if precedes:
            self.steps_per_epoch = self.number("limits.steps") / count if count else None
            return
        if epochs is None or count is None:
            stated = f"{epochs.name} is {format_value(epochs.value)}." if epochs else None
            self.decide("limits.steps", stated or "The file has neither steps nor epochs.", ["STEPS"], epochs)
            return
        devices = self.number("mesh.devices")
        sequences = self.number("batch.microbatch_size") * self.number("batch.accumulation_steps") * devices
        if (rows := self.count_rows()) is None:
            is_packed = self.get("data.packing") is True or self.get("data.kind") == "text"
            why = "packed rows do not fill a known number of steps" if is_packed else "the number of rows is unknown"
            more = f": epochs × rows{f' × {each}' if each > 1 else ''} ÷ {sequences} sequences a step"
            what = f"{epochs.name} is {format_value(epochs.value)}, but {why}."
            self.decide("limits.steps", what, ["STEPS"], epochs, more)
            return
        self.steps_per_epoch = per_epoch = math.ceil(rows * each / sequences)
        each_epoch = f"{quantity(per_epoch, 'step')} an epoch for {quantity(rows, 'row')}"
        note = f"{each_epoch} on {quantity(devices, 'device')}{'' if self.get('mesh.devices') else '; fewer on more'}"
        total = max(1, math.ceil(count * per_epoch))
        self.set("limits.steps", total, f"{epochs}, {count:g}: {note}", epochs)

    def count_rows(self) -> int | None:
        """Return the number of rows, or None if it is unknown or sequences hold several rows."""
        name = str(self.settings["data.dataset"].value) if "data.dataset" in self.settings else ""
        path = FOLDER / f"{name}.jsonl" if name in DATASETS else Path(name)
        is_packed = self.get("data.packing") is True or self.get("data.kind") == "text"
        if not name or is_packed or name.startswith(GYM) or not path.exists():
            return None
        with collect_problems(self.problems):
            return len(open_table(path)) + int(parse_number(self.get("data.generated_rows")))
        return None

    def convert_optimizer(self) -> None:
        schedule = self.origins.get("optimizer.schedule")
        if schedule and _plain(schedule.value) == "constant":
            for what in ("optimizer.warmup_steps", "warmup_ratio"):
                self.take(what, drop="transformers ignores the warm-up of a constant schedule")
        if any(each.number for each in self.found.get("optimizer.warmup_steps", [])):
            self.take("warmup_ratio", drop="warmup_steps takes precedence")
        elif self.found.get("warmup_ratio"):
            self.take("optimizer.warmup_steps", drop="warmup_ratio is used")
        if (betas := self.take("betas", "optimizer.beta1")) is not None:
            for number, value in enumerate(betas.value if isinstance(betas.value, list) else [], start=1):
                self.set(f"optimizer.beta{number}", parse_number(value), str(betas), betas)
        self.copy("optimizer.learning_rate")
        fraction = "optimizer.final_learning_rate_fraction"
        if (least := self.take("min_lr", fraction)) is not None:
            is_number = isinstance(least.number, int | float)
            value = least.number / self.number("optimizer.learning_rate") if is_number else least.value
            self.set(fraction, value, f"{least} ÷ the learning rate", least)
        if (limit := self.take("optimizer.max_grad_norm")) is not None:
            self.set("optimizer.max_grad_norm", limit.number or None, str(limit), limit)

    def convert_saving(self) -> None:
        key = "checkpoint.save_every_steps"
        strategy, per_epoch = self.take("save_strategy", key), self.take("saves_per_epoch", key)
        every = per_epoch or (strategy if strategy and _plain(strategy.value) == "epoch" else None)
        if (strategy and _plain(strategy.value) in ("no", "false")) or (per_epoch and per_epoch.number == 0):
            self.set(key, 0, str(strategy or per_epoch))
        elif every is not None and self.steps_per_epoch is not None:
            count = per_epoch.number if per_epoch and isinstance(per_epoch.number, int | float) else 1
            note = f"{every}: an epoch has {self.steps_per_epoch:g} steps"
            self.set(key, math.ceil(self.steps_per_epoch / count), note)
        elif unused := every or strategy:
            self.drop(unused, "checkpoints are saved by steps, and the steps per epoch are not known")
        if key in self.settings:
            self.take("save_steps", drop="not used with the other settings")
        if (keep := self.take("checkpoint.keep")) is not None:
            self.set("checkpoint.keep", keep.number or 1, str(keep), keep)

    def convert_share(self, what: str, key: str) -> None:
        """Convert a number of steps, or a share of all steps below 1."""
        if (origin := self.take(what, key)) is not None:
            value, steps = origin.number, self.number("limits.steps")
            is_share = isinstance(value, float) and 0 < value < 1
            note = f" × {steps} steps" if is_share else ""
            self.set(key, math.ceil(value * steps) if is_share else value, f"{origin}{note}", origin)

    def validate(self) -> Config:
        """Return the configuration, or raise a ProblemError with all problems; they name the keys of the other file."""
        document: dict[str, Any] = {}
        for each in self.settings.values():
            set_path(document, each.key, each.value)
        stated = {key: origin.path for key, origin in self.origins.items() if not origin.tool}
        original = {pointer_to(key.split(".")): pointer_to(path) for key, path in stated.items()}
        first = ConfigSource(name=self.file, document=document, original=original, lines=self.lines)
        is_reported = bool(self.problems) and self.get("model.name") is None
        found = [] if is_reported else check_value("train_config", document, file=self.file)
        if not found and not self.problems:
            config = build_config(document)
            found = [replace(each, file=self.file) for each in find_contradictions(config)]
        self.problems += [locate_problem(each, document, [first, *self.sources]) for each in found]
        if self.problems:
            raise ProblemError(self.problems, exit_code=USAGE)
        return config
