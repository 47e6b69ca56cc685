"""Sets up JAX's persistent compilation cache.

A program's key covers the computation, XLA's flags and options, and the versions of JAX
and XLA, so a stale program is never used. The key may not cover the processor, so the
folder's name does: code for one may not run on another.
"""

import contextlib
import hashlib
import os
import platform
from pathlib import Path

import jax

# Shorter compilations are about as fast as reading a file.
MIN_SECONDS = 0.2


def keep() -> None:
    """Turns on the cache: from now on compiled programs are stored and reused.

    `JAX_COMPILATION_CACHE_DIR` names another folder;
    `JAX_ENABLE_COMPILATION_CACHE=false` turns it off. If the folder cannot be written,
    nothing is stored.
    """
    if not jax.config.values["jax_enable_compilation_cache"]:
        return
    if not jax.config.values["jax_compilation_cache_dir"]:
        try:
            folder = default_folder()
            folder.mkdir(parents=True, exist_ok=True)
        except (OSError, RuntimeError):  # no home, no room, no permission
            return
        jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", MIN_SECONDS)


def default_folder() -> Path:
    """`$XDG_CACHE_HOME/bert_jax/PROCESSOR`; in `~/.cache` if that is not set.

    Raises:
      RuntimeError: there is no home folder.
    """
    home = os.environ.get("XDG_CACHE_HOME")
    facts = {platform.machine(), platform.processor()}
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        # x86 calls its features "flags", ARM "Features"; the same on every core.
        kinds = ("model name", "flags", "Features", "CPU part", "CPU implementer")
        facts |= {line for line in lines if line.startswith(kinds)}
    name = hashlib.sha256("\n".join(sorted(facts)).encode()).hexdigest()[:16]
    return (Path(home) if home else Path.home() / ".cache") / "bert_jax" / name
