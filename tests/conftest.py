"""What every test runs under: a CPU, eight virtual devices, no hub, and no colour or width from the terminal."""

import os
import tempfile
from collections.abc import Iterator

import compiled
import jax
import portions
import pytest
import stamps
from hypothesis import settings

from trainer.planning.compile.machines import has_compiler

pytest_plugins = ["seconds"]

# Set before JAX starts, for this process and for those that tests start.
os.environ["JAX_PLATFORMS"] = "cpu"
# Tests beside each other load the TPU's compiler, which otherwise only one process may.
os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"
# Eight devices for the tests that need a mesh, and the instructions that runs ask for when JAX starts.
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count=8 --xla_cpu_max_isa=AVX2 {compiled.QUICK}"
# Hundreds of tests train the same few small models: what one has compiled, the others and the processes that they start
# take. A test that must compile by itself is marked `compiles_anew`.
COMPILED = compiled.prepare(os.environ["XLA_FLAGS"])
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(COMPILED)
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
# What JAX reads when it is imported, which a plugin may have done already.
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_compilation_cache_dir", str(COMPILED))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
os.environ["HF_HUB_OFFLINE"] = "1"
# Receipts and the secret of whoever runs the tests stay as they are.
OWN = tempfile.TemporaryDirectory(prefix="trainproof-tests-")
os.environ["XDG_DATA_HOME"] = OWN.name
os.environ["COLUMNS"] = "200"
os.environ.pop("FORCE_COLOR", None)

# The same examples at every run, so that a failure in CI is a failure here; long random searches are done by hand.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


def pytest_configure(config: pytest.Config) -> None:
    """Clean up what earlier sessions compiled, once a session, and let reports have the names of tests."""
    if hasattr(config, "workerinput"):
        return
    compiled.clean(COMPILED)
    if config.getoption("dist", "no") == "loadgroup":
        config.pluginmanager.register(portions.PlainNames(), "trainproof-names")


@pytest.fixture(autouse=True)
def _compiles_anew(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep a test that is marked `compiles_anew`, and the processes that it starts, from every kept program."""
    if not request.node.get_closest_marker("compiles_anew"):
        yield
        return
    monkeypatch.setenv("JAX_ENABLE_COMPILATION_CACHE", "false")
    with compiled.anew():
        yield


COMPILERS = "TRAINPROOF_COMPILERS"
"""Environment variable that demands compilers: where one is missing its tests fail and are not skipped."""


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Divide the tests among workers; skip what is as tested."""
    for item in items:
        _unmark_quick_cases(item)
    if not os.environ.get(COMPILERS):
        _skip_without_compilers(items)
    portions.divide(items, grouped=getattr(config.option, "loadgroup", False))
    if os.environ.get("TRAINPROOF_NIGHTLY") or not stamps.is_packaging_as_tested():
        return
    reason = "the packaging is as it was when this last passed; TRAINPROOF_NIGHTLY=1 runs it all the same"
    for item in items:
        if item.get_closest_marker("packaging"):
            item.add_marker(pytest.mark.skip(reason=reason))


def _unmark_quick_cases(item: pytest.Item) -> None:
    """Remove `slow(but=IDS)` from the parametrisations of these ids."""
    case = getattr(getattr(item, "callspec", None), "id", None)
    item.own_markers = [mark for mark in item.own_markers if case not in mark.kwargs.get("but", ())]


def _skip_without_compilers(items: list[pytest.Item]) -> None:
    """Skip tests of compilers that are not installed here."""
    for item in items:
        if (marker := item.get_closest_marker("compiler")) and not has_compiler(marker.args[0]):
            item.add_marker(
                pytest.mark.skip(reason="the compiler is not installed beside Python; `make compilers` runs this")
            )
