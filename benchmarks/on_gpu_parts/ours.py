"""Measurements of this trainer on one device; each imports JAX when it is made."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

from on_gpu_parts.shapes import FULL, STEPS

GEMMA = "google/gemma-2b"


def device(*, tiny: bool) -> Any:
    """Return the device that is measured."""
    from trainer.runtime import choose_devices, reserve_gpu_memory

    reserve_gpu_memory()
    return choose_devices("auto" if tiny else "gpu", 1).list[0]


def timed(call: Callable[[], Any], *, seconds: float, least: int = 3) -> list[float]:
    """Return how long each call took, of as many as there is time for; what it returns is waited for."""
    import jax

    found: list[float] = []
    while len(found) < least or (sum(found) < seconds and len(found) < 200):
        began = time.perf_counter()
        jax.block_until_ready(call())
        found.append(time.perf_counter() - began)
    return found


def products(*, tiny: bool) -> dict[str, Any]:
    """Return the device, and its rate of a large product in bfloat16."""
    import jax
    import jax.numpy as jnp

    from trainer.recorder.environment import environment

    chosen, size = device(tiny=tiny), 256 if tiny else 8192
    keys = jax.random.split(jax.random.key(0))
    left, right = (jax.random.normal(key, (size, size), jnp.bfloat16) for key in keys)
    call = jax.jit(jnp.matmul)
    jax.block_until_ready(call(left, right))
    took = timed(lambda: call(left, right), seconds=2, least=10)
    stats = chosen.memory_stats() or {}
    return {
        "device": chosen.device_kind,
        "memory_bytes": stats.get("bytes_limit"),
        "environment": environment(),
        "flops_a_second": 2 * size**3 / min(took),
        "median_flops_a_second": 2 * size**3 / median(took),
    }


def task_of(settings: str, sequences: int, length: int, *, tiny: bool) -> Any:
    """Return the task of a run of Gemma-2B, or of the demo's model, on the one device."""
    from trainer.config.load import setting_value
    from trainer.config.seed_names import set_path
    from trainer.config.tree import config_of
    from trainer.loop.mesh import build_mesh
    from trainer.loop.task import Task
    from trainer.model.source import resolve_for_planning

    document: dict[str, Any] = {"model": {"name": "demo" if tiny else GEMMA, "weights": "random"}}
    shaped = f"batch.microbatch_size={2 if tiny else sequences} data.max_length={64 if tiny else length}"
    for text in (*settings.split(), *shaped.split()):
        key, _, value = text.partition("=")
        set_path(document, key, setting_value(value))
    chosen, config = device(tiny=tiny), config_of(document)
    source = resolve_for_planning(config.model.name)
    return Task.of(config, source, build_mesh([chosen]), platform=chosen.platform)


def step(name: str, *, tiny: bool) -> dict[str, Any]:
    """Return time and memory of a training step, as the trainer compiles it."""
    import numpy as np

    from trainer.loop.programs import train_program
    from trainer.loop.state import initial_state
    from trainer.planning.duration import step_work, useful_flops
    from trainer.planning.formula import estimate, total_bytes

    peak, task = products(tiny=tiny)["flops_a_second"], task_of(*STEPS[name], tiny=tiny)
    chosen = task.mesh.devices.flat[0]
    sums = estimate(task, platform=chosen.platform)
    program = train_program(task)
    compiled = program.compile()
    [state], frozen = initial_state(task)
    numbers, vocab = np.random.default_rng(0), task.model.source.spec.vocab
    batch = {
        key: numbers.integers(0, vocab, shape.shape, np.int32) if key == "tokens" else np.ones(shape.shape, shape.dtype)
        for key, shape in program.arguments[2].items()
    }
    holder = [state]
    del state

    def taken() -> Any:
        holder[0], metrics = compiled.call(holder[0], frozen, batch)
        return metrics.loss

    first, _ = float(taken()), taken()
    took = timed(taken, seconds=1 if tiny else 25)
    computed, useful = step_work(task).flops, useful_flops(task)
    planned = max(total_bytes(sums[each]) for each in ("start", "train"))
    observed = (chosen.memory_stats() or {}).get("peak_bytes_in_use")
    seconds, tokens = median(took), task.tokens_per_step
    return {
        "model": task.config.model.name,
        "settings": STEPS[name][0],
        "attention": task.attention,
        "tokens_a_step": tokens,
        "step_seconds": {"min": min(took), "median": seconds, "max": max(took), "steps": len(took)},
        "tokens_a_second": tokens / seconds,
        "peak_flops_a_second": peak,
        "share_of_peak": useful / seconds / peak,
        "share_of_peak_with_what_is_computed_again": computed / seconds / peak,
        "planned_bytes": planned,
        "compiled_bytes": compiled.peak_bytes,
        "observed_bytes": observed,
        "plan_error_fraction": observed and planned / observed - 1,
        "compile_seconds": compiled.seconds,
        "first_loss": first,
        "parts": {part.name: part.bytes for part in sums["train"] if part.bytes},
    }


def decode(*, tiny: bool) -> dict[str, Any]:
    """Return the speed of answers, with an evaluation's settings."""
    import jax
    import numpy as np

    from trainer.data.answers import EvalShape
    from trainer.generate.decode import generate
    from trainer.loop.state import initial_params
    from trainer.planning.formula import estimate

    rows, new, width = (4, 8, 16) if tiny else (32, 160, 64)
    task = task_of(f"{FULL} evaluation.batch_size={rows} evaluation.max_new_tokens={new}", 1, 128, tiny=tiny)
    params, chosen = initial_params(task), task.mesh.devices.flat[0]
    numbers = np.random.default_rng(0).integers(1, task.model.source.spec.vocab, (rows, width))

    def answered() -> Any:
        settings: dict[str, Any] = {"max_new_tokens": new, "stop_token_id": -1, "batch_size": rows, "keep_states": True}
        return list(generate(task.model.graphdef, params, numbers.tolist(), **settings))

    jax.block_until_ready(params)
    answered()
    took = timed(answered, seconds=1 if tiny else 10)
    planned = {
        part.name: part.bytes
        for part in estimate(task, platform=chosen.platform, asked=EvalShape(prompts=rows, longest_tokens=width))[
            "decode"
        ]
        if part.name != "opt_state"
    }
    observed = (chosen.memory_stats() or {}).get("peak_bytes_in_use")
    return {
        "completions": rows,
        "new_tokens_each": new,
        "tokens_a_second": rows * new / median(took),
        "milliseconds_a_token": 1000 * median(took) / new,
        "planned_bytes": sum(planned.values()),
        "observed_bytes": observed,
        "plan_error_fraction": observed and sum(planned.values()) / observed - 1,
    }


def attention(*, tiny: bool) -> dict[str, Any]:
    """Return the seconds of forward and backward of each way, for the heads of Gemma-2B and of Llama-3.2-1B."""
    import jax
    import jax.numpy as jnp

    from trainer.model.attention import AttentionKernel, Context, attend, visible

    device(tiny=tiny)
    found: dict[str, Any] = {}
    shapes = ((1, 8, 1, 128, 256),) if tiny else ((8, 8, 1, 2048, 256), (4, 32, 8, 4096, 64))
    for batch, heads, kv_heads, length, head_dim in shapes:
        shape, of_keys = (batch, heads, length, head_dim), (batch, kv_heads, length, head_dim)
        given = [jax.random.normal(jax.random.key(0), each, jnp.bfloat16) for each in (shape, of_keys, of_keys)]
        context = Context(positions=jnp.broadcast_to(jnp.arange(length), (batch, length)))

        def plain(query: Any, keys: Any, values: Any, context: Any = context) -> Any:
            return attend(query, keys, values, visible(context, window=None, keys=query.shape[2]))

        ways: dict[str, Callable[..., Any]] = {"plain": plain}
        for kind in ("blockwise", "splash"):
            settings: dict[str, Any] = {"window": None, "segments": None, "scale": head_dim**-0.5, "softcap": None}
            ways[kind] = partial(AttentionKernel(kind=kind).attend, **settings)
        for name, way in ways.items():
            both = jax.jit(jax.value_and_grad(lambda *args, way=way: way(*args).astype(jnp.float32).sum(), (0, 1, 2)))
            label = f"{name} {batch}×{heads}/{kv_heads}×{length}×{head_dim}"
            try:
                jax.block_until_ready(both(*given))
                found[label] = median(timed(partial(both, *given), seconds=1))
            # A kernel may refuse a device in its own way; the others are measured all the same.
            except (ValueError, TypeError, RuntimeError, LookupError) as error:
                found[label] = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
    return {"seconds": found}
