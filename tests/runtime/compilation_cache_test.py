"""A second start finds its programs compiled, and computes what the first did."""

import os
import subprocess
import sys
import time
import warnings

import jax
import pytest
import runs

from bert_jax.runtime import compilation_cache
from bert_jax.workdir import metrics


def start(micro, workdir, cache):
    return runs.start(
        f"--config={micro}",
        f"--workdir={workdir}",
        XDG_CACHE_HOME=str(cache),
        JAX_COMPILATION_CACHE_DIR="",
        JAX_LOG_COMPILES="true",  # tells of hits
    )


@pytest.mark.slow
def test_killed_and_resumed_with_what_was_compiled(micro, plain, tmp_path):
    """Before the first checkpoint, and after it."""
    workdir, cache = tmp_path / "run", tmp_path / "cache"
    for lines in (1, 13):
        process = start(micro, workdir, cache)
        runs.wait_for_lines(workdir, lines, process)
        runs.kill(process)
    _, err = runs.finish(start(micro, workdir, cache))
    assert "cache hit for 'jit_train_step'" in err
    assert "cache miss for 'jit_train_step'" not in err.lower()
    assert runs.losses(workdir).tolist() == runs.losses(plain).tolist()
    assert len(runs.losses(workdir)) == 20
    (ours,), (theirs,) = metrics.read(workdir, "dev"), metrics.read(plain, "dev")
    assert ours | {"time": 0} == theirs | {"time": 0}


DAMAGE = """
import jax
from bert_jax.runtime import compilation_cache

def compute():
    jax.clear_caches()  # forgets what is compiled in memory
    return int(jax.jit(lambda x: 2 * x + 1)(20))

compilation_cache.keep()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
assert compute() == 41
for path in compilation_cache.default_folder().glob("*-cache"):
    path.write_bytes(path.read_bytes()[:-20])
assert compute() == 41
assert compute() == 41
"""


@pytest.mark.slow
def test_what_a_kill_left_half_written_is_replaced(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", DAMAGE],
        cwd=runs.ROOT,
        env={
            **os.environ,
            "XDG_CACHE_HOME": str(tmp_path),
            "JAX_COMPILATION_CACHE_DIR": "",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    (line,) = (line for line in done.stderr.splitlines() if "compiling again" in line)
    assert "jit__lambda" in line  # once: the third time all is well


@pytest.fixture
def jax_as_before(monkeypatch):
    names = (
        "jax_enable_compilation_cache",
        "jax_compilation_cache_dir",
        "jax_persistent_cache_min_compile_time_secs",
    )
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update("jax_enable_compilation_cache", False)
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.fixture
def enabled(jax_as_before, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jax.config.update("jax_enable_compilation_cache", True)


def test_what_cannot_be_read_is_removed_and_other_warnings_are_shown(
    enabled, tmp_path, caplog
):
    shown = []
    warnings.showwarning = lambda message, *rest: shown.append(str(message))
    compilation_cache.keep()
    folder = compilation_cache.default_folder()
    assert jax.config.jax_compilation_cache_dir == str(folder)
    assert folder.is_relative_to(tmp_path)
    for name in ("jit_step-12-cache", "jit_step-34-cache", "jit_other-12-cache"):
        (folder / name).write_bytes(b"half")
    text = "Error reading persistent compilation cache entry for 'jit_step': Zstd"
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning(UserWarning(text), UserWarning, "f", 1)
        warnings.showwarning(UserWarning("else"), UserWarning, "f", 1)
    assert [path.name for path in folder.iterdir()] == ["jit_other-12-cache"]
    assert shown == ["else"]
    assert "compiling again" in caplog.text


def test_old_programs_are_dropped(enabled, tmp_path):
    folder = compilation_cache.default_folder()
    folder.mkdir(parents=True)
    old = time.time() - 86400 * (compilation_cache.MAX_AGE_DAYS + 1)
    for name in ("jit_old-1-cache", "jit_new-1-cache"):
        (folder / name).write_bytes(b"program")
    os.utime(folder / "jit_old-1-cache", (old, old))
    compilation_cache.keep()
    assert [path.name for path in folder.iterdir()] == ["jit_new-1-cache"]


def test_another_processor_has_another_folder(enabled, monkeypatch):
    here = compilation_cache.default_folder()
    assert compilation_cache.default_folder() == here
    monkeypatch.setattr(compilation_cache.platform, "machine", lambda: "another")
    assert compilation_cache.default_folder() != here


def test_a_folder_of_the_user_is_taken_and_nothing_removed_from_it(enabled, tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "mine"))
    compilation_cache.keep()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "mine")
    assert not compilation_cache.default_folder().exists()


def test_without_a_place_to_write_nothing_is_kept(enabled, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    compilation_cache.keep()
    assert jax.config.jax_compilation_cache_dir is None


def test_disabled(jax_as_before, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compilation_cache.keep()
    assert jax.config.jax_compilation_cache_dir is None
    assert list(tmp_path.iterdir()) == []
