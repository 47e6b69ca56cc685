"""A process's start and end: memory, garbage, devices, compiled programs."""

import contextlib
import gc
import hashlib
import os
import pathlib
import platform
import re
import signal
import sys
from typing import NoReturn

from bert_jax.errors import UserError, first_line
from bert_jax.runtime import signals

# XLA's CPU buffers in huge pages: without them a fourth of a small model's step goes
# into fetching memory from the system, 4 kB at a time (glibc >= 2.35). Freed buffers of
# up to 32 MB stay with the process, 256 MB in all: else each call fetches them again.
MALLOC = (
    "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=33554432"
    ":glibc.malloc.trim_threshold=268435456"
)


def prepare_memory() -> None:
    """Prepares memory, first thing in the main program. Turns garbage collection off.

    It may start the program again, in the same process: glibc reads `MALLOC` only then.
    """
    debugged = bool({"pdb", "debugpy"} & sys.modules.keys())  # would lose the program
    if sys.platform == "linux" and "GLIBC_TUNABLES" not in os.environ and not debugged:
        os.environ["GLIBC_TUNABLES"] = MALLOC
        # They wait: Python answers Ctrl-C in its own start with a traceback.
        signal.pthread_sigmask(signal.SIG_BLOCK, signals.SIGNALS)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals.SIGNALS)
    gc.disable()  # imports leave no garbage, and looking for it takes a sixth of them


def collect_garbage() -> None:
    """Turns garbage collection on, and leaves out all objects from the imports."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def require_devices() -> None:
    """Raises UserError if JAX_PLATFORMS names a device that is not available."""
    import jax

    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:
        raise UserError(
            f"JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')}: no such device is "
            f"available ({first_line(error)}); unset it, and JAX uses one that is"
        ) from error


def keep_programs() -> None:
    """Turns on JAX's persistent cache of compiled programs.

    JAX_COMPILATION_CACHE_DIR may name a folder other than `cache_folder`.
    """
    import jax

    if jax.config.values["jax_enable_compilation_cache"]:
        if not jax.config.values["jax_compilation_cache_dir"]:
            jax.config.update("jax_compilation_cache_dir", str(cache_folder()))
        # Shorter compilations are about as fast as reading a file.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def cache_folder() -> pathlib.Path:
    """Returns `$XDG_CACHE_HOME/bert_jax/PROCESSOR`, in `~/.cache` if that is not set.

    Code for one processor may not run on another, and JAX's key may not cover it.
    """
    processor = {platform.machine(), platform.processor()}
    if (info := pathlib.Path("/proc/cpuinfo")).exists():
        # x86 calls its features "flags", ARM "Features". Every core has the same ones.
        kinds = r"^(?:model name|flags|Features|CPU part|CPU implementer).*"
        processor |= set(re.findall(kinds, info.read_text(encoding="utf-8"), re.M))
    name = hashlib.sha256("\n".join(sorted(processor)).encode()).hexdigest()[:16]
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(home, "bert_jax", name)


def end_process(status: int) -> NoReturn:
    """Ends the process, without waiting for threads that compile or write in vain."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    if status:
        os._exit(status)
    gc.freeze()  # else Python looks through all objects, which the process's end frees
    sys.exit()
