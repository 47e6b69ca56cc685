"""Sets up and maintains JAX's persistent compilation cache.

A program's key covers the computation, XLA's flags and options, and the versions of JAX
and XLA, so a stale program is never used. The key may not cover the processor, so the
folder's name does: code for one may not run on another.
"""

import contextlib
import hashlib
import logging
import os
import platform
import re
import time
import warnings
from pathlib import Path
from typing import Any, TextIO

import jax

from bert_jax.runtime import storage

log = logging.getLogger(__name__)

# Shorter compilations are about as fast as reading a file.
MIN_SECONDS = 0.2
# Delete programs unused for this long. JAX's own limit on the folder's size breaks for
# good if a process is killed between writing two of its files.
MAX_AGE_DAYS = 30

_UNREADABLE = re.compile(
    r"Error reading persistent compilation cache entry for '([\w.-]+)'"
)


def keep() -> None:
    """Turns on the cache: from now on compiled programs are stored and reused.

    `JAX_COMPILATION_CACHE_DIR` names another folder;
    `JAX_ENABLE_COMPILATION_CACHE=false` turns it off. If the folder cannot be written,
    nothing is stored.
    """
    if not jax.config.values["jax_enable_compilation_cache"]:
        return
    chosen = jax.config.values["jax_compilation_cache_dir"]
    if not chosen:
        try:
            folder = default_folder()
            folder.mkdir(parents=True, exist_ok=True)
            _drop_old(folder)
        except (OSError, RuntimeError) as error:  # no home, no room, no permission
            log.debug("no compilation cache: %s", error)
            return
        jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", MIN_SECONDS)
    _mend(storage.path(chosen or folder))


def default_folder() -> Path:
    """`$XDG_CACHE_HOME/bert_jax/PROCESSOR`; in `~/.cache` if that is not set.

    Raises:
      RuntimeError: there is no home folder.
    """
    home = os.environ.get("XDG_CACHE_HOME")
    cache = Path(home) if home else Path.home() / ".cache"
    return cache / "bert_jax" / _processor()


def _processor() -> str:
    """A hash of this kind of processor and its features."""
    facts = {platform.machine(), platform.processor()}
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        # x86 calls its features "flags", ARM "Features"; the same on every core.
        kinds = ("model name", "flags", "Features", "CPU part", "CPU implementer")
        facts |= {line for line in lines if line.startswith(kinds)}
    return hashlib.sha256("\n".join(sorted(facts)).encode()).hexdigest()[:16]


def _drop_old(folder: Path) -> None:
    oldest = time.time() - MAX_AGE_DAYS * 86400
    for path in folder.glob("*-cache"):
        with contextlib.suppress(OSError):  # another run may have dropped it
            if max(path.stat().st_atime, path.stat().st_mtime) < oldest:
                path.unlink()


def _mend(folder: storage.Path) -> None:
    """Deletes programs that JAX warns it cannot read.

    JAX writes in place and never overwrites, so a half-written file from a killed
    process would stay forever.
    """
    show = warnings.showwarning

    def shown(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> Any:
        match = _UNREADABLE.match(str(message))
        if match is None:
            return show(message, category, filename, lineno, file, line)
        log.warning("%s: compiling again; the cached program is damaged", match[1])
        for path in folder.glob(f"{match[1]}-*-cache"):
            path.unlink(missing_ok=True)
        return None

    warnings.showwarning = shown
