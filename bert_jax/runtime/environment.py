"""A process's start and end: memory, garbage, devices, standard output."""

import contextlib
import gc
import os
import sys
from typing import NoReturn

from bert_jax.errors import UserError

CLOSED_PIPE = 141  # a shell's status for a program that SIGPIPE ended
# XLA's CPU buffers in huge pages: without them a fourth of a small model's step goes
# into fetching memory from the system, 4 kB at a time (glibc >= 2.35). Freed buffers of
# up to 32 MB stay with the process, 256 MB in all: else each call fetches them anew.
MALLOC = (
    "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=33554432"
    ":glibc.malloc.trim_threshold=268435456"
)


def prepare() -> None:
    """Prepares memory; call it first, in the main program.

    It may start the program again, in the same process: glibc reads `MALLOC` only then.
    Turns Python's garbage collector off, until `started`.
    """
    debugged = bool({"pdb", "debugpy"} & sys.modules.keys())  # would lose the program
    if sys.platform == "linux" and "GLIBC_TUNABLES" not in os.environ and not debugged:
        os.environ["GLIBC_TUNABLES"] = MALLOC
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    gc.disable()  # imports leave no garbage, and looking for it takes a sixth of them


def started() -> None:
    """Call it after the slow imports: Python looks for garbage again, but never among
    what they made, which stays."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def require_devices() -> None:
    """Finds the devices.

    Raises:
      UserError: JAX_PLATFORMS names a device that is not available.
    """
    import jax

    try:
        jax.devices()
    # JAX asserts that a platform that it knows is available.
    except (RuntimeError, AssertionError) as error:
        platforms = os.environ.get("JAX_PLATFORMS", "")
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"JAX_PLATFORMS={platforms}: no such device can be used here"
            f"{f' ({reason})' if reason else ''}; unset the variable and JAX uses what "
            "is available"
        ) from error


def end(status: int) -> NoReturn:
    """Flushes standard output and ends the process."""
    try:
        sys.stdout.flush()
    except OSError as error:  # the reader is gone (`| head -1`), or a full disk
        if not isinstance(error, BrokenPipeError):
            say(f"error: standard output: {error.strerror}")
        status = status or (CLOSED_PIPE if isinstance(error, BrokenPipeError) else 2)
    if status:
        # Does not wait for threads that may still compile or write.
        os._exit(status)
    gc.freeze()  # Python would look through all objects; the process's end frees them
    sys.exit()


def say(line: str) -> None:
    """Prints to standard error; ignores a reader that is gone."""
    with contextlib.suppress(BrokenPipeError):
        print(line, file=sys.stderr, flush=True)
