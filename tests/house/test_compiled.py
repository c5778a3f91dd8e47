"""Programs that tests keep: what they say of themselves is what a new one says, and half an entry does no harm."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import compiled
import jax
import jax.numpy as jnp
import pytest


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Path]:
    """A folder of kept programs for this test alone."""
    with compiled.anew(tmp_path):
        yield tmp_path


def program() -> jax.stages.Compiled:
    """Compile a product, which takes the place of the matrix that it used up, or read it from the folder."""

    def double(matrix, other):
        return matrix @ other, other.sum()

    jax.clear_caches()
    matrix = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    return jax.jit(double, donate_argnums=0).lower(matrix, matrix).compile()


def test_a_kept_program_has_the_memory_and_the_places_of_a_new_one(kept: Path):
    new = program()
    assert len(list(kept.glob("jit_double-*-cache"))) == 1
    [entry] = kept.glob("jit_double-*-cache")
    written = entry.stat().st_mtime_ns
    read = program()
    assert entry.stat().st_mtime_ns == written
    assert read.memory_analysis().alias_size_in_bytes == 64 * 64 * 4
    assert str(read.memory_analysis()) == str(new.memory_analysis())
    assert read.as_text() == new.as_text()
    assert read.cost_analysis() == new.cost_analysis()


def test_half_an_entry_is_compiled_anew_and_removed_by_the_next_session(kept: Path):
    program()
    [entry] = kept.glob("jit_double-*-cache")
    whole = entry.read_bytes()
    entry.write_bytes(whole[: len(whole) // 2])
    a = jnp.eye(64)
    assert float(program()(a, jnp.eye(64))[1]) == 64
    compiled.clean(kept)
    assert not entry.exists()
    program()
    assert entry.stat().st_size > len(whole) // 2


def test_above_its_size_the_folder_loses_what_was_read_longest_ago(tmp_path: Path):
    for number, folder in enumerate(["old", "new", "new"]):
        entry = tmp_path / folder / f"{number}-cache"
        entry.parent.mkdir(exist_ok=True)
        entry.write_bytes(b"\0" * 1000)
        os.utime(entry, (number, number))
    (tmp_path / "new" / compiled.CHECKED).touch()
    compiled.clean(tmp_path / "new", limit_bytes=2500)
    assert [path.name for path in sorted(tmp_path.glob("*/*-cache"))] == ["1-cache", "2-cache"]


def test_another_processor_and_other_flags_have_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    mine = compiled.prepare("--flag")
    assert mine.is_relative_to(tmp_path)
    assert compiled.prepare("--flag") == mine != compiled.prepare("--other")
    monkeypatch.setattr(compiled, "_instruction_sets", lambda: "flags: sse2")
    assert compiled.prepare("--flag") != mine


@pytest.mark.compiles_anew
def test_a_test_that_compiles_anew_keeps_its_children_from_the_folder_too():
    code = "import jax; print(jax.config.jax_enable_compilation_cache)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, jax.config.jax_enable_compilation_cache) == ("False\n", False)
