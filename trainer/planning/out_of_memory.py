"""Explain out-of-memory errors of XLA on TPU, GPU and CPU, and of a full main memory. Does not import JAX."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from schemas.formats import size
from schemas.problems import ProblemError, problem_of
from trainer.config.load import TEXTS

if TYPE_CHECKING:
    from trainer.config.tree import Config

MAX_CHARACTERS = 4_000_000
"""Of a longer text only the end is read, where the failure is."""
SHOWN_BUFFERS = 8
CONFIGURED_WITHIN = 0.5
"""Relative distance from the estimate above which another program probably failed."""

WORDS = tomllib.loads(files("trainer").joinpath("out_of_memory.toml").read_text(encoding="utf-8"))


def setting_cost(setting: str) -> str:
    """Return the cost of a change, written like the argument of `--set`."""
    costs: dict[str, str] = TEXTS["costs"]
    return costs.get(setting) or costs[setting.partition("=")[0]]


class Allocation(NamedTuple):
    """A listed buffer."""

    bytes: int
    shape: str | None
    operator: str | None


@dataclass(frozen=True, kw_only=True)
class OutOfMemory:
    """An out-of-memory failure. A figure is None if the error message does not state it."""

    memory: Literal["tpu", "gpu", "cpu", "host"]
    when: Literal["compile", "run"]
    said: str
    """The sentence that was recognized."""
    need_bytes: int | None = None
    """Need of the program, or of everything in use with the failed allocation of `tried_bytes`."""
    cap_bytes: int | None = None
    """Usable memory of the device; `free_bytes` of it were free."""
    tried_bytes: int | None = None
    free_bytes: int | None = None
    parts: dict[str, int] = field(default_factory=dict)
    """The text's own division of the need."""
    shared_bytes: int | None = None
    """Output that reuses the memory of arguments; 0 if nothing is donated."""
    largest: tuple[Allocation, ...] = ()
    """Listed buffers, largest first."""

    @property
    def missing_bytes(self) -> int | None:
        """Memory that was lacking, or None if the text does not say."""
        pairs = ((self.need_bytes, self.cap_bytes), (self.tried_bytes, self.free_bytes))
        return next((need - there for need, there in pairs if need and there is not None and need > there), None)


AMOUNT = r"(?:[\d.]+\s?(?:[KMGT]i?B?|kB|bytes|B)|0B|unknown size)"
_AMOUNT = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([KMGTkmgt]?)i?(?:[Bb](?:ytes)?)?")


def parse_bytes(text: str | None) -> int | None:
    """Return the bytes of an amount; every unit in these texts is binary.

    >>> [parse_bytes(text) for text in ("15.75G", "20.00 MiB", "6291456 bytes", "0B", "unknown size")]
    [16911433728, 20971520, 6291456, 0, None]
    """
    if not text or (written := _AMOUNT.fullmatch(text.strip())) is None:
        return None
    return round(float(written[1]) * float(1024 ** " kmgt".index(written[2].lower() or " ")))


def _first(pattern: str, text: str) -> int | None:
    found = re.search(pattern, text, re.MULTILINE)
    return parse_bytes(found[1]) if found else None


def _parts(patterns: dict[str, str], text: str) -> dict[str, int]:
    return {name: value for name, pattern in patterns.items() if (value := _first(pattern, text))}


_TPU_REFUSED = re.compile(
    rf"(?:Used |HLO temporaries \()({AMOUNT})\)?\s+(?:of|exceeds available HBM) \(?({AMOUNT})"
    rf"(?:\)| hbm(?:\.?\s*Exceeded hbm capacity by {AMOUNT})?)",
    re.IGNORECASE,
)
_TPU_FAILED = re.compile(
    rf"Attempting to (?:allocate|reserve) ({AMOUNT})(?: at the bottom of memory)?\.\s+That was not possible\."
    rf"(?:\s+There are ({AMOUNT}) free)?",
    re.IGNORECASE,
)
_TPU_PARTS = {
    name: rf"(?:^|[\s:]){words}\s+({AMOUNT})(?=[\s.;(]|$)"
    for name, words in (
        ("reserved", r"reserved(?:\([^)]*\))?"),
        ("program", "program"),
        ("arguments", "arguments"),
        ("temporaries", "HLO temp"),
        ("output", "Output size"),
    )
}


def _tpu(text: str) -> OutOfMemory | None:
    if found := _TPU_REFUSED.search(text):
        return OutOfMemory(
            memory="tpu",
            when="compile",
            said=" ".join(found[0].split()),
            need_bytes=parse_bytes(found[1]),
            cap_bytes=parse_bytes(found[2]),
            parts=_parts(_TPU_PARTS, text),
            shared_bytes=_first(rf"Output size {AMOUNT}; shares ({AMOUNT}) with arguments", text),
            largest=_buffers(_BUFFERS.findall(text)),
        )
    if found := _TPU_FAILED.search(text):
        tried, allocated = parse_bytes(found[1]), _first(rf"Currently allocated:\s+({AMOUNT})", text)
        reserved = _first(_TPU_PARTS["reserved"], text) or 0
        return OutOfMemory(
            memory="tpu",
            when="run",
            said=" ".join(found[0].split()),
            need_bytes=None if allocated is None or tried is None else allocated + tried + reserved,
            cap_bytes=_first(rf"HBM capacity ({AMOUNT})", text),
            tried_bytes=tried,
            free_bytes=parse_bytes(found[2]),
            largest=_buffers(_BUFFERS.findall(text)),
        )
    return None


_BUFFER = r"^\s*(?:\d+\.|Buffer \d+:)\s+Size:"
_BUFFERS = re.compile(rf"{_BUFFER}\s*([^\n]+?)\s*$(.*?)(?=^\s*=====|{_BUFFER}|\Z)", re.MULTILINE | re.DOTALL)


def _buffers(blocks: Iterable[tuple[str, str]]) -> tuple[Allocation, ...]:
    """Return the buffers of a list of sizes and descriptions, largest first."""
    found = []
    for amount, rest in blocks:
        shape = re.search(r"(?:Shape|Entry Parameter Subshape):\s*\(?(\w+\[[\d,]*\])", rest)
        operator = re.search(r'op_name="([^"]+)', rest) or re.search(r"XLA label:\s*(\S+)", rest)
        if (held := parse_bytes(amount)) is not None:
            found.append(Allocation(held, shape and shape[1], operator and operator[1]))
    return tuple(sorted(found, key=lambda each: -each.bytes))


_XLA_CPU = re.compile(r"RESOURCE_EXHAUSTED: Out of memory allocating (\d+) bytes")
_XLA_GPU = (
    re.compile(rf"Out of memory (?:while trying to allocate|allocating) ({AMOUNT})", re.IGNORECASE),
    re.compile(rf"Allocator \(\w+\) ran out of memory trying to allocate ({AMOUNT})"),
    re.compile(rf"[Ff]ailed to allocate (?:request for )?({AMOUNT})[^\n]{{0,40}}(?:from|on) device"),
    re.compile(r"CUDA_ERROR_OUT_OF_MEMORY()"),
)
_XLA_PARTS = {
    name: rf"{words} allocation:\s+({AMOUNT})"
    for name, words in (
        ("arguments", "parameter"),
        ("constants", "constant"),
        ("output", "maybe_live_out"),
        ("temporaries", "preallocated temp"),
    )
}


def _xla(text: str) -> OutOfMemory | None:
    if found := _XLA_CPU.search(text):
        return OutOfMemory(memory="cpu", when="run", said=found[0], tried_bytes=int(found[1]))
    # "this is not a failure" marks a warning after which the program went on.
    kept = "\n".join(line for line in text.splitlines() if "this is not a failure" not in line)
    tries = [found for pattern in _XLA_GPU if (found := pattern.search(kept))]
    if not tries:
        return None
    tried = next((amount for found in tries if (amount := parse_bytes(found[1])) is not None), None)
    total, limit = _first(rf"total allocation:\s+({AMOUNT})", kept), _first(r"Limit:\s+(\d+)", kept)
    used, memory = _first(r"(?<!Max)InUse:\s+(\d+)", kept), re.search(r"Free memory/Total memory:\s*(\d+)/(\d+)", kept)
    cap = limit or (int(memory[2]) if memory else None)
    left = int(memory[1]) if memory else None
    if left is None and cap is not None and used is not None:
        left = max(cap - used, 0)
    return OutOfMemory(
        memory="gpu",
        when="run",
        said=tries[0][0],
        need_bytes=total if used is None or tried is None else max(used + tried, total or 0),
        cap_bytes=cap,
        tried_bytes=tried,
        free_bytes=left,
        parts=_parts(_XLA_PARTS, kept),
        # JAX may print the list twice.
        largest=_buffers(dict.fromkeys(_BUFFERS.findall(kept))),
    )


_HOST = re.compile(
    r"Killed process \d+ \([^)]+\)[^\n]*?anon-rss:(?P<rss>\d+ ?kB)"
    r"|\S* ?invoked oom-killer|\boom.kill event[^\n]{0,80}|\bOOMKilled\b|by the OOM killer|std::bad_alloc"
    r"|(?:exit|return)(?:ed)?(?: with)?(?: exit)? ?(?:code|status)[ :=]*(?:137|-9)\b|\b(?:SIGKILL|signal 9)\b"
    r"|^(?:\S+: line \d+:\s+\d+ )?Killed\b.{0,120}$|\[Errno 12\] Cannot allocate memory|^MemoryError\b[^\n]{0,80}"
    r"|Unable to allocate [\d.]+ [KMGTP]?i?B for an array[^\n]{0,80}",
    re.MULTILINE,
)


def _host(text: str) -> OutOfMemory | None:
    found = max(_HOST.finditer(text), key=lambda each: each["rss"] is not None, default=None)
    return found and OutOfMemory(memory="host", when="run", said=found[0].strip(), need_bytes=parse_bytes(found["rss"]))


_PREFIX = re.compile(
    r"^(?:>\s?|(?:\(\w+ pid=\d+\) )|[EWIF]\d{4} [\d:.]+\s+\d+ \S+\] ?|"
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d+: [EWIF]\s+(?:\d+ )?\S+\] ?)+",
    re.MULTILINE,
)
"""Quotes, and prefixes of loggers."""


def parse(text: str) -> OutOfMemory | None:
    """Return the failure in a text, or None without one. A device comes before the host, which often fails after."""
    colorless = re.sub(r"\x1b\[[\d;]*m", "", text[-MAX_CHARACTERS:].replace("\r\n", "\n"))
    plain = _PREFIX.sub("", colorless)
    return next((found for read in (_tpu, _xla, _host) if (found := read(plain)) is not None), None)


def read_out_of_memory(text: str, *, source: str) -> OutOfMemory:
    """Return the failure in a text or log from `source`, or raise `ProblemError` with exit code 1 without one."""
    if (found := parse(text)) is not None:
        return found
    last = text.strip().rpartition("\n")[2].strip()[:200]
    what = "No out-of-memory error found in this text." if last else "The text is empty."
    why = f"Its last line is: {last}" if last else None
    expected = "an error of JAX, or of a machine whose main memory was full"
    raise ProblemError([problem_of("TP745", file=source, what=what, why=why, expected=expected)], exit_code=1)


def explanation(failure: OutOfMemory, config: Config | None = None) -> dict[str, Any]:
    """Explain a failure as plain values; with a configuration, estimate its run and its changes."""
    configured, notes, changes = None, list[str](), _general_changes(failure)
    if config is not None:
        configured, notes, changes = _configured(config, failure)
    elif failure.memory == "host":
        changes = [each | {"set": None, "frees_bytes": None} for each in WORDS["host"]]
    return vars(failure) | {
        "missing_bytes": failure.missing_bytes,
        "largest": [each._asdict() | {"count": count} for each, count in Counter(failure.largest).items()],
        "notes": notes,
        "configuration": configured,
        "changes": changes,
    }


def _change(settings: Sequence[str], frees_bytes: int | None = None) -> dict[str, Any]:
    keys = " and ".join(setting.partition("=")[0] for setting in settings)
    costs = setting_cost(settings[0])
    return {"what": f"Set {keys}.", "set": " ".join(settings), "frees_bytes": frees_bytes, "costs": costs}


def _general_changes(failure: OutOfMemory) -> list[dict[str, Any]]:
    """Return what usually helps, cheapest first, without a configuration."""
    arguments, output, shared = failure.parts.get("arguments", 0), failure.parts.get("output", 0), failure.shared_bytes
    # Nothing was donated if results are as large as the arguments that they replace and reuse none of their memory.
    is_copied = output > arguments / 2 > 0 and shared is not None and shared < output / 10
    donation = [_change(["memory.donate=true"], output - (shared or 0) if is_copied else None)]
    others = ["memory.loss_chunk_tokens=256", "batch.microbatch_size=<half> batch.accumulation_steps=<double>"]
    others += ["memory.remat=layer", *(["mesh.shard_params=true"] if failure.memory == "tpu" else [])]
    others += ["optimizer.name=adafactor", "method.kind=lora"]
    return donation * (is_copied or not failure.parts) + [_change(settings.split()) for settings in others]


def _configured(config: Config, failure: OutOfMemory) -> tuple[list[dict[str, Any]], list[str], list[dict[str, Any]]]:
    """Return the estimated parts of the configured run, notes, and its changes with what they free."""
    from trainer.loop.task import Task, shapes_mesh
    from trainer.model.source import resolve_for_planning
    from trainer.planning.changes import list_changes
    from trainer.planning.formula import FORMULA_ERROR, Parts, estimate, total_bytes
    from trainer.planning.memory import parts_document

    platform = "gpu" if failure.memory == "host" else failure.memory
    source = resolve_for_planning(config.model.name, config.model.revision)
    task = Task.of(config, source, shapes_mesh(config.mesh.devices or 1), platform=platform)

    def largest_program(task: Task) -> Parts:
        return max(estimate(task, platform=platform).values(), key=total_bytes)

    expected = total_bytes(parts := largest_program(task))
    notes = [f"The configured run needs about {size(expected)} on each device (±{FORMULA_ERROR:.0%})."]
    if failure.need_bytes and abs(failure.need_bytes - expected) > CONFIGURED_WITHIN * expected:
        notes.append(
            f"The text says {size(failure.need_bytes)}, so the program that failed is probably not the configured one: "
            "check its optimizer, donation, and number of devices."
        )
    freed = [
        _change(change.settings, expected - total_bytes(largest_program(task.changed(change.config))))
        for change in list_changes(config)
    ]
    return parts_document(parts), notes, [change for change in freed if change["frees_bytes"] > 0]


def explanation_text(answer: dict[str, Any]) -> str:
    """Format an explanation as one page of text."""
    figures = {"needs": "need", "has": "cap", "tried": "tried", "free": "free", "missing": "missing"}
    lines = [f"Out of memory: {WORDS['places'][answer['memory']]}; {WORDS['when'][answer['when']]}."]
    lines += [f"Message: {answer['said']}", ""]
    for name, key in figures.items():
        if (amount := answer[f"{key}_bytes"]) is not None:
            lines.append(f"  {name:<10}{size(amount):>12}")
    if answer["parts"]:
        listed = ", ".join(f"{name} {size(held)}" for name, held in answer["parts"].items())
        reused = "" if answer["shared_bytes"] is None else f" ({size(answer['shared_bytes'])} reuse arguments)"
        lines += ["", f"Parts: {listed}{reused}."]
    if answer["largest"]:
        lines += ["", "Largest buffers:"]
        for each in answer["largest"][:SHOWN_BUFFERS]:
            times = f"{each['count']} × " if each["count"] > 1 else ""
            operator = (each["operator"] or "").partition("[")[0]
            lines.append(f"  {times + size(each['bytes']):>16}  {each['shape'] or '-':<28}  {operator}".rstrip())
    if answer["configuration"]:
        lines += ["", "Estimated need of the configuration on each device:"]
        for each in answer["configuration"]:
            lines.append(f"  {size(each['bytes']):>12}  {each['name']:<16}  {each['because']}")
    lines += ["", *answer["notes"]] if answer["notes"] else []
    lines += ["", "What to change, cheapest first:"]
    for number, each in enumerate(answer["changes"], start=1):
        frees = f"frees {size(each['frees_bytes'])}, " if each["frees_bytes"] else ""
        settings = " ".join(f"--set {setting}" for setting in (each["set"] or "").split())
        lines.append(f"  {number}. {settings or each['what']}")
        lines.append(f"     {frees}costs {each['costs']}")
    return "\n".join(lines) + "\n"
