"""Measure training steps or decoding of Gemma-2B on a GPU, beside torch, and print a line of JSON.

    benchmarks/on_gpu.sh [--tiny]          # everything
    python benchmarks/on_gpu.py NAME [--tiny]

Weights and tokens are random: time and memory do not depend on them. --tiny uses small shapes on any device.

| line | measures |
|---|---|
| products | the fastest bfloat16 matrix product, the peak that fractions refer to |
| full, lora, qlora | a training step: seconds, fraction of the peak, planned and observed memory |
| decode | tokens per second of an evaluation |
| torch | a torch and transformers loop with the shapes of `full` |
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

from harness import REPOSITORY, build_parser, installed, read_config, spread

GEMMA = "google/gemma-2b"
FULL = "optimizer.name=adafactor precision.params=bfloat16 precision.compute=bfloat16 optimizer.max_grad_norm=null"
LORA = "method.kind=lora method.rank=16 precision.params=bfloat16 precision.compute=bfloat16"
STEPS: dict[str, tuple[str, int, int]] = {
    "full": (FULL, 8, 2048),
    "lora": (LORA, 16, 1024),
    "qlora": (f"{LORA} method.base=nf4", 16, 1024),
}
"""Settings, sequences and tokens per sequence of each training step."""


def choose_device(*, tiny: bool) -> Any:
    """Return the device to measure."""
    from trainer.runtime import choose_devices

    return choose_devices("auto" if tiny else "gpu", 1).list[0]


def compare_memory(planned: int, device: Any) -> dict[str, Any]:
    """Return planned and observed peak memory; some devices do not report it."""
    observed = (device.memory_stats() or {}).get("peak_bytes_in_use")
    error = planned / observed - 1 if observed else None
    return {"planned_bytes": planned, "observed_bytes": observed, "plan_error_fraction": error}


def time_calls(call: Callable[[], Any], *, seconds: float, least: int = 3) -> list[float]:
    """Return the seconds of each call, waiting for its result, until the time is used up."""
    import jax

    times: list[float] = []
    while len(times) < least or (sum(times) < seconds and len(times) < 200):
        began = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - began)
    return times


def measure_products(*, tiny: bool) -> dict[str, Any]:
    """Return the device and its rate for a large bfloat16 matrix product."""
    import jax
    import jax.numpy as jnp

    from trainer.recorder.environment import environment

    device = choose_device(tiny=tiny)
    size = 256 if tiny else 8192
    left, right = (jax.random.normal(key, (size, size), jnp.bfloat16) for key in jax.random.split(jax.random.key(0)))
    product = jax.jit(jnp.matmul)
    jax.block_until_ready(product(left, right))
    times = time_calls(lambda: product(left, right), seconds=2, least=10)
    return {
        "device": device.device_kind,
        "environment": environment(),
        "flops_a_second": 2 * size**3 / min(times),
    }


def build_task(settings: str, sequences: int, length: int, *, tiny: bool) -> Any:
    """Build the task of a run of Gemma-2B, or of the demo model if tiny."""
    from trainer.loop.task import Task, build_mesh
    from trainer.model.source import resolve_for_planning

    shape = f"batch.microbatch_size={2 if tiny else sequences} data.max_length={64 if tiny else length}"
    device = choose_device(tiny=tiny)
    config = read_config("demo" if tiny else GEMMA, "model.weights=random", settings, shape)
    return Task.of(config, resolve_for_planning(config.model.name), build_mesh([device]), platform=device.platform)


def measure_step(name: str, *, tiny: bool) -> dict[str, Any]:
    """Return time and memory of a training step, as the trainer compiles it."""
    import numpy as np

    from trainer.loop.programs import train_program
    from trainer.loop.state import initial_state
    from trainer.planning.duration import step_work, useful_flops
    from trainer.planning.formula import estimate, total_bytes

    peak = measure_products(tiny=tiny)["flops_a_second"]
    task = build_task(*STEPS[name], tiny=tiny)
    device = task.mesh.devices.flat[0]
    estimated = estimate(task, platform=device.platform)
    program = train_program(task)
    compiled = program.compile()
    state, frozen = initial_state(task)
    random = np.random.default_rng(0)
    vocab = task.model.source.spec.vocab
    batch = {name: np.ones(shape.shape, shape.dtype) for name, shape in program.arguments[2].items()}
    batch["tokens"] = random.integers(0, vocab, batch["tokens"].shape, np.int32)

    def take_step() -> Any:
        state[0], metrics = compiled.call(state[0], frozen, batch)
        return metrics.loss

    first_loss = float(take_step())
    take_step()  # warm-up
    times = time_calls(take_step, seconds=1 if tiny else 25)
    seconds, tokens = median(times), task.tokens_per_step
    planned = max(total_bytes(estimated[each]) for each in ("start", "train"))
    return {
        "model": task.config.model.name,
        "settings": STEPS[name][0],
        "attention": task.attention,
        "tokens_a_step": tokens,
        "step_seconds": spread(times) | {"steps": len(times)},
        "tokens_a_second": tokens / seconds,
        "peak_flops_a_second": peak,
        "share_of_peak": useful_flops(task) / seconds / peak,
        "share_of_peak_with_what_is_computed_again": step_work(task).flops / seconds / peak,
        "compiled_bytes": compiled.peak_bytes,
        "compile_seconds": compiled.seconds,
        "first_loss": first_loss,
        **compare_memory(planned, device),
    }


def measure_decode(*, tiny: bool) -> dict[str, Any]:
    """Return the speed of decoding, with the settings of an evaluation."""
    import jax
    import numpy as np

    from trainer.data.answers import EvalShape
    from trainer.generate.decode import generate
    from trainer.loop.state import initial_params
    from trainer.planning.formula import estimate

    rows, new, width = (4, 8, 16) if tiny else (32, 160, 64)
    task = build_task(f"{FULL} evaluation.batch_size={rows} evaluation.max_new_tokens={new}", 1, 128, tiny=tiny)
    params, device = initial_params(task), task.mesh.devices.flat[0]
    prompts = np.random.default_rng(0).integers(1, task.model.source.spec.vocab, (rows, width)).tolist()

    def decode() -> Any:
        settings: dict[str, Any] = {"max_new_tokens": new, "stop_token_id": -1, "batch_size": rows}
        return list(generate(task.model.graphdef, params, prompts, **settings))

    jax.block_until_ready(params)
    decode()
    seconds = median(time_calls(decode, seconds=1 if tiny else 10))
    shape = EvalShape(prompts=rows, longest_tokens=width)
    parts = estimate(task, platform=device.platform, eval_shape=shape)["decode"]
    planned = sum(each.bytes for each in parts if each.name != "opt_state")
    return {
        "completions": rows,
        "new_tokens_each": new,
        "tokens_a_second": rows * new / seconds,
        "milliseconds_a_token": 1000 * seconds / new,
        **compare_memory(planned, device),
    }


def measure_torch(*, tiny: bool) -> dict[str, Any]:
    """Return the step of torch with transformers' Gemma: gradient checkpointing, Adafactor, largest batch that fits."""
    import torch
    import transformers

    place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    sizes = json.loads((REPOSITORY / "benchmarks" / "models.json").read_text())["gemma-2b"]
    if tiny:
        sizes |= {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    config = transformers.GemmaConfig(**sizes, use_cache=False)
    with place:
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    model.train().gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.Adafactor(model.parameters(), lr=1e-3)
    sequences, length = (2, 64) if tiny else STEPS["full"][1:]

    def take_step(tokens: Any) -> float:
        began = time.perf_counter()
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if place.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - began

    while True:
        tokens = torch.randint(0, config.vocab_size, (sequences, length), device=place)
        try:
            times = [take_step(tokens) for _ in range(4 if tiny else 9)][2:]
            break
        except torch.OutOfMemoryError:
            optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
            sequences //= 2
            if not sequences:
                raise
    return {
        "versions": installed("torch", "transformers"),
        "sequences": sequences,
        "step_seconds": spread(times),
        "tokens_a_second": sequences * length / median(times),
        "observed_bytes": torch.cuda.max_memory_allocated() if place.type == "cuda" else None,
    }


MEASUREMENTS: dict[str, Callable[..., dict[str, Any]]] = {
    "products": measure_products,
    "torch": measure_torch,
    "decode": measure_decode,
    **{name: partial(measure_step, name) for name in STEPS},
}


def main() -> None:
    """Run a measurement and print its line."""
    parser = build_parser(__doc__)
    parser.add_argument("name", choices=MEASUREMENTS)
    parser.add_argument("--tiny", action="store_true", help="small shapes, on any device")
    args = parser.parse_args()
    began, at = time.monotonic(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    found = MEASUREMENTS[args.name](tiny=args.tiny)
    print(json.dumps({"measurement": args.name, "at": at, **found, "seconds": round(time.monotonic() - began, 1)}))


if __name__ == "__main__":
    main()
