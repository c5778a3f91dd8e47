"""Compiled programs kept between runs: whole ones alone, for this processor and these versions, within their room."""

import os
import zlib
from pathlib import Path

import compiled
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evidence import layout
from trainer.loop.compilation import Program
from trainer.loop.effective import donation
from trainer.planning import kept_programs
from trainer.planning.kept_programs import digest, machine_key, remove_unsealed, remove_unused, seal
from trainer.recorder.cache_folder import size_bytes


def written(folder: Path, name: str, content: bytes) -> Path:
    entry = folder / f"{name}-cache"
    entry.write_bytes(content)
    (folder / f"{name}-atime").write_bytes(bytes(8))
    return entry


def test_what_is_not_as_it_was_written_is_removed(tmp_path: Path):
    whole, changed, cut = (written(tmp_path, name, b"program of " + name.encode()) for name in ("a", "b", "c"))
    seal(tmp_path)
    changed.write_bytes(b"program of B")
    cut.write_bytes(cut.read_bytes()[:-1])
    killed = written(tmp_path, "d", b"half a pro")
    written(tmp_path, "e", b"evicted by JAX").unlink()
    (tmp_path / "e-sha256").write_text("0")
    written(tmp_path, "f", b"killed before its time was written")
    seal(tmp_path)
    (tmp_path / "f-atime").unlink()
    killed.write_bytes(b"half a program")
    remove_unsealed(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-atime", "a-cache", "a-sha256"]
    assert (tmp_path / "a-sha256").read_text() == digest(whole)
    assert not killed.exists()


def test_attached_programs_are_taken_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TRAINPROOF_INPUT", str(tmp_path / "input"))
    monkeypatch.setattr(kept_programs, "machine_key", lambda: "this")
    earlier = tmp_path / "input" / "notebook" / "runs" / layout.PROGRAMS
    other, same, own = earlier / "other", earlier / "this", tmp_path / "own" / "this"
    for folder in (other, same, own):
        folder.mkdir(parents=True)
    for name in "abc":
        written(same, name, b"program " + name.encode())
    seal(same)
    (same / "b-cache").write_bytes(b"half a pro")
    (same / "c-sha256").unlink()
    written(other, "d", b"for another processor")
    seal(other)
    assert list(kept_programs.attached_programs()) == [other, same]
    assert [kept_programs.take_programs(folder, own) for folder in (other, same)] == [
        f"compiled programs in {other} are ignored: they are for another processor or other versions",
        f"1 compiled program taken from {same}; 2 that are damaged or half written are ignored",
    ]
    assert sorted(path.name for path in own.iterdir()) == ["a-atime", "a-cache", "a-sha256"]
    assert kept_programs.take_programs(same, own).startswith("0 compiled programs taken"), "what is there is kept"


def test_folders_of_other_processors_are_removed_when_nobody_uses_them(tmp_path: Path):
    own, used, unused = (tmp_path / name for name in ("own", "used", "unused"))
    for folder in (own, used, unused):
        folder.mkdir()
    for folder in (own, unused):
        os.utime(folder, (0, 0))
    remove_unused(tmp_path, but=own)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own", "used"]


INFO = "processor\t: 0\nmodel name\t: A\ncpu MHz\t\t: 1200\nflags\t\t: fpu avx2{}\n\nprocessor\t: 1\nmodel name\t: A\n"


def test_another_processor_or_version_has_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = []
    for features, release in (("", "1"), (" avx512f", "1"), ("", "2"), ("", "1")):
        info = tmp_path / "cpuinfo"
        info.write_text(INFO.format(features).replace("1200", str(1200 + len(found))))
        monkeypatch.setattr("trainer.recorder.environment.PROCESSORS", info)
        monkeypatch.setattr(kept_programs, "versions", lambda release=release: {"jaxlib": release})
        found.append(machine_key())
    assert len(set(found)) == 3
    assert found[0] == found[3], "the clock of the moment is no part of it"


def test_the_room_is_a_setting(monkeypatch: pytest.MonkeyPatch):
    for stated, expected in ((None, 256), ("50", 50), ("0", 0), ("much", 256)):
        monkeypatch.delenv("TRAINPROOF_CACHE_MIB", raising=False)
        if stated is not None:
            monkeypatch.setenv("TRAINPROOF_CACHE_MIB", stated)
        assert size_bytes() == expected << 20


def test_a_folder_that_a_user_names_is_left_as_it_is():
    before = jax.config.values["jax_compilation_cache_dir"]
    assert before == os.environ["JAX_COMPILATION_CACHE_DIR"]
    assert kept_programs.keep_programs() == []
    assert jax.config.values["jax_compilation_cache_dir"] == before
    assert not (Path(before) / "x-sha256").exists()


@pytest.mark.slow
def test_a_program_that_was_compiled_before_is_the_same_in_memory_donation_and_bits():
    def step(state, x):
        return state + jnp.tanh(x @ state.T).sum(0)[:, None] * 0.125, jnp.sum(state)

    wide, narrow = jax.ShapeDtypeStruct((37, 64), jnp.float32), jax.ShapeDtypeStruct((5, 64), jnp.float32)
    found = []
    for _ in range(2):
        jax.clear_caches()
        program = Program(
            function=jax.jit(step, donate_argnums=0), arguments=(wide, narrow), settings={}, donated=(0,)
        ).compile()
        state = jnp.arange(37 * 64, dtype=jnp.float32).reshape(37, 64) / 999
        place = state.unsafe_buffer_pointer()
        after, total = program.call(state, jnp.ones((5, 64)) * 0.3)
        assert state.is_deleted()
        assert after.unsafe_buffer_pointer() == place
        found.append((program, np.asarray(after).tobytes(), float(total)))
    (_, *fresh), (kept, *again) = found
    assert kept.is_kept
    assert again == fresh
    read = donation(kept.executable, wide)
    assert read == {"state_bytes": 37 * 64 * 4, "aliased_bytes": 37 * 64 * 4, "effective": True}
    assert kept.peak_bytes == found[0][0].peak_bytes


SPOILED = {
    "half written": lambda entry: entry[: len(entry) // 2],
    "of another version": lambda entry: zlib.compress(bytes(4) + b"what another version understands"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_an_entry_that_jax_cannot_read_is_compiled_again(name: str, tmp_path: Path):
    function = jax.jit(lambda x: jnp.tanh(x @ x.T) * 0.123)
    x, found = jnp.arange(12.0).reshape(3, 4) / 7, []
    with compiled.anew(tmp_path):
        for _ in range(2):
            jax.clear_caches()
            program = Program(function=function, arguments=(x,), settings={}).compile()
            found.append((program.is_kept, np.asarray(program.call(x)).tobytes()))
            entries = list(tmp_path.glob("*-cache"))
            assert entries
            for entry in entries:
                entry.write_bytes(SPOILED[name](entry.read_bytes()))
    assert found == [(False, found[0][1])] * 2
