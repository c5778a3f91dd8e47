"""Programs that tests keep: what they say of themselves is what a new one says, and half an entry does no harm."""

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


@pytest.mark.compiles_anew
def test_a_test_that_compiles_anew_keeps_its_children_from_the_folder_too():
    code = "import jax; print(jax.config.jax_enable_compilation_cache)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, jax.config.jax_enable_compilation_cache) == ("False\n", False)
